// The part of complex products that vector kernels share.

#include "coll/ops/complex_product.h"

namespace od::coll::ops {

void complex_product(const float* left, const float* right, float* product, std::size_t reals) {
  for (std::size_t i = 0; i < reals; i += 2) multiply_complex(left + i, right + i, product + i);
}

void complex_product(const double* left, const double* right, double* product, std::size_t reals) {
  for (std::size_t i = 0; i < reals; i += 2) multiply_complex(left + i, right + i, product + i);
}

}  // namespace od::coll::ops
