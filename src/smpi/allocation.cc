// Memory of message blocks: small ones cut from chunks by size class, large ones from the heap.
//
// Both come from malloc, which the loader serves from reachable memory; what turns out not to be
// reachable is given back, and the caller gets nothing. Chunks are cut as blocks are asked for, and
// only the front of a block is written, so that its owner touches its pages first.
#include <algorithm>

#include "base/round.h"
#include "node/region_layout.h"
#include "smpi/service.h"

namespace od::smpi {
namespace {

constexpr std::uint64_t kChunkBytes = 1 << 20;
constexpr std::uint64_t kUnreachable = ~std::uint64_t{0};

}  // namespace

std::byte* Service::take_small(std::uint32_t size_class) {
  std::vector<std::byte*>& kept = free_[size_class];
  if (!kept.empty()) {
    std::byte* const block = kept.back();
    kept.pop_back();
    return block;
  }
  const std::uint64_t stride = class_bytes(size_class);
  Chunk& chunk = chunks_[size_class];
  if (chunk.next == nullptr || static_cast<std::uint64_t>(chunk.end - chunk.next) < stride) {
    const std::uint64_t bytes = std::max(kChunkBytes, options_.reach_min_bytes);
    void* const memory = options_.allocate(bytes, node::kPageBytes);
    if (memory == nullptr) return nullptr;
    if (options_.reach_offset(memory, bytes) == kUnreachable) {
      options_.release(memory);
      return nullptr;
    }
    auto* const start = static_cast<std::byte*>(memory);
    add_range(start, {start + bytes / stride * stride, stride, member_});
    chunk = {start, start + bytes};
  }
  std::byte* const block = chunk.next + kFrontBytes;
  chunk.next += stride;
  return block;
}

std::byte* Service::take_large(std::uint64_t bytes) {
  // In debug mode the front has a page of its own, and nothing else lies in the block's pages.
  const std::uint64_t alignment = debug_ != nullptr ? node::kPageBytes : OVERDRIVE_SMPI_ALIGNMENT;
  const std::uint64_t front = debug_ != nullptr ? node::kPageBytes : kFrontBytes;
  const std::uint64_t whole = std::max(
      front + round_up(std::max<std::uint64_t>(bytes, 1), alignment), options_.reach_min_bytes);
  if (whole < bytes) return nullptr;
  void* const memory = options_.allocate(whole, alignment);
  if (memory == nullptr) return nullptr;
  const std::uint64_t offset = options_.reach_offset(memory, whole);
  if (offset == kUnreachable) {
    options_.release(memory);
    return nullptr;
  }
  auto* const block = static_cast<std::byte*>(memory) + front;
  block_at(options_.arena, offset + front)->memory = offset;
  // One more byte: an empty range at the very end belongs to the block, too.
  add_range(block, {block + bytes + 1, 0, member_});
  return block;
}

void* Service::alloc(std::uint64_t bytes, const char* site) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 46;
  if (bytes > kMost || !usable_.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard lock(mutex_);
  return alloc_locked(bytes, site);
}

std::byte* Service::alloc_locked(std::uint64_t bytes, const char* site) {
  collect_returned();
  const std::uint64_t with_front = bytes + kFrontBytes;
  if (options_.limit_bytes != 0 && used_bytes_ + with_front > options_.limit_bytes) return nullptr;
  const bool small = with_front <= kMostClassBytes && debug_ == nullptr;
  const std::uint32_t block_class = small ? size_class(with_front) : kLargeClass;
  std::byte* const block = small ? take_small(block_class) : take_large(bytes);
  if (block == nullptr) return nullptr;
  begin_block(block, bytes, block_class, site);
  used_bytes_ += small ? class_bytes(block_class) : with_front;
  ++counters_.smpi_blocks;
  counters_.smpi_peak_bytes = std::max(counters_.smpi_peak_bytes, used_bytes_);
  return block;
}

void Service::begin_block(std::byte* block, std::uint64_t capacity, std::uint32_t block_class,
                          const char* site) {
  const auto offset = static_cast<std::uint64_t>(block - options_.arena);
  Block* const record = block_at(options_.arena, offset);
  record->capacity_bytes = capacity;
  record->returned.store(0, std::memory_order_relaxed);
  record->lent.store(0, std::memory_order_relaxed);
  record->sent = 0;
  forget_viewers(*record);  // they were another block's
  record->home = member_;
  record->size_class = block_class;
  record->owner.store(member_, std::memory_order_relaxed);
  record->next = 0;
  record->site = site;
  // The head of a message that travels with the block: none yet.
  *reinterpret_cast<std::uint32_t*>(block - OVERDRIVE_SMPI_HEAD_BYTES) = 0;
  record->magic = live_magic(member_, offset);
}

void Service::take_in(std::byte* block, Block& record) {
  if (debug_ != nullptr) debug_->unprotect(block);
  if (record.size_class != kLargeClass) {
    used_bytes_ -= class_bytes(record.size_class);
    free_[record.size_class].push_back(block);
    return;
  }
  used_bytes_ -= record.capacity_bytes + kFrontBytes;
  drop_range(block);
  options_.release(options_.arena + record.memory);
}

void Service::collect_returned() {
  std::atomic<std::uint64_t>& head =
      node_.member(static_cast<int>(member_)).header->returned_blocks;
  // Relaxed: only a look; who sees too little looks again later.
  if (head.load(std::memory_order_relaxed) == 0) return;
  // Acquire: pairs with the release of those who have pushed.
  std::uint64_t offset = head.exchange(0, std::memory_order_acquire);
  while (offset != 0) {
    if (offset < kFrontBytes || offset >= options_.arena_bytes) return;
    Block* const record = block_at(options_.arena, offset);
    const std::uint64_t next = record->next;
    ++counters_.smpi_returned;
    take_in(options_.arena + offset, *record);
    offset = next;
  }
}

}  // namespace od::smpi
