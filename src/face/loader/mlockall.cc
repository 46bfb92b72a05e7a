// mlockall, so that it does not fill the holes of sparse shared mappings, which are larger than the
// machine.
//
// Locking everything would give memory to all of every reach file and region. Pages that are locked
// when they are first touched are what such a program wants of these, and the kernel has no way of
// asking that for some mappings only.
#include <dlfcn.h>
#include <sys/mman.h>

#include "memory/heap/process_heap.h"
#include "process.h"

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4  // Linux 4.4
#endif

extern "C" __attribute__((visibility("default"))) int mlockall(int flags) noexcept {
  using Function = int (*)(int);
  static Function next;
  Function function = __atomic_load_n(&next, __ATOMIC_RELAXED);  // whoever computes it: the same
  if (function == nullptr) {
    function = reinterpret_cast<Function>(od::loader::RealDlsym()(RTLD_NEXT, "mlockall"));
    __atomic_store_n(&next, function, __ATOMIC_RELAXED);
  }
  const bool rank = od::memory::heap::hot.min_bytes != 0 && od::memory::heap::may_share();
  return function(rank ? flags | MCL_ONFAULT : flags);
}
