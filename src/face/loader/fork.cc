// fork, so that it can fail: where there is no memory for a child's own copy of what is shared.
// And so that it works on stacks that lie in shared memory.
//
// Everything else is done by handlers (memory/heap/fork_snapshot.h, guarding.cc), which cannot
// refuse.
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <ucontext.h>
#include <unistd.h>

#include "memory/heap/fork_snapshot.h"
#include "memory/heap/own_pages.h"
#include "memory/heap/size_classes.h"
#include "process.h"

namespace od::loader {
namespace {

using Fork = pid_t (*)();

// Whether this thread runs on a stack in shared memory: a coroutine's that came from malloc or is
// static, or that of a signal handler.
bool IsOnSharedStack() {
  constexpr uintptr_t kPage = memory::heap::kPageBytes;
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) / kPage * kPage;
  return memory::heap::own_pages.overlaps(reinterpret_cast<const void*>(here), kPage);
}

struct Call {
  Fork fork;
  pid_t child;
  ucontext_t caller;
  ucontext_t own;
};

void RunCall(unsigned high, unsigned low) {
  auto* const call = reinterpret_cast<Call*>(uintptr_t{high} << 32 | low);
  call->child = call->fork();
}

// Until a child has its own copies, it has such a stack in common with its parent, and what it gets
// is what was there before the fork. So the fork happens on another, to which nothing of that
// matters; when both come back, each has its own.
pid_t ForkOnOtherStack(Fork fork) {
  constexpr size_t kBytes = 1 << 20;
  const long mapped = syscall(SYS_mmap, nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == -1) {
    errno = ENOMEM;
    return -1;
  }
  constexpr size_t kCallBytes = (sizeof(Call) + 63) / 64 * 64;
  auto* const call = reinterpret_cast<Call*>(mapped);
  call->fork = fork;
  pid_t child = -1;
  if (getcontext(&call->own) == 0) {
    call->own.uc_stack.ss_sp = reinterpret_cast<char*>(mapped) + kCallBytes;
    call->own.uc_stack.ss_size = kBytes - kCallBytes;
    call->own.uc_link = &call->caller;
    // To the kernel a stack of signal handlers is free meanwhile.
    sigfillset(&call->own.uc_sigmask);
    sigdelset(&call->own.uc_sigmask, SIGSEGV);
    const auto address = static_cast<uintptr_t>(mapped);
    makecontext(&call->own, reinterpret_cast<void (*)()>(RunCall), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
    if (swapcontext(&call->caller, &call->own) == 0) child = call->child;
  }
  const int saved_errno = errno;
  syscall(SYS_munmap, mapped, kBytes);
  errno = saved_errno;
  return child;
}

}  // namespace
}  // namespace od::loader

extern "C" __attribute__((visibility("default"))) pid_t fork() noexcept {
  using od::loader::Fork;
  static Fork next;
  // Relaxed: whoever computes it finds the same.
  Fork function = __atomic_load_n(&next, __ATOMIC_RELAXED);
  if (function == nullptr) {
    function = reinterpret_cast<Fork>(od::loader::RealDlsym()(RTLD_NEXT, "fork"));
    __atomic_store_n(&next, function, __ATOMIC_RELAXED);
  }
  if (!od::memory::heap::fork_fits()) {
    errno = ENOMEM;
    return -1;
  }
  return od::loader::IsOnSharedStack() ? od::loader::ForkOnOtherStack(function) : function();
}
