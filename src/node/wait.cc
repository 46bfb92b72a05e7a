// The slow half of waiting: clock, yield, futex, membarrier, and the choice of a plan.
#include "node/wait.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/clock.h"

namespace od::node {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kReportNs = 1'000'000;
// A processor that is shared is given away after the time in which a near peer that runs answers.
// The peer may be waiting for this very processor: 4 ranks on 2 cores take 2.2 us a message with
// 100 ns, 2.5 with 200, 3.0 with 500 and 4.0 with 1000 where the launcher binds them so,
// and 1.0, 1.2 and 0.5 with the last three where peers find cores of their own.
constexpr std::uint64_t kSharedSpinNs = 200;
// A peer that runs is waited for about as long as a switch to another rank and back takes (1.3 us
// each, measured): with that a wait costs at most twice what it would with foresight.
constexpr std::uint64_t kPeerSpinNs = 2000;
// A rank with a core of its own: longer than most imbalances of a program, because a sleeper that
// is woken loses 25 to 30 us (measured, a sender 10 ms late), which the host's spinning does not.
constexpr std::uint64_t kOwnSpinNs = 50'000'000;
// Longer than the wake-up of a sleeper (16 to 30 us) by so much that ranks which exchange without
// computing never sleep, and short against the slice of a foreign process that a yield lets run
// (milliseconds). Measured with 4 and 8 ranks on 2 cores, 0 to 500 us of work between messages:
// from 100 to 500 us all the same, 20 us and ten yields up to ten times slower where ranks have
// sessions of their own (MPICH's launcher), no yields up to 15 times. A step of LAMMPS with 8 ranks
// takes a tenth less with 300 us than with 100 us.
constexpr std::uint64_t kSharedYieldNs = 300'000;
// As long as kSharedSpinNs: a call that finds nothing takes some 50 ns.
constexpr std::uint32_t kSharedPolls = 4;
// As long as kPeerSpinNs.
constexpr std::uint32_t kPeerPolls = 40;
// A round of progress between two pauses, roughly.
constexpr std::uint64_t kRoundNs = 10;
// Below this the clock is not worth a look: the length of the spin is given in pauses.
constexpr std::uint64_t kShortSpinNs = 10'000;

long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

// MEMBARRIER_CMD_GET_REGISTRATIONS, Linux 6.3; older headers do not have it.
constexpr int kGetRegistrations = 1 << 9;

bool single_threaded() {
  // A directory has two links and one more for each directory in it; here one per thread.
  struct stat status;
  return stat("/proc/self/task", &status) == 0 && status.st_nlink == 3;
}

std::uint64_t pause_ns() {
  // The shortest of three: the processor may be taken away in between.
  constexpr int kPauses = 64;
  std::uint64_t best = kForeverNs;
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t start = now_ns();
    for (int i = 0; i < kPauses; ++i) pause_processor();
    best = std::min(best, now_ns() - start);
  }
  return best / kPauses;
}

}  // namespace

