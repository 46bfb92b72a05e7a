// The record in front of every block of message memory, in the arena that holds the block.
//
// Peers find it at (their mapping of the home's reach file) + offset of the block - kFrontBytes.
// `references` counts the owner (1, while there is one) and each view, those under way included.
// Whoever takes it to 0 gives the block back: to the free lists if the arena is its own, else by
// pushing it onto RegionHeader::returned_blocks of the home, a list linked through `next`. So a
// block's memory is used again only when the owner and all viewers have let go.
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
  // Increments are relaxed: whoever lends holds a reference. Decrements release what was read or
  // written before; the one that reaches 0 acquires it all.
  std::atomic<std::uint32_t> references;
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
  std::uint64_t unused;
};
static_assert(sizeof(Block) == 64 && offsetof(Block, references) == 16 &&
              offsetof(Block, next) == 32);
static_assert(sizeof(Block) + OVERDRIVE_SMPI_HEAD_BYTES == kFrontBytes);

// Place by which peers know a block: of its first byte, behind the front.
inline Block* block_at(std::byte* arena, std::uint64_t offset) {
  return reinterpret_cast<Block*>(arena + offset - kFrontBytes);
}

}  // namespace od::smpi

#endif  // OVERDRIVE_SMPI_BLOCK_H_
