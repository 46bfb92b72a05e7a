// Size classes of small message blocks: bytes including the front, four per doubling.
//
// Multiples of 64, so that every block begins at a line. At most a quarter of a block is unused.
#ifndef OVERDRIVE_SMPI_SIZE_CLASSES_H_
#define OVERDRIVE_SMPI_SIZE_CLASSES_H_

#include <bit>
#include <cstdint>

namespace od::smpi {

inline constexpr std::uint64_t kLeastClassBytes = 256;
inline constexpr std::uint64_t kMostClassBytes = 64 << 10;
inline constexpr std::uint32_t kStepsPerDoubling = 4;
// Of a block that has memory of its own.
inline constexpr std::uint32_t kLargeClass = ~std::uint32_t{0};

// The class whose blocks have at least `bytes`, which is at most kMostClassBytes.
constexpr std::uint32_t size_class(std::uint64_t bytes) {
  if (bytes <= kLeastClassBytes) return 0;
  // bytes - 1 lies in [2^e, 2^(e+1)), which has four steps.
  const auto e = static_cast<std::uint32_t>(std::bit_width(bytes - 1)) - 1;
  const std::uint64_t step = std::uint64_t{1} << (e - 2);
  const auto steps = static_cast<std::uint32_t>((bytes - 1 - (std::uint64_t{1} << e)) / step);
  constexpr auto kLeast = static_cast<std::uint32_t>(std::bit_width(kLeastClassBytes)) - 1;
  return (e - kLeast) * kStepsPerDoubling + steps + 1;
}

constexpr std::uint64_t class_bytes(std::uint32_t size_class) {
  if (size_class == 0) return kLeastClassBytes;
  const std::uint32_t doubling = (size_class - 1) / kStepsPerDoubling;
  const std::uint32_t steps = (size_class - 1) % kStepsPerDoubling + 1;
  const std::uint64_t base = kLeastClassBytes << doubling;
  return base + base / kStepsPerDoubling * steps;
}

inline constexpr std::uint32_t kClassCount = size_class(kMostClassBytes) + 1;

static_assert(class_bytes(size_class(kMostClassBytes)) == kMostClassBytes);
static_assert(class_bytes(1) == 320 && size_class(257) == 1 && size_class(320) == 1 &&
              size_class(321) == 2 && size_class(512) == 4 && size_class(513) == 5);

}  // namespace od::smpi

#endif  // OVERDRIVE_SMPI_SIZE_CLASSES_H_
