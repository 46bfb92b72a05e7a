// The two levels of a hierarchical collective as seen by one rank: what its node does together, and
// what leaders do between the nodes. Templates are written with these.
#ifndef OVERDRIVE_COLL_PLAN_HIERARCHY_LEVELS_H_
#define OVERDRIVE_COLL_PLAN_HIERARCHY_LEVELS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "coll/plan/builder.h"
#include "coll/plan/hierarchy/hierarchy.h"
#include "coll/plan/hierarchy/node_steps.h"
#include "coll/plan/net/parts.h"
#include "coll/plan/net/trees.h"

namespace od::coll {

class Levels {
 public:
  Levels(Builder& builder, const Algorithm& algorithm, const Shape& shape, const Nodes& nodes,
         NodeDriver driver);

  Builder& builder() { return builder_; }
  const Shape& shape() const { return shape_; }
  const Nodes& nodes() const { return nodes_; }
  int node() const { return node_; }
  int position() const { return position_; }
  int members() const { return static_cast<int>(group_.size()); }
  bool alone() const { return members() == 1; }
  int rank_at(int position) const { return group_[static_cast<std::size_t>(position)]; }
  int root_node() const { return nodes_.node_of(shape_.root); }
  bool is_root() const { return shape_.rank == shape_.root; }
  bool has_root() const { return rooted_ && node_ == root_node(); }

  // Leaders per node, and who they are. Position 0 changes places with the root.
  int leader_count() const { return leader_count_; }
  int leader(int node, int slice) const;
  bool leads(int slice) const { return leader(node_, slice) == position_; }
  // The leader that templates with one leader per node have here.
  int leader() const { return leader(node_, 0); }
  bool leads() const { return leads(0); }
  // Whether leaders are the same whatever the root is: outside, they are known by their addresses.
  bool fixed_leaders() const { return fixed_leaders_; }
  int position_of_root() const { return nodes_.position_of(shape_.root); }
  // For templates whose leader is the last member.
  void lead_by_last() { last_leads_ = true; }

  // Inside the node, as node_steps.h says; alone there is at most a copy. `leader` is a position.
  void reduce_inside(int leader, Place target, Place source, std::int64_t count);
  void bcast_inside(int leader, Place target, Place source, std::int64_t count);
  void gather_inside(int leader, Place target, Place source, std::int64_t count);
  void scatter_inside(int leader, Place target, Place source, std::int64_t count);
  void scan_inside(Place target, Place source, std::int64_t count);
  void exscan_inside(Place target, Place source, std::int64_t count);
  // All have come; the leader has been released.
  void arrive(int leader);
  void release(int leader);

  // What the leaders' collective is about; everything else is as in the whole call.
  struct Between {
    std::int64_t count = 0;
    const std::int64_t* counts = nullptr;  // of the nodes; they follow each other
    Place input = {};
    Place output = {};
    bool in_place = false;
  };
  // For the leaders of a slice: the algorithm, or the one given instead.
  void between(int slice, const Between& what) { between(slice, what, *algorithm_.generate); }
  void between(int slice, const Between& what, Generate& generate);
  // The exclusive scan that belongs to the algorithm: the one of the same name.
  Generate& exscan_between() const;
  // The rank of a node that has the slice.
  int leader_rank(int node, int slice) const {
    return nodes_.members(node)[static_cast<std::size_t>(leader(node, slice))];
  }

  // The vector's segments, and the slice of a segment that each leader has.
  Cut pipeline(std::int64_t units) const {
    // What is done elsewhere is done at once.
    const std::int64_t bytes = fixed_leaders_ ? -1 : shape_.parameters.pipeline_bytes;
    return segments(shape_, units, bytes, kMostPipelined);
  }
  Cut slices(std::int64_t units) const { return {units, leader_count_}; }

 private:
  // Then each may be cut again between the leaders.
  static constexpr std::int64_t kMostPipelined = 128;

  // The work as a step of the node, or by a generator of the registry between the members; alone a
  // copy.
  void inside(NodeWork work, Generate& generate, int leader, Place target, Place source,
              std::int64_t count, bool in_place);
  void node_step(NodeWork work, int leader, Place target, Place source, std::int64_t count);
  void by_messages(Generate& generate, int leader, Place target, Place source, std::int64_t count,
                   bool in_place);
  // This rank's place in the tree below a leader, in ranks of the communicator.
  Tree tree_below(int leader) const;

  Builder& builder_;
  const Algorithm& algorithm_;
  const Shape& shape_;
  const Nodes& nodes_;
  NodeDriver driver_;
  std::span<const int> group_;
  int node_;
  int position_;
  int leader_count_ = 1;
  bool rooted_;
  bool fixed_leaders_;
  bool last_leads_ = false;
  std::vector<std::vector<int>> leaders_;  // by slice, made when needed
};

// Scratch memory of segments: that of a segment is used again by the one kSegmentsInFlight later.
class Turns {
 public:
  explicit Turns(Builder& builder) : builder_(builder) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;
  ~Turns() { builder_.reuse_scratch(0, 0); }

  // What follows belongs to the next segment.
  void next();

 private:
  struct Part {
    std::int64_t begin;
    std::int64_t end;
  };
  Builder& builder_;
  std::vector<Part> parts_;
  std::size_t turn_ = 0;
};

// The templates.
using Template = void(Levels& levels);
Template barrier_in_levels, bcast_in_levels, reduce_in_levels, allreduce_in_levels, scan_in_levels,
    exscan_in_levels, gather_in_levels, scatter_in_levels, allgather_in_levels, alltoall_in_levels,
    reduce_scatter_in_levels;

// Whether blocks of that many bytes together go into the node one node's after the other, so that
// those that are there already need not wait for the rest.
inline bool blocks_travel_alone(std::int64_t bytes, std::int64_t pipeline_bytes) {
  return pipeline_bytes > 0 && bytes > pipeline_bytes;
}

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_HIERARCHY_LEVELS_H_
