// The record in front of every block of message memory, in the arena that holds the block.
//
// Peers find it at (their mapping of the home's reach file) + offset of the block - kFrontBytes.
// Who refers to a block is counted in two words on lines of their own: `lent` counts every view
// that an owner has ever given, and only the owner writes it; `returned` counts the views that have
// ended, and viewers write it. So lending takes no line from a viewer, and a viewer who lets go of
// one view after the other keeps the line. When the owner lets go, it subtracts `lent` from
// `returned`, which until then is never 0 again once a view has ended: whoever brings it to 0 from
// there on (the owner itself, if all views have ended, else the last viewer) gives the block back:
// to the free lists if the arena is its own, else by pushing it onto RegionHeader::returned_blocks
// of the home, a list linked through `next`. So a block's memory is used again only when the owner
// and all viewers have let go.
#ifndef OVERDRIVE_SMPI_BLOCK_H_
#define OVERDRIVE_SMPI_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "overdrive/smpi_engine.h"

namespace od::smpi {

inline constexpr std::uint64_t kFrontBytes = OVERDRIVE_SMPI_FRONT_BYTES;
// Mixed with offset and home, so that data that looks like a record is not taken for one.
inline constexpr std::uint64_t kLiveMagic = 0x6f64626c6f636b21;  // "odblock!"

struct Block {
  // kLiveMagic ^ offset while the block is allocated, else 0. Written by the home; by the one that
  // returns it, once nobody else refers to it.
  std::uint64_t magic;
  std::uint64_t capacity_bytes;
  std::uint32_t home;  // member index; constant
  // Size class, or kLargeClass; constant, the home's business.
  std::uint32_t size_class;
  // Member that owns the block or was the last to: for messages about misuse only.
  std::atomic<std::uint32_t> owner;
  // While in the list of returned blocks: offset of the next one, 0 at the end.
  std::uint64_t next;
  // What the C library's free gets, as an offset; large blocks only.
  std::uint64_t memory;
  const char* site;  // in the home's address space: where it was allocated
  // Additions release what was read; the subtraction what was written. Whoever reaches 0, and the
  // owner who looks whether all have ended, acquires it all. 64 bits do not come around.
  alignas(64) std::atomic<std::uint64_t> returned;
  // Written by the owner. A message orders it for the next owner, so relaxed.
  alignas(64) std::atomic<std::uint64_t> lent;
  // 1: it has been sent since its owner was last told that it may be written; 0: what is sent next
  // is new. Only the owner's business.
  std::uint32_t sent;
  // 1: far viewers were found to read much of what was new; how many sends of new data until the
  // next look at that. See copies.cc.
  std::uint16_t read_whole;
  std::uint16_t until_look;
  std::byte head[OVERDRIVE_SMPI_HEAD_BYTES];  // of a message that leaves with the block's contents

  // How many views there are, for whoever owns the block or was the last to.
  std::uint64_t views() const {
    // Acquire: pairs with the release of those who have ended their views.
    const std::uint64_t ended = returned.load(std::memory_order_acquire);
    const std::uint64_t given = lent.load(std::memory_order_relaxed);
    return ended <= given ? given - ended : 0 - ended;  // the latter: nobody owns it any more
  }
};
static_assert(sizeof(Block) == kFrontBytes && offsetof(Block, returned) == 64 &&
              offsetof(Block, head) == kFrontBytes - OVERDRIVE_SMPI_HEAD_BYTES);

// Place by which peers know a block: of its first byte, behind the front.
inline Block* block_at(std::byte* arena, std::uint64_t offset) {
  return reinterpret_cast<Block*>(arena + offset - kFrontBytes);
}

}  // namespace od::smpi

#endif  // OVERDRIVE_SMPI_BLOCK_H_
