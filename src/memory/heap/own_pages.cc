// The program's own calls on shared pages: see own_pages.h. System calls of our own are made
// directly; the functions of those names may be somebody's who would come back here.
#include "memory/heap/own_pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/round.h"
#include "memory/heap/mutex.h"
#include "memory/heap/size_classes.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // Linux 5.18
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4  // Linux 5.7
#endif

namespace od::memory::heap {

constinit OwnPages own_pages;

namespace {

constinit Mutex g_lock;
constexpr int kAccess = PROT_READ | PROT_WRITE;

uintptr_t address(const void* at) { return reinterpret_cast<uintptr_t>(at); }
void* pointer(uintptr_t at) { return reinterpret_cast<void*>(at); }
uintptr_t page_up(uintptr_t value) { return round_up(value, kPageBytes); }

// Whole pages, no wrap: else the kernel has an error to report.
bool is_range(const void* start, size_t bytes) {
  return address(start) % kPageBytes == 0 && bytes != 0 &&
         page_up(address(start) + bytes) > address(start);
}

}  // namespace

void OwnPages::begin(Arena* arena, ReachMap* map, void (*discarded)(uint64_t, uint64_t)) {
  map_ = map;
  discarded_ = discarded;
  // Release pairs with the acquire in overlaps().
  __atomic_store_n(&arena_, arena, __ATOMIC_RELEASE);
}

void OwnPages::lock() { g_lock.lock(); }
void OwnPages::unlock() { g_lock.unlock(); }
void OwnPages::reset_lock() { g_lock.reset(); }

bool OwnPages::overlaps(const void* start, size_t bytes) const {
  // Acquire pairs with the release in begin().
  const Arena* arena = __atomic_load_n(&arena_, __ATOMIC_ACQUIRE);
  if (arena == nullptr || arena->is_private() || !is_range(start, bytes)) return false;
  const uintptr_t from = address(start);
  const uintptr_t to = page_up(from + bytes);
  if (from < map_->arena_start + map_->arena_bytes && to > map_->arena_start) return true;
  for (uint32_t i = 0; i < map_->segment_count; ++i) {
    const ReachSegment& segment = map_->segments[i];
    if (from < segment.start + segment.bytes && to > segment.start) return true;
  }
  return false;
}

template <typename Visit>
void OwnPages::for_each_part(uintptr_t start, uintptr_t end, Visit&& visit) const {
  const auto part = [&](uintptr_t from, uint64_t bytes, uint64_t offset, uint64_t kept) {
    const uintptr_t low = start > from ? start : from;
    const uintptr_t high = end < from + bytes ? end : from + bytes;
    if (low >= high) return;
    const uintptr_t kept_end = from + kept < high ? from + kept : high;
    visit(low, high, offset + (low - from), kept_end > low ? kept_end - low : 0);
  };
  part(map_->arena_start, map_->arena_bytes, 0, 0);
  for (uint32_t i = 0; i < map_->segment_count; ++i) {
    const ReachSegment& segment = map_->segments[i];
    part(segment.start, segment.bytes, segment.offset, segment.kept_bytes);
  }
}

const PageException* OwnPages::find(uintptr_t start, size_t bytes) const {
  for (unsigned i = 0; i < count_; ++i) {
    if (exceptions_[i].start < start + bytes && start < exceptions_[i].end) return &exceptions_[i];
  }
  return nullptr;
}

// Cuts the range out of what is known.
void OwnPages::forget(uintptr_t start, uintptr_t end) {
  for (unsigned i = 0; i < count_;) {
    PageException& each = exceptions_[i];
    if (each.end <= start || each.start >= end) {
      ++i;
    } else if (each.start < start && each.end > end) {
      PageException rest = each;
      rest.start = end;
      each.end = start;
      // Without room the rest stays what it was, and more with it.
      if (count_ < kMost) {
        exceptions_[count_++] = rest;
      } else {
        each.end = rest.end;
      }
      ++i;
    } else if (each.start < start) {
      each.end = start;
      ++i;
    } else if (each.end > end) {
      each.start = end;
      ++i;
    } else {
      each = exceptions_[--count_];
    }
  }
}

bool OwnPages::note(uintptr_t start, uintptr_t end, ExceptionKind kind, int access) {
  forget(start, end);
  for (unsigned i = 0; i < count_; ++i) {
    PageException& each = exceptions_[i];
    if (each.kind != kind || each.access != access) continue;
    if (each.end != start && each.start != end) continue;
    if (each.end == start) each.end = end;
    if (each.start == end) each.start = start;
    return true;
  }
  if (count_ == kMost) {
    // From here on nothing may be told to peers.
    if (kind != ExceptionKind::kProtected) too_many_ = true;
    return false;
  }
  exceptions_[count_++] = {start, end, access, kind};
  return true;
}

// Tells the faces what peers must not be given; see ReachMap.
void OwnPages::publish() {
  const uint32_t version = map_->foreign_version;
  // The release stores pair with is_foreign()'s acquires: who sees an entry sees that it is being
  // changed.
  __atomic_store_n(&map_->foreign_version, version + 1, __ATOMIC_RELAXED);
  uint32_t listed = 0;
  for (unsigned i = 0; i < count_; ++i) {
    const PageException& each = exceptions_[i];
    if (each.kind == ExceptionKind::kProtected) continue;
    if (listed < ReachMap::kMostForeign) {
      __atomic_store_n(&map_->foreign[listed].start, each.start, __ATOMIC_RELEASE);
      __atomic_store_n(&map_->foreign[listed].end, each.end, __ATOMIC_RELEASE);
    }
    ++listed;
  }
  if (too_many_) listed = ReachMap::kMostForeign + 1;
  __atomic_store_n(&map_->foreign_count, listed, __ATOMIC_RELEASE);
  __atomic_store_n(&map_->foreign_version, version + 2, __ATOMIC_RELEASE);
}

void OwnPages::discard(uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return;
  discarded_(offset, bytes);
  arena_->discard(offset, bytes);
}

bool OwnPages::map_back(uintptr_t start, uintptr_t end, uint64_t offset, int access) {
  return arena_->map_at(pointer(start), end - start, offset, access);
}

bool OwnPages::close_range(uintptr_t start, uintptr_t end, uint64_t offset) {
  discard(offset, end - start);
  if (!map_back(start, end, offset, PROT_NONE) &&
      syscall(SYS_mmap, pointer(start), end - start, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
              0) != static_cast<long>(start)) {
    return false;
  }
  note(start, end, ExceptionKind::kClosed, PROT_NONE);
  return true;
}

int OwnPages::advise(void* start, size_t bytes, int advice, Madvise next) {
  if (advice != MADV_DONTNEED && advice != MADV_DONTNEED_LOCKED && advice != MADV_FREE) {
    return next(start, bytes, advice);
  }
  Locked locked(g_lock);
  // Shared memory knows no MADV_FREE; giving it back now is what it allows.
  const int result = next(start, bytes, advice == MADV_FREE ? MADV_DONTNEED : advice);
  if (result != 0) return result;
  const int saved_errno = errno;
  const uintptr_t from = address(start);
  for_each_part(from, page_up(from + bytes),
                [&](uintptr_t low, uintptr_t high, uint64_t offset, uint64_t kept) {
                  // Under foreign mappings the file has nothing.
                  discard(offset + kept, high - low - kept);
                });
  errno = saved_errno;
  return 0;
}

void* OwnPages::map_over(void* start, size_t bytes, int access, int flags, int fd, off_t offset,
                         Mmap next) {
  Locked locked(g_lock);
  const uintptr_t from = address(start);
  const uintptr_t to = page_up(from + bytes);
  constexpr int kPlain = MAP_PRIVATE | MAP_ANONYMOUS;
  constexpr int kUsual = kPlain | MAP_FIXED | MAP_NORESERVE | MAP_POPULATE | MAP_STACK;
  bool mapped = false;
  if ((flags & kPlain) == kPlain && (flags & ~kUsual) == 0) {
    // Fresh private memory: that is what our pages are when they are empty.
    for_each_part(from, to, [&](uintptr_t low, uintptr_t high, uint64_t at, uint64_t) {
      if (low != from || high != to) return;
      discard(at, high - low);
      mapped = map_back(low, high, at, access);
    });
  }
  if (mapped) {
    forget(from, to);
    if (access != kAccess) note(from, to, ExceptionKind::kProtected, access);
    if ((flags & MAP_POPULATE) != 0) {
      const int saved_errno = errno;
      syscall(SYS_madvise, start, to - from, MADV_POPULATE_WRITE);
      errno = saved_errno;
    }
    publish();
    return start;
  }
  void* const result = next(start, bytes, access, flags, fd, offset);
  if (result == MAP_FAILED) return result;
  const int saved_errno = errno;
  for_each_part(from, to, [&](uintptr_t low, uintptr_t high, uint64_t at, uint64_t) {
    discard(at, high - low);
    note(low, high, ExceptionKind::kForeign, access);
  });
  publish();
  errno = saved_errno;
  return result;
}

int OwnPages::unmap(void* start, size_t bytes, Munmap next) {
  Locked locked(g_lock);
  const uintptr_t from = address(start);
  const uintptr_t to = page_up(from + bytes);
  int result = 0;
  uintptr_t done = from;
  // The arena and the segments may come in any order; what lies between them is not ours.
  while (done < to) {
    uintptr_t low = to;
    uintptr_t high = to;
    uint64_t offset = 0;
    for_each_part(done, to, [&](uintptr_t part, uintptr_t end, uint64_t at, uint64_t) {
      if (part >= low) return;
      low = part;
      high = end;
      offset = at;
    });
    if (low > done && next(pointer(done), low - done) != 0) result = -1;
    if (low < high && !close_range(low, high, offset)) result = -1;
    done = high;
  }
  publish();
  return result;
}

void* OwnPages::move(void* old, size_t old_bytes, size_t new_bytes, int flags, void* wanted,
                     Mremap next, Mmap next_mmap, Munmap next_munmap) {
  const uintptr_t from = address(old);
  const bool own = old_bytes != 0 && overlaps(old, old_bytes);
  if (!own || find(from, old_bytes) != nullptr) {
    // Something of the program's own moves, or comes to lie here.
    void* const result = next(old, old_bytes, new_bytes, flags, wanted);
    if (result == MAP_FAILED) return result;
    const int saved_errno = errno;
    Locked locked(g_lock);
    if (own && result != old) {
      for_each_part(from, page_up(from + old_bytes),
                    [&](uintptr_t low, uintptr_t high, uint64_t at, uint64_t) {
                      close_range(low, high, at);
                    });
    }
    for_each_part(address(result), page_up(address(result) + new_bytes),
                  [&](uintptr_t low, uintptr_t high, uint64_t at, uint64_t) {
                    if (result == old) return;
                    discard(at, high - low);
                    note(low, high, ExceptionKind::kForeign, kAccess);
                  });
    publish();
    errno = saved_errno;
    return result;
  }
  if (new_bytes == 0) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) == 0 &&
      page_up(new_bytes) <= page_up(old_bytes)) {
    const size_t less = page_up(old_bytes) - page_up(new_bytes);
    if (less != 0) unmap(pointer(from + page_up(new_bytes)), less, next_munmap);
    return old;
  }
  if ((flags & MREMAP_MAYMOVE) == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  // The pages themselves cannot go elsewhere: they would be shared there, too.
  const bool fixed = (flags & MREMAP_FIXED) != 0;
  void* const moved = next_mmap(fixed ? wanted : nullptr, new_bytes, kAccess,
                                MAP_PRIVATE | MAP_ANONYMOUS | (fixed ? MAP_FIXED : 0), -1, 0);
  if (moved == MAP_FAILED) return moved;
  memcpy(moved, old, old_bytes < new_bytes ? old_bytes : new_bytes);
  if ((flags & MREMAP_DONTUNMAP) != 0) {
    Locked locked(g_lock);
    for_each_part(
        from, page_up(from + old_bytes),
        [&](uintptr_t low, uintptr_t high, uint64_t at, uint64_t) { discard(at, high - low); });
  } else {
    unmap(old, old_bytes, next_munmap);
  }
  return moved;
}

