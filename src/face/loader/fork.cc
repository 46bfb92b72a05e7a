// fork, so that it can fail: where there is no memory for a child's own copy of what is shared.
//
// Everything else is done by handlers (memory/heap/fork_snapshot.h), which cannot refuse.
#include <dlfcn.h>
#include <errno.h>
#include <sys/types.h>

#include "guarding.h"
#include "memory/guard/guards.h"
#include "memory/heap/fork_snapshot.h"
#include "process.h"

extern "C" __attribute__((visibility("default"))) pid_t fork() noexcept {
  using Function = pid_t (*)();
  static Function next;
  // Relaxed: whoever computes it finds the same.
  Function function = __atomic_load_n(&next, __ATOMIC_RELAXED);
  if (function == nullptr) {
    function = reinterpret_cast<Function>(od::loader::RealDlsym()(RTLD_NEXT, "fork"));
    __atomic_store_n(&next, function, __ATOMIC_RELAXED);
  }
  using od::memory::guard::guards;
  using od::memory::guard::is_active;
  // What is copied for a child has to be there; and nobody brings anything to a child.
  if (is_active()) guards.settle_all();
  if (!od::memory::heap::fork_fits()) {
    errno = ENOMEM;
    return -1;
  }
  const pid_t child = function();
  if (child == 0) od::loader::ForgetFlight();
  return child;
}
