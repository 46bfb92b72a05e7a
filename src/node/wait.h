// How a rank waits for its node: spin, yield, then sleep on the wait word of its own region; and
// how whoever publishes something for it wakes it without a system call when it is awake.
//
// Protocol. Sleeper: armed.store(1); barrier; look once more; futex_wait(armed == 1, timeout).
// Publisher: publish; barrier; if (armed.load() != 0 && armed.exchange(0) != 0) futex_wake.
// The two barriers make it impossible that the sleeper misses the publication and the publisher
// misses the armed word. The publisher's barrier stands on the fast path of every message, so it is
// made free where that pays: when every rank of the node is registered for
// membarrier(GLOBAL_EXPEDITED) the sleeper issues that system call, which makes every registered
// process that is running execute a full barrier before the second look, and the publisher needs
// only a compiler barrier. Otherwise both use a seq_cst fence.
// A region has one sleeper at a time: ranks with several threads in MPI must let one of them sleep.
//
// Where ranks share cores they tell each other when they give theirs away (`away` in the region's
// header). Who waits for a rank that runs spins a little longer, because the message is on its way;
// who waits for one that does not run gives its own core away at once.
#ifndef OVERDRIVE_NODE_WAIT_H_
#define OVERDRIVE_NODE_WAIT_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "base/pause.h"
#include "node/region_layout.h"

#if defined(__SANITIZE_THREAD__) && defined(__GNUC__) && !defined(__clang__)
// The sanitizer does not model fences; those here order different processes, which it cannot see.
#pragma GCC diagnostic ignored "-Wtsan"
#endif

namespace od::node {

enum class WaitPolicy : std::uint8_t { automatic, spin, yield, sleep };

// Set once per node after joining (all ranks agree: the weakest wins), see Node::wake_mode().
struct WakeMode {
  bool expedited = false;  // membarrier orders the publishers
};

// Registers this process for expedited barriers; false when the kernel refuses, or when it would
// take milliseconds because the process has several threads already. Call it before the host MPI
// starts its threads; a later call finds the registration.
bool register_expedited_barrier();

// The rest of wake_if_armed: claims the wake-up and makes the system call.
void wake_slow(std::atomic<std::uint32_t>& armed);

// Called by a publisher after its release store, on the fast path.
inline void wake_if_armed(std::atomic<std::uint32_t>& armed, WakeMode mode) {
  if (mode.expedited) {
    // Orders the publication before the load for the compiler; the sleeper's membarrier does it for
    // the processor (pairs with the barrier in Idler::step).
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the fence in Idler::step
  }
  if (armed.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    wake_slow(armed);
  }
}

inline constexpr std::uint64_t kForeverNs = std::numeric_limits<std::uint64_t>::max();

// Waiting parameters of this process, decided once from the node's load.
//   spinning   one pause per round; every `pauses_per_check` rounds a look at the clock (with
//              yield_while_spinning also a yield) until `spin_ns` have passed since the first look
//   yielding   one sched_yield per round, until `yield_ns` have passed since the first; with
//              peer_spin_ns, where it is known whom this rank waits for, spinning is replaced: up
//              to so long before each yield while that peer runs, not at all while it does not
//   sleeping   futex
struct WaitPlan {
  std::uint32_t pauses_per_check = 200;
  bool yield_while_spinning = true;
  std::uint64_t spin_ns = 1'000'000;  // 0: spinning ends at the first check, without the clock
  std::uint64_t yield_ns = 0;         // kForeverNs: never sleeps
  std::uint64_t peer_spin_ns = 0;     // 0: what peers tell of themselves is not looked at
  std::uint64_t first_sleep_ns = 1'000'000;    // doubles with every sleep in vain ...
  std::uint64_t sleep_ns = 16'000'000;         // ... up to this
  std::uint64_t first_sleep_host_ns = 10'000;  // the same with host traffic pending, which cannot
  std::uint64_t sleep_host_ns = 50'000;        // wake us
  // Spins or yields on instead of sleeping for as long as host traffic is pending: the host would.
  bool awake_for_host = false;
  // Calls that look once and return (MPI_Test, MPI_Iprobe): after so many in a row that found
  // nothing the core is given away, then at each further one (`polls_yield_on`) or after as many
  // again; 0: never. With peer_spin_ns, where it is known whom they wait for, after `peer_polls`
  // while that peer runs, and at once while it does not.
  std::uint32_t polls_per_yield = 200;
  std::uint32_t peer_polls = 0;
  bool polls_yield_on = false;
};

// `spin_ns` 0 means automatic. `oversubscribed`: more ranks than cores on the node.
WaitPlan plan_waiting(WaitPolicy policy, bool oversubscribed, std::uint64_t spin_ns);

// What ranks with shared cores tell each other: 1 while the rank has given its core away, 0 while
// it runs, and also when it has lost its core otherwise. A hint: it decides how long to wait, never
// what to believe; with several waiting threads in a rank it is what the last of them said.
struct Presence {
  std::atomic<std::uint32_t>* mine = nullptr;        // null: nobody wants to know
  const std::atomic<std::uint32_t>* peer = nullptr;  // whom we wait for; null: unknown or several

