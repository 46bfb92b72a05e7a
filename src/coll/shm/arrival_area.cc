// Claims, cells and counts of an area.

#include "coll/shm/arrival_area.h"

#include <algorithm>
#include <new>

#include "coll/shm/slot_layout.h"

namespace od::coll::shm {

namespace {

// `made`: number + 1 above, segments below.
constexpr unsigned kSegmentBits = 32;
// `given`: beside the count, whether somebody passes on what has been given.
constexpr std::uint64_t kCarrying = std::uint64_t{1} << 63;

// The slot's control page and lines stay as they are; they belong to whoever has it next.
constexpr std::uint64_t kCellsOffset = kControlBytes + od::node::kPageBytes;

std::uint64_t cells_per_slot(const od::node::RegionLayout& layout) {
  if (layout.slot_bytes < kCellsOffset) return 0;
  return (layout.slot_bytes - kCellsOffset) / ArrivalArea::kCellBytes;
}

std::uint64_t cells_of_segment(std::uint64_t segment_bytes) {
  return (segment_bytes + ArrivalArea::kCellBytes - 1) / ArrivalArea::kCellBytes;
}

}  // namespace

std::uint64_t ArrivalArea::cells_in(const od::node::RegionLayout& layout, std::uint32_t slots) {
  return slots * cells_per_slot(layout);
}

std::uint64_t ArrivalArea::segments_in(const od::node::RegionLayout& layout, std::uint32_t slots,
                                       std::uint64_t segment_bytes) {
  return slots * (cells_per_slot(layout) / cells_of_segment(segment_bytes));
}

std::uint64_t ArrivalArea::cell_of(std::uint64_t begin, std::uint64_t index,
                                   std::uint64_t cells_each) const {
  if (cells_each == 1) return begin + index;
  const std::uint64_t first = (cells_per_slot_ - begin % cells_per_slot_) / cells_each;
  if (index < first) return begin + index * cells_each;
  const std::uint64_t per_slot = cells_per_slot_ / cells_each;
  const std::uint64_t slot = begin / cells_per_slot_ + 1 + (index - first) / per_slot;
  return slot * cells_per_slot_ + (index - first) % per_slot * cells_each;
}

ArrivalArea::Control* ArrivalArea::control(std::byte* region, const od::node::RegionLayout& layout,
                                           std::uint32_t slot) {
  return reinterpret_cast<Control*>(slot_start(region, layout, slot) + kControlBytes);
}

void ArrivalArea::clear(std::byte* region, const od::node::RegionLayout& layout,
                        const Lease& lease) {
  for (std::uint32_t i = 0; i < lease.count; ++i) {
    new (control(region, layout, lease.slots[i])) Control{};
  }
}

const std::atomic<std::uint64_t>& ArrivalArea::left(std::byte* region,
                                                    const od::node::RegionLayout& layout,
                                                    std::uint32_t slot) {
  return control(region, layout, slot)->left;
}

ArrivalArea::ArrivalArea(std::byte* region, const od::node::RegionLayout& layout,
                         const Lease& lease, std::uint32_t members)
    : region_(region),
      layout_(layout),
      lease_(lease),
      members_(members),
      cells_per_slot_(cells_per_slot(layout)),
      cells_(cells_in(layout, lease.count)) {}

ArrivalArea::Claim ArrivalArea::claim(std::uint64_t number) {
  Entry& mine = entry(number);
  // Relaxed: what the owner shows is read after `made`.
  std::uint64_t before = mine.claim.load(std::memory_order_relaxed);
  if (before == number + 1) return Claim::others;
  if (number >= kEntries) {
    // Acquire: pairs with took(); the others' reads come before what this broadcast writes.
    if (mine.taken.load(std::memory_order_acquire) != taken_by_all(number - kEntries)) {
      return Claim::wait;
    }
  }
  // Relaxed: it decides who owns the entry, and orders nothing.
  return mine.claim.compare_exchange_strong(before, number + 1, std::memory_order_relaxed)
             ? Claim::mine
             : Claim::others;
}

bool ArrivalArea::reserve(std::uint64_t number, std::uint64_t bytes, std::uint64_t segment_bytes) {
  const std::uint64_t segments = (bytes + segment_bytes - 1) / segment_bytes;
  const std::uint64_t cells_each = cells_of_segment(segment_bytes);
  if (cells_each > cells_per_slot_) return false;
  std::uint64_t head = 0;
  std::uint64_t tail = 0;
  bool empty = true;
  const std::uint64_t first = number < kEntries ? 0 : number - kEntries + 1;
  for (std::uint64_t earlier = first; earlier < number; ++earlier) {
    const Entry& other = entry(earlier);
    // Relaxed: published by `made`, which this member has seen of every earlier broadcast.
    head = other.end.load(std::memory_order_relaxed);
    // Acquire: pairs with took(); the others' reads come before what is written into the cells.
    if (empty && other.taken.load(std::memory_order_acquire) != taken_by_all(earlier)) {
      tail = other.begin.load(std::memory_order_relaxed);
      empty = false;
    }
  }
  // Begins anew where that is possible: those cells have been touched.
  if (empty) head = tail = (head + cells_ - 1) / cells_ * cells_;
  const std::uint64_t end =
      segments == 0 ? head : cell_of(head, segments - 1, cells_each) + cells_each;
  if (end - tail > cells_) return false;
  Entry& mine = entry(number);
  mine.begin.store(head, std::memory_order_relaxed);
  mine.end.store(end, std::memory_order_relaxed);
  mine.bytes.store(bytes, std::memory_order_relaxed);
  mine.segment_bytes.store(segment_bytes, std::memory_order_relaxed);
  // Relaxed: published by `made`, which members see before they count.
  mine.given.store(0, std::memory_order_relaxed);
  return true;
}

void ArrivalArea::publish(std::uint64_t number, std::uint64_t segments) {
  // Release: the segments and what place() wrote; pairs with the acquire in look().
  entry(number).made.store((number + 1) << kSegmentBits | segments, std::memory_order_release);
}

void ArrivalArea::took(std::uint64_t number) {
  // Release: what was read before; pairs with the acquires in claim() and place().
  entry(number).taken.fetch_add(1, std::memory_order_release);
}

std::uint64_t ArrivalArea::give(std::uint64_t number) {
  // Release: what this member has left; pairs with the acquire of who counts later, and of given().
  return entry(number).given.fetch_add(1, std::memory_order_acq_rel) + 1;
}

std::uint64_t ArrivalArea::given(std::uint64_t number) const {
  // Acquire: pairs with the release in give().
  return entry(number).given.load(std::memory_order_acquire) & ~kCarrying;
}

bool ArrivalArea::carry(std::uint64_t number) {
  // Acquire: pairs with the releases in give() and stop_carrying().
  return (entry(number).given.fetch_or(kCarrying, std::memory_order_acquire) & kCarrying) == 0;
}

bool ArrivalArea::stop_carrying(std::uint64_t number, std::uint64_t seen) {
  std::uint64_t expected = seen | kCarrying;
  // Release: what this member has done; pairs with the acquire in carry(). Who gives later than
  // this finds nobody carrying; who gave before makes it fail: all are changes of one word.
  return entry(number).given.compare_exchange_strong(expected, seen, std::memory_order_release,
                                                     std::memory_order_relaxed);
}

ArrivalArea::Seen ArrivalArea::look(std::uint64_t number) const {
  const Entry& it = entry(number);
  Seen seen;
  // Acquire: pairs with the release in publish().
  const std::uint64_t made = it.made.load(std::memory_order_acquire);
  if (made >> kSegmentBits != number + 1) return seen;
  seen.placed = true;
  seen.segments = made & ((std::uint64_t{1} << kSegmentBits) - 1);
  seen.bytes = it.bytes.load(std::memory_order_relaxed);
  seen.segment_bytes = it.segment_bytes.load(std::memory_order_relaxed);
  return seen;
}

std::uint64_t ArrivalArea::changes(std::uint64_t number) const {
  const Entry& it = entry(number);
  // Relaxed: a hint; who acts on it looks again. These words grow.
  return it.made.load(std::memory_order_relaxed) + it.taken.load(std::memory_order_relaxed) +
         it.given.load(std::memory_order_relaxed);
}

std::byte* ArrivalArea::segment(std::uint64_t number, std::uint64_t index) const {
  const Entry& it = entry(number);
  const std::uint64_t cells_each =
      cells_of_segment(it.segment_bytes.load(std::memory_order_relaxed));
  const std::uint64_t cell =
      cell_of(it.begin.load(std::memory_order_relaxed), index, cells_each) % cells_;
  const std::uint32_t slot = lease_.slots[cell / cells_per_slot_];
  return slot_start(region_, layout_, slot) + kCellsOffset + cell % cells_per_slot_ * kCellBytes;
}

void ArrivalArea::leave() {
  for (std::uint32_t i = 0; i < lease_.count; ++i) {
    // Release: all of this member's reads; pairs with the acquire in Slots::allocate.
    control(region_, layout_, lease_.slots[i])->left.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace od::coll::shm
