// Where the ranks of a communicator lie: which of them share a node.
//
// Nodes are numbered by their lowest rank. Any number of ranks may be on each, anywhere.
#ifndef OVERDRIVE_COLL_PLAN_HIERARCHY_NODES_H_
#define OVERDRIVE_COLL_PLAN_HIERARCHY_NODES_H_

#include <span>
#include <vector>

#include "coll/plan/select/rules.h"

namespace od::coll {

class Nodes {
 public:
  // Any number that is the same for ranks of a node, for each rank.
  explicit Nodes(std::span<const int> node_of_rank);
  // `per_node` ranks in blocks, the last node may have fewer.
  static Nodes in_blocks(int ranks, int per_node);

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int count() const { return static_cast<int>(first_.size()) - 1; }
  int node_of(int rank) const { return node_of_[index(rank)]; }
  int position_of(int rank) const { return position_of_[index(rank)]; }
  // Ascending.
  std::span<const int> members(int node) const {
    return {ranks_.data() + first_[index(node)], ranks_.data() + first_[index(node) + 1]};
  }
  // How many ranks are on the nodes before.
  int ranks_before(int node) const { return first_[index(node)]; }
  // All ranks node by node.
  std::span<const int> by_node() const { return ranks_; }

  int least_per_node() const { return least_; }
  int most_per_node() const { return most_; }
  bool even() const { return least_ == most_; }
  // The ranks of each node follow each other.
  bool contiguous() const { return contiguous_; }

  Layout layout() const { return {ranks(), count(), most_, contiguous_}; }

 private:
  static std::size_t index(int value) { return static_cast<std::size_t>(value); }

  std::vector<int> node_of_;
  std::vector<int> position_of_;
  std::vector<int> ranks_;  // node by node
  std::vector<int> first_;  // of each node in ranks_, and the end
  int least_ = 0;
  int most_ = 0;
  bool contiguous_ = true;
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_HIERARCHY_NODES_H_
