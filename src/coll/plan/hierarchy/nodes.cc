// Numbers nodes and positions.
#include "coll/plan/hierarchy/nodes.h"

#include <algorithm>
#include <unordered_map>

namespace od::coll {

Nodes::Nodes(std::span<const int> node_of_rank) {
  const std::size_t ranks = node_of_rank.size();
  node_of_.reserve(ranks);
  position_of_.reserve(ranks);
  std::unordered_map<int, int> numbers;
  std::vector<int> sizes;
  for (const int name : node_of_rank) {
    const int node = numbers.try_emplace(name, static_cast<int>(sizes.size())).first->second;
    if (index(node) == sizes.size()) sizes.push_back(0);
    if (!node_of_.empty() && node != node_of_.back() && sizes[index(node)] > 0) contiguous_ = false;
    node_of_.push_back(node);
    position_of_.push_back(sizes[index(node)]++);
  }
  first_.assign(1, 0);
  for (const int size : sizes) first_.push_back(first_.back() + size);
  ranks_.resize(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const int place = first_[index(node_of_[rank])] + position_of_[rank];
    ranks_[index(place)] = static_cast<int>(rank);
  }
  if (sizes.empty()) return;
  least_ = *std::min_element(sizes.begin(), sizes.end());
  most_ = *std::max_element(sizes.begin(), sizes.end());
}

Nodes Nodes::in_blocks(int ranks, int per_node) {
  std::vector<int> node_of;
  node_of.reserve(index(ranks));
  for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank / per_node);
  return Nodes(node_of);
}

}  // namespace od::coll
