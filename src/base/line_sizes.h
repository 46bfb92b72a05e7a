// Sizes of cache lines, as layouts of shared memory count with them.
#ifndef OVERDRIVE_BASE_LINE_SIZES_H_
#define OVERDRIVE_BASE_LINE_SIZES_H_

#include <cstddef>

namespace od {

// Two lines: adjacent-line prefetchers make 64-byte neighbours ping-pong together.
inline constexpr std::size_t kFalseSharingBytes = 128;
inline constexpr std::size_t kLineBytes = 64;

}  // namespace od

#endif  // OVERDRIVE_BASE_LINE_SIZES_H_
