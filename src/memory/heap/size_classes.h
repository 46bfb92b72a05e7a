// Sizes of spans in pages: exact up to 16 pages, above that eight per doubling (at most 12.5 %
// more than asked for, in address space; what is not touched is not there).
#ifndef OVERDRIVE_MEMORY_HEAP_SIZE_CLASSES_H_
#define OVERDRIVE_MEMORY_HEAP_SIZE_CLASSES_H_

#include <stdint.h>

namespace od::memory::heap {

inline constexpr uint64_t kPageBytes = 4096;
// Pages are numbered with 32 bits; 256 GiB have 2^26.
inline constexpr uint32_t kMostPages = 1u << 26;
inline constexpr unsigned kExactClasses = 16;
inline constexpr unsigned kClassCount = kExactClasses + (27 - 4) * 8;

// The largest class that is not above `pages` (at least 1).
constexpr unsigned class_below(uint32_t pages) {
  if (pages < kExactClasses) return pages;
  const unsigned exponent = 31u - static_cast<unsigned>(__builtin_clz(pages));
  return kExactClasses + (exponent - 4) * 8 + ((pages >> (exponent - 3)) & 7);
}

constexpr uint32_t class_pages(unsigned size_class) {
  if (size_class < kExactClasses) return size_class;
  const unsigned exponent = 4 + (size_class - kExactClasses) / 8;
  return (8 + (size_class - kExactClasses) % 8) << (exponent - 3);
}

// The smallest class that is not below `pages`.
constexpr unsigned class_above(uint32_t pages) {
  const unsigned below = class_below(pages);
  return class_pages(below) < pages ? below + 1 : below;
}

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_SIZE_CLASSES_H_
