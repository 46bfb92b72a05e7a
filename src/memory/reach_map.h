// Which parts of this process lie in its reach file, the sparse memfd that local peers map whole.
//
// One map per process, filled by the preloaded loader (arena) and by MPI_Init (static data), before
// the process becomes a rank of its node; constant afterwards, so it is read without any order.
// Only what the program maps over such memory itself comes and goes (`foreign`). The loader and the
// faces are separate libraries: plain data of fixed width, no C++ library.
#ifndef OVERDRIVE_MEMORY_REACH_MAP_H_
#define OVERDRIVE_MEMORY_REACH_MAP_H_

#include <stdint.h>

namespace od::memory {

// Bytes [start, start + bytes) of this process are [offset, offset + bytes) of its reach file.
struct ReachSegment {
  uintptr_t start;
  uint64_t bytes;
  uint64_t offset;
  uint64_t kept_bytes = 0;  // at its beginning: initialised, not zero when it is given back
};

// Where something else lies: [start, end).
struct ReachForeign {
  uintptr_t start;
  uintptr_t end;
};

struct ReachMap {
  static constexpr uint32_t kMostSegments = 64;
  static constexpr uint32_t kMostForeign = 64;

  // The arena of the heap: the first arena_bytes of the file. No bytes: there is none.
  uintptr_t arena_start;
  uint64_t arena_bytes;
  uint64_t file_bytes;     // 0: nothing is shared
  uint32_t segment_count;  // static data; sorted by start, not overlapping
  // Parts of all this that are not the file's pages now. The version is 0 as long as there was
  // never one, odd while the list is being changed; a count beyond kMostForeign: nothing is
  // reachable.
  uint32_t foreign_version;
  ReachSegment segments[kMostSegments];
  uint32_t foreign_count;
  ReachForeign foreign[kMostForeign];
};

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_REACH_MAP_H_
