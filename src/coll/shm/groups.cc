// Dividing the members of a team by the caches that they share.

#include "coll/shm/groups.h"

#include <limits>

namespace od::coll::shm {

Groups::Groups(const std::vector<CacheClaim>& claims) {
  const bool known = std::all_of(claims.begin(), claims.end(), [](const CacheClaim& claim) {
    return claim.group != CacheClaim::kUnknown;
  });
  std::vector<std::int32_t> names;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  private_bytes_ = shared_bytes_ = kMost;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const std::int32_t name = known ? claims[i].group : 0;
    const auto found = std::find(names.begin(), names.end(), name);
    const auto group = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) {
      names.push_back(name);
      members_.emplace_back();
    } else if (group + 1 != names.size()) {
      in_order_ = false;  // goes on with a group after another one has begun
    }
    group_of_.push_back(static_cast<int>(group));
    place_.push_back(static_cast<int>(members_[group].size()));
    members_[group].push_back(static_cast<int>(i));
    private_bytes_ = std::min(private_bytes_, claims[i].private_bytes);
    shared_bytes_ = std::min(shared_bytes_, claims[i].shared_bytes);
  }
  smallest_ = kMost;
  for (const std::vector<int>& group : members_) {
    smallest_ = std::min<std::uint64_t>(smallest_, group.size());
    largest_ = std::max<std::uint64_t>(largest_, group.size());
  }
}

std::uint64_t Groups::slice_bytes(std::uint64_t least, std::uint64_t most) const {
  std::uint64_t slice = most;
  const std::uint64_t operands = largest_ + 1;
  // What processors have at least since about 2015.
  constexpr std::uint64_t kUnknown = 1 << 20;
  slice = std::min(slice, (private_bytes_ != 0 ? private_bytes_ : kUnknown) / operands);
  if (shared_bytes_ != 0) {
    slice = std::min(slice, shared_bytes_ / 2 / operands / size());
  }
  constexpr std::uint64_t kPage = od::node::kPageBytes;
  return std::max(least, slice / kPage * kPage);
}

}  // namespace od::coll::shm
