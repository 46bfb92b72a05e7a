// The functions by which a program changes its mappings: for pages that are shared they must do
// what they do with private ones. See memory/heap/own_pages.h; everything else goes on unchanged.
#include "memory/heap/own_pages.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process.h"
#include "wrapped.h"

namespace od::loader {
namespace {

using memory::heap::own_pages;
using memory::heap::OwnPages;

// The next definition after ours. While the dynamic linker or a sanitizer has not got so far there
// is none: then the system call itself.
template <typename F>
F Next(F* cache, const char* name, F plain) {
  // Relaxed: whoever computes it finds the same.
  F function = __atomic_load_n(cache, __ATOMIC_RELAXED);
  if (function != nullptr) return function;
  const int saved_errno = errno;
  function = reinterpret_cast<F>(RealDlsym()(RTLD_NEXT, name));
  errno = saved_errno;
  if (function == nullptr) return plain;
  __atomic_store_n(cache, function, __ATOMIC_RELAXED);
  return function;
}

int PlainMadvise(void* start, size_t bytes, int advice) {
  return static_cast<int>(syscall(SYS_madvise, start, bytes, advice));
}
void* PlainMmap(void* start, size_t bytes, int access, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(syscall(SYS_mmap, start, bytes, access, flags, fd, offset));
}
int PlainMunmap(void* start, size_t bytes) {
  return static_cast<int>(syscall(SYS_munmap, start, bytes));
}
int PlainMprotect(void* start, size_t bytes, int access) {
  return static_cast<int>(syscall(SYS_mprotect, start, bytes, access));
}
// With five arguments always: more than are declared do no harm.
void* PlainMremap(void* old, size_t old_bytes, size_t new_bytes, int flags, void* wanted) {
  return reinterpret_cast<void*>(syscall(SYS_mremap, old, old_bytes, new_bytes, flags, wanted));
}

OwnPages::Madvise g_madvise;
OwnPages::Mmap g_mmap;
OwnPages::Munmap g_munmap;
OwnPages::Mprotect g_mprotect;
OwnPages::Mremap g_mremap;

OwnPages::Mmap NextMmap() { return Next(&g_mmap, "mmap", PlainMmap); }
OwnPages::Munmap NextMunmap() { return Next(&g_munmap, "munmap", PlainMunmap); }

// What is on its way arrives before its pages change, here and below.
void* Map(void* start, size_t bytes, int access, int flags, int fd, off_t offset) {
  if ((flags & MAP_FIXED) != 0) SettleAt(start, bytes);
  if ((flags & MAP_FIXED) != 0 && own_pages.overlaps(start, bytes)) {
    return own_pages.map_over(start, bytes, access, flags, fd, offset, NextMmap());
  }
  return NextMmap()(start, bytes, access, flags, fd, offset);
}

}  // namespace
}  // namespace od::loader

using namespace od::loader;

#define OD_EXPORT extern "C" __attribute__((visibility("default")))

OD_EXPORT int madvise(void* start, size_t bytes, int advice) noexcept {
  SettleAt(start, bytes);
  const auto next = Next(&g_madvise, "madvise", PlainMadvise);
  return own_pages.overlaps(start, bytes) ? own_pages.advise(start, bytes, advice, next)
                                          : next(start, bytes, advice);
}

OD_EXPORT void* mmap(void* start, size_t bytes, int access, int flags, int fd,
                     off_t offset) noexcept {
  return Map(start, bytes, access, flags, fd, offset);
}
OD_EXPORT void* mmap64(void* start, size_t bytes, int access, int flags, int fd,
                       off64_t offset) noexcept {
  return Map(start, bytes, access, flags, fd, offset);
}

OD_EXPORT int munmap(void* start, size_t bytes) noexcept {
  SettleAt(start, bytes);
  return own_pages.overlaps(start, bytes) ? own_pages.unmap(start, bytes, NextMunmap())
                                          : NextMunmap()(start, bytes);
}

OD_EXPORT int mprotect(void* start, size_t bytes, int access) noexcept {
  SettleAt(start, bytes);
  const auto next = Next(&g_mprotect, "mprotect", PlainMprotect);
  return own_pages.overlaps(start, bytes) ? own_pages.protect(start, bytes, access, next)
                                          : next(start, bytes, access);
}

OD_EXPORT void* mremap(void* old, size_t old_bytes, size_t new_bytes, int flags, ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  void* const wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void*) : nullptr;
  va_end(rest);
  const auto next = Next(&g_mremap, "mremap", PlainMremap);
  SettleAt(old, old_bytes);
  if (wanted != nullptr) SettleAt(wanted, new_bytes);
  if (own_pages.overlaps(old, old_bytes) ||
      (wanted != nullptr && own_pages.overlaps(wanted, new_bytes))) {
    return own_pages.move(old, old_bytes, new_bytes, flags, wanted, next, Map, munmap);
  }
  return next(old, old_bytes, new_bytes, flags, wanted);
}

namespace od::loader {

bool IsOwnMapping(const void* function) {
  const void* const own[] = {
      reinterpret_cast<const void*>(&madvise), reinterpret_cast<const void*>(&mmap),
      reinterpret_cast<const void*>(&mmap64),  reinterpret_cast<const void*>(&munmap),
      reinterpret_cast<const void*>(&mremap),  reinterpret_cast<const void*>(&mprotect)};
  for (const void* each : own) {
    if (each == function) return true;
  }
  return false;
}

}  // namespace od::loader
