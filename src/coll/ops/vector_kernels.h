// The sets of vector kernels, one per instruction set that they were compiled for.
#ifndef OVERDRIVE_COLL_OPS_VECTOR_KERNELS_H_
#define OVERDRIVE_COLL_OPS_VECTOR_KERNELS_H_

#include <span>

#include "coll/ops/kernels.h"

namespace od::coll::ops {

struct VectorVariant {
  const char* name;
  bool (*usable)();                  // by this processor
  Kernel (*find)(Op op, Kind kind);  // null if there is no vector kernel
};

// In rising order.
std::span<const VectorVariant> vector_variants();

}  // namespace od::coll::ops

#endif  // OVERDRIVE_COLL_OPS_VECTOR_KERNELS_H_
