// The handlers of fork: see fork_snapshot.h. In the child only system calls and copying.
#include "memory/heap/fork_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

namespace od::memory::heap {
namespace {

// One page that parent and child share: tells the end even where no pipe could be made, or another
// process holds on to the pipe.
struct Progress {
  uint32_t begun;
  uint32_t done;
};

// Process-wide by nature, like fork; guarded by the allocator's locks from prepare() on.
constinit SharedMemory g_memory = {};
Progress* g_progress;
int g_pipe[2] = {-1, -1};
uint64_t g_count;

constexpr int kPollMilliseconds = 50;
// Without a pipe a child that never begins cannot be told from a fork that failed.
constexpr int kMostSleepsBeforeBegin = 5000;
constexpr timespec kSleep = {0, 200'000};

// The system calls themselves: communication libraries put functions of their own in the place of
// the C library's, and theirs need not know every argument (UCX's mremap ignores the new address).
void* map_raw(void* at, uint64_t bytes, int access, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, access, flags, fd, offset));
}
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

void prepare() {
  if (g_memory.arena->is_private()) return;
  const int saved_errno = errno;
  g_memory.spans->lock_all();
  // Relaxed: the child is made after this.
  __atomic_store_n(&g_progress->begun, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&g_progress->done, 0, __ATOMIC_RELAXED);
  if (pipe2(g_pipe, O_CLOEXEC) != 0) g_pipe[0] = g_pipe[1] = -1;
  errno = saved_errno;
}

void in_parent() {
  if (g_memory.arena->is_private()) return;
  const int saved_errno = errno;
  // Acquire pairs with the child's release: it has read all it needs before we go on writing.
  const auto done = [] { return __atomic_load_n(&g_progress->done, __ATOMIC_ACQUIRE) != 0; };
  if (g_pipe[0] >= 0) {
    close(g_pipe[1]);
    pollfd end = {g_pipe[0], POLLIN, 0};
    while (!done() && poll(&end, 1, kPollMilliseconds) <= 0) {
    }
    close(g_pipe[0]);
  } else {
    for (int i = 0; !done(); ++i) {
      if (i > kMostSleepsBeforeBegin &&
          __atomic_load_n(&g_progress->begun, __ATOMIC_RELAXED) == 0) {
        break;
      }
      nanosleep(&kSleep, nullptr);
    }
  }
  g_pipe[0] = g_pipe[1] = -1;
  ++g_count;
  g_memory.spans->unlock_all();
  errno = saved_errno;
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
  char* copy;  // of the range that begins at `start`; null: only count
  char* start;
  uint64_t bytes;  // with memory
};

// Adds one used range to the walk.
void walk_range(Walk& walk, char* start, uint64_t bytes) {
  const char* const arena = g_memory.arena->start();
  for_each_extent(walk.fd, static_cast<uint64_t>(start - arena), bytes,
                  [&](uint64_t offset, uint64_t extent_bytes) {
                    walk.bytes += extent_bytes;
                    if (walk.copy == nullptr) return;
                    const char* const from = arena + offset;
                    char* const to = walk.copy + (from - walk.start);
                    // Faults are most of the cost; whole huge pages within the extent only.
                    if (extent_bytes >= 2 * kHugeBytes) madvise(to, extent_bytes, MADV_HUGEPAGE);
                    memcpy(to, from, extent_bytes);
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

// Puts private copies in the place of `bytes` at `at`, whose contents are those of the arena at
// `start`. `weak`: a private view of the file, which costs nothing and follows later changes of the
// parent where the child has not written.
void make_private(int fd, char* at, char* start, uint64_t bytes, bool weak) {
  if (bytes == 0) return;
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* copy = weak ? MAP_FAILED : map_raw(nullptr, bytes, kAccess, kAnonymous, -1, 0);
  if (copy == MAP_FAILED) {
    const auto offset = static_cast<off_t>(start - g_memory.arena->start());
    if (fd < 0 || map_raw(at, bytes, kAccess, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
                          offset) == MAP_FAILED) {
      fail();
    }
    return;
  }
  Walk walk = {.fd = fd, .copy = static_cast<char*>(copy), .start = start, .bytes = 0};
  if (at == start) {
    g_memory.spans->for_each_used(visit_block, &walk);
  } else {
    walk_range(walk, start, bytes);
  }
  if (!move_raw(copy, bytes, at)) fail();
}

// More than this part of the free memory is not copied.
bool too_much(uint64_t bytes) {
  struct sysinfo machine;
  if (sysinfo(&machine) != 0) return false;
  return bytes > (machine.freeram + machine.bufferram) * machine.mem_unit / 4 * 3;
}

void in_child() {
  Arena& arena = *g_memory.arena;
  if (arena.is_private()) return;
  const int saved_errno = errno;
  __atomic_store_n(&g_progress->begun, 1, __ATOMIC_RELAXED);
  const int fd = arena.descriptor();
  Walk count = {.fd = fd, .copy = nullptr, .start = arena.start(), .bytes = 0};
  g_memory.spans->for_each_used(visit_block, &count);
  for (uint32_t i = 0; i < g_memory.map->segment_count; ++i) {
    const ReachSegment& segment = g_memory.map->segments[i];
    walk_range(count, arena.start() + segment.offset, segment.bytes);
  }
  const bool weak = fd >= 0 && too_much(count.bytes);
  for (uint32_t i = 0; i < g_memory.map->segment_count; ++i) {
    const ReachSegment& segment = g_memory.map->segments[i];
    make_private(fd, reinterpret_cast<char*>(segment.start), arena.start() + segment.offset,
                 segment.bytes, weak);
  }
  const uint64_t top = g_memory.spans->top_bytes();
  make_private(fd, arena.start(), arena.start(), top, weak);
  // Nobody allocates there any more.
  map_raw(arena.start() + top, arena.bytes() - top, PROT_NONE,
          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  arena.became_private();
  g_memory.spans->reset_locks();
  g_memory.in_child();
  if (fd >= 0) close(fd);
  // Release pairs with the parent's acquire.
  __atomic_store_n(&g_progress->done, 1, __ATOMIC_RELEASE);
  if (g_pipe[0] >= 0) {
    close(g_pipe[0]);
    close(g_pipe[1]);
  }
  g_pipe[0] = g_pipe[1] = -1;
  errno = saved_errno;
}

}  // namespace

bool snapshot_on_fork(const SharedMemory& memory) {
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  g_progress = static_cast<Progress*>(page);
  g_memory = memory;
  return pthread_atfork(prepare, in_parent, in_child) == 0;
}

uint64_t fork_count() { return g_count; }

}  // namespace od::memory::heap
