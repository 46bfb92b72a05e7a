// Asking for a line before it is read or written.
#ifndef OVERDRIVE_BASE_PREFETCH_H_
#define OVERDRIVE_BASE_PREFETCH_H_

namespace od {

// Takes the line from other cores' caches. GCC's builtin means this instruction only where the
// target has been told to have it, and reads the line otherwise; every 64-bit x86 takes it, old
// ones as nothing.
inline void prefetch_for_writing(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

// Begins to fetch a line that is read soon, so that several are on their way at once.
inline void prefetch_for_reading(const void* address) { __builtin_prefetch(address, 0); }

}  // namespace od

#endif  // OVERDRIVE_BASE_PREFETCH_H_
