// The hint that a processor takes between two looks at memory.
#ifndef OVERDRIVE_BASE_PAUSE_H_
#define OVERDRIVE_BASE_PAUSE_H_

#include <atomic>

namespace od {

// One hint to the processor that this is a wait loop.
inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` is a no-op on most cores
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);  // pairs with nothing: looks are not merged
#endif
}

}  // namespace od

#endif  // OVERDRIVE_BASE_PAUSE_H_
