// The handlers of fork: see fork_snapshot.h. System calls and copying alone; other handlers and the
// C library's own locks are not yet, or no longer, in place.
#include "memory/heap/fork_snapshot.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/raw_copy.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace od::memory::heap {
namespace {

// One shared range and its copy.
struct Copy {
  char* at;     // where the program sees it
  char* start;  // the same bytes in the arena
  uint64_t bytes;
  char* reserved;  // null: no copy, the child gets a private view of the file
  uint64_t reserved_bytes;
  char* copy;  // in `reserved`, at an address equal to `at` modulo the size of huge pages
};

// Process-wide by nature, like fork; guarded by the allocator's locks from prepare() on.
constinit SharedMemory g_memory = {};
constexpr unsigned kMostCopies = ReachMap::kMostSegments + 1;
Copy g_copies[kMostCopies];
unsigned g_copy_count;
uint64_t g_count;

constexpr int kAccess = PROT_READ | PROT_WRITE;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// The system calls themselves: communication libraries put functions of their own in the place of
// the C library's, and theirs need not know every argument (UCX's mremap ignores the new address).
char* map_raw(void* at, uint64_t bytes, int access, int flags, int fd, off_t offset) {
  const long mapped = syscall(SYS_mmap, at, bytes, access, flags, fd, offset);
  return mapped == -1 ? nullptr : reinterpret_cast<char*>(mapped);
}
void unmap_raw(void* at, uint64_t bytes) { syscall(SYS_munmap, at, bytes); }
bool move_raw(void* from, uint64_t bytes, void* to) {
  return syscall(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) ==
         reinterpret_cast<long>(to);
}

[[noreturn]] void fail() {
  static constexpr char kText[] =
      "overdrive: a forked child cannot get its own copy of shared memory; it ends here\n";
  if (write(STDERR_FILENO, kText, sizeof kText - 1) < 0) _exit(127);
  _exit(127);
}

// Calls `visit(start, bytes)` for the parts of [offset, offset + bytes) of the file that have
// memory.
template <typename Visit>
void for_each_extent(int fd, uint64_t offset, uint64_t bytes, Visit&& visit) {
  const uint64_t end = offset + bytes;
  if (fd < 0) {
    visit(offset, bytes);
    return;
  }
  while (offset < end) {
    const off_t data = lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
    if (data < 0) {
      if (errno != ENXIO) visit(offset, end - offset);
      return;
    }
    if (static_cast<uint64_t>(data) >= end) return;
    const off_t hole = lseek(fd, data, SEEK_HOLE);
    uint64_t stop = hole < 0 ? end : static_cast<uint64_t>(hole);
    if (stop > end) stop = end;
    visit(static_cast<uint64_t>(data), stop - static_cast<uint64_t>(data));
    offset = stop;
  }
}

struct Walk {
  int fd;
  const Copy* copy;  // null: only count
  uint64_t bytes;    // with memory
};

// Faults are most of the cost: huge pages where they hold much, else many pages at once.
void prepare_to_copy(const Copy& copy, char* to, uint64_t bytes) {
  constexpr uint64_t kWorthHugePage = kHugeBytes / 2;
  if (bytes >= kWorthHugePage) {
    const auto first = reinterpret_cast<uintptr_t>(to) / kHugeBytes * kHugeBytes;
    const uint64_t whole = (reinterpret_cast<uintptr_t>(to) + bytes - first + kHugeBytes - 1) /
                           kHugeBytes * kHugeBytes;
    // Ends beyond the copy lie within what is reserved.
    char* const from = reinterpret_cast<char*>(first);
    if (from >= copy.reserved && from + whole <= copy.reserved + copy.reserved_bytes) {
      madvise(from, whole, MADV_HUGEPAGE);
    }
  }
  madvise(to, bytes, MADV_POPULATE_WRITE);
}

// Adds one used range to the walk.
void walk_range(Walk& walk, const char* start, uint64_t bytes) {
  const char* const arena = g_memory.arena->start();
  for_each_extent(walk.fd, static_cast<uint64_t>(start - arena), bytes,
                  [&](uint64_t offset, uint64_t extent_bytes) {
                    walk.bytes += extent_bytes;
                    if (walk.copy == nullptr) return;
                    const char* const from = arena + offset;
                    char* const to = walk.copy->copy + (from - walk.copy->start);
                    prepare_to_copy(*walk.copy, to, extent_bytes);
                    raw_copy(to, from, extent_bytes);
                  });
}

// Whether a block is what static data maps: that is copied where the program sees it.
bool is_static(const char* start, uint64_t bytes) {
  const auto offset = static_cast<uint64_t>(start - g_memory.arena->start());
  for (uint32_t i = 0; i < g_memory.map->segment_count; ++i) {
    if (g_memory.map->segments[i].offset - offset < bytes) return true;
  }
  return false;
}

void visit_block(void* walk, char* start, uint64_t bytes) {
  if (!is_static(start, bytes)) walk_range(*static_cast<Walk*>(walk), start, bytes);
}

void walk_copy(Walk& walk, const Copy& copy) {
  if (copy.at == copy.start) {
    g_memory.spans->for_each_used(visit_block, &walk);
  } else {
    walk_range(walk, copy.start, copy.bytes);
  }
}

void add_copy(char* at, char* start, uint64_t bytes) {
  if (bytes == 0) return;
  g_copies[g_copy_count++] = {at, start, bytes, nullptr, 0, nullptr};
}

void reserve_copy(Copy& copy) {
  const uint64_t bytes = copy.bytes + 2 * kHugeBytes;
  copy.reserved = map_raw(nullptr, bytes, kAccess, kAnonymous, -1, 0);
  if (copy.reserved == nullptr) return;
  copy.reserved_bytes = bytes;
  const uint64_t phase = reinterpret_cast<uintptr_t>(copy.at) % kHugeBytes;
  const uint64_t now = reinterpret_cast<uintptr_t>(copy.reserved) % kHugeBytes;
  copy.copy = copy.reserved + (phase + kHugeBytes - now) % kHugeBytes;
}

void prepare() {
  const Arena& arena = *g_memory.arena;
  if (arena.is_private()) return;
  const int saved_errno = errno;
  g_memory.spans->lock_all();
  const int fd = arena.descriptor();
  g_copy_count = 0;
  for (uint32_t i = 0; i < g_memory.map->segment_count; ++i) {
    const ReachSegment& segment = g_memory.map->segments[i];
    add_copy(reinterpret_cast<char*>(segment.start), arena.start() + segment.offset, segment.bytes);
  }
  add_copy(arena.start(), arena.start(), g_memory.spans->top_bytes());
  Walk count = {.fd = fd, .copy = nullptr, .bytes = 0};
  for (unsigned i = 0; i < g_copy_count; ++i) walk_copy(count, g_copies[i]);
  // With too little memory the child gets a private view of the file, which costs nothing and
  // follows later changes of the parent where the child has not written.
  if (fd < 0 || count.bytes <= g_memory.budget->free_bytes() / 4 * 3) {
    // All of g_copies first: linked into the program, it is part of what is copied.
    for (unsigned i = 0; i < g_copy_count; ++i) reserve_copy(g_copies[i]);
    for (unsigned i = 0; i < g_copy_count; ++i) {
      Walk walk = {.fd = fd, .copy = &g_copies[i], .bytes = 0};
      if (g_copies[i].copy != nullptr) walk_copy(walk, g_copies[i]);
    }
  }
  errno = saved_errno;
}

void in_parent() {
  if (g_memory.arena->is_private()) return;
  const int saved_errno = errno;
  for (unsigned i = 0; i < g_copy_count; ++i) {
    if (g_copies[i].reserved != nullptr)
      unmap_raw(g_copies[i].reserved, g_copies[i].reserved_bytes);
  }
  ++g_count;
  g_memory.spans->unlock_all();
  errno = saved_errno;
}

void make_private(int fd, const Copy& each) {
  if (each.copy != nullptr) {
    if (!move_raw(each.copy, each.bytes, each.at)) fail();
    const auto before = static_cast<uint64_t>(each.copy - each.reserved);
    if (before != 0) unmap_raw(each.reserved, before);
    unmap_raw(each.copy + each.bytes, each.reserved_bytes - before - each.bytes);
    return;
  }
  const auto offset = static_cast<off_t>(each.start - g_memory.arena->start());
  if (fd < 0 || map_raw(each.at, each.bytes, kAccess, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
                        offset) == nullptr) {
    fail();
  }
}

void in_child() {
  Arena& arena = *g_memory.arena;
  if (arena.is_private()) return;
  const int saved_errno = errno;
  const int fd = arena.descriptor();
  for (unsigned i = 0; i < g_copy_count; ++i) make_private(fd, g_copies[i]);
  // Nobody allocates there any more.
  const uint64_t top = g_memory.spans->top_bytes();
  map_raw(arena.start() + top, arena.bytes() - top, PROT_NONE, kAnonymous | MAP_FIXED, -1, 0);
  arena.became_private();
  g_memory.spans->reset_locks();
  g_memory.in_child();
  if (fd >= 0) close(fd);
  errno = saved_errno;
}

}  // namespace

bool snapshot_on_fork(const SharedMemory& memory) {
  g_memory = memory;
  return pthread_atfork(prepare, in_parent, in_child) == 0;
}

uint64_t fork_count() { return g_count; }

}  // namespace od::memory::heap
