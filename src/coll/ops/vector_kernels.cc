// The vector kernels: one loop over vectors for all operations, compiled for several instruction
// sets.
//
// Only the header part of Highway is used, so nothing of it is needed at run time; which set a
// processor can run is asked of the compiler's run-time library. All elements go through the same
// vector operations: what does not fill a vector at either end is computed by a vector that
// overlaps its neighbour, or by a shorter vector if there is less than one. That is why a result
// never depends on an element's position.
//
// Fused multiply-add, half floats and encryption are not wanted; without them the AVX2 kernels run,
// and round, the same everywhere.
#define HWY_DISABLE_BMI2_FMA
#define HWY_DISABLE_F16C
#define HWY_DISABLE_PCLMUL_AES
// Processors older than SSE 4 take the portable kernels.
#define HWY_DISABLED_TARGETS HWY_SSSE3

#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coll/ops/vector_kernels.cc"
#include "hwy/foreach_target.h"  // compiles this file once more for each instruction set
// After the above.
#include "coll/ops/vector_kernels.h"
#include "coll/ops/vector_operations-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace od::coll::ops::HWY_NAMESPACE {

template <class F>
concept Padded = F::kHasPadding;

// What is to be stored at `to`: the result, between gaps as they are.
template <class F, class D>
HWY_INLINE hn::Vec<D> between_gaps(D d, hn::Vec<D> result, const char* to) {
  if constexpr (Padded<F>) {
    const auto old = hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(to));
    return F::keep_padding(d, old, result);
  } else {
    return result;
  }
}

// The vectors at `offset` bytes of all sources, reduced.
template <class F, class D>
HWY_INLINE hn::Vec<D> fold_at(D d, const char* const* source, size_t sources, size_t offset) {
  using T = hn::TFromD<D>;
  auto result = hn::LoadU(d, reinterpret_cast<const T*>(source[0] + offset));
  for (size_t i = 1; i < sources; ++i) {
    result = F::apply(d, result, hn::LoadU(d, reinterpret_cast<const T*>(source[i] + offset)));
  }
  return result;
}

template <class F, class D>
HWY_INLINE void store_at(D d, hn::Vec<D> vector, char* dest, size_t offset) {
  hn::StoreU(between_gaps<F>(d, vector, dest + offset), d,
             reinterpret_cast<hn::TFromD<D>*>(dest + offset));
}

using Bytes16 = hn::Full128<uint8_t>;

// Fewer than 16 bytes, at the low end of a vector; the rest is zero. Two loads that overlap, put
// together in registers: reading back what smaller stores have written would cost more.
HWY_NOINLINE hn::Vec<Bytes16> load_part(const char* from, size_t bytes) {
  const hn::Full128<uint64_t> d;
  uint64_t low = 0, high = 0;
  if (bytes >= 8) {
    __builtin_memcpy(&low, from, 8);
    if (bytes > 8) {
      __builtin_memcpy(&high, from + bytes - 8, 8);
      high >>= 8 * (16 - bytes);
    }
  } else if (bytes >= 4) {
    uint32_t first = 0, last = 0;
    __builtin_memcpy(&first, from, 4);
    __builtin_memcpy(&last, from + bytes - 4, 4);
    low = first | uint64_t{last} << (8 * (bytes - 4));
  } else if (bytes > 0) {
    const auto at = [from](size_t i) { return uint64_t{static_cast<uint8_t>(from[i])}; };
    low = at(0) | at(bytes / 2) << (8 * (bytes / 2)) | at(bytes - 1) << (8 * (bytes - 1));
  }
  return hn::BitCast(Bytes16(), hn::InterleaveLower(d, hn::Set(d, low), hn::Set(d, high)));
}

