// Hands out envelopes of the own region and takes them back once their receivers are done.
//
// A fixed number lies in the region; when all are in use (a flood of unexpected messages) blocks of
// further ones come from the buffer heap, bounded by the buffer limit. Private to the owner.
#ifndef OVERDRIVE_P2P_ENVELOPE_POOL_H_
#define OVERDRIVE_P2P_ENVELOPE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "p2p/buffer_heap.h"
#include "p2p/envelope.h"

namespace od::p2p {

class EnvelopePool {
 public:
  EnvelopePool(std::byte* region, std::uint64_t offset, std::uint64_t count, BufferHeap& heap)
      : region_(region),
        heap_(heap),
        next_fresh_(offset),
        fresh_end_(offset + count * sizeof(Envelope)) {}

  // An envelope of a new generation, hence unmatched and with nothing filled, or null at the buffer
  // limit.
  Envelope* allocate() {
    if (free_.empty() && next_fresh_ == fresh_end_ && !grow()) return nullptr;
    Envelope* envelope;
    if (!free_.empty()) {
      envelope = free_.back();
      free_.pop_back();
    } else {
      envelope = reinterpret_cast<Envelope*>(region_ + next_fresh_);
      next_fresh_ += sizeof(Envelope);
    }
    ++envelope->generation;
    // Relaxed: published with the envelope by the box's or the inbox's release store.
    envelope->filled.store(0, std::memory_order_relaxed);
    envelope->buffer_from = ~std::uint64_t{0};
    return envelope;
  }
  void free(Envelope& envelope) { free_.push_back(&envelope); }

  std::uint64_t offset_of(const Envelope& envelope) const {
    return static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(&envelope) - region_);
  }

 private:
  // 256 KiB: 1024 envelopes, so that a flood costs few heap calls.
  static constexpr std::uint64_t kGrowthBytes = 256u << 10;
  bool grow() {
    const std::uint64_t offset = heap_.allocate(kGrowthBytes);
    if (offset == BufferHeap::kNone) return false;
    next_fresh_ = offset;
    fresh_end_ = offset + kGrowthBytes;
    return true;
  }

  std::byte* region_;
  BufferHeap& heap_;
  std::uint64_t next_fresh_;
  std::uint64_t fresh_end_;
  std::vector<Envelope*> free_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_ENVELOPE_POOL_H_
