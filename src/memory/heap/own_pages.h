// What the program itself does with pages that are shared: it gives them back (madvise), maps
// something else over them, unmaps, moves or protects them.
//
// To the program they are private memory, so the calls must have the effects that they have there:
// memory that is given back reads as zero, peers do not reach what lies elsewhere now, a forked
// child gets what was mapped, and a block that is freed is whole again before it is used anew. The
// entry points (src/face/loader/own_pages.cc) come here only for ranges that overlap shared memory;
// parts of them that are not shared go to the next definition of the same function, which may be
// that of a communication library that watches mappings.
//
// Exceptions: ranges of shared memory that are not the file's pages for reading and writing.
//   foreign    the program mapped something else there: unreachable
//   closed     unmapped: inaccessible, but kept, so that nobody else's memory comes to lie there
//   protected  by mprotect: reachable
#ifndef OVERDRIVE_MEMORY_HEAP_OWN_PAGES_H_
#define OVERDRIVE_MEMORY_HEAP_OWN_PAGES_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "memory/heap/arena.h"
#include "memory/reach_map.h"

namespace od::memory::heap {

enum class ExceptionKind : uint8_t { kForeign, kClosed, kProtected };

struct PageException {
  uintptr_t start;
  uintptr_t end;
  int access;  // protected: PROT_*
  ExceptionKind kind;
};

// Process-wide by nature. No constructor may run.
class OwnPages {
 public:
  static constexpr unsigned kMost = 256;  // exceptions

  using Madvise = int (*)(void*, size_t, int);
  using Mmap = void* (*)(void*, size_t, int, int, int, off_t);
  using Munmap = int (*)(void*, size_t);
  using Mremap = void* (*)(void*, size_t, size_t, int, void*);
  using Mprotect = int (*)(void*, size_t, int);

  // Both stay where they are. `discarded(offset, bytes)` is told what has lost its memory.
  void begin(Arena* arena, ReachMap* map, void (*discarded)(uint64_t offset, uint64_t bytes));

  // Whether any of the range is shared now; false in a forked child.
  bool overlaps(const void* start, size_t bytes) const;

  // As the functions of the C library; errno is set. The range overlaps shared memory.
  int advise(void* start, size_t bytes, int advice, Madvise next);
  void* map_over(void* start, size_t bytes, int access, int flags, int fd, off_t offset, Mmap next);
  int unmap(void* start, size_t bytes, Munmap next);
  // One of the old range and (with MREMAP_FIXED) the new one overlaps.
  void* move(void* old, size_t old_bytes, size_t new_bytes, int flags, void* wanted, Mremap next,
             Mmap next_mmap, Munmap next_munmap);
  int protect(void* start, size_t bytes, int access, Mprotect next);

  // Whether part of a block is not as it was allocated.
  bool excepted(const void* start, size_t bytes) const {
    return count_ != 0 && find(reinterpret_cast<uintptr_t>(start), bytes) != nullptr;
  }
  // Makes a block whole; false when that cannot be: it must not be used again.
  bool restore(void* start, size_t bytes);

  // For fork, while nothing else runs here.
  unsigned count() const { return count_; }
  const PageException& exception(unsigned i) const { return exceptions_[i]; }
  void lock();
  void unlock();
  void reset_lock();

 private:
  // Calls visit(start, end, offset in the file, kept) for each part of the range that is shared;
  // `kept`: bytes at its beginning that a program's madvise leaves as they are.
  template <typename Visit>
  void for_each_part(uintptr_t start, uintptr_t end, Visit&& visit) const;
  const PageException* find(uintptr_t start, size_t bytes) const;
  void forget(uintptr_t start, uintptr_t end);
  bool note(uintptr_t start, uintptr_t end, ExceptionKind kind, int access);
  void publish();
  void discard(uint64_t offset, uint64_t bytes);
  // Maps the file's pages, empty, where they belong.
  bool map_back(uintptr_t start, uintptr_t end, uint64_t offset, int access);
  bool close_range(uintptr_t start, uintptr_t end, uint64_t offset);

  Arena* arena_ = nullptr;
  ReachMap* map_ = nullptr;
  void (*discarded_)(uint64_t, uint64_t) = nullptr;
  unsigned count_ = 0;
  bool too_many_ = false;
  PageException exceptions_[kMost] = {};
};

extern OwnPages own_pages;

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_OWN_PAGES_H_
