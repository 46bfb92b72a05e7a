// What a program says about SIGSEGV while guards need it: its handler is kept and called for faults
// that are its own, and the signal is not blocked, because a fault while it is blocked ends the
// process.
//
// Before guards are installed everything goes on as it is; but in a rank that is going to ask for
// them, which its environment says, the signal is not blocked from the start: programs block
// signals before they start threads, and MPI_Init may come after that.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guarding.h"
#include "memory/guard/fault_handler.h"
#include "memory/heap/environment.h"
#include "process.h"
#include "wrapped.h"

using od::memory::guard::handler_installed;
using od::memory::guard::program_action;

OD_WRAPPED(int, sigaction, (int number, const struct sigaction* action, struct sigaction* before)) {
  if (__builtin_expect(handler_installed(), 0)) {
    if (number == SIGSEGV) {
      program_action(action, before);
      return 0;
    }
    // A handler during which guarded pages cannot be waited for.
    if (action != nullptr && sigismember(&action->sa_mask, SIGSEGV) == 1) {
      struct sigaction changed = *action;
      sigdelset(&changed.sa_mask, SIGSEGV);
      return OD_NEXT(sigaction)(number, &changed, before);
    }
  }
  return OD_NEXT(sigaction)(number, action, before);
}

namespace od::loader {
namespace {

using Handler = void (*)(int);

Handler TakeHandler(Handler handler, int flags) {
  struct sigaction action;
  struct sigaction before;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  program_action(&action, &before);
  return before.sa_handler;  // both kinds of handler lie in the same place
}

bool AsksForGuards(const char* const* environment) {
  const char* const overlap = memory::heap::find_variable(environment, "OVERDRIVE_OVERLAP");
  return overlap != nullptr && *overlap != '\0' && strcasecmp(overlap, "off") != 0 && !Disabled() &&
         memory::heap::looks_like_rank(environment);
}

// Whether there are guards, or as far as can be told will be.
bool NeedsSignal() {
  if (handler_installed()) return true;
  enum : int { kUnknown, kNo, kYes };
  static int known;
  // Relaxed: whoever computes it finds the same.
  int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (answer == kUnknown) {
    answer = AsksForGuards(environ) ? kYes : kNo;
    __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
  }
  return answer == kYes;
}

// What another program has left to this one.
__attribute__((constructor)) void UnblockAtStart() {
  if (!NeedsSignal()) return;
  const uint64_t only = uint64_t{1} << (SIGSEGV - 1);
  syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &only, nullptr, sizeof only);
}

// The set without SIGSEGV, where it would block that.
const sigset_t* Unblocked(int how, const sigset_t* set, sigset_t* changed) {
  if (set == nullptr || how == SIG_UNBLOCK || sigismember(set, SIGSEGV) != 1 || !NeedsSignal()) {
    return set;
  }
  *changed = *set;
  sigdelset(changed, SIGSEGV);
  return changed;
}

}  // namespace

int RealSigaction(int number, const struct sigaction* action, struct sigaction* before) {
  return OD_NEXT(sigaction)(number, action, before);
}

}  // namespace od::loader

using namespace od::loader;

OD_WRAPPED(Handler, signal, (int number, Handler handler)) {
  if (__builtin_expect(handler_installed(), 0) && number == SIGSEGV) {
    return TakeHandler(handler, SA_RESTART);
  }
  return OD_NEXT(signal)(number, handler);
}
OD_WRAPPED(Handler, bsd_signal, (int number, Handler handler)) {
  if (__builtin_expect(handler_installed(), 0) && number == SIGSEGV) {
    return TakeHandler(handler, SA_RESTART);
  }
  return OD_NEXT(bsd_signal)(number, handler);
}
OD_WRAPPED(Handler, sysv_signal, (int number, Handler handler)) {
  if (__builtin_expect(handler_installed(), 0) && number == SIGSEGV) {
    return TakeHandler(handler, static_cast<int>(SA_RESETHAND | SA_NODEFER));
  }
  return OD_NEXT(sysv_signal)(number, handler);
}

OD_WRAPPED(int, sigprocmask, (int how, const sigset_t* set, sigset_t* before)) {
  sigset_t changed;
  return OD_NEXT(sigprocmask)(how, Unblocked(how, set, &changed), before);
}
OD_WRAPPED(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* before)) {
  sigset_t changed;
  return OD_NEXT(pthread_sigmask)(how, Unblocked(how, set, &changed), before);
}

// Threads begin with it.
OD_WRAPPED(int, pthread_attr_setsigmask_np, (pthread_attr_t * attributes, const sigset_t* set)) {
  sigset_t changed;
  return OD_NEXT(pthread_attr_setsigmask_np)(attributes, Unblocked(SIG_SETMASK, set, &changed));
}

// While they wait, and while handlers run that end the wait, the mask is the one that they are
// given.
OD_WRAPPED(int, sigsuspend, (const sigset_t* set)) {
  sigset_t changed;
  return OD_NEXT(sigsuspend)(Unblocked(SIG_SETMASK, set, &changed));
}
OD_WRAPPED(int, pselect,
           (int count, fd_set* readable, fd_set* writable, fd_set* others, const timespec* limit,
            const sigset_t* set)) {
  sigset_t changed;
  return OD_NEXT(pselect)(count, readable, writable, others, limit,
                          Unblocked(SIG_SETMASK, set, &changed));
}
OD_WRAPPED(int, ppoll, (pollfd * files, nfds_t count, const timespec* limit, const sigset_t* set)) {
  sigset_t changed;
  return OD_NEXT(ppoll)(files, count, limit, Unblocked(SIG_SETMASK, set, &changed));
}
OD_WRAPPED(int, __ppoll_chk,
           (pollfd * files, nfds_t count, const timespec* limit, const sigset_t* set,
            size_t most)) {
  sigset_t changed;
  return OD_NEXT(__ppoll_chk)(files, count, limit, Unblocked(SIG_SETMASK, set, &changed), most);
}
OD_WRAPPED(int, epoll_pwait,
           (int poll, epoll_event* events, int most, int limit_ms, const sigset_t* set)) {
  sigset_t changed;
  return OD_NEXT(epoll_pwait)(poll, events, most, limit_ms, Unblocked(SIG_SETMASK, set, &changed));
}
