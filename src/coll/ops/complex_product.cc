// Multiplies with the compiler's own complex type, whose product has the C standard's rules.

#include "coll/ops/complex_product.h"

namespace od::coll::ops {
namespace {

template <typename Complex, typename Real>
void multiply(const Real* left, const Real* right, Real* product, std::size_t reals) {
  for (std::size_t i = 0; i < reals; i += 2) {
    Complex a, b;
    __real__ a = left[i];
    __imag__ a = left[i + 1];
    __real__ b = right[i];
    __imag__ b = right[i + 1];
    const Complex c = a * b;
    product[i] = __real__ c;
    product[i + 1] = __imag__ c;
  }
}

}  // namespace

void complex_product(const float* left, const float* right, float* product, std::size_t reals) {
  multiply<__complex__ float>(left, right, product, reals);
}
void complex_product(const double* left, const double* right, double* product, std::size_t reals) {
  multiply<__complex__ double>(left, right, product, reals);
}
void complex_product(const long double* left, const long double* right, long double* product,
                     std::size_t reals) {
  multiply<__complex__ long double>(left, right, product, reals);
}

}  // namespace od::coll::ops
