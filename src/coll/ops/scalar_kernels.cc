// Plain C++ for every kind, element by element; every value is read and written through memcpy
// because nothing is aligned, and member by member because padding belongs to the program.

#include "coll/ops/scalar_kernels.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "coll/ops/complex_product.h"
#include "coll/ops/pairs.h"

namespace od::coll::ops {
namespace {

// Bytes of a number that hold its value: the x87's long double is padded to sixteen bytes.
template <typename T>
constexpr std::size_t kValueBytes = (std::is_same_v<T, long double>)&&std::numeric_limits<T>::digits
                                            == 64
                                        ? 10
                                        : sizeof(T);

// A number at any address. The padding of a long double is left alone; plain assignment would do
// that for computed values only, and may copy a value from memory with its padding.
template <typename T>
struct Unaligned {
  typedef T Type __attribute__((aligned(1), may_alias));
};
template <typename T>
T load(const char* from) {
  return *reinterpret_cast<const typename Unaligned<T>::Type*>(from);
}
template <typename T>
void store(char* to, T value) {
  if constexpr (kValueBytes<T> < sizeof(T)) {
    std::memcpy(to, &value, kValueBytes<T>);
  } else {
    *reinterpret_cast<typename Unaligned<T>::Type*>(to) = value;
  }
}

// How an element of one kind is read and written.
template <typename T>
struct Number {
  using Value = T;
  static constexpr std::size_t kExtentBytes = sizeof(T);
  static Value read(const char* from) { return load<T>(from); }
  static void write(char* to, const Value& value) { store(to, value); }
};

template <typename Real>
struct Complex {
  struct Value {
    Real part[2];
  };
  static constexpr std::size_t kExtentBytes = sizeof(Value);
  static Value read(const char* from) {
    return {{load<Real>(from), load<Real>(from + sizeof(Real))}};
  }
  static void write(char* to, const Value& value) {
    store(to, value.part[0]);
    store(to + sizeof(Real), value.part[1]);
  }
};

template <typename V, typename I>
struct ValueAndIndex {
  using Value = Pair<V, I>;
  static constexpr std::size_t kExtentBytes = sizeof(Value);
  static V value(const char* from) { return load<V>(from + offsetof(Value, value)); }
  static I index(const char* from) { return load<I>(from + offsetof(Value, index)); }
  static void write_value(char* to, V value) { store(to + offsetof(Value, value), value); }
  static void write_index(char* to, I index) { store(to + offsetof(Value, index), index); }
  static Value read(const char* from) { return {value(from), index(from)}; }
  static void write(char* to, const Value& pair) {
    write_value(to, pair.value);
    write_index(to, pair.index);
  }
};

// The same definitions as in vector_operations-inl.h. Integers are unsigned except where their
// order matters, because their overflow is defined; the casts undo the promotion to int.
struct Max {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return right > left ? right : left;
  }
};
struct Min {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return right < left ? right : left;
  }
};
// The right operand of a sum or product, or the left one where that is a NaN: the value does not
// change, but of two NaNs it is always the left one that is returned. The x87 needs no such help:
// it returns the one with the larger significand, whatever the order.
template <typename T>
T unless_left_is_nan(T left, T right) {
  if constexpr (std::is_same_v<T, long double> && std::numeric_limits<T>::digits == 64) {
    return right;
  } else {
    return left != left ? left : right;
  }
}
template <typename T>
T sum(T left, T right) {
  return static_cast<T>(left + unless_left_is_nan(left, right));
}
struct Sum {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return sum(left, right);
  }
};
struct Product {
  template <typename T>
  static T apply(const T& left, const T& right) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(std::uint64_t{left} * std::uint64_t{right});
    } else {
      return left * unless_left_is_nan(left, right);
    }
  }
};
struct ComplexSum {
  template <typename C>
  static C apply(const C& left, const C& right) {
    return {{sum(left.part[0], right.part[0]), sum(left.part[1], right.part[1])}};
  }
};
struct ComplexProduct {
  template <typename C>
  static C apply(const C& left, const C& right) {
    C product;
    multiply_complex(left.part, right.part, product.part);
    return product;
  }
};
struct BitAnd {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return static_cast<T>(left & right);
  }
};
struct BitOr {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return static_cast<T>(left | right);
  }
};
struct BitXor {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return static_cast<T>(left ^ right);
  }
};
struct And {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return left != 0 && right != 0;
  }
};
struct Or {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return left != 0 || right != 0;
  }
};
struct Xor {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return (left != 0) != (right != 0);
  }
};
struct LogicalAnd {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return left == 0 ? left : right;
  }
};
struct LogicalOr {
  template <typename T>
  static T apply(const T& left, const T& right) {
    return left == 0 ? right : left;
  }
};
struct LogicalXor {
  template <typename T>
  static T apply(const T& left, const T& right) {
    if (left == 0) return right;
    return right == 0 ? left : T{0};
  }
};
template <bool kGreater>
struct Extreme {
  static constexpr bool kWantsGreater = kGreater;
  template <typename P>
  static P apply(const P& left, const P& right) {
    const bool left_wins = kGreater ? left.value > right.value : left.value < right.value;
    if (left_wins) return left;
    if (left.value == right.value && !(right.index < left.index)) return {right.value, left.index};
    return right;
  }
};

