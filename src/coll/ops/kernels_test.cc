// Compares every kernel of every instruction set with a definition written down value by value, for
// random counts, alignments, numbers of sources and aliases, with the values that break naive code.
#include "coll/ops/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "coll/ops/pairs.h"

namespace od::coll::ops {
namespace {

using Random = std::mt19937_64;

template <typename T>
struct Logical {
  T value;
};

// Calls visit(T()) with the type behind a kind.
template <class Visitor>
auto with_type(Kind kind, Visitor visit) {
  switch (kind) {
    case Kind::int8:
      return visit(std::int8_t());
    case Kind::uint8:
    case Kind::byte:
    case Kind::boolean:
      return visit(std::uint8_t());
    case Kind::int16:
      return visit(std::int16_t());
    case Kind::uint16:
      return visit(std::uint16_t());
    case Kind::int32:
      return visit(std::int32_t());
    case Kind::uint32:
      return visit(std::uint32_t());
    case Kind::int64:
      return visit(std::int64_t());
    case Kind::uint64:
      return visit(std::uint64_t());
    case Kind::float32:
      return visit(float());
    case Kind::float64:
      return visit(double());
    case Kind::long_double:
      return visit(static_cast<long double>(0));
    case Kind::complex_float:
      return visit(std::complex<float>());
    case Kind::complex_double:
      return visit(std::complex<double>());
    case Kind::complex_long_double:
      return visit(std::complex<long double>());
    case Kind::logical8:
      return visit(Logical<std::int8_t>());
    case Kind::logical16:
      return visit(Logical<std::int16_t>());
    case Kind::logical32:
      return visit(Logical<std::int32_t>());
    case Kind::logical64:
      return visit(Logical<std::int64_t>());
    case Kind::float_int:
      return visit(Pair<float, int>());
    case Kind::double_int:
      return visit(Pair<double, int>());
    case Kind::long_int:
      return visit(Pair<long, int>());
    case Kind::short_int:
      return visit(Pair<short, int>());
    case Kind::int_int:
      return visit(Pair<int, int>());
    case Kind::long_double_int:
      return visit(Pair<long double, int>());
    case Kind::float_float:
      return visit(Pair<float, float>());
    case Kind::double_double:
    case Kind::none:
      break;
  }
  return visit(Pair<double, double>());
}

template <typename T>
constexpr std::size_t kUsedBytes =
    // The format of the x87 leaves six bytes of it unused; others use all.
    std::is_same_v<T, long double>&& std::numeric_limits<T>::digits == 64 ? 10 : sizeof(T);

// Reads and writes a value without touching padding.
template <typename T>
T get(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void put(char* to, const T& value) {
  if constexpr (requires { value.index; }) {
    put(to, value.value);
    put(to + offsetof(T, index), value.index);
  } else if constexpr (std::is_same_v<T, std::complex<long double>>) {
    put(to, value.real());
    put(to + sizeof(long double), value.imag());
  } else {
    std::memcpy(to, &value, kUsedBytes<T>);
  }
}

template <typename T>
T random_value(Random& random) {
  if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    static constexpr T special[] = {0, 1, static_cast<T>(-1), Limits::min(), Limits::max(), 2};
    return random() % 2 == 0 ? special[random() % std::size(special)] : static_cast<T>(random());
  } else if constexpr (std::is_floating_point_v<T>) {
    using Limits = std::numeric_limits<T>;
    static constexpr T special[] = {0,
                                    -static_cast<T>(0),
                                    1,
                                    -1,
                                    Limits::infinity(),
                                    -Limits::infinity(),
                                    Limits::quiet_NaN(),
                                    -Limits::quiet_NaN(),
                                    Limits::max(),
                                    Limits::min(),
                                    Limits::denorm_min()};
    if (random() % 3 == 0) return special[random() % std::size(special)];
    return static_cast<T>(static_cast<double>(static_cast<std::int64_t>(random())) * 1e-18);
  } else if constexpr (requires(T pair) { pair.index; }) {
    // Few different values, so that many are equal and the index decides.
    using V = decltype(T::value);
    using I = decltype(T::index);
    const V value = random() % 4 == 0 ? random_value<V>(random) : static_cast<V>(random() % 3);
    return {value, static_cast<I>(static_cast<int>(random() % 7) - 3)};
  } else if constexpr (requires(T logical) { logical.value; }) {
    // What Fortran compilers use: 1, or all bits set.
    static constexpr int values[] = {0, 0, 1, -1};
    return {static_cast<decltype(T::value)>(values[random() % 4])};
  } else {
    using Real = typename T::value_type;
    return {random_value<Real>(random), random_value<Real>(random)};
  }
}

template <typename T>
T extreme_of(const T& left, const T& right, bool greater) {
  if (left.value == right.value) {
    return {right.value, right.index < left.index ? right.index : left.index};
  }
  const bool left_wins = greater ? left.value > right.value : left.value < right.value;
  return left_wins ? left : right;
}

// What the operation is defined to be; *defined becomes false if it is not for this type.
template <typename T>
T plain(Op op, const T& left, const T& right, bool* defined) {
  if (op == Op::replace) return left;
  if (op == Op::no_op) return right;
  if constexpr (std::is_arithmetic_v<T>) {
    if (op == Op::max) return right > left ? right : left;
    if (op == Op::min) return right < left ? right : left;
  }
  if constexpr (std::is_integral_v<T>) {
    using Wide = unsigned __int128;
    const Wide a = static_cast<Wide>(left), b = static_cast<Wide>(right);
    if (op == Op::sum) return static_cast<T>(a + b);
    if (op == Op::prod) return static_cast<T>(a * b);
    if (op == Op::band) return static_cast<T>(a & b);
    if (op == Op::bor) return static_cast<T>(a | b);
    if (op == Op::bxor) return static_cast<T>(a ^ b);
    if (op == Op::land) return left && right;
    if (op == Op::lor) return left || right;
    if (op == Op::lxor) return !left != !right;
  } else if constexpr (requires { left* right; }) {
    if (op == Op::sum) return left + right;
    if (op == Op::prod) return left * right;
  } else if constexpr (requires { left.index; }) {
    if (op == Op::maxloc) return extreme_of(left, right, true);
    if (op == Op::minloc) return extreme_of(left, right, false);
  } else {
    const bool a = left.value != 0, b = right.value != 0;
    const bool truth = op == Op::land ? a && b : op == Op::lor ? a || b : a != b;
    // Of two true operands LAND gives the right one and LOR the left one.
    const T one = op == Op::land || !a ? right : left;
    if (op == Op::land || op == Op::lor || op == Op::lxor) return truth ? one : T{0};
  }
  *defined = false;
  return left;
}

// The categories of datatypes that are represented by a kind.
std::vector<Category> categories(Kind kind) {
  using enum Category;
  if (kind == Kind::none) return {};
  if (kind <= Kind::uint64) return {c_integer, fortran_integer, multi_language};
  if (kind <= Kind::long_double) return {floating_point};
  if (kind <= Kind::complex_long_double) return {complex};
  if (kind <= Kind::logical64) return {logical};
  if (kind == Kind::byte) return {byte};
  return {pair};
}

bool allowed(Op op, Kind kind) {
  return std::ranges::any_of(categories(kind),
                             [op](Category each) { return standard_allows(op, each); });
}

// NaNs of sums and products may have any bits.
template <typename T>
bool same(Op op, const char* a, const char* b) {
  if (std::memcmp(a, b, sizeof(T)) == 0) return true;
  if (op != Op::sum && op != Op::prod) return false;
  const auto both_nan = [](auto x, auto y) { return x != x && y != y; };
  if constexpr (std::is_floating_point_v<T>) return both_nan(get<T>(a), get<T>(b));
  if constexpr (requires(T value) { value.real(); }) {
    using Real = typename T::value_type;
    const auto part = [&](std::size_t at) {
      return std::memcmp(a + at, b + at, kUsedBytes<Real>) == 0 ||
             both_nan(get<Real>(a + at), get<Real>(b + at));
    };
    return part(0) && part(sizeof(Real));
  }
  return false;
}

constexpr std::size_t kGuardBytes = 64;  // on either side of an array
constexpr std::size_t kShiftBytes = 64;  // how far from alignment it may begin

// An array somewhere in a buffer, surrounded by random bytes.
struct Array {
  Array(std::size_t bytes, Random& random)
      : buffer(bytes + 2 * kGuardBytes + kShiftBytes), begin(kGuardBytes + random() % kShiftBytes) {
    std::uint64_t eight = 0;
    for (std::size_t i = 0; i < buffer.size(); ++i, eight >>= 8) {
      if (i % 8 == 0) eight = random();
      buffer[i] = static_cast<char>(eight);
    }
  }
  char* data() { return buffer.data() + begin; }
  std::vector<char> buffer;
  std::size_t begin;
};

std::size_t random_count(Random& random) {
  switch (random() % 4) {
    case 0:
      return random() % 4;
    case 1:
      return random() % 20;
    case 2:
      return random() % 140;
    default:
      return random() % 700;
  }
}

template <typename T>
void check_once(Kernel kernel, Op op, Random& random) {
  const std::size_t count = random_count(random), bytes = count * sizeof(T);
  const std::size_t sources = random() % 3 == 0 ? 1 + random() % 6 : 2;
  const Store store = random() % 4 == 0 ? Store::streaming : Store::ordinary;
  std::vector<Array> array;
  std::vector<const void*> source;
  for (std::size_t i = 0; i < sources; ++i) {
    array.emplace_back(bytes, random);
    for (std::size_t e = 0; e < count; ++e) {
      put(array[i].data() + e * sizeof(T), random_value<T>(random));
    }
  }
  array.emplace_back(bytes, random);
  // One more than sources: a separate result.
  const std::size_t target = random() % (sources + 1);
  for (Array& each : array) source.push_back(each.data());
  std::vector<std::vector<char>> expected;
  for (const Array& each : array) expected.push_back(each.buffer);
  for (std::size_t e = 0; e < count; ++e) {
    bool defined = true;
    T value = get<T>(array[0].data() + e * sizeof(T));
    for (std::size_t i = 1; i < sources; ++i) {
      value = plain(op, value, get<T>(array[i].data() + e * sizeof(T)), &defined);
    }
    put(expected[target].data() + array[target].begin + e * sizeof(T), value);
  }
  kernel(array[target].data(), source.data(), sources, count, store);
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (array[i].buffer == expected[i]) continue;
    ASSERT_EQ(i, target) << "a source was written";
    const char* const wanted = expected[i].data() + array[i].begin;
    ASSERT_TRUE(std::equal(array[i].buffer.data(), array[i].data(), expected[i].data()));
    ASSERT_EQ(0, std::memcmp(array[i].data() + bytes, wanted + bytes,
                             expected[i].size() - array[i].begin - bytes))
        << "written beyond the end";
    for (std::size_t e = 0; e < count; ++e) {
      ASSERT_TRUE(same<T>(op, array[i].data() + e * sizeof(T), wanted + e * sizeof(T)))
          << "element " << e << " of " << count << ", " << sources << " sources, result in "
          << target << (store == Store::streaming ? ", streaming" : "");
    }
  }
}

template <class Check>
void for_each_kernel(Check check) {
  for (int variant = 0; variant <= best_variant(); ++variant) {
    for (int o = 0; o < kOps; ++o) {
      for (int k = 1; k < kKinds; ++k) {
        const Op op = static_cast<Op>(o);
        const Kind kind = static_cast<Kind>(k);
        const Kernel kernel = find_kernel(op, kind, variant);
        if (kernel == nullptr) continue;
        SCOPED_TRACE(std::string(variant_name(variant)) + " " + name(op) + " " + name(kind));
        check(kernel, op, kind, variant);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Kernels, ExistForWhatTheStandardAllowsAndNothingElse) {
  for (int variant = 0; variant < variants(); ++variant) {
    for (int o = 0; o < kOps; ++o) {
      for (int k = 0; k < kKinds; ++k) {
        const Op op = static_cast<Op>(o);
        const Kind kind = static_cast<Kind>(k);
        EXPECT_EQ(find_kernel(op, kind, variant) != nullptr, allowed(op, kind))
            << variant_name(variant) << " " << name(op) << " " << name(kind);
      }
    }
  }
}

TEST(Kernels, ComputeWhatIsDefined) {
  Random random(20240501);
  for_each_kernel([&](Kernel kernel, Op op, Kind kind, int) {
    with_type(kind, [&](auto type) {
      bool defined = true;
      plain(op, type, type, &defined);
      ASSERT_TRUE(defined);
      for (int round = 0; round < 120 && !testing::Test::HasFatalFailure(); ++round) {
        check_once<decltype(type)>(kernel, op, random);
      }
    });
  });
}

// The same two operands everywhere in arrays of all lengths and alignments. The result is written
// to `reference` if that is empty.
template <typename T>
void check_positions(Kernel kernel, const T& left, const T& right, std::vector<char>& reference) {
  for (std::size_t count = 1; count < 160; ++count) {
    for (const std::size_t shift : {0, 4, 8, 20}) {
      for (const Store store : {Store::ordinary, Store::streaming}) {
        std::vector<T> a(count + 32, left), b(count + 32, right), c(count + 32);
        // Whole elements for the operands, any alignment for the result.
        char* const dest = reinterpret_cast<char*>(c.data()) + shift;
        combine(kernel, dest, a.data() + shift % 3, b.data() + shift % 5, count, store);
        if (reference.empty()) reference.assign(dest, dest + kUsedBytes<T>);
        for (std::size_t e = 0; e < count; ++e) {
          ASSERT_EQ(0, std::memcmp(dest + e * sizeof(T), reference.data(), kUsedBytes<T>))
              << "element " << e << " of " << count << " at " << shift;
        }
      }
    }
  }
}

TEST(Kernels, GiveTheSameBitsAtEveryPositionWithEveryInstructionSet) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double other_nan = -std::bit_cast<double>(std::bit_cast<std::uint64_t>(nan) | 0x12345);
  const double inf = std::numeric_limits<double>::infinity();
  const float float_nan = std::numeric_limits<float>::quiet_NaN();
  const float other_float_nan =
      -std::bit_cast<float>(std::bit_cast<std::uint32_t>(float_nan) | 0x123);
  std::map<std::string, std::vector<char>> references;
  for_each_kernel([&](Kernel kernel, Op op, Kind kind, int) {
    int pair = 0;
    const auto check = [&](auto left, auto right) {
      const std::string key =
          std::string(name(op)) + " " + name(kind) + " " + std::to_string(pair++);
      check_positions(kernel, left, right, references[key]);
    };
    if (kind == Kind::float64) {
      check(nan, other_nan);
      check(other_nan, nan);
      check(1.0, nan);
      check(inf, -inf);
      check(0.0, -0.0);
    } else if (kind == Kind::float32) {
      check(float_nan, other_float_nan);
      check(1.0F, float_nan);
      check(-0.0F, 0.0F);
    } else if (kind == Kind::complex_double) {
      check(std::complex<double>(nan, 1), std::complex<double>(2, other_nan));
      check(std::complex<double>(inf, inf), std::complex<double>(-inf, 1));
    } else if (kind == Kind::complex_float) {
      check(std::complex<float>(float_nan, 1), std::complex<float>(other_float_nan, 3));
    } else if (kind == Kind::float_float) {
      check(Pair<float, float>{0.0F, float_nan}, Pair<float, float>{-0.0F, other_float_nan});
    }
  });
}

TEST(Kernels, KnowInfiniteComplexNumbers) {
  using C = std::complex<double>;
  const double infinity = std::numeric_limits<double>::infinity();
  for (int variant = 0; variant <= best_variant(); ++variant) {
    std::vector<C> left(9, C(infinity, infinity)), right(9, C(1, 1)), product(9);
    combine(find_kernel(Op::prod, Kind::complex_double, variant), product.data(), left.data(),
            right.data(), product.size());
    for (const C& each : product) EXPECT_TRUE(std::isinf(each.real()) || std::isinf(each.imag()));
  }
}

TEST(Kernels, DoNotFuseMultiplications) {
  // Exactly representable only with the product's full width: fused, the real part is not 0.
  using C = std::complex<double>;
  const double x = 1.0 + 0x1p-30;
  for (int variant = 0; variant <= best_variant(); ++variant) {
    std::vector<C> left(9, C(x, x)), right(9, C(x, x)), product(9);
    combine(find_kernel(Op::prod, Kind::complex_double, variant), product.data(), left.data(),
            right.data(), product.size());
    for (const C& each : product) EXPECT_EQ(each.real(), 0.0) << variant_name(variant);
  }
}

TEST(Kernels, ReduceAsReduceLocalDoes) {
  // Left is the operand: of two NaN-free equal zeros the maximum is the operand's.
  std::vector<double> accumulator(5, -0.0), operand(5, 0.0);
  reduce(find_kernel(Op::max, Kind::float64), accumulator.data(), operand.data(), 5);
  for (const double each : accumulator) EXPECT_FALSE(std::signbit(each));
  std::vector<int> old(5, 1), incoming(5, 2);
  reduce(find_kernel(Op::no_op, Kind::int32), old.data(), incoming.data(), 5);
  EXPECT_EQ(old[4], 1);
  reduce(find_kernel(Op::replace, Kind::int32), old.data(), incoming.data(), 5);
  EXPECT_EQ(old[4], 2);
}

TEST(Kernels, StreamLargeResults) {
  constexpr std::size_t kCount = 100'003;
  std::vector<double> left(kCount), right(kCount), ordinary(kCount), streamed(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    left[i] = static_cast<double>(i) / 3;
    right[i] = 1.0 / (1.0 + static_cast<double>(i));
  }
  for (int variant = 0; variant <= best_variant(); ++variant) {
    const Kernel kernel = find_kernel(Op::sum, Kind::float64, variant);
    combine(kernel, ordinary.data(), left.data(), right.data(), kCount);
    combine(kernel, streamed.data(), left.data(), right.data(), kCount, Store::streaming);
    EXPECT_EQ(ordinary, streamed);
    EXPECT_EQ(ordinary[kCount - 1], left[kCount - 1] + right[kCount - 1]);
  }
}

TEST(Kinds, FollowFromFamilyAndSize) {
  EXPECT_EQ(kind_of(Family::signed_integer, 4), Kind::int32);
  EXPECT_EQ(kind_of(Family::unsigned_integer, 8), Kind::uint64);
  EXPECT_EQ(kind_of(Family::signed_integer, 16), Kind::none);
  EXPECT_EQ(kind_of(Family::ieee, 8), Kind::float64);
  EXPECT_EQ(kind_of(Family::ieee, 16), Kind::none);
  EXPECT_EQ(kind_of(Family::logical, 4), Kind::logical32);
  EXPECT_EQ(kind_of(Family::short_int, 6), Kind::short_int);
  EXPECT_EQ(extent_bytes(Kind::short_int), 8u);
  EXPECT_EQ(extent_bytes(Kind::double_int), 16u);
  EXPECT_EQ(kind_of(Family::real_pair, 16), Kind::double_double);
  EXPECT_EQ(kind_of(Family::int_int, 16), Kind::none);
}

}  // namespace
}  // namespace od::coll::ops
