// Hands out envelopes of the own region and takes them back once their receivers are done.
//
// A fixed number lies in the region; when all are in use (a flood of unexpected messages) blocks of
// further ones come from the buffer heap, bounded by the buffer limit. Beyond that limit there is a
// range for sends whose payload stays with the program: a non-blocking one may neither wait nor
// fail because of it. Private to the owner.
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
  // `last_offset`, `last_bytes`: the range beyond the limit.
  EnvelopePool(std::byte* region, std::uint64_t offset, std::uint64_t count, BufferHeap& heap,
               std::uint64_t last_offset, std::uint64_t last_bytes)
      : region_(region),
        heap_(heap),
        usual_{.next_fresh = offset, .fresh_end = offset + count * sizeof(Envelope), .free = {}},
        last_{.next_fresh = last_offset,
              .fresh_end = last_offset + last_bytes / sizeof(Envelope) * sizeof(Envelope),
              .free = {}},
        last_offset_(last_offset) {}

  // An envelope of a new generation, hence unmatched and with nothing filled, or null at the buffer
  // limit.
  Envelope* allocate() {
    if (usual_.empty() && !grow()) return nullptr;
    return take(usual_);
  }
  // The same beyond the limit, of which there are as many as requests, if there was room for so
  // many.
  Envelope* allocate_last() { return last_.empty() ? nullptr : take(last_); }
  void free(Envelope& envelope) {
    const std::uint64_t offset = offset_of(envelope);
    Part& part = offset >= last_offset_ ? last_ : usual_;
    part.free.push_back(&envelope);
  }

  std::uint64_t offset_of(const Envelope& envelope) const {
    return static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(&envelope) - region_);
  }

 private:
  struct Part {
    std::uint64_t next_fresh;
    std::uint64_t fresh_end;
    std::vector<Envelope*> free;
    bool empty() const { return free.empty() && next_fresh == fresh_end; }
  };

  // 256 KiB: 1024 envelopes, so that a flood costs few heap calls.
  static constexpr std::uint64_t kGrowthBytes = 256u << 10;
  bool grow() {
    const std::uint64_t offset = heap_.allocate(kGrowthBytes);
    if (offset == BufferHeap::kNone) return false;
    usual_.next_fresh = offset;
    usual_.fresh_end = offset + kGrowthBytes;
    return true;
  }

  Envelope* take(Part& part) {
    Envelope* envelope;
    if (!part.free.empty()) {
      envelope = part.free.back();
      part.free.pop_back();
    } else {
      envelope = reinterpret_cast<Envelope*>(region_ + part.next_fresh);
      part.next_fresh += sizeof(Envelope);
    }
    ++envelope->generation;
    // Relaxed: published with the envelope by the box's or the inbox's release store.
    envelope->filled.store(0, std::memory_order_relaxed);
    envelope->buffer_from = ~std::uint64_t{0};
    return envelope;
  }

  std::byte* region_;
  BufferHeap& heap_;
  Part usual_;
  Part last_;
  std::uint64_t last_offset_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_ENVELOPE_POOL_H_
