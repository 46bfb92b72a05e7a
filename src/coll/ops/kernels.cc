// Looks kernels up: copies, then vectors of the wanted instruction set, then scalars.

#include "coll/ops/kernels.h"

#include "coll/ops/scalar_kernels.h"
#include "coll/ops/vector_kernels.h"

namespace od::coll::ops {

namespace {

const VectorVariant& vector_variant(int variant) {
  return vector_variants()[static_cast<std::size_t>(variant - 1)];
}

}  // namespace

int variants() { return 1 + static_cast<int>(vector_variants().size()); }

const char* variant_name(int variant) {
  return variant == 0 ? "portable" : vector_variant(variant).name;
}

int best_variant() {
  int best = variants() - 1;
  while (best > 0 && !vector_variant(best).usable()) --best;
  return best;
}

Kernel find_kernel(Op op, Kind kind, int variant) {
  if (const Kernel found = find_copy_kernel(op, kind)) return found;
  if (variant > 0) {
    if (const Kernel found = vector_variant(variant).find(op, kind)) return found;
  }
  return find_scalar_kernel(op, kind);
}

}  // namespace od::coll::ops
