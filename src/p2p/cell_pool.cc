// Rotation through the chunks of the pool and reclaiming of cells that have been read.

#include "p2p/cell_pool.h"

#include <algorithm>
#include <bit>

namespace od::p2p {

namespace {
// Cells start on a line, so that no two messages share one.
constexpr std::uint64_t kCellAlignment = 64;
}  // namespace

CellPool::CellPool(std::uint64_t pool_offset, std::uint64_t pool_bytes, std::uint64_t chunk_bytes,
                   std::atomic<std::uint8_t>* releases, std::uint32_t release_count)
    : pool_offset_(pool_offset),
      chunk_bytes_(chunk_bytes),
      releases_(releases),
      live_(pool_bytes / chunk_bytes, 0) {
  const std::uint32_t entries = std::bit_floor(std::min<std::uint32_t>(release_count, 1u << 16));
  mask_ = entries - 1;
  next_value_.assign(entries, 1);
  pending_.resize(entries);
  free_entries_.resize(entries);
  for (std::uint32_t i = 0; i < entries; ++i) {
    free_entries_[i] = static_cast<std::uint16_t>(i);
  }
  free_tail_ = entries;
  idle_ = in_use_ = static_cast<std::uint32_t>(live_.size());
  reserve_ = std::min(idle_ / 2, std::max<std::uint32_t>(2, idle_ / 16));
}

void CellPool::begin_within(std::uint64_t bytes) {
  in_use_ = std::max(chunks_in(bytes), rotation_ + 1);
}

bool CellPool::released(const Pending& pending) const {
  // Acquire: pairs with release_cell; the receiver's reads are over before we write the chunk
  // again.
  return releases_[pending.release_index].load(std::memory_order_acquire) == pending.value;
}

void CellPool::retire(const Pending& pending) {
  drop_live(pending.chunk);
  free_entries_[free_tail_++ & mask_] = pending.release_index;
}

void CellPool::reclaim() {
  while (!pending_empty() && released(pending_[pending_head_ & mask_])) {
    retire(pending_[pending_head_++ & mask_]);
  }
}

void CellPool::reclaim_all() {
  if (!search_.due()) return;
  // One turn over all of them; unread ones keep their order.
  const std::uint32_t end = pending_tail_;
  bool found = false;
  while (pending_head_ != end) {
    const Pending entry = pending_[pending_head_++ & mask_];
    if (released(entry)) {
      retire(entry);
      found = true;
    } else {
      pending_[pending_tail_++ & mask_] = entry;
    }
  }
  found ? search_.found() : search_.in_vain();
}

std::uint32_t CellPool::next_idle_chunk(std::uint32_t reserve) {
  if (live_[rotation_] != 0 || idle_ <= reserve) reclaim();
  if (idle_ <= reserve) return kNoChunk;
  const auto count = static_cast<std::uint32_t>(live_.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i >= in_use_) rotation_ = in_use_++;  // a whole round in vain: there are more
    const std::uint32_t chunk = rotation_;
    if (++rotation_ >= in_use_) {
      rotation_ = 0;
      went_round_ = true;
      if (in_use_ < count) ++in_use_;
    }
    if (live_[chunk] == 0 && chunk != current_) return chunk;
  }
  return kNoChunk;
}

bool CellPool::allocate(std::uint64_t bytes, CellDescriptor* cell) {
  const std::uint64_t room = (bytes + kCellAlignment - 1) & ~(kCellAlignment - 1);
  if (free_head_ == free_tail_) [[unlikely]] {
    reclaim();
    if (free_head_ == free_tail_) reclaim_all();
    if (free_head_ == free_tail_) return false;
  }
  if (current_ == kNoChunk || current_used_ + room > chunk_bytes_) {
    std::uint32_t chunk = next_idle_chunk(reserve_);
    if (chunk == kNoChunk) {
      reclaim_all();
      chunk = next_idle_chunk(reserve_);
    }
    if (chunk == kNoChunk) return false;
    if (current_ != kNoChunk && live_[current_] == 0) ++idle_;
    --idle_;
    current_ = chunk;
    current_used_ = 0;
  }
  const std::uint16_t entry = free_entries_[free_head_++ & mask_];
  const std::uint8_t value = next_value_[entry];
  next_value_[entry] = static_cast<std::uint8_t>(value ^ 3u);  // alternates 1, 2
  cell->offset = chunk_offset(current_) + current_used_;
  cell->bytes = static_cast<std::uint32_t>(bytes);
  cell->release_index = entry;
  cell->release_value = value;
  cell->nontemporal = 0;
  current_used_ += room;
  ++live_[current_];
  pending_[pending_tail_++ & mask_] = Pending{entry, value, current_};
  return true;
}

std::uint32_t CellPool::allocate_chunk(bool matched) {
  const std::uint32_t reserve = matched ? 0 : reserve_;
  std::uint32_t chunk = next_idle_chunk(reserve);
  if (chunk == kNoChunk && !pending_empty()) {
    reclaim_all();
    chunk = next_idle_chunk(reserve);
  }
  if (chunk != kNoChunk) {
    live_[chunk] = 1;
    --idle_;
  }
  return chunk;
}

std::uint32_t CellPool::busy_chunks() const {
  return static_cast<std::uint32_t>(
      std::count_if(live_.begin(), live_.end(), [](std::uint32_t n) { return n != 0; }));
}

}  // namespace od::p2p
