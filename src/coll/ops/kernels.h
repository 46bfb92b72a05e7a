// Reduction kernels: dest = s0 op s1 op ... over arrays, vectorised, for every operation and kind
// of element that MPI defines.
//
// A caller looks a kernel up once and calls it as often as it likes. The invariants on which the
// collectives build:
// - An element's result depends on nothing but the operands' bits and their order: not on its
//   position, the alignment of the arrays, the number of elements, the instruction set, or the way
//   the result is stored. Floating-point expressions are never reordered or fused.
// - The operands are combined from left to right: ((s0 op s1) op s2) ...
// - `dest` may be one of the sources. Otherwise they do not overlap.
// - Nothing needs to be aligned. Gaps inside elements of `dest` are not written.
// What each operation computes in detail: docs/design/reduction-kernels.md.
#ifndef OVERDRIVE_COLL_OPS_KERNELS_H_
#define OVERDRIVE_COLL_OPS_KERNELS_H_

#include <cstddef>

#include "coll/ops/kinds.h"

namespace od::coll::ops {

enum class Store : unsigned char {
  ordinary,
  // Past the caches where the kernel can (vector kernels, more than a few lines): for large results
  // that this core will not read soon. Ends with the fence that makes the stores visible before a
  // later release store. Of no use if dest is also a source.
  streaming,
};

// Reduces `sources` arrays (at least one) of `count` elements each.
using Kernel = void (*)(void* dest, const void* const* source, std::size_t sources,
                        std::size_t count, Store store);

// Instruction sets that kernels were compiled for, in rising order; 0 runs on every processor.
int variants();
const char* variant_name(int variant);
// The highest variant that this processor (and its operating system) can run.
int best_variant();

// Null if the operation is not defined for the kind.
Kernel find_kernel(Op op, Kind kind, int variant);
inline Kernel find_kernel(Op op, Kind kind) { return find_kernel(op, kind, best_variant()); }

// dest = left op right
inline void combine(Kernel kernel, void* dest, const void* left, const void* right,
                    std::size_t count, Store store = Store::ordinary) {
  const void* const source[] = {left, right};
  kernel(dest, source, 2, count, store);
}

// accumulator = operand op accumulator: the order of MPI_Reduce_local(operand, accumulator).
inline void reduce(Kernel kernel, void* accumulator, const void* operand, std::size_t count) {
  combine(kernel, accumulator, operand, accumulator, count);
}

}  // namespace od::coll::ops

#endif  // OVERDRIVE_COLL_OPS_KERNELS_H_
