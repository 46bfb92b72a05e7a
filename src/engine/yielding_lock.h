// The lock of a rank: test-and-set; waiters give the core away, and sleep where that is no use.
//
// Waiters of an MPI lock are few and hold it for nanoseconds, but their cores may be shared: so who
// waits yields. Who holds it may also wait for a lock of the host's, which other threads take again
// and again while they wait inside it; with many ranks to a core they get nowhere as long as
// everybody who waits here yields to everybody else. So in the end waiters sleep.
//
// Who looks for something while it holds the lock goes on only as long as nobody else wants it: so
// a rank of which one thread at a time is inside MPI is as fast as one that has a single thread.
#ifndef OVERDRIVE_ENGINE_YIELDING_LOCK_H_
#define OVERDRIVE_ENGINE_YIELDING_LOCK_H_

#include <atomic>
#include <cstdint>

#include "base/pause.h"

namespace od {

class YieldingLock {
 public:
  void lock() {
    // Pairs with the release in unlock().
    if (busy_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      lock_late();
  }
  void unlock() { busy_.store(false, std::memory_order_release); }  // pairs with lock()

  // Whether a thread waits for it. Relaxed: a hint.
  const std::atomic<std::uint32_t>& waiters() const { return waiters_; }
  bool wanted() const { return waiters_.load(std::memory_order_relaxed) != 0; }
  // Not held by the caller, who has just let go of it and will want it again: lets others have it,
  // which need some tens of nanoseconds to see that it is free.
  void give_way() const {
    for (int i = 0; i < kGiveWayPauses && wanted(); ++i) pause_processor();
  }

 private:
  static constexpr int kGiveWayPauses = 16;

  void lock_late();

  std::atomic<bool> busy_{false};
  std::atomic<std::uint32_t> waiters_{0};
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_YIELDING_LOCK_H_