// Two sources of pairs: where the result takes the place of the right operand, a value that wins
// there is not written again.
template <class Element, bool kGreater>
void extreme_of_two(char* to, const char* left, const char* right, std::size_t bytes) {
  const bool in_place = to == right;
  for (std::size_t i = 0; i < bytes; i += Element::kExtentBytes) {
    const auto a = Element::value(left + i), b = Element::value(right + i);
    const auto a_index = Element::index(left + i);
    auto index = Element::index(right + i);
    if (kGreater ? a > b : a < b) {
      Element::write_value(to + i, a);
      Element::write_index(to + i, a_index);
      continue;
    }
    if (a == b && !(index < a_index)) index = a_index;
    if (!in_place) Element::write_value(to + i, b);
    Element::write_index(to + i, index);
  }
}

template <class F>
constexpr bool kIsExtreme = false;
template <bool kGreater>
constexpr bool kIsExtreme<Extreme<kGreater>> = true;

template <class F, class Element>
void kernel(void* dest, const void* const* source, std::size_t sources, std::size_t count,
            Store /*store*/) {
  constexpr std::size_t kStep = Element::kExtentBytes;
  auto* const to = static_cast<char*>(dest);
  if (sources == 2) {
    const auto* const left = static_cast<const char*>(source[0]);
    const auto* const right = static_cast<const char*>(source[1]);
    if constexpr (kIsExtreme<F>) {
      extreme_of_two<Element, F::kWantsGreater>(to, left, right, count * kStep);
      return;
    }
    for (std::size_t i = 0; i < count * kStep; i += kStep) {
      Element::write(to + i, F::apply(Element::read(left + i), Element::read(right + i)));
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    auto result = Element::read(static_cast<const char*>(source[0]) + i * kStep);
    for (std::size_t j = 1; j < sources; ++j) {
      result = F::apply(result, Element::read(static_cast<const char*>(source[j]) + i * kStep));
    }
    Element::write(to + i * kStep, result);
  }
}

template <typename V, typename I = int>
Kernel find_extreme(Op op) {
  if (op == Op::minloc) return &kernel<Extreme<false>, ValueAndIndex<V, I>>;
  if (op == Op::maxloc) return &kernel<Extreme<true>, ValueAndIndex<V, I>>;
  return nullptr;
}

template <typename T>
Kernel find_order(Op op) {
  if (op == Op::max) return &kernel<Max, Number<T>>;
  if (op == Op::min) return &kernel<Min, Number<T>>;
  return nullptr;
}

template <typename T>
Kernel find_arithmetic(Op op) {
  if (op == Op::sum) return &kernel<Sum, Number<T>>;
  if (op == Op::prod) return &kernel<Product, Number<T>>;
  return nullptr;
}

template <typename Real>
Kernel find_complex(Op op) {
  if (op == Op::sum) return &kernel<ComplexSum, Complex<Real>>;
  if (op == Op::prod) return &kernel<ComplexProduct, Complex<Real>>;
  return nullptr;
}

template <typename T>
Kernel find_bitwise(Op op) {
  if (op == Op::band) return &kernel<BitAnd, Number<T>>;
  if (op == Op::bor) return &kernel<BitOr, Number<T>>;
  if (op == Op::bxor) return &kernel<BitXor, Number<T>>;
  return nullptr;
}

template <typename T>
Kernel find_logical(Op op) {
  if (op == Op::land) return &kernel<And, Number<T>>;
  if (op == Op::lor) return &kernel<Or, Number<T>>;
  if (op == Op::lxor) return &kernel<Xor, Number<T>>;
  return nullptr;
}

template <typename T>
Kernel find_fortran_logical(Op op) {
  if (op == Op::land) return &kernel<LogicalAnd, Number<T>>;
  if (op == Op::lor) return &kernel<LogicalOr, Number<T>>;
  if (op == Op::lxor) return &kernel<LogicalXor, Number<T>>;
  return nullptr;
}

template <typename T>
Kernel find_float(Op op) {
  const Kernel found = find_order<T>(op);
  return found != nullptr ? found : find_arithmetic<T>(op);
}

template <typename T>
Kernel find_integer(Op op) {
  using Unsigned = std::make_unsigned_t<T>;
  if (const Kernel found = find_order<T>(op)) return found;
  if (const Kernel found = find_arithmetic<Unsigned>(op)) return found;
  if (const Kernel found = find_bitwise<Unsigned>(op)) return found;
  return find_logical<Unsigned>(op);
}

// Copies the first or the last source without the padding of its elements.
template <class Element, bool kFirst>
void copy_elements(void* dest, const void* const* source, std::size_t sources, std::size_t count,
                   Store /*store*/) {
  const auto* const from = static_cast<const char*>(source[kFirst ? 0 : sources - 1]);
  if (dest == from) return;
  auto* const to = static_cast<char*>(dest);
  for (std::size_t i = 0; i < count; ++i) {
    Element::write(to + i * Element::kExtentBytes, Element::read(from + i * Element::kExtentBytes));
  }
}

// The same for elements without padding.
template <std::size_t kElementBytes, bool kFirst>
void copy_all(void* dest, const void* const* source, std::size_t sources, std::size_t count,
              Store /*store*/) {
  const void* const from = source[kFirst ? 0 : sources - 1];
  if (dest != from) std::memcpy(dest, from, count * kElementBytes);
}

template <bool kFirst>
Kernel find_copy(Kind kind) {
  switch (kind) {
    case Kind::none:
      return nullptr;
    case Kind::long_double:
      return &copy_elements<Number<long double>, kFirst>;
    case Kind::complex_long_double:
      return &copy_elements<Complex<long double>, kFirst>;
    case Kind::double_int:
      return &copy_elements<ValueAndIndex<double, int>, kFirst>;
    case Kind::long_int:
      return &copy_elements<ValueAndIndex<long, int>, kFirst>;
    case Kind::short_int:
      return &copy_elements<ValueAndIndex<short, int>, kFirst>;
    case Kind::long_double_int:
      return &copy_elements<ValueAndIndex<long double, int>, kFirst>;
    default:
      break;
  }
  switch (extent_bytes(kind)) {
    case 1:
      return &copy_all<1, kFirst>;
    case 2:
      return &copy_all<2, kFirst>;
    case 4:
      return &copy_all<4, kFirst>;
    case 8:
      return &copy_all<8, kFirst>;
    case 16:
      return &copy_all<16, kFirst>;
    default:
      return nullptr;
  }
}

}  // namespace

