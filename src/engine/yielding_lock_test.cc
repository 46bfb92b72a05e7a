// The lock of a rank: exclusion, and what waiting for it costs.

#include "engine/yielding_lock.h"

#include <gtest/gtest.h>
#include <time.h>

#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace od {
namespace {

TEST(YieldingLock, LetsInOneAtATime) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200'000;
  YieldingLock lock;
  lock.lock();
  std::int64_t sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::lock_guard<YieldingLock> guard(lock);
        ++sum;
      }
    });
  }
  while (lock.waiters().load(std::memory_order_relaxed) != kThreads) std::this_thread::yield();
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, kThreads * kRounds);
  EXPECT_FALSE(lock.wanted());
}

double processor_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Whoever holds the lock may wait for somebody else, who needs the cores: those who only yield
// would have them all, here for half a second each.
TEST(YieldingLock, LongWaitsLeaveTheCores) {
  YieldingLock lock;
  lock.lock();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { const std::lock_guard<YieldingLock> guard(lock); });
  }
  while (lock.waiters().load(std::memory_order_relaxed) != 4) std::this_thread::yield();
  const double before = processor_seconds();
  const timespec held{0, 500'000'000};
  nanosleep(&held, nullptr);
  const double used = processor_seconds() - before;
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(used, 0.25);
}

}  // namespace
}  // namespace od
