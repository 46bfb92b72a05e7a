// Kernels in plain C++: for elements that do not fill vectors (long double, pairs with padding),
// and for all others on processors that no vector kernel was compiled for.
#ifndef OVERDRIVE_COLL_OPS_SCALAR_KERNELS_H_
#define OVERDRIVE_COLL_OPS_SCALAR_KERNELS_H_

#include "coll/ops/kernels.h"

namespace od::coll::ops {

// Null if the operation is not defined for the kind; REPLACE and NO_OP are not here.
Kernel find_scalar_kernel(Op op, Kind kind);

// REPLACE and NO_OP for any kind; null for other operations and for Kind::none.
Kernel find_copy_kernel(Op op, Kind kind);

}  // namespace od::coll::ops

#endif  // OVERDRIVE_COLL_OPS_SCALAR_KERNELS_H_
