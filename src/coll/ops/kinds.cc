// The tables behind kinds.h.

#include "coll/ops/kinds.h"

#include <complex>
#include <initializer_list>

#include "coll/ops/pairs.h"

namespace od::coll::ops {
namespace {

struct KindRow {
  const char* name;
  std::size_t extent_bytes;
};

// In the order of Kind.
constexpr KindRow kKindTable[] = {
    {"none", 0},
    {"int8", 1},
    {"uint8", 1},
    {"int16", 2},
    {"uint16", 2},
    {"int32", 4},
    {"uint32", 4},
    {"int64", 8},
    {"uint64", 8},
    {"float32", 4},
    {"float64", 8},
    {"long_double", sizeof(long double)},
    {"complex_float", 8},
    {"complex_double", 16},
    {"complex_long_double", sizeof(std::complex<long double>)},
    {"boolean", sizeof(bool)},
    {"logical8", 1},
    {"logical16", 2},
    {"logical32", 4},
    {"logical64", 8},
    {"byte", 1},
    {"float_int", sizeof(Pair<float, int>)},
    {"double_int", sizeof(Pair<double, int>)},
    {"long_int", sizeof(Pair<long, int>)},
    {"short_int", sizeof(Pair<short, int>)},
    {"int_int", sizeof(Pair<int, int>)},
    {"long_double_int", sizeof(Pair<long double, int>)},
    {"float_float", sizeof(Pair<float, float>)},
    {"double_double", sizeof(Pair<double, double>)},
};
static_assert(sizeof(kKindTable) / sizeof(kKindTable[0]) == kKinds);
static_assert(sizeof(bool) == 1 && sizeof(int) == 4 && sizeof(float) == 4 && sizeof(double) == 8);

constexpr const char* kOpNames[] = {"max", "min",  "sum",  "prod",   "land",   "band",    "lor",
                                    "bor", "lxor", "bxor", "minloc", "maxloc", "replace", "no_op"};
static_assert(sizeof(kOpNames) / sizeof(kOpNames[0]) == kOps);

bool one_of(Category category, std::initializer_list<Category> allowed) {
  for (const Category each : allowed) {
    if (each == category) return true;
  }
  return false;
}

Kind by_size(std::size_t bytes, Kind one, Kind two, Kind four, Kind eight) {
  switch (bytes) {
    case 1:
      return one;
    case 2:
      return two;
    case 4:
      return four;
    case 8:
      return eight;
    default:
      return Kind::none;
  }
}

Kind if_size(std::size_t bytes, std::size_t expected, Kind kind) {
  return bytes == expected ? kind : Kind::none;
}

}  // namespace

bool standard_allows(Op op, Category category) {
  using enum Category;
  switch (op) {
    case Op::max:
    case Op::min:
      return one_of(category, {c_integer, fortran_integer, floating_point, multi_language});
    case Op::sum:
    case Op::prod:
      return one_of(category,
                    {c_integer, fortran_integer, floating_point, complex, multi_language});
    case Op::land:
    case Op::lor:
    case Op::lxor:
      return one_of(category, {c_integer, logical});
    case Op::band:
    case Op::bor:
    case Op::bxor:
      return one_of(category, {c_integer, fortran_integer, byte, multi_language});
    case Op::minloc:
    case Op::maxloc:
      return category == pair;
    case Op::replace:
    case Op::no_op:
      return true;
  }
  return false;
}

Kind kind_of(Family family, std::size_t bytes) {
  switch (family) {
    case Family::signed_integer:
      return by_size(bytes, Kind::int8, Kind::int16, Kind::int32, Kind::int64);
    case Family::unsigned_integer:
      return by_size(bytes, Kind::uint8, Kind::uint16, Kind::uint32, Kind::uint64);
    case Family::ieee:
      return by_size(bytes, Kind::none, Kind::none, Kind::float32, Kind::float64);
    case Family::long_double:
      return if_size(bytes, sizeof(long double), Kind::long_double);
    case Family::ieee_complex:
      if (bytes == 8) return Kind::complex_float;
      return if_size(bytes, 16, Kind::complex_double);
    case Family::long_double_complex:
      return if_size(bytes, 2 * sizeof(long double), Kind::complex_long_double);
    case Family::boolean:
      return if_size(bytes, sizeof(bool), Kind::boolean);
    case Family::logical:
      return by_size(bytes, Kind::logical8, Kind::logical16, Kind::logical32, Kind::logical64);
    case Family::byte:
      return if_size(bytes, 1, Kind::byte);
    case Family::float_int:
      return if_size(bytes, sizeof(float) + sizeof(int), Kind::float_int);
    case Family::double_int:
      return if_size(bytes, sizeof(double) + sizeof(int), Kind::double_int);
    case Family::long_int:
      return if_size(bytes, sizeof(long) + sizeof(int), Kind::long_int);
    case Family::short_int:
      return if_size(bytes, sizeof(short) + sizeof(int), Kind::short_int);
    case Family::int_int:
      return if_size(bytes, 2 * sizeof(int), Kind::int_int);
    case Family::long_double_int:
      return if_size(bytes, sizeof(long double) + sizeof(int), Kind::long_double_int);
    case Family::real_pair:
      if (bytes == 2 * sizeof(float)) return Kind::float_float;
      return if_size(bytes, 2 * sizeof(double), Kind::double_double);
  }
  return Kind::none;
}

std::size_t extent_bytes(Kind kind) { return kKindTable[static_cast<int>(kind)].extent_bytes; }
const char* name(Kind kind) { return kKindTable[static_cast<int>(kind)].name; }
const char* name(Op op) { return kOpNames[static_cast<int>(op)]; }

}  // namespace od::coll::ops
