// From whom a node takes the segments of a broadcast when it comes: the tree grows in the order in
// which nodes are ready, which nobody knows before (coll/run/first_arrival.h).
//
// Member 0 is the root; each further one is given the parent from which it has everything soonest.
// A step is the time in which a segment is sent. A parent sends all segments to one child before it
// begins with the next, and what it has not got yet as it gets it, so long messages run along a
// chain until the root, or somebody before, could have served the next node itself meanwhile; short
// ones fan out.
#ifndef OVERDRIVE_COLL_PLAN_HIERARCHY_ARRIVAL_TREE_H_
#define OVERDRIVE_COLL_PLAN_HIERARCHY_ARRIVAL_TREE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace od::coll {

class ArrivalTree {
 public:
  explicit ArrivalTree(std::uint64_t segments) : segments_(segments) { members_.push_back({}); }

  // Takes a member in, as number size(); returns its parent. `sent`: how many segments have left
  // the root, to whomever, which says how far everybody should be.
  std::size_t add(std::uint64_t sent) {
    std::size_t parent = 0;
    std::uint64_t soonest = first_segment(members_.front(), sent);
    for (std::size_t i = closed_; i < members_.size(); ++i) {
      // Where it makes no difference the root is asked: nobody else has to be told.
      const std::uint64_t found = first_segment(members_[i], sent);
      if (found < soonest) {
        soonest = found;
        parent = i;
      }
    }
    ++members_[parent].children;
    members_.push_back({soonest, 0});
    return parent;
  }
  // None of them but the root serves anybody who comes from now on.
  void close() { closed_ = members_.size(); }
  // The first that does, besides the root.
  std::size_t first_open() const { return closed_; }

  std::size_t size() const { return members_.size(); }

 private:
  // Whoever passes a segment on has to notice it first: that takes as long as sending one.
  static constexpr std::uint64_t kHop = 1;

  struct Member {
    std::uint64_t begins = 0;  // when it has its first segment; the others follow step by step
    std::uint64_t children = 0;
  };

  // When a further child would have its first segment; the last follows equally soon behind it,
  // whoever the parent is.
  std::uint64_t first_segment(const Member& parent, std::uint64_t now) const {
    return std::max(now, parent.begins + parent.children * segments_) + 1 + kHop;
  }

  std::uint64_t segments_;
  std::vector<Member> members_;
  std::size_t closed_ = 1;
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_HIERARCHY_ARRIVAL_TREE_H_