int OwnPages::protect(void* start, size_t bytes, int access, Mprotect next) {
  Locked locked(g_lock);
  const int result = next(start, bytes, access);
  if (result != 0) return result;
  const uintptr_t from = address(start);
  for_each_part(from, page_up(from + bytes),
                [&](uintptr_t low, uintptr_t high, uint64_t, uint64_t) {
                  // A foreign or closed range stays what it is.
                  const PageException* other = find(low, high - low);
                  if (other != nullptr && other->kind != ExceptionKind::kProtected) return;
                  if (access == kAccess) {
                    forget(low, high);
                  } else {
                    note(low, high, ExceptionKind::kProtected, access);
                  }
                });
  return 0;
}

bool OwnPages::restore(void* start, size_t bytes) {
  const int saved_errno = errno;
  Locked locked(g_lock);
  bool whole = true;
  const uintptr_t from = address(start);
  for (const PageException* each = find(from, bytes); each != nullptr && whole;
       each = find(from, bytes)) {
    const uintptr_t low = each->start > from ? each->start : from;
    const uintptr_t high = each->end < from + bytes ? each->end : from + bytes;
    whole = map_back(low, high, low - map_->arena_start, kAccess);
    if (whole) forget(low, high);
  }
  publish();
  errno = saved_errno;
  return whole;
}

}  // namespace od::memory::heap