Kernel find_scalar_kernel(Op op, Kind kind) {
  switch (kind) {
    case Kind::none:
      return nullptr;
    case Kind::int8:
      return find_integer<std::int8_t>(op);
    case Kind::uint8:
      return find_integer<std::uint8_t>(op);
    case Kind::int16:
      return find_integer<std::int16_t>(op);
    case Kind::uint16:
      return find_integer<std::uint16_t>(op);
    case Kind::int32:
      return find_integer<std::int32_t>(op);
    case Kind::uint32:
      return find_integer<std::uint32_t>(op);
    case Kind::int64:
      return find_integer<std::int64_t>(op);
    case Kind::uint64:
      return find_integer<std::uint64_t>(op);
    case Kind::float32:
      return find_float<float>(op);
    case Kind::float64:
      return find_float<double>(op);
    case Kind::long_double:
      return find_float<long double>(op);
    case Kind::complex_float:
      return find_complex<float>(op);
    case Kind::complex_double:
      return find_complex<double>(op);
    case Kind::complex_long_double:
      return find_complex<long double>(op);
    case Kind::boolean:
      return find_logical<std::uint8_t>(op);
    case Kind::logical8:
      return find_fortran_logical<std::uint8_t>(op);
    case Kind::logical16:
      return find_fortran_logical<std::uint16_t>(op);
    case Kind::logical32:
      return find_fortran_logical<std::uint32_t>(op);
    case Kind::logical64:
      return find_fortran_logical<std::uint64_t>(op);
    case Kind::byte:
      return find_bitwise<std::uint8_t>(op);
    case Kind::float_int:
      return find_extreme<float>(op);
    case Kind::double_int:
      return find_extreme<double>(op);
    case Kind::long_int:
      return find_extreme<long>(op);
    case Kind::short_int:
      return find_extreme<short>(op);
    case Kind::int_int:
      return find_extreme<int>(op);
    case Kind::long_double_int:
      return find_extreme<long double>(op);
    case Kind::float_float:
      return find_extreme<float, float>(op);
    case Kind::double_double:
      return find_extreme<double, double>(op);
  }
  return nullptr;
}

Kernel find_copy_kernel(Op op, Kind kind) {
  if (op == Op::replace) return find_copy<true>(kind);
  if (op == Op::no_op) return find_copy<false>(kind);
  return nullptr;
}

}  // namespace od::coll::ops
