// First-fit allocation in the sparse part of the region, with merging of freed ranges.

#include "p2p/buffer_heap.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "node/region_layout.h"

namespace od::p2p {

namespace {
// An envelope, and four lines: a flood of small messages must not cost a page each.
constexpr std::uint64_t kGranularityBytes = 256;
}  // namespace

BufferHeap::BufferHeap(std::uint64_t offset, std::uint64_t bytes, std::uint64_t keep_bytes,
                       Punch punch)
    : limit_(bytes / node::kPageBytes * node::kPageBytes),
      keep_(keep_bytes),
      punch_(std::move(punch)) {
  if (limit_ > 0) free_.emplace(offset, limit_);
}

std::uint64_t BufferHeap::allocate(std::uint64_t bytes) {
  const std::uint64_t room =
      (std::max<std::uint64_t>(bytes, 1) + kGranularityBytes - 1) & ~(kGranularityBytes - 1);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < room) continue;
    const std::uint64_t offset = it->first;
    const std::uint64_t rest = it->second - room;
    free_.erase(it);
    if (rest > 0) free_.emplace(offset + room, rest);
    used_ranges_.emplace(offset, room);
    used_ += room;
    peak_ = std::max(peak_, used_);
    cached_ -= std::min(cached_, room);
    return offset;
  }
  return kNone;
}

void BufferHeap::free(std::uint64_t offset) {
  const auto used = used_ranges_.find(offset);
  if (used == used_ranges_.end()) return;
  std::uint64_t start = offset;
  std::uint64_t bytes = used->second;
  used_ranges_.erase(used);
  used_ -= bytes;
  cached_ += bytes;
  if (cached_ > keep_) {
    punch_(start, bytes);
    cached_ -= bytes;
  }
  auto next = free_.lower_bound(start);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      start = before->first;
      bytes += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && next->first == offset + (bytes - (offset - start))) {
    bytes += next->second;
    free_.erase(next);
  }
  free_.emplace(start, bytes);
}

}  // namespace od::p2p
