// Combining the contributions to a reduction.

#include "coll/shm/combiner.h"

#include <cstring>

namespace od::coll::shm {

void Combiner::combine(std::byte* dest, const std::byte* const* source, std::size_t sources,
                       std::size_t count, std::byte* scratch) const {
  if (kernel != nullptr) {
    kernel(dest, reinterpret_cast<const void* const*>(source), sources, count,
           ops::Store::ordinary);
    return;
  }
  if (joiner != nullptr) {
    joiner(context, dest, source, sources, count);
    return;
  }
  const std::size_t bytes = count * extent_bytes;
  // Elsewhere while an operand that is still needed lies in dest.
  std::byte* sum = dest;
  for (std::size_t i = 0; i + 1 < sources; ++i) {
    if (source[i] == dest) sum = scratch;
  }
  if (source[sources - 1] != sum) std::memcpy(sum, source[sources - 1], bytes);
  for (std::size_t i = sources - 1; i-- > 0;) function(context, source[i], sum, count);
  if (sum != dest) std::memcpy(dest, sum, bytes);
}

}  // namespace od::coll::shm