HWY_NOINLINE void store_part(hn::Vec<Bytes16> vector, char* to, size_t bytes) {
  HWY_ALIGN uint64_t half[2];
  hn::Store(hn::BitCast(hn::Full128<uint64_t>(), vector), hn::Full128<uint64_t>(), half);
  if (bytes >= 8) {
    __builtin_memcpy(to, &half[0], 8);
    to += 8;
    bytes -= 8;
    half[0] = half[1];
  }
  if (bytes >= 4) {
    __builtin_memcpy(to, &half[0], 4);
    to += 4;
    bytes -= 4;
    half[0] >>= 32;
  }
  for (; bytes > 0; --bytes, half[0] >>= 8) *to++ = static_cast<char>(half[0]);
}

// Less than a vector: vectors of 16 bytes, or what there is of one.
template <class F, typename T>
HWY_INLINE void fold_short(char* dest, const char* const* source, size_t sources, size_t bytes) {
  const hn::Full128<T> d;
  if (bytes >= 16) {
    const auto last = fold_at<F>(d, source, sources, bytes - 16);
    for (size_t offset = 0; offset + 16 < bytes; offset += 16) {
      store_at<F>(d, fold_at<F>(d, source, sources, offset), dest, offset);
    }
    store_at<F>(d, last, dest, bytes - 16);
    return;
  }
  auto result = hn::BitCast(d, load_part(source[0], bytes));
  for (size_t i = 1; i < sources; ++i) {
    result = F::apply(d, result, hn::BitCast(d, load_part(source[i], bytes)));
  }
  if constexpr (Padded<F>) {
    result = F::keep_padding(d, hn::BitCast(d, load_part(dest, bytes)), result);
  }
  store_part(hn::BitCast(Bytes16(), result), dest, bytes);
}

// Vectors and blocks of four vectors from `begin` while they fit below `end`; returns where it
// stopped. kTwo: there are two sources. kStream: dest + begin is aligned to a vector.
template <class F, class D, bool kTwo, bool kStream>
HWY_INLINE size_t fold_middle(D d, char* dest, const char* const* source, size_t sources,
                              size_t begin, size_t end) {
  using T = hn::TFromD<D>;
  constexpr size_t kVectorBytes = hn::MaxLanes(D()) * sizeof(T);
  const char* const first = source[0];
  const char* const second = kTwo ? source[1] : nullptr;
  const auto load = [d](const char* from)
                        HWY_ATTR { return hn::LoadU(d, reinterpret_cast<const T*>(from)); };
  const auto store = [d](hn::Vec<D> vector, char* to) HWY_ATTR {
    vector = between_gaps<F>(d, vector, to);
    if constexpr (kStream) {
      hn::Stream(vector, d, reinterpret_cast<T*>(to));
    } else {
      hn::StoreU(vector, d, reinterpret_cast<T*>(to));
    }
  };
  for (; begin + 4 * kVectorBytes <= end; begin += 4 * kVectorBytes) {
    const char* from = first + begin;
    auto a = load(from), b = load(from + kVectorBytes);
    auto c = load(from + 2 * kVectorBytes), e = load(from + 3 * kVectorBytes);
    for (size_t i = 1; i < (kTwo ? 2 : sources); ++i) {
      from = (kTwo ? second : source[i]) + begin;
      a = F::apply(d, a, load(from));
      b = F::apply(d, b, load(from + kVectorBytes));
      c = F::apply(d, c, load(from + 2 * kVectorBytes));
      e = F::apply(d, e, load(from + 3 * kVectorBytes));
    }
    char* const to = dest + begin;
    store(a, to);
    store(b, to + kVectorBytes);
    store(c, to + 2 * kVectorBytes);
    store(e, to + 3 * kVectorBytes);
  }
  for (; begin + kVectorBytes <= end; begin += kVectorBytes) {
    store_at<F>(d, fold_at<F>(d, source, sources, begin), dest, begin);
  }
  return begin;
}

