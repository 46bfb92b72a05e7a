// Taking and passing on SIGSEGV: see fault_handler.h.
#include "memory/guard/fault_handler.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/guard/guards.h"

namespace od::memory::guard {
namespace {

// How long a handler of the program is kept waiting for what is under way: it may look at anything,
// with the signal blocked.
constexpr uint64_t kPatienceNs = 2'000'000'000;

// Process-wide by nature. The program's action changes under `g_busy`, which is held for some
// nanoseconds with the signal's handler unable to need it: handlers copy it while they hold it.
Sigaction g_real;
struct sigaction g_program;
bool g_installed;
int g_busy;

void take() {
  // Acquire pairs with the release in give().
  while (__atomic_exchange_n(&g_busy, 1, __ATOMIC_ACQUIRE) != 0) {
  }
}
void give() { __atomic_store_n(&g_busy, 0, __ATOMIC_RELEASE); }  // pairs with take()

// "overdrive: SIGSEGV at 0x... is not from a guard of Overdrive".
void say(uintptr_t address) {
  char text[96] = "overdrive: SIGSEGV at 0x";
  char* at = text + strlen(text);
  for (int shift = 60; shift >= 0; shift -= 4) {
    const auto digit = (address >> shift) & 15;
    if (digit != 0 || shift == 0 || at[-1] != 'x') *at++ = "0123456789abcdef"[digit];
  }
  static constexpr char kEnd[] = " is the program's: no page there is guarded\n";
  memcpy(at, kEnd, sizeof kEnd - 1);
  at += sizeof kEnd - 1;
  if (syscall(SYS_write, STDERR_FILENO, text, at - text) < 0) return;
}

void default_action(int number, const siginfo_t* info) {
  if (guards.ever_used() && info->si_code > 0) say(reinterpret_cast<uintptr_t>(info->si_addr));
  struct sigaction plain;
  memset(&plain, 0, sizeof plain);
  plain.sa_handler = SIG_DFL;
  g_real(number, &plain, nullptr);
  // A fault comes again when this handler returns; a signal that was sent has to be sent again.
  if (info->si_code <= 0) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
}

void pass_on(int number, siginfo_t* info, void* context) {
  take();
  const struct sigaction action = g_program;
  if ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) g_program.sa_handler = SIG_DFL;
  give();
  const bool plain = (action.sa_flags & SA_SIGINFO) == 0;
  if (plain && action.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if (plain && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
    default_action(number, info);
    return;
  }
  if (is_active()) guards.settle_all(kPatienceNs);
  sigset_t blocked = action.sa_mask;
  if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, number);
  // The kernel's set of 64 signals. What was blocked before comes back when the handler returns.
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, nullptr, 8);
  if (plain) {
    action.sa_handler(number);
  } else {
    action.sa_sigaction(number, info, context);
  }
}

void on_fault(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // SEGV_ACCERR: the page is there, but not for this.
  if (info->si_code == SEGV_ACCERR && guards.fault(reinterpret_cast<uintptr_t>(info->si_addr))) {
    errno = saved_errno;
    return;
  }
  pass_on(number, info, context);
  errno = saved_errno;
}

// During which guarded pages could not be waited for: a fault while the signal is blocked ends the
// process.
void unblock_in_handlers() {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction action;
    if (number == SIGSEGV || g_real(number, nullptr, &action) != 0) continue;
    const bool none = (action.sa_flags & SA_SIGINFO) == 0 &&
                      (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN);
    if (none || sigismember(&action.sa_mask, SIGSEGV) != 1) continue;
    sigdelset(&action.sa_mask, SIGSEGV);
    g_real(number, &action, nullptr);
  }
  const uint64_t only = uint64_t{1} << (SIGSEGV - 1);
  syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &only, nullptr, sizeof only);
}

}  // namespace

bool install_handler(Sigaction real) {
  if (g_installed) return true;
  g_real = real;
  struct sigaction ours;
  memset(&ours, 0, sizeof ours);
  ours.sa_sigaction = on_fault;
  // Nested: the program's handler may touch a guarded page itself.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  if (real(SIGSEGV, &ours, &g_program) != 0) return false;
  unblock_in_handlers();
  __atomic_store_n(&g_installed, true, __ATOMIC_RELEASE);  // pairs with handler_installed()
  return true;
}

// Acquire pairs with the release in install_handler().
bool handler_installed() { return __atomic_load_n(&g_installed, __ATOMIC_ACQUIRE); }

void program_action(const struct sigaction* action, struct sigaction* before) {
  // The program's memory is touched outside: an address that is wrong faults, here as well.
  struct sigaction wanted;
  if (action != nullptr) wanted = *action;
  take();
  const struct sigaction now = g_program;
  if (action != nullptr) g_program = wanted;
  give();
  if (before != nullptr) *before = now;
}

}  // namespace od::memory::guard
