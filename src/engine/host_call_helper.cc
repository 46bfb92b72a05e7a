// The helper thread: when it starts, ticks, parks and ends.

#include "engine/host_call_helper.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/quiet_floats.h"
#include "base/short_slices.h"
#include "engine/rank_state.h"
#include "observe/log.h"

namespace od {

namespace {

// The first looks come soon, since most host calls are short or wait for exactly this rank; later
// ones cost a core 0.3 % at most.
constexpr std::uint32_t kQuickTicks = 10;
constexpr long kQuickTickNs = 100'000;
constexpr long kTickNs = 1'000'000;
// While messages between nodes are under way: in that time a network of 10 Gbit/s brings as much as
// the system holds for a connection.
constexpr long kBetweenTickNs = 200'000;
// Ticks at once after one in which something has moved.
constexpr int kMoreTicks = 4;
// Ticks without a window before the thread parks: a wake-up costs less than they do, but not one
// for each of the calls of a loop. With 100 of them, and four ranks to a core, the calls after the
// first collective between nodes took a tenth longer for as long.
constexpr std::uint32_t kIdleTicks = 4;
constexpr std::size_t kStackBytes = 256u << 10;

void sleep_ns(long ns) {
  const timespec time{0, ns};
  nanosleep(&time, nullptr);
}

}  // namespace

bool HostCallHelper::start() {
  // Acquire: pairs with the release below.
  Thread now = state_of_thread_.load(std::memory_order_acquire);
  if (now != Thread::none) [[likely]]
    return now == Thread::running;
  const std::lock_guard<std::mutex> one_at_a_time(starting_);
  now = state_of_thread_.load(std::memory_order_relaxed);
  if (now != Thread::none) return now == Thread::running;
  // The program's signal handlers are not to run here.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const bool started = pthread_create(&thread_, &attributes, entry, this) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  state_of_thread_.store(started ? Thread::running : Thread::refused, std::memory_order_release);
  if (!started) {
    OD_LOG_ONCE(Level::kWarning,
                "no thread for progress during calls of the installed MPI (see ulimit -u); a "
                "synchronous send to a rank in such a call waits until the call returns");
  }
  return started;
}

bool HostCallHelper::open(const Comm* watched) {
  if (!start()) return false;
  state_.lock.lock();
  ++windows_;
  if (watched != nullptr) {
    // The first look is one interval away: most calls are over by then.
    if (watched_.empty()) last_check_ns_ = now_ns();
    watched_.push_back(watched);
  }
  // Where the program has several threads it is set from the beginning, and is read without the
  // lock: nobody writes it then.
  if (!state_.locking) state_.locking = true;
  state_.lock.unlock();
  wake();
  return true;
}

void HostCallHelper::wake() {
  // Sequentially consistent with the helper's store: see the protocol above.
  if (parked_.load(std::memory_order_seq_cst) != 0) {
    parked_.store(0, std::memory_order_seq_cst);
    syscall(SYS_futex, &parked_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
}

// The helper looks at what is under way with the lock, which the caller holds: if it has looked
// before, it has set `parked` before that.
void HostCallHelper::notice() { wake(); }

void HostCallHelper::close(const Comm* watched) {
  state_.lock.lock();
  if (watched != nullptr) {
    watched_.erase(std::find(watched_.begin(), watched_.end(), watched));
  }
  if (--windows_ == 0 && !state_.threads && !state_.agent) state_.locking = false;
  state_.lock.unlock();
}

void HostCallHelper::stop() {
  const std::lock_guard<std::mutex> one_at_a_time(starting_);
  const bool running = state_of_thread_.load(std::memory_order_relaxed) == Thread::running;
  state_of_thread_.store(Thread::refused, std::memory_order_relaxed);  // from now on
  if (!running) return;
  stopping_.store(true, std::memory_order_seq_cst);
  parked_.store(0, std::memory_order_seq_cst);
  syscall(SYS_futex, &parked_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  pthread_join(thread_, nullptr);
}

void* HostCallHelper::entry(void* self) {
  pthread_setname_np(pthread_self(), "overdrive");
  static_cast<HostCallHelper*>(self)->run();
  return nullptr;
}

bool HostCallHelper::wanted() const {
  return windows_ != 0 || (state_.agent && state_.collectives.waits_for_host());
}

int HostCallHelper::look_for_deaths() {
  if (watched_.empty()) return kRemote;
  const std::uint64_t now = now_ns();
  if (now - last_check_ns_ < static_cast<std::uint64_t>(state_.settings.peer_check_ns)) {
    return kRemote;
  }
  last_check_ns_ = now;
  ++state_.counters.peer_checks;
  for (const Comm* const comm : watched_) {
    const int dead = dead_member(state_, *comm);
    if (dead != kRemote) return dead;
  }
  return kRemote;
}

HostCallHelper::Round HostCallHelper::tick() {
  if (!wanted()) return Round::nothing;
  // Who waits makes everything go on by itself. Relaxed: a round more or less.
  if (windows_ == 0 && state_.waiting_threads.load(std::memory_order_relaxed) != 0) {
    return Round::still;
  }
  ++state_.counters.helper_rounds;
  if (state_.host_threads) {
    const bool moved = state_.progress();
    if (state_.host_traffic_pending()) state_.poll_host();
    return moved ? Round::moved : Round::still;
  }
  state_.transport->set_host_away(true);
  state_.transport->progress();
  if (!state_.lent_receives.empty()) state_.take_held_aside();
  if (!state_.collectives.active.empty()) state_.collectives.advance(true);
  state_.transport->set_host_away(false);
  return Round::still;
}

void HostCallHelper::run() {
  // Inherited from the thread that has started this one: the program's traps are not for it.
  const QuietFloats quiet;
  if (state_.settings.progress == config::ProgressMode::kAgent) {
    ask_for_short_slices();
    prctl(PR_SET_TIMERSLACK, 1000UL);  // sleeps are as long as they say, not 50 us longer
  }
  std::uint32_t busy = 0;
  std::uint32_t idle = 0;
  bool between = false;
  while (!stopping_.load(std::memory_order_seq_cst)) {
    if (idle >= kIdleTicks) {
      idle = 0;
      parked_.store(1, std::memory_order_seq_cst);
      state_.lock.lock();
      const bool open = wanted();
      state_.lock.unlock();
      if (!open && !stopping_.load(std::memory_order_seq_cst)) {
        syscall(SYS_futex, &parked_, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
        busy = 0;
      }
      parked_.store(0, std::memory_order_seq_cst);
      continue;
    }
    sleep_ns(busy < kQuickTicks ? kQuickTickNs : (between ? kBetweenTickNs : kTickNs));
    state_.lock.lock();
    const Round round = tick();
    Round last = round;
    // What has moved has often brought up something that is there already.
    for (int more = 0; more < kMoreTicks && last == Round::moved; ++more) {
      state_.lock.unlock();
      state_.lock.lock();
      last = tick();
    }
    // Where there is nothing to do any more the program's thread may be at work without the lock.
    between = last != Round::nothing && state_.collectives.waits_for_host();
    const int dead = look_for_deaths();
    state_.lock.unlock();
    // Without the lock: what the program has registered for its end may need it.
    if (dead != kRemote) end_job(state_, dead);
    idle = round == Round::nothing ? idle + 1 : 0;
    if (round == Round::nothing) {
      busy = kQuickTicks;
    } else {
      // What moves between nodes mostly has a next step soon.
      busy = round == Round::moved ? 0 : busy + 1;
    }
  }
}

}  // namespace od
