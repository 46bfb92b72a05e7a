// What a reduction does with two elements: a kernel, or a function of the program.
#ifndef OVERDRIVE_COLL_SHM_COMBINER_H_
#define OVERDRIVE_COLL_SHM_COMBINER_H_

#include <cstddef>
#include <cstdint>

#include "coll/ops/kernels.h"

namespace od::coll::shm {

struct Combiner {
  // inout = left op inout, element by element: the order of MPI_Reduce_local(left, inout).
  using Function = void (*)(void* context, const void* left, void* inout, std::size_t count);

  // dest = source[0] op source[1] ...; dest may be one of the sources.
  using Joiner = void (*)(void* context, std::byte* dest, const std::byte* const* source,
                          std::size_t sources, std::size_t count);

  ops::Kernel kernel = nullptr;  // null: `joiner` is used, or if that is null, `function`
  Joiner joiner = nullptr;
  Function function = nullptr;
  void* context = nullptr;
  std::uint64_t extent_bytes = 1;  // from one element to the next
  bool commutative = false;        // or: operands have to be joined in the order of positions

  // dest = s0 op s1 op ... over `sources` (at least one) arrays of `count` elements, with the order
  // of operands kept. Kernels join from left to right, functions from right to left: always in the
  // same way, so that results are the same wherever they are computed. dest may be one of the
  // sources; `scratch` has room for `count` elements and is used by functions only.
  void combine(std::byte* dest, const std::byte* const* source, std::size_t sources,
               std::size_t count, std::byte* scratch) const;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_COMBINER_H_
