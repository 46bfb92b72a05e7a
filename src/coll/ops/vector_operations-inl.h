// What the vector kernels compute, one functor per operation: apply(d, left, right) on whole
// vectors.
//
// Included once per instruction set, inside vector_kernels.cc. kLanes is the number of vector lanes
// that belong together: 2 where an element is a pair whose halves influence each other, else 1.
// Nothing here may use templates of the standard library: the linker would be free to take their
// instantiation for a better processor.
#if defined(OVERDRIVE_COLL_OPS_VECTOR_OPERATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OVERDRIVE_COLL_OPS_VECTOR_OPERATIONS_INL_H_
#undef OVERDRIVE_COLL_OPS_VECTOR_OPERATIONS_INL_H_
#else
#define OVERDRIVE_COLL_OPS_VECTOR_OPERATIONS_INL_H_
#endif

#include "coll/ops/complex_product.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace od::coll::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The comparison is written out because processors' own maxima differ in what they return for NaNs
// and for zeros of both signs. Host MPIs compute inout > in ? inout : in, and `right` is inout.
struct Max {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V left, V right) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::IfThenElse(hn::Gt(right, left), right, left);
    } else {
      return hn::Max(left, right);
    }
  }
};

struct Min {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V left, V right) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::IfThenElse(hn::Lt(right, left), right, left);
    } else {
      return hn::Min(left, right);
    }
  }
};

// The right operand of a sum or product, or the left one where that is a NaN. Of two NaNs
// processors return the first, and compilers feel free to exchange the operands: now both are the
// same.
template <class D, class V>
HWY_INLINE V unless_left_is_nan(D /*d*/, V left, V right) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    return hn::IfThenElse(hn::IsNaN(left), left, right);
  } else {
    return right;
  }
}

struct Sum {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    return hn::Add(left, unless_left_is_nan(d, left, right));
  }
};

struct Product {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    if constexpr (sizeof(hn::TFromD<D>) == 1) {
      return bytes(d, left, right);
    } else {
      return hn::Mul(left, unless_left_is_nan(d, left, right));
    }
  }

 private:
  // Highway has no products of bytes: the even and the odd ones as 16-bit numbers, kept modulo 256.
  template <class D, class V>
  static HWY_INLINE V bytes(D d, V left, V right) {
    const hn::Repartition<uint16_t, D> d16;
    const auto low = hn::Set(d16, 0xff);
    const auto left16 = hn::BitCast(d16, left), right16 = hn::BitCast(d16, right);
    const auto even = hn::And(hn::Mul(left16, right16), low);
    const auto odd = hn::Mul(hn::ShiftRight<8>(left16), hn::ShiftRight<8>(right16));
    return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<8>(odd)));
  }
};

// (a + bi)(c + di) = (ac - bd) + (ad + bc)i on lanes a b and c d.
struct ComplexProduct {
  static constexpr size_t kLanes = 2;
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    const V by_real = hn::Mul(hn::DupEven(left), right);
    const V by_imaginary = hn::Mul(hn::DupOdd(left), hn::Reverse2(d, right));
    const V product = hn::OddEven(hn::Add(by_real, by_imaginary), hn::Sub(by_real, by_imaginary));
    if (HWY_LIKELY(hn::AllFalse(d, hn::IsNaN(product)))) return product;
    using T = hn::TFromD<D>;
    constexpr size_t kReals = hn::MaxLanes(D());
    T a[kReals], b[kReals], c[kReals];
    hn::StoreU(left, d, a);
    hn::StoreU(right, d, b);
    complex_product(a, b, c, kReals);
    return hn::LoadU(d, c);
  }
};

struct BitAnd {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V left, V right) {
    return hn::And(left, right);
  }
};

struct BitOr {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V left, V right) {
    return hn::Or(left, right);
  }
};

struct BitXor {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V left, V right) {
    return hn::Xor(left, right);
  }
};

// Logical operations of C: any number but 0 is true, the result is 0 or 1.
struct And {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    const V zero = hn::Zero(d);
    const auto is_false = hn::Or(hn::Eq(left, zero), hn::Eq(right, zero));
    return hn::IfThenZeroElse(is_false, hn::Set(d, 1));
  }
};

struct Or {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    return hn::IfThenZeroElse(hn::Eq(hn::Or(left, right), hn::Zero(d)), hn::Set(d, 1));
  }
};

struct Xor {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    const V zero = hn::Zero(d);
    const auto differ = hn::Xor(hn::Eq(left, zero), hn::Eq(right, zero));
    return hn::IfThenElseZero(differ, hn::Set(d, 1));
  }
};

// Logical operations of Fortran: the result is 0 or one of the operands.
struct LogicalAnd {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    return hn::IfThenZeroElse(hn::Eq(left, hn::Zero(d)), right);
  }
};

struct LogicalOr {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    return hn::IfThenElse(hn::Eq(left, hn::Zero(d)), right, left);
  }
};

struct LogicalXor {
  static constexpr size_t kLanes = 1;
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    const V zero = hn::Zero(d);
    const V unless_left = hn::IfThenElse(hn::Eq(right, zero), left, zero);
    return hn::IfThenElse(hn::Eq(left, zero), right, unless_left);
  }
};

// Value and index in turn, each in a lane of its own; the vector is one of values. Equal values:
// the right one's value (zeros differ in sign) and the lower index. Where a lane is wider than its
// member the upper bits are padding: kValueShift and kIndexShift bits, which comparisons shift out
// and keep_padding restores. `Index` is an index with its padding.
template <typename Index, bool kGreater, int kValueShift = 0, int kIndexShift = 0>
struct Extreme {
  static constexpr size_t kLanes = 2;
  static constexpr bool kHasPadding = kValueShift + kIndexShift > 0;

  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    const hn::Rebind<Index, D> di;
    const V left_value = shifted<kValueShift>(hn::DupEven(left));
    const V right_value = shifted<kValueShift>(hn::DupEven(right));
    const auto left_wins =
        kGreater ? hn::Gt(left_value, right_value) : hn::Lt(left_value, right_value);
    // Not less in this order, so that a NaN as index is handed on as the hosts do.
    const auto right_lower = hn::RebindMask(d, hn::Lt(shifted<kIndexShift>(hn::BitCast(di, right)),
                                                      shifted<kIndexShift>(hn::BitCast(di, left))));
    const V one_winner = hn::IfThenElse(left_wins, left, right);
    const V lower_index = hn::OddEven(hn::IfThenElse(right_lower, right, left), right);
    return hn::IfThenElse(hn::Eq(left_value, right_value), lower_index, one_winner);
  }

  // `result` with the padding of `old`.
  template <class D, class V>
  static HWY_INLINE V keep_padding(D d, V old, V result) {
    const hn::RebindToUnsigned<D> du;
    using U = hn::TFromD<decltype(du)>;
    const auto value = hn::Set(du, static_cast<U>(~U{0} >> kValueShift));
    const auto index = hn::Set(du, static_cast<U>(~U{0} >> kIndexShift));
    const auto used = hn::BitCast(d, hn::OddEven(index, value));
    return hn::Or(hn::And(used, result), hn::AndNot(used, old));
  }

 private:
  template <int kBits, class V>
  static HWY_INLINE V shifted(V vector) {
    if constexpr (kBits == 0) {
      return vector;
    } else {
      return hn::ShiftLeft<kBits>(vector);
    }
  }
};

}  // namespace od::coll::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // the toggled include guard
