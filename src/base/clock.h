// The monotonic clock in nanoseconds, read the same way everywhere: for limits, spins and timings.
//
// It does not jump when somebody sets the time, and all processes of a node read the same one.
#ifndef OVERDRIVE_BASE_CLOCK_H_
#define OVERDRIVE_BASE_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace od {

inline std::uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace od

#endif  // OVERDRIVE_BASE_CLOCK_H_
