// Which members of a team share a cache, and how a vector is divided among them.
//
// A reduction in groups is made in two steps: the members of a group combine a slice each of the
// group's contributions, which gives one result per group, lying in the slots of its members; then
// each member of the team combines a slice of the results of all groups. So most contributions are
// read by neighbours, and what crosses from cache to cache is one vector per group.
#ifndef OVERDRIVE_COLL_SHM_GROUPS_H_
#define OVERDRIVE_COLL_SHM_GROUPS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "node/region_layout.h"
#include "topology/cache_claim.h"

namespace od::coll::shm {

using topology::CacheClaim;

// Bytes of a slice when `bytes` are divided among `members`; whole lines if elements permit.
inline std::uint64_t slice_of(std::uint64_t bytes, std::uint64_t extent, std::uint64_t members) {
  const std::uint64_t elements = bytes / extent;
  std::uint64_t slice = (elements + members - 1) / members;
  if (kFalseSharingBytes % extent == 0) {
    slice = (slice + kFalseSharingBytes / extent - 1) / (kFalseSharingBytes / extent) *
            (kFalseSharingBytes / extent);
  }
  return slice * extent;
}

class Groups {
 public:
  // One group of so many members.
  explicit Groups(int size) : Groups(std::vector<CacheClaim>(static_cast<std::size_t>(size))) {}
  // By position. One group of all as soon as one of them is unknown: then nobody is nearer to
  // anybody as far as anyone can tell.
  explicit Groups(const std::vector<CacheClaim>& claims);

  std::uint64_t size() const { return group_of_.size(); }  // of the team
  int count() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members(int group) const { return members_[index(group)]; }
  int group_of(int position) const { return group_of_[index(position)]; }
  int place(int position) const { return place_[index(position)]; }  // in its group
  std::uint64_t smallest() const { return smallest_; }
  std::uint64_t largest() const { return largest_; }
  // Whether a step within groups saves anything.
  bool worth_it() const { return count() > 1 && largest_ > 1; }
  // Whether each group is a range of positions: then joining group after group keeps the order.
  bool in_order() const { return in_order_; }

  // How much of a vector each member combines at a time, by the caches: the slices of all
  // contributions to it and the result fit the member's own cache, so that the result is still
  // there when others begin to collect it; and the contributions of a group's members to one
  // segment (a slice for each member of the team) together with their result fit half of the cache
  // that they share. Between the limits.
  std::uint64_t slice_bytes(std::uint64_t least, std::uint64_t most) const;

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  std::vector<std::vector<int>> members_;  // by group, ascending
  std::vector<int> group_of_;
  std::vector<int> place_;
  std::uint64_t smallest_ = 0;
  std::uint64_t largest_ = 0;
  std::uint64_t private_bytes_ = 0;  // the least that any member has
  std::uint64_t shared_bytes_ = 0;
  bool in_order_ = true;
};

// The results of all groups for one segment: which member has which part.
struct GroupSlices {
  const Groups* groups = nullptr;
  std::uint64_t extent = 1;
  std::uint64_t total = 0;  // of the segment

  // Of each member of the team, when the results of groups are combined.
  std::uint64_t final_each() const { return slice_of(total, extent, groups->size()); }
  // Of each member of the group.
  std::uint64_t each(int group) const {
    return slice_of(total, extent, static_cast<std::uint64_t>(groups->members(group).size()));
  }
  std::uint64_t start(int position) const {
    return each(groups->group_of(position)) * static_cast<std::uint64_t>(groups->place(position));
  }
  std::uint64_t bytes(int position) const {
    const std::uint64_t from = start(position);
    return from >= total ? 0 : std::min(each(groups->group_of(position)), total - from);
  }
  // The member of a group that has the byte at `at`.
  int holder(int group, std::uint64_t at) const {
    return groups->members(group)[static_cast<std::size_t>(at / each(group))];
  }
  // Whether it has any of these bytes.
  bool holds(int position, std::uint64_t from, std::uint64_t to) const {
    return start(position) < to && start(position) + bytes(position) > from;
  }
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_GROUPS_H_
