// Products of complex numbers that contain infinities and NaNs, as the C standard defines them.
//
// (inf + i inf) * (1 + i) is infinite for C although the usual formula gives NaNs; MPI libraries
// inherit that from their compiler. Vector kernels use the formula and come here when it gave a
// NaN.
#ifndef OVERDRIVE_COLL_OPS_COMPLEX_PRODUCT_H_
#define OVERDRIVE_COLL_OPS_COMPLEX_PRODUCT_H_

#include <cstddef>

namespace od::coll::ops {

template <typename Real>
struct CompilersComplex;
template <>
struct CompilersComplex<float> {
  typedef __complex__ float Type;
};
template <>
struct CompilersComplex<double> {
  typedef __complex__ double Type;
};
template <>
struct CompilersComplex<long double> {
  typedef __complex__ long double Type;
};

// *product = left * right with the compiler's own complex type, whose product has C's rules.
// Pointers are to the real part, the imaginary one follows.
template <typename Real>
inline void multiply_complex(const Real* left, const Real* right, Real* product) {
  typename CompilersComplex<Real>::Type a, b;
  __real__ a = left[0];
  __imag__ a = left[1];
  __real__ b = right[0];
  __imag__ b = right[1];
  const auto c = a * b;
  product[0] = __real__ c;
  product[1] = __imag__ c;
}

// The same for product[0..reals), arrays of real and imaginary parts in turn; out of line and
// compiled once, so that vector kernels of all instruction sets get the same bits.
void complex_product(const float* left, const float* right, float* product, std::size_t reals);
void complex_product(const double* left, const double* right, double* product, std::size_t reals);

}  // namespace od::coll::ops

#endif  // OVERDRIVE_COLL_OPS_COMPLEX_PRODUCT_H_
