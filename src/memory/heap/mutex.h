// A lock of one futex word for code that depends on the C library alone and is called from malloc.
//
// 0 free, 1 held, 2 held and somebody may sleep. While the process has one thread only (the C
// library knows) no atomic instruction is needed, as in the C library's own allocator.
#ifndef OVERDRIVE_MEMORY_HEAP_MUTEX_H_
#define OVERDRIVE_MEMORY_HEAP_MUTEX_H_

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/pause.h"

#if defined(__SANITIZE_THREAD__)
#define OD_SINGLE_THREADED false
#elif defined(__GLIBC__) && __GLIBC_PREREQ(2, 32)
#include <sys/single_threaded.h>
#define OD_SINGLE_THREADED __libc_single_threaded
#else
// Built for an older C library, which does not say so; a newer one that it runs with does.
extern "C" char __libc_single_threaded __attribute__((weak));
#define OD_SINGLE_THREADED (&__libc_single_threaded != nullptr && __libc_single_threaded)
#endif

namespace od::memory::heap {

class Mutex {
 public:
  void lock() {
    if (OD_SINGLE_THREADED) {
      word_ = 1;
      return;
    }
    uint32_t expected = 0;
    // Acquire pairs with the release in unlock().
    if (!__atomic_compare_exchange_n(&word_, &expected, 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED)) {
      lock_slow();
    }
  }
  void unlock() {
    if (OD_SINGLE_THREADED) {
      word_ = 0;
      return;
    }
    // Release pairs with the acquires in lock() and lock_slow().
    if (__atomic_exchange_n(&word_, 0, __ATOMIC_RELEASE) == 2) {
      syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }
  // In a forked child, where the holder may not exist.
  void reset() { word_ = 0; }

 private:
  // Acquires pair with the release in unlock().
  __attribute__((noinline)) void lock_slow() {
    for (int i = 0; i < 100; ++i) {
      uint32_t expected = 0;
      if (__atomic_compare_exchange_n(&word_, &expected, 1, false, __ATOMIC_ACQUIRE,
                                      __ATOMIC_RELAXED)) {
        return;
      }
      pause_processor();
    }
    while (__atomic_exchange_n(&word_, 2, __ATOMIC_ACQUIRE) != 0) {
      syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, 2, nullptr, nullptr, 0);
    }
  }

  uint32_t word_ = 0;
};

class Locked {
 public:
  explicit Locked(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Locked() { mutex_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_MUTEX_H_
