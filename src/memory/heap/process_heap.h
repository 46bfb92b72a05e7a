// The reachable heap of this process: when it begins, and what it decides for each large block.
//
// Part of the preloaded library. The entry points (src/face/loader/malloc.cc) send blocks of at
// least hot.min_bytes here and everything else to the C library. Nothing exists before the first
// such block in a process that a launcher has started as a rank: other processes never pay.
// The face of the MPI library, a library of its own, gets hold of all this as a ReachService.
#ifndef OVERDRIVE_MEMORY_HEAP_PROCESS_HEAP_H_
#define OVERDRIVE_MEMORY_HEAP_PROCESS_HEAP_H_

#include <stddef.h>
#include <stdint.h>

#include "memory/reach_service.h"

namespace od::memory::heap {

// What the entry points read on every call, in one cache line. Zero until the process is ready.
struct alignas(64) Hot {
  size_t min_bytes;  // blocks from this size on are ours; 0: not decided, SIZE_MAX: never
  uintptr_t start;   // of the arena, UINTPTR_MAX before there is one; release, after `bytes`
  uint64_t bytes;    // of the arena
  // Who allocates behind us; written by whoever comes first, which is before there are threads.
  void* (*next_malloc)(size_t);
  void (*next_free)(void*);
  bool keeps_small;  // threads keep small blocks that they have freed
};
extern Hot hot;

// Whether `block` lies in the arena.
inline bool is_ours(const void* block) {
  // Acquire pairs with the release store that makes the arena known. Blocks of the C library mostly
  // lie below: one comparison.
  const uintptr_t start = __atomic_load_n(&hot.start, __ATOMIC_ACQUIRE);
  const auto address = reinterpret_cast<uintptr_t>(block);
  return __builtin_expect(address >= start, 0) && address - start < hot.bytes;
}

// Reads the environment and sets hot.min_bytes; to be repeated as long as it returns false, which
// is before the C library knows the environment. `allocator`: who serves the program.
// `local_ranks`: of this node, as the launcher tells; 0: it does not.
enum class Allocator : uint8_t { kLibc, kForeign, kSanitizer };
bool decide(const char* const* environment, Allocator allocator, unsigned local_ranks = 0);

// The usual case of allocate(): a block of that size that was freed before; null: there is none.
void* allocate_again(size_t bytes);
// Null when the block should come from the C library after all. `*zero`: it is all zero.
void* allocate(size_t bytes, size_t alignment, bool* zero);
void release(void* block);
size_t usable_bytes(const void* block);
bool resize(void* block, size_t bytes);
// A block of at least `bytes` for one that has outgrown its place, with room to grow on. The old
// one is looked at only.
void* allocate_growing(size_t bytes, const void* old, size_t old_bytes);

// Whether this process is one that may share memory, now or later.
bool may_share();

// What the face gets.
const ReachService* reach_service();

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_PROCESS_HEAP_H_