  void tell_away(std::uint32_t away) const {
    // Release: whoever sees us away finds what we have published before; pairs with the acquire in
    // PeerWatch::look.
    if (mine != nullptr) mine->store(away, std::memory_order_release);
  }
};

// What a rank that shares its core sees of the one that it waits for.
class PeerWatch {
 public:
  enum class Seen : std::uint8_t { look_again, away, running_for_long };

  // After a look in vain; pauses while the peer runs. `away` is its word (Presence::peer),
  // `spin_ns` how long a peer that runs is worth waiting for.
  Seen look(const std::atomic<std::uint32_t>& away, std::uint64_t spin_ns);
  void reset() {
    runs_since_ns_ = 0;
    looked_again_ = false;
  }

 private:
  std::uint64_t runs_since_ns_ = 0;  // 0: not known yet, or it has been away
  bool looked_again_ = false;        // since it was seen away
};

// Calls in a row that looked once and found nothing.
class EmptyPolls {
 public:
  // Another one; true if the core should be given away now. `peer` as in Presence.
  bool again(const WaitPlan& plan, const std::atomic<std::uint32_t>* peer) {
    if (plan.polls_per_yield == 0) return false;
    std::uint32_t enough = plan.polls_per_yield;
    bool yield_on = plan.polls_yield_on;
    if (peer != nullptr && plan.peer_spin_ns > 0) {
      // Acquire: pairs with the release in Presence::tell_away. What it sent before it went is seen
      // by the next look.
      const bool away = peer->load(std::memory_order_acquire) != 0;
      enough = away ? 2 : plan.peer_polls;
      yield_on = false;
    }
    if (++count_ < enough) return false;
    count_ = yield_on ? enough - 1 : 0;
    return true;
  }
  void reset() { count_ = 0; }

 private:
  std::uint32_t count_ = 0;
};

// Gives the core away once, and says so to peers that want to know.
void yield_once(const Presence& presence);

// The state of one wait loop; step() is called after every unsuccessful round of progress.
class Idler {
 public:
  explicit Idler(const WaitPlan& plan, Presence presence = {})
      : plan_(plan), presence_(presence), next_check_(first_check()) {}

  // Waits a little. `ready()` is the second look: true when something has arrived since (it must
  // not consume). `limit_ns` bounds a sleep (for a caller that has a deadline of its own). Returns
  // true when it slept, and otherwise about once a millisecond: a good moment for liveness checks
  // and reports.
  template <typename Ready>
  bool step(std::atomic<std::uint32_t>& armed, WakeMode mode, bool host_pending, Ready&& ready,
            std::uint64_t limit_ns = kForeverNs) {
    if (++rounds_ < next_check_) [[likely]] {
      pause_processor();
      return false;
    }
    const Action action = check(host_pending);
    if (action != Action::sleep) return action == Action::report;
    armed.store(1, std::memory_order_relaxed);
    // Orders the store before ready()'s loads, and with respect to publishers (wake_if_armed).
    const bool ordered = barrier(mode);
    if (ready()) {
      armed.store(0, std::memory_order_relaxed);
      return false;
    }
    tell_away(1);
    sleep(armed, host_pending, ordered ? limit_ns : kUnorderedSleepNs);
    tell_away(0);
    armed.store(0, std::memory_order_relaxed);
    return true;
  }

  // Another peer than before, or none (as Presence::peer).
  void watch(const std::atomic<std::uint32_t>* peer) {
    if (peer == presence_.peer) return;
    if (presence_.peer == nullptr) next_check_ = 0;
    presence_.peer = peer;
  }

  // Something has moved: start spinning again.
  void reset() {
    rounds_ = 0;
    next_check_ = first_check();
    yielding_since_ns_ = 0;
    peer_.reset();
    sleeps_ = 0;
    started_ns_ = 0;
    reported_ns_ = 0;
  }
  std::uint64_t rounds() const { return rounds_; }
  // Times the core was given away, and of these because the peer was away as well.
  std::uint64_t yields() const { return yields_; }
  std::uint64_t yields_with_peer() const { return yields_with_peer_; }

 private:
  enum class Action : std::uint8_t { go_on, report, sleep };
  // Longest sleep when the barrier was refused (a system call filter installed after the join): a
  // wake-up may then be missed.
  static constexpr std::uint64_t kUnorderedSleepNs = 100'000;

  bool watches_peer() const { return plan_.peer_spin_ns > 0 && presence_.peer != nullptr; }
  std::uint64_t first_check() const { return watches_peer() ? 0 : plan_.pauses_per_check; }
  Action check(bool host_pending);
  void tell_away(std::uint32_t away) { presence_.tell_away(away); }
  Action report_or_go_on(std::uint64_t now);
  static bool barrier(WakeMode mode);
  void sleep(std::atomic<std::uint32_t>& armed, bool host_pending, std::uint64_t limit_ns);

  const WaitPlan& plan_;
  Presence presence_;
  std::uint64_t rounds_ = 0;
  std::uint64_t next_check_;             // round of the next look at the clock
  std::uint64_t yielding_since_ns_ = 0;  // 0: not yet
  PeerWatch peer_;
  std::uint32_t sleeps_ = 0;      // in a row, in vain
  std::uint64_t started_ns_ = 0;  // when the first look at the clock was; 0: not yet
  std::uint64_t reported_ns_ = 0;
  std::uint64_t yields_ = 0;
  std::uint64_t yields_with_peer_ = 0;
};

}  // namespace od::node

#endif  // OVERDRIVE_NODE_WAIT_H_
