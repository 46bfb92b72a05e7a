// Waiting for the lock of a rank.

#include "engine/yielding_lock.h"

#include <sched.h>
#include <time.h>

namespace od {
namespace {

constexpr int kSpins = 64;  // a microsecond or two: longer than the lock is held mostly
// Longer than any holder needs that has a core, or gets one in turn with a dozen others. Twelve
// ranks of Intel MPI with three threads each, on two cores, took 20 to 40 times as long for ever
// more yields; between 64 and 1,000 of them, and with sleeps of 10 and of 50 us, there was no
// difference, nor was there for threads that only exchange messages.
constexpr int kYields = 256;
constexpr timespec kSleep{0, 50'000};

}  // namespace

void YieldingLock::lock_late() {
  waiters_.fetch_add(1, std::memory_order_relaxed);
  int spins = 0;
  int yields = 0;
  do {
    while (busy_.load(std::memory_order_relaxed)) {
      if (++spins <= kSpins) {
        pause_processor();
        continue;
      }
      spins = 0;
      if (yields < kYields) {
        ++yields;
        sched_yield();
      } else {
        nanosleep(&kSleep, nullptr);
      }
    }
    // Pairs with the release in unlock().
  } while (busy_.exchange(true, std::memory_order_acquire));
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace od
