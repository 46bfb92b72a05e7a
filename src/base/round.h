// Rounding to multiples: of pages, of lines, of whatever a block has to be a multiple of.
#ifndef OVERDRIVE_BASE_ROUND_H_
#define OVERDRIVE_BASE_ROUND_H_

#include <cstdint>

namespace od {

// The least multiple of `unit` (> 0) that is not below the value; the sum must fit 64 bits.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The greatest multiple of `unit` (> 0) that is not above the value.
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) {
  return value / unit * unit;
}

}  // namespace od

#endif  // OVERDRIVE_BASE_ROUND_H_
