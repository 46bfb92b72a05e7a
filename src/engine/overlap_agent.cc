// Turns, sleeping and waking of the agent: see overlap_agent.h.
#include "engine/overlap_agent.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.h"
#include "base/quiet_floats.h"
#include "base/short_slices.h"

namespace od {
namespace {

// A round costs some microseconds: 2 % of a core at the shorter one, which holds while things move.
constexpr long kTickNs = 250'000;
constexpr long kLongTickNs = 1'000'000;
constexpr int kQuietTicks = 40;  // until the longer one
// While a thread of the program waits, its core is free.
constexpr int kEagerTicks = 50;  // without a pause; then other ranks may want the core
constexpr long kHurriedTickNs = 20'000;
constexpr long kLookNs = 20'000'000;
constexpr std::size_t kStackBytes = 512u << 10;

}  // namespace

bool OverlapAgent::start() {
  if (running_) return true;
  // The program's signal handlers are not to run here.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  running_ = pthread_create(&thread_, &attributes, entry, this) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return running_;
}

void OverlapAgent::work() {
  has_rank_ = false;
  working_.store(1, std::memory_order_relaxed);
  waiting_.store(0, std::memory_order_relaxed);  // a handler may have jumped away from a wait
  claimed_.store(false, std::memory_order_relaxed);
  busy_.store(false, std::memory_order_release);  // pairs with the exchange in run()
  wake();
}

void OverlapAgent::claim() {
  if (has_rank_) return;
  claimed_.store(true, std::memory_order_seq_cst);
  // Acquire: pairs with the release in run().
  while (busy_.exchange(true, std::memory_order_acquire)) sched_yield();
  has_rank_ = true;
}

void OverlapAgent::hurry(bool waits) {
  // Relaxed: the word changes after it, and says that there is something to look at.
  if (!waits) {
    // Not below zero, where work() has begun to count anew meanwhile.
    std::uint32_t count = waiting_.load(std::memory_order_relaxed);
    while (count != 0 &&
           !waiting_.compare_exchange_weak(count, count - 1, std::memory_order_relaxed)) {
    }
    return;
  }
  waiting_.fetch_add(1, std::memory_order_relaxed);
  wake();
}

void OverlapAgent::wake() {
  const int saved_errno = errno;
  word_.fetch_add(1, std::memory_order_seq_cst);  // pairs with the look in run()
  syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  errno = saved_errno;
}

bool OverlapAgent::wait_until_idle() {
  // Acquire: pairs with the release in run().
  if (working_.load(std::memory_order_acquire) == 0) return true;
  hurry(true);
  sleep(working_, 1, kLookNs);
  hurry(false);
  return working_.load(std::memory_order_acquire) == 0;
}

void OverlapAgent::sleep(std::atomic<std::uint32_t>& word, std::uint32_t seen, long ns) {
  const timespec time{0, ns};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, ns == 0 ? nullptr : &time, nullptr, 0);
}

void OverlapAgent::stop() {
  if (!running_) return;
  claim();
  stopping_.store(true, std::memory_order_seq_cst);  // pairs with run()
  wake();
  pthread_join(thread_, nullptr);
  running_ = false;
}

void* OverlapAgent::entry(void* self) {
  pthread_setname_np(pthread_self(), "overdrive-agent");
  // Sleeps are as long as they say, not half as long again.
  prctl(PR_SET_TIMERSLACK, 10'000UL);
  ask_for_short_slices();
  static_cast<OverlapAgent*>(self)->run();
  return nullptr;
}

void OverlapAgent::run() {
  // Inherited from the thread that has started this one: the program's traps are not for it.
  const QuietFloats quiet;
  work_.agent_starts();
  bool more = false;
  int quiet_ticks = 0;
  while (!stopping_.load(std::memory_order_seq_cst)) {
    const std::uint32_t seen = word_.load(std::memory_order_seq_cst);
    if (claimed_.load(std::memory_order_seq_cst) ||
        busy_.exchange(true, std::memory_order_acquire)) {  // pairs with work()
      quiet_ticks = 0;
      sleep(word_, seen, stopping_.load(std::memory_order_seq_cst) ? kTickNs : 0);
      continue;
    }
    bool moved = false;
    more = work_.agent_round(&moved);
    busy_.store(false, std::memory_order_release);  // pairs with claim()
    if (!more) {
      working_.store(0, std::memory_order_release);  // pairs with wait_until_idle()
      syscall(SYS_futex, &working_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
      // Until the program hands over something else, which changes the word.
      while (word_.load(std::memory_order_seq_cst) == seen) sleep(word_, seen, 0);
      continue;
    }
    quiet_ticks = moved ? 0 : quiet_ticks + 1;
    // Not any longer than somebody waits: then the program computes on this core again.
    if (waiting_.load(std::memory_order_relaxed) == 0) {
      sleep(word_, seen, quiet_ticks < kQuietTicks ? kTickNs : kLongTickNs);
    } else if (quiet_ticks < kEagerTicks) {
      sched_yield();
    } else {
      sleep(word_, seen, kHurriedTickNs);
    }
  }
}

}  // namespace od
