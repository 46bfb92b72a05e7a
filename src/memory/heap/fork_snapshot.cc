// The handlers of fork: see fork_snapshot.h. System calls and copying alone; other handlers and the
// C library's own locks are not yet, or no longer, in place.
#include "memory/heap/fork_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/round.h"
#include "memory/heap/own_pages.h"
#include "memory/heap/size_classes.h"
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
  char* reserved;  // null: the copy is in the spill file
  uint64_t reserved_bytes;
  char* copy;           // in `reserved`, at an address equal to `at` modulo the size of huge pages
  uint64_t spilled_at;  // in the spill file
};

// Process-wide by nature, like fork; guarded by the allocator's locks from prepare() on.
constinit SharedMemory g_memory = {};
constexpr unsigned kMostCopies = ReachMap::kMostSegments + 1;
Copy g_copies[kMostCopies];
unsigned g_copy_count;
uint64_t g_count;
int g_spill = -1;  // the file that holds the copies
char* g_view;      // the arena's second mapping, where its descriptor is lost
bool g_refused;    // there are no copies
bool g_said;

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
  bool failed = false;
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

// Through the file: the program may have mapped other things where the pages were, or protected
// them.
bool read_file(int fd, uint64_t offset, char* to, uint64_t bytes) {
  if (g_view != nullptr) {
    raw_copy(to, g_view + offset, bytes);
    return true;
  }
  while (bytes > 0) {
    const long got = syscall(SYS_pread64, fd, to, bytes, static_cast<off_t>(offset));
    if (got <= 0) return false;
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

// The same into the spill file, by a small buffer: from pages that cannot be read write() would
// fail.
bool spill(int fd, uint64_t offset, uint64_t to, uint64_t bytes) {
  static char buffer[64 << 10];
  while (bytes > 0) {
    const uint64_t now = bytes < sizeof buffer ? bytes : sizeof buffer;
    if (!read_file(fd, offset, buffer, now)) return false;
    for (uint64_t done = 0; done < now;) {
      const long put =
          syscall(SYS_pwrite64, g_spill, buffer + done, now - done, static_cast<off_t>(to + done));
      if (put <= 0) return false;
      done += static_cast<uint64_t>(put);
    }
    offset += now;
    to += now;
    bytes -= now;
  }
  return true;
}

// Adds one used range to the walk.
void walk_range(Walk& walk, const char* start, uint64_t bytes) {
  const char* const arena = g_memory.arena->start();
  for_each_extent(walk.fd, static_cast<uint64_t>(start - arena), bytes,
                  [&](uint64_t offset, uint64_t extent_bytes) {
                    walk.bytes += extent_bytes;
                    if (walk.copy == nullptr || walk.failed) return;
                    const char* const from = arena + offset;
                    const auto within = static_cast<uint64_t>(from - walk.copy->start);
                    if (walk.copy->copy == nullptr) {
                      const uint64_t at = walk.copy->spilled_at + within;
                      walk.failed = !spill(walk.fd, offset, at, extent_bytes);
                      return;
                    }
                    char* const to = walk.copy->copy + within;
                    prepare_to_copy(*walk.copy, to, extent_bytes);
                    if (own_pages.count() == 0) {
                      raw_copy(to, from, extent_bytes);
                    } else if (!read_file(walk.fd, offset, to, extent_bytes)) {
                      walk.failed = true;
                    }
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
  g_copies[g_copy_count++] = {at, start, bytes, nullptr, 0, nullptr, 0};
}

void drop_copy(Copy& copy) {
  if (copy.reserved != nullptr) unmap_raw(copy.reserved, copy.reserved_bytes);
  copy.reserved = copy.copy = nullptr;
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

// A nameless file of `bytes`, of which `used` will be written, on a disk; -1: there is none.
int open_spill(uint64_t bytes, uint64_t used) {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < bytes) return -1;
  const char* const folders[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
  for (const char* folder : folders) {
    constexpr decltype(statfs::f_type) kTmpfs = 0x01021994;
    constexpr decltype(statfs::f_type) kRamfs = 0x858458f6;
    struct statfs found;
    if (folder == nullptr || statfs(folder, &found) != 0 || found.f_type == kTmpfs ||
        found.f_type == kRamfs ||
        static_cast<uint64_t>(found.f_bavail) * static_cast<uint64_t>(found.f_bsize) / 2 < used) {
      continue;
    }
    const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) continue;
    if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
    close(fd);
  }
  return -1;
}

bool fits_in_memory(uint64_t bytes) {
  // The rest is for what child and parent need next.
  return bytes <= g_memory.budget->free_bytes() / 4 * 3 ||
         bytes <= g_memory.budget->available_bytes() / 4 * 3;
}

// Where copies go in the spill file; what it is long.
uint64_t lay_out_spill() {
  uint64_t end = 0;
  for (unsigned i = 0; i < g_copy_count; ++i) {
    g_copies[i].spilled_at = end;
    end += round_up(g_copies[i].bytes, kPageBytes);
  }
  return end;
}

// With the locks: what has to be copied, and how much of it has memory.
uint64_t find_copies(int fd) {
  const Arena& arena = *g_memory.arena;
  g_copy_count = 0;
  for (uint32_t i = 0; i < g_memory.map->segment_count; ++i) {
    const ReachSegment& segment = g_memory.map->segments[i];
    add_copy(reinterpret_cast<char*>(segment.start), arena.start() + segment.offset, segment.bytes);
  }
  add_copy(arena.start(), arena.start(), g_memory.spans->top_bytes());
  Walk count = {.fd = fd, .copy = nullptr, .bytes = 0};
  for (unsigned i = 0; i < g_copy_count; ++i) walk_copy(count, g_copies[i]);
  return count.bytes;
}

void prepare() {
  const Arena& arena = *g_memory.arena;
  if (arena.is_private()) return;
  const int saved_errno = errno;
  g_memory.spans->lock_all();
  own_pages.lock();
  const int fd = arena.descriptor();
  const uint64_t bytes = find_copies(fd);
  // All of g_copies first: linked into the program, it is part of what is copied.
  bool reserved = fits_in_memory(bytes);
  g_refused = false;
  g_spill = -1;
  for (unsigned i = 0; i < g_copy_count && reserved; ++i) {
    reserve_copy(g_copies[i]);
    reserved = g_copies[i].copy != nullptr;
  }
  if (!reserved) {
    for (unsigned i = 0; i < g_copy_count; ++i) drop_copy(g_copies[i]);
    const uint64_t end = lay_out_spill();
    g_spill = fd >= 0 ? open_spill(end, bytes) : -1;
    g_refused = g_spill < 0;
  }
  if (fd < 0 && own_pages.count() != 0) g_view = arena.second_view();
  for (unsigned i = 0; i < g_copy_count && !g_refused; ++i) {
    Walk walk = {.fd = fd, .copy = &g_copies[i], .bytes = 0};
    walk_copy(walk, g_copies[i]);
    g_refused = walk.failed;
  }
  if (g_view != nullptr) arena.drop_view(g_view);
  g_view = nullptr;
  errno = saved_errno;
}

void in_parent() {
  if (g_memory.arena->is_private()) return;
  const int saved_errno = errno;
  // Nothing is written down: linked into the program, these lie in what the child still shares.
  for (unsigned i = 0; i < g_copy_count; ++i) {
    if (g_copies[i].reserved != nullptr) {
      unmap_raw(g_copies[i].reserved, g_copies[i].reserved_bytes);
    }
  }
  if (g_spill >= 0) close(g_spill);
  ++g_count;
  own_pages.unlock();
  g_memory.spans->unlock_all();
  errno = saved_errno;
}

// Calls visit(exception, start, bytes) for what the program itself has done within the range.
template <typename Visit>
void for_each_exception(const Copy& copy, Visit&& visit) {
  const auto start = reinterpret_cast<uintptr_t>(copy.at);
  const uintptr_t end = start + copy.bytes;
  for (unsigned i = 0; i < own_pages.count(); ++i) {
    const PageException& each = own_pages.exception(i);
    const uintptr_t low = each.start > start ? each.start : start;
    const uintptr_t high = each.end < end ? each.end : end;
    if (low < high) visit(i, each, reinterpret_cast<char*>(low), high - low);
  }
}

// What the program has mapped there is the child's as it is the parent's.
char* g_aside[OwnPages::kMost];

void make_private_pages(const Copy& each);

void make_private(const Copy& copy) {
  for_each_exception(copy, [](unsigned i, const PageException& each, char* start, uint64_t bytes) {
    g_aside[i] = nullptr;
    if (each.kind != ExceptionKind::kForeign) return;
    // Of the same size it is only moved to where it is told.
    char* const aside = map_raw(nullptr, bytes, PROT_NONE, kAnonymous, -1, 0);
    if (aside == nullptr) return;
    if (move_raw(start, bytes, aside)) {
      g_aside[i] = aside;
    } else {
      unmap_raw(aside, bytes);
    }
  });
  make_private_pages(copy);
  for_each_exception(copy, [](unsigned i, const PageException& each, char* start, uint64_t bytes) {
    if (each.kind != ExceptionKind::kForeign) {
      syscall(SYS_mprotect, start, bytes, each.access);
    } else if (g_aside[i] != nullptr && !move_raw(g_aside[i], bytes, start)) {
      fail();
    }
  });
}

void make_private_pages(const Copy& each) {
  if (each.copy != nullptr) {
    if (!move_raw(each.copy, each.bytes, each.at)) fail();
    const auto before = static_cast<uint64_t>(each.copy - each.reserved);
    if (before != 0) unmap_raw(each.reserved, before);
    unmap_raw(each.copy + each.bytes, each.reserved_bytes - before - each.bytes);
    return;
  }
  if (map_raw(each.at, each.bytes, kAccess, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, g_spill,
              static_cast<off_t>(each.spilled_at)) == nullptr) {
    fail();
  }
}

void in_child() {
  Arena& arena = *g_memory.arena;
  if (arena.is_private()) return;
  const int saved_errno = errno;
  const int fd = arena.descriptor();
  if (g_refused) fail();
  for (unsigned i = 0; i < g_copy_count; ++i) make_private(g_copies[i]);
  if (g_spill >= 0) close(g_spill);
  g_spill = -1;
  own_pages.reset_lock();
  // Nothing is allocated there any more, but the last block may grow.
  const uint64_t top = g_memory.spans->top_bytes();
  map_raw(arena.start() + top, arena.bytes() - top, PROT_NONE, kAnonymous | MAP_FIXED, -1, 0);
  arena.became_private();
  g_memory.spans->begin_in_child();
  g_memory.in_child();
  if (fd >= 0) close(fd);
  errno = saved_errno;
}

}  // namespace

bool snapshot_on_fork(const SharedMemory& memory) {
  g_memory = memory;
  return pthread_atfork(prepare, in_parent, in_child) == 0;
}

bool fork_fits() {
  if (g_memory.arena == nullptr || g_memory.arena->is_private()) return true;
  const int saved_errno = errno;
  // Mostly plain to see, without looking at each block.
  uint64_t bytes = g_memory.spans->top_bytes();
  for (uint32_t i = 0; i < g_memory.map->segment_count; ++i) {
    bytes += g_memory.map->segments[i].bytes;
  }
  bool fits = bytes <= g_memory.budget->free_bytes() / 4 * 3;
  if (!fits) {
    g_memory.spans->lock_all();
    own_pages.lock();
    const int fd = g_memory.arena->descriptor();
    bytes = find_copies(fd);
    fits = fits_in_memory(bytes);
    if (!fits && fd >= 0) {
      const int spill_file = open_spill(lay_out_spill(), bytes);
      fits = spill_file >= 0;
      if (fits) close(spill_file);
    }
    own_pages.unlock();
    g_memory.spans->unlock_all();
  }
  // Relaxed: twice would do no harm.
  if (!fits && !__atomic_exchange_n(&g_said, true, __ATOMIC_RELAXED)) {
    static constexpr char kText[] =
        "overdrive: fork fails: there is too little memory, and no room on the disk of TMPDIR, for "
        "a "
        "copy of what this process shares with other ranks (OVERDRIVE_REACH=off needs none)\n";
    if (write(STDERR_FILENO, kText, sizeof kText - 1) < 0) fits = false;
  }
  errno = saved_errno;
  return fits;
}

uint64_t fork_count() { return g_count; }

}  // namespace od::memory::heap