// Out of line: kernels whose elements differ only in size share it.
template <class F, typename T>
HWY_NOINLINE void fold(void* to, const void* const* from, size_t sources, size_t bytes, Store how) {
  const hn::ScalableTag<T> d;
  constexpr size_t kVectorBytes = hn::MaxLanes(hn::ScalableTag<T>()) * sizeof(T);
  char* const dest = static_cast<char*>(to);
  const auto* const source = reinterpret_cast<const char* const*>(from);
  if (bytes < kVectorBytes) {
    fold_short<F, T>(dest, source, sources, bytes);
    return;
  }
  // Both ends first: dest may be one of the sources, and the middle overwrites parts of them.
  const auto first = fold_at<F>(d, source, sources, 0);
  const auto last = fold_at<F>(d, source, sources, bytes - kVectorBytes);
  const size_t beyond = reinterpret_cast<uintptr_t>(dest) % kVectorBytes;
  const bool can_align = beyond % (F::kLanes * sizeof(T)) == 0;
  const size_t begin = beyond != 0 && can_align ? kVectorBytes - beyond : 0;
  if (how == Store::streaming && can_align) {
    fold_middle<F, decltype(d), false, true>(d, dest, source, sources, begin, bytes);
    hwy::FlushStream();
  } else if (sources == 2) {
    fold_middle<F, decltype(d), true, false>(d, dest, source, sources, begin, bytes);
  } else {
    fold_middle<F, decltype(d), false, false>(d, dest, source, sources, begin, bytes);
  }
  store_at<F>(d, first, dest, 0);
  store_at<F>(d, last, dest, bytes - kVectorBytes);
}

// A kernel whose elements have kElementBytes.
template <class F, typename T, size_t kElementBytes = sizeof(T)>
void kernel(void* dest, const void* const* source, size_t sources, size_t count, Store store) {
  fold<F, T>(dest, source, sources, count * kElementBytes, store);
}

template <class F, size_t kElementBytes>
constexpr Kernel bitwise() {
  return &kernel<F, uint8_t, kElementBytes>;
}

// `And`, `Or` and `Xor` of whoever interprets the elements as truth.
template <typename T, class AndOf, class OrOf, class XorOf>
Kernel find_truth(Op op) {
  switch (op) {
    case Op::land:
      return &kernel<AndOf, T>;
    case Op::lor:
      return &kernel<OrOf, T>;
    case Op::lxor:
      return &kernel<XorOf, T>;
    default:
      return nullptr;
  }
}

template <typename T>
Kernel find_logical(Op op) {
  return find_truth<T, And, Or, Xor>(op);
}

template <typename T>
Kernel find_fortran_logical(Op op) {
  return find_truth<T, LogicalAnd, LogicalOr, LogicalXor>(op);
}

template <size_t kElementBytes>
Kernel find_bitwise(Op op) {
  switch (op) {
    case Op::band:
      return bitwise<BitAnd, kElementBytes>();
    case Op::bor:
      return bitwise<BitOr, kElementBytes>();
    case Op::bxor:
      return bitwise<BitXor, kElementBytes>();
    default:
      return nullptr;
  }
}

// Sums, products, bits and truth do not depend on the sign: signed integers use unsigned kernels,
// whose overflow is defined.
template <typename T>
Kernel find_integer(Op op) {
  using Unsigned = hwy::MakeUnsigned<T>;
  switch (op) {
    case Op::max:
      return &kernel<Max, T>;
    case Op::min:
      return &kernel<Min, T>;
    case Op::sum:
      return &kernel<Sum, Unsigned>;
    case Op::prod:
      return &kernel<Product, Unsigned>;
    case Op::band:
    case Op::bor:
    case Op::bxor:
      return find_bitwise<sizeof(T)>(op);
    default:
      return find_logical<Unsigned>(op);
  }
}

template <typename T>
Kernel find_float(Op op) {
  switch (op) {
    case Op::max:
      return &kernel<Max, T>;
    case Op::min:
      return &kernel<Min, T>;
    case Op::sum:
      return &kernel<Sum, T>;
    case Op::prod:
      return &kernel<Product, T>;
    default:
      return nullptr;
  }
}