bool register_expedited_barrier() {
  const long registered = membarrier(kGetRegistrations);
  if (registered > 0 && (registered & MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) != 0) return true;
  // With several threads the kernel waits for a grace period of 10 ms or more.
  if (!single_threaded()) return false;
  return membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

void wake_slow(std::atomic<std::uint32_t>& armed) {
  // Only one of several publishers makes the system call. The sleeper reads what was published
  // through the publication's own acquire; nothing is ordered by this exchange.
  if (armed.exchange(0, std::memory_order_relaxed) == 0) return;
  syscall(SYS_futex, &armed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Idler::barrier(WakeMode mode) {
  // Also for the compiler. Pairs with the fence of wake_if_armed.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return !mode.expedited || membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
}

void Idler::sleep(std::atomic<std::uint32_t>& armed, bool host_pending, std::uint64_t limit_ns) {
  const std::uint64_t first = host_pending ? plan_.first_sleep_host_ns : plan_.first_sleep_ns;
  const std::uint64_t longest = host_pending ? plan_.sleep_host_ns : plan_.sleep_ns;
  constexpr std::uint32_t kMostDoublings = 20;
  std::uint64_t length = first << std::min(sleeps_, kMostDoublings);
  length = std::min({length, longest, limit_ns});
  ++sleeps_;
  timespec timeout;
  timeout.tv_sec = static_cast<time_t>(length / kSecondNs);
  timeout.tv_nsec = static_cast<long>(length % kSecondNs);
  // Shared between processes: no FUTEX_PRIVATE_FLAG. Returns at once if a publisher has cleared it.
  syscall(SYS_futex, &armed, FUTEX_WAIT, 1, &timeout, nullptr, 0);
}

Idler::Action Idler::report_or_go_on(std::uint64_t now) {
  if (now - reported_ns_ < kReportNs) return Action::go_on;
  reported_ns_ = now;
  return Action::report;
}

PeerWatch::Seen PeerWatch::look(const std::atomic<std::uint32_t>& away, std::uint64_t spin_ns) {
  // Acquire: pairs with the release in Presence::tell_away.
  if (away.load(std::memory_order_acquire) != 0) {
    runs_since_ns_ = 0;
    // What it sent before it went is seen in the next round.
    looked_again_ = !looked_again_;
    return looked_again_ ? Seen::look_again : Seen::away;
  }
  looked_again_ = false;
  const std::uint64_t now = now_ns();
  if (runs_since_ns_ == 0) runs_since_ns_ = now;
  if (now - runs_since_ns_ < spin_ns) {
    pause_processor();
    return Seen::look_again;
  }
  runs_since_ns_ = 0;
  return Seen::running_for_long;
}

Idler::Action Idler::check(bool host_pending) {
  const bool awake = host_pending && plan_.awake_for_host;
  bool peer_away = false;
  if (watches_peer()) {
    const PeerWatch::Seen seen = peer_.look(*presence_.peer, plan_.peer_spin_ns);
    if (seen == PeerWatch::Seen::look_again) return Action::go_on;
    peer_away = seen == PeerWatch::Seen::away;
  }
  const bool spinning = next_check_ != 0;
  if (spinning && plan_.spin_ns > 0) {
    const std::uint64_t now = now_ns();
    if (started_ns_ == 0) started_ns_ = reported_ns_ = now;
    const Action action = report_or_go_on(now);
    // Whoever needs this rank inside the host waits for as long as a yield lets others run.
    if (plan_.yield_while_spinning && (!awake || action == Action::report)) {
      sched_yield();
    } else {
      pause_processor();
    }
    if (awake || now - started_ns_ < plan_.spin_ns) {
      next_check_ = rounds_ + plan_.pauses_per_check;
      return action;
    }
  }
  next_check_ = 0;  // from now on every round comes here
  if (plan_.yield_ns == 0 && !awake) return Action::sleep;
  const std::uint64_t now = now_ns();
  if (yielding_since_ns_ == 0) {
    yielding_since_ns_ = now;
    if (reported_ns_ == 0) reported_ns_ = now;
  }
  if (!awake && now - yielding_since_ns_ >= plan_.yield_ns) return Action::sleep;
  ++yields_;
  if (peer_away) ++yields_with_peer_;
  yield_once(presence_);
  return report_or_go_on(now);
}

void yield_once(const Presence& presence) {
  presence.tell_away(1);
  sched_yield();
  presence.tell_away(0);
}

WaitPlan plan_waiting(WaitPolicy policy, bool oversubscribed, std::uint64_t spin_ns) {
  WaitPlan plan;
  if (policy == WaitPolicy::spin) {
    plan.yield_while_spinning = false;
    plan.spin_ns = kForeverNs;
    plan.polls_per_yield = 0;
    return plan;
  }
  plan.awake_for_host = policy != WaitPolicy::sleep;
  if (policy == WaitPolicy::automatic && !oversubscribed) {
    plan.spin_ns = spin_ns > 0 ? spin_ns : kOwnSpinNs;
    return plan;
  }
  plan.polls_per_yield = kSharedPolls;
  plan.peer_polls = kPeerPolls;
  plan.polls_yield_on = true;
  plan.yield_ns = policy == WaitPolicy::yield   ? kForeverNs
                  : policy == WaitPolicy::sleep ? 0
                                                : kSharedYieldNs;
  if (oversubscribed && plan.yield_ns > 0 && spin_ns == 0) plan.peer_spin_ns = kPeerSpinNs;
  plan.spin_ns = spin_ns > 0 ? spin_ns : kSharedSpinNs;
  if (plan.spin_ns < kShortSpinNs) {
    plan.pauses_per_check = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(1, plan.spin_ns / (pause_ns() + kRoundNs)));
    plan.spin_ns = 0;
  }
  return plan;
}

}  // namespace od::node
