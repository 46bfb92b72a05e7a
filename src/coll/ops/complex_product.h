// Products of complex numbers that contain infinities and NaNs, as the C standard defines them.
//
// (inf + i inf) * (1 + i) is infinite for C although the usual formula gives NaNs; MPI libraries
// inherit that from their compiler. Vector kernels use the formula and come here when it gave a
// NaN.
#ifndef OVERDRIVE_COLL_OPS_COMPLEX_PRODUCT_H_
#define OVERDRIVE_COLL_OPS_COMPLEX_PRODUCT_H_

#include <cstddef>

namespace od::coll::ops {

// product[0..reals) = left * right, arrays of real and imaginary parts in turn.
void complex_product(const float* left, const float* right, float* product, std::size_t reals);
void complex_product(const double* left, const double* right, double* product, std::size_t reals);
void complex_product(const long double* left, const long double* right, long double* product,
                     std::size_t reals);

}  // namespace od::coll::ops

#endif  // OVERDRIVE_COLL_OPS_COMPLEX_PRODUCT_H_