template <typename T>
Kernel find_complex(Op op) {
  if (op == Op::sum) return &kernel<Sum, T, 2 * sizeof(T)>;
  if (op == Op::prod) return &kernel<ComplexProduct, T, 2 * sizeof(T)>;
  return nullptr;
}

template <typename Value, typename Index, int kValueShift = 0, int kIndexShift = 0>
Kernel find_extreme(Op op) {
  static_assert(sizeof(Value) == sizeof(Index));
  if (op == Op::minloc) {
    return &kernel<Extreme<Index, false, kValueShift, kIndexShift>, Value, 2 * sizeof(Value)>;
  }
  if (op == Op::maxloc) {
    return &kernel<Extreme<Index, true, kValueShift, kIndexShift>, Value, 2 * sizeof(Value)>;
  }
  return nullptr;
}

Kernel find(Op op, Kind kind) {
  switch (kind) {
    case Kind::int8:
      return find_integer<int8_t>(op);
    case Kind::uint8:
      return find_integer<uint8_t>(op);
    case Kind::int16:
      return find_integer<int16_t>(op);
    case Kind::uint16:
      return find_integer<uint16_t>(op);
    case Kind::int32:
      return find_integer<int32_t>(op);
    case Kind::uint32:
      return find_integer<uint32_t>(op);
    case Kind::int64:
      return find_integer<int64_t>(op);
    case Kind::uint64:
      return find_integer<uint64_t>(op);
    case Kind::float32:
      return find_float<float>(op);
    case Kind::float64:
      return find_float<double>(op);
    case Kind::complex_float:
      return find_complex<float>(op);
    case Kind::complex_double:
      return find_complex<double>(op);
    case Kind::boolean:
      return find_logical<uint8_t>(op);
    case Kind::logical8:
      return find_fortran_logical<uint8_t>(op);
    case Kind::logical16:
      return find_fortran_logical<uint16_t>(op);
    case Kind::logical32:
      return find_fortran_logical<uint32_t>(op);
    case Kind::logical64:
      return find_fortran_logical<uint64_t>(op);
    case Kind::byte:
      return find_bitwise<1>(op);
    case Kind::float_int:
      return find_extreme<float, int32_t>(op);
    case Kind::double_int:
      return find_extreme<double, int64_t, 0, 32>(op);
    case Kind::long_int:
      if constexpr (sizeof(long) != 8) return nullptr;
      return find_extreme<int64_t, int64_t, 0, 32>(op);
    case Kind::short_int:
      return find_extreme<int32_t, int32_t, 16, 0>(op);
    case Kind::int_int:
      return find_extreme<int32_t, int32_t>(op);
    case Kind::float_float:
      return find_extreme<float, float>(op);
    case Kind::double_double:
      return find_extreme<double, double>(op);
    default:
      return nullptr;
  }
}

}  // namespace od::coll::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace od::coll::ops {
namespace {

constexpr auto kVariants = std::to_array<VectorVariant>({
#if HWY_TARGETS & HWY_SSE4
  {"sse4", [] { return __builtin_cpu_supports("sse4.2") != 0; }, &N_SSE4::find},
#endif
#if HWY_TARGETS & HWY_AVX2
      {"avx2", [] { return __builtin_cpu_supports("avx2") != 0; }, &N_AVX2::find},
#endif
#if HWY_TARGETS & HWY_AVX3
      {"avx512",
       [] {
         return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
                __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512bw") != 0;
       },
       &N_AVX3::find},
#endif
#if !HWY_ARCH_X86
      // The one that the whole program is compiled for.
      {"vector", [] { return true; }, &HWY_STATIC_DISPATCH(find)},
#endif
});

}  // namespace

std::span<const VectorVariant> vector_variants() { return kVariants; }

}  // namespace od::coll::ops
#endif  // HWY_ONCE
