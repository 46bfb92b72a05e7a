// Freed small blocks of the C library, kept by each thread in front of it.
//
// The entry points of the malloc family are one call more on the way to the C library, which a
// program that allocates in its innermost loop would feel. This cache pays for it: most small
// blocks never get as far as the C library. For the C library its blocks are in use.
//   bins     up to kMostBytes one list of at most kRoom blocks per size
//   slots    above, up to kMostMiddleBytes, the block freed last of some size
// A block is known by the size that the C library keeps in the word before it; works() makes sure
// that this is so before any cache is opened. Blocks that it has mapped by themselves, as programs
// may tell it to do with small ones too, hold less at equal sizes: is_mapped() tells them. A closed
// cache (all zero, as threads begin and end) takes nothing and gives nothing. One thread only, no
// locks.
#ifndef OVERDRIVE_MEMORY_HEAP_SMALL_CACHE_H_
#define OVERDRIVE_MEMORY_HEAP_SMALL_CACHE_H_

#include <stddef.h>
#include <stdint.h>

namespace od::memory::heap {

struct SmallCache {
  static constexpr size_t kUnit = 16;
  static constexpr size_t kHeaderBytes = 8;  // the part of its header that a block pays for
  static constexpr size_t kMapped = 2;       // a bit of the size word
  static constexpr size_t kLeastChunk = 32;
  static constexpr size_t kMostBytes = 1032;
  static constexpr size_t kMostMiddleBytes = 64 << 10;
  static constexpr unsigned kBins = (kMostBytes + kHeaderBytes) / kUnit;
  static constexpr unsigned kSlots = 16;
  static constexpr uint8_t kRoom = 7;  // as in the C library's own cache

  enum State : uint8_t { kNew, kOpen, kClosed };

  // In a block of the cache.
  struct Link {
    Link* next;
    const SmallCache* owner;  // tells a block that is freed twice
  };

  Link* first[kBins];
  void* middle[kSlots];
  uint8_t room[kBins];  // 0 as well while the cache is closed
  State state;

  // What the C library makes of `bytes`.
  static constexpr size_t chunk_for(size_t bytes) {
    const size_t chunk = (bytes + kHeaderBytes + kUnit - 1) & ~(kUnit - 1);
    return chunk < kLeastChunk ? kLeastChunk : chunk;
  }
  static size_t chunk_of(const void* block) {
    // The compiler knows that nothing of a program's is there, and warns.
    __asm__("" : "+r"(block));
    return static_cast<const size_t*>(block)[-1] & ~(kUnit - 1);
  }
  // Its size in pages is always above the bins.
  static bool is_mapped(const void* block) {
    __asm__("" : "+r"(block));
    return (static_cast<const size_t*>(block)[-1] & kMapped) != 0;
  }
  static constexpr unsigned bin_of(size_t chunk) {
    return static_cast<unsigned>(chunk / kUnit - 1);
  }
  static constexpr unsigned slot_of(size_t chunk) {
    return static_cast<unsigned>((chunk / kUnit) ^ (chunk >> 10)) % kSlots;
  }

  // `bytes` at most kMostBytes. Null: none is here.
  void* take(size_t bytes) {
    const unsigned bin = bin_of(chunk_for(bytes));
    Link* const block = first[bin];
    if (__builtin_expect(block == nullptr, 0)) return nullptr;
    first[bin] = block->next;
    ++room[bin];
    block->owner = nullptr;
    return block;
  }

  // `bytes` between the two limits.
  void* take_middle(size_t bytes) {
    const size_t chunk = chunk_for(bytes);
    void*& slot = middle[slot_of(chunk)];
    void* const block = slot;
    if (block == nullptr || chunk_of(block) != chunk) return nullptr;
    slot = nullptr;
    return block;
  }

  // `bin` is the block's and below kBins. False: there is no room.
  bool put(void* block, unsigned bin) {
    if (__builtin_expect(room[bin] == 0, 0)) return false;
    auto* const link = static_cast<Link*>(block);
    link->next = first[bin];
    link->owner = this;
    first[bin] = link;
    --room[bin];
    return true;
  }
  static bool may_be_here(const void* block, const SmallCache* cache) {
    return static_cast<const Link*>(block)->owner == cache;
  }
  bool is_here(const void* block, unsigned bin) const {
    for (const Link* each = first[bin]; each != nullptr; each = each->next) {
      if (each == block) return true;
    }
    return false;
  }

  // Of an open cache, a block that is not mapped. What lay there before is to be freed now; may be
  // the block itself.
  void* put_middle(void* block, size_t chunk) {
    void*& slot = middle[slot_of(chunk)];
    void* const before = slot;
    slot = block;
    return before;
  }

  void open() {
    for (uint8_t& each : room) each = kRoom;
    state = kOpen;
  }
  // Gives everything back; a closed cache stays closed.
  void close(void (*release)(void*)) {
    state = kClosed;
    for (unsigned bin = 0; bin < kBins; ++bin) {
      room[bin] = 0;
      while (Link* const block = first[bin]) {
        first[bin] = block->next;
        block->owner = nullptr;
        release(block);
      }
    }
    for (void*& slot : middle) {
      if (slot != nullptr) release(slot);
      slot = nullptr;
    }
  }

  // Whether blocks of this C library have the header that is relied upon.
  static bool works(void* (*allocate)(size_t), void (*release)(void*),
                    size_t (*usable_bytes)(void*)) {
    static constexpr size_t kProbes[] = {1, 24, 25, 100, 1032, 1033, 5000, 20000};
    for (const size_t bytes : kProbes) {
      void* const block = allocate(bytes);
      if (block == nullptr) return false;
      const size_t chunk = chunk_of(block);
      const size_t least = chunk_for(bytes);
      // A rest too small for a block of its own stays with the one before it.
      const bool good = (chunk == least || chunk == least + kUnit) &&
                        usable_bytes(block) == chunk - kHeaderBytes &&
                        reinterpret_cast<uintptr_t>(block) % kUnit == 0;
      release(block);
      if (!good) return false;
    }
    return true;
  }
};

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_SMALL_CACHE_H_
