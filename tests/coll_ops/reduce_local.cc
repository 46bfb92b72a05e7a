// Compares the reduction kernels with the host's MPI_Reduce_local, bit by bit: every predefined
// operation on every predefined datatype on which the MPI standard allows it.
//
// Each difference is a FAIL, except those of which hosts are known; they are counted and reported
// as "NOTE type operation reason count", and whoever runs the program knows which host may do what:
//   special     the bits of a NaN; a maximum or minimum with a NaN, or of zeros of both signs;
//   complex
//               products with infinities or NaNs
//   saturates   a sum of small integers stops at the largest or smallest number
//   signedness  maximum or minimum compares unsigned numbers as signed ones or the reverse
//   refused     the host does not accept the combination
//   absent      the host does not have the type
#include <mpi.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "coll/ops/kernels.h"
#include "coll/ops/pairs.h"
#include "coll/ops/predefined_types.h"

namespace {

using namespace od::coll::ops;  // the program is about nothing else
using Random = std::mt19937_64;

struct Type {
  const char* name;
  MPI_Datatype handle;
  Category category;
  Family family;
};

struct Operation {
  const char* name;
  MPI_Op handle;
  Op op;
};

long failures = 0;
long compared = 0;

// A member of an element: where it lies and what it is. An element has one or two.
enum class Part { integer, f32, f64, ld };
struct Member {
  std::size_t offset, bytes;  // bytes without padding
  Part part;
};

Member integer_at(std::size_t offset, std::size_t bytes) { return {offset, bytes, Part::integer}; }
Member real_at(std::size_t offset, std::size_t bytes) {
  if (bytes == sizeof(float)) return {offset, bytes, Part::f32};
  if (bytes == sizeof(double)) return {offset, bytes, Part::f64};
  return {offset, std::numeric_limits<long double>::digits == 64 ? 10 : bytes, Part::ld};
}

template <typename V>
std::vector<Member> value_and_int() {
  using P = Pair<V, int>;
  const Member value = std::is_integral_v<V> ? integer_at(0, sizeof(V)) : real_at(0, sizeof(V));
  return {value, integer_at(offsetof(P, index), sizeof(int))};
}

std::vector<Member> members_of(Kind kind) {
  const std::size_t bytes = extent_bytes(kind);
  switch (kind) {
    case Kind::float32:
    case Kind::float64:
    case Kind::long_double:
      return {real_at(0, bytes)};
    case Kind::complex_float:
    case Kind::complex_double:
    case Kind::complex_long_double:
    case Kind::float_float:
    case Kind::double_double:
      return {real_at(0, bytes / 2), real_at(bytes / 2, bytes / 2)};
    case Kind::float_int:
      return value_and_int<float>();
    case Kind::double_int:
      return value_and_int<double>();
    case Kind::long_int:
      return value_and_int<long>();
    case Kind::short_int:
      return value_and_int<short>();
    case Kind::int_int:
      return value_and_int<int>();
    case Kind::long_double_int:
      return value_and_int<long double>();
    default:
      return {integer_at(0, bytes)};
  }
}

long double read_real(const char* element, const Member& member) {
  const char* const from = element + member.offset;
  if (member.part == Part::f32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (member.part == Part::f64) {
    double value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  long double value = 0;
  std::memcpy(&value, from, member.bytes);
  return value;
}

void write_real(char* element, const Member& member, long double value) {
  const float f32 = static_cast<float>(value);
  const double f64 = static_cast<double>(value);
  const void* const from = member.part == Part::f32   ? static_cast<const void*>(&f32)
                           : member.part == Part::f64 ? static_cast<const void*>(&f64)
                                                      : static_cast<const void*>(&value);
  std::memcpy(element + member.offset, from, member.bytes);
}

void randomize(char* element, Kind kind, const std::vector<Member>& members, bool special,
               Random& random) {
  static const long double specials[] = {0.0L, -0.0L, INFINITY, -INFINITY, NAN, -NAN, 1.0L};
  const bool is_pair = kind >= Kind::float_int;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Member& member = members[i];
    if (member.part != Part::integer) {
      long double value = static_cast<long double>(static_cast<std::int64_t>(random())) * 1e-18L;
      if (is_pair) value = static_cast<long double>(random() % 4);
      if (special && (!is_pair || i == 0)) value = specials[random() % 7];
      write_real(element, member, value);
      continue;
    }
    std::uint64_t value = random();
    if (random() % 4 == 0) value = random() % 2 == 0 ? 0 : ~std::uint64_t{0};
    if (is_pair) value = random() % 5 - 2;
    if (kind == Kind::boolean || (kind >= Kind::logical8 && kind <= Kind::logical64)) {
      value = random() % 2;  // other numbers are not values of these types
    }
    std::memcpy(element + member.offset, &value, member.bytes);
  }
}

enum Verdict { kSame, kSpecial, kSaturates, kSignedness, kWrong, kVerdicts };
const char* const kReasons[kVerdicts] = {"", "special", "saturates", "signedness", "wrong"};

std::int64_t read_integer(const char* element, const Member& member, bool is_signed) {
  std::int64_t value = 0;
  std::memcpy(&value, element + member.offset, member.bytes);
  const unsigned shift = static_cast<unsigned>(64 - 8 * member.bytes);
  const std::uint64_t raised = static_cast<std::uint64_t>(value) << shift;
  return is_signed ? static_cast<std::int64_t>(raised) >> shift : value;
}

// Why the host's integer differs from ours, which has the same bits for both kinds of sum.
Verdict judge_integer(Op op, const Member& member, const char* left, const char* right,
                      const char* ours, const char* hosts) {
  const std::int64_t host = read_integer(hosts, member, false);
  if (op == Op::max || op == Op::min) {
    // One of the operands, and not the one that we chose.
    const bool is_operand =
        host == read_integer(left, member, false) || host == read_integer(right, member, false);
    const bool signs_differ =
        (read_integer(left, member, true) < 0) != (read_integer(right, member, true) < 0);
    return is_operand && signs_differ && member.bytes <= 8 ? kSignedness : kWrong;
  }
  if (op != Op::sum || member.bytes > 2) return kWrong;
  const std::int64_t bit = std::int64_t{1} << (8 * member.bytes - 1);
  const std::int64_t as_signed =
      read_integer(left, member, true) + read_integer(right, member, true);
  const std::int64_t as_unsigned =
      read_integer(left, member, false) + read_integer(right, member, false);
  if ((as_unsigned & (2 * bit - 1)) != read_integer(ours, member, false)) return kWrong;
  if (as_signed >= bit && host == bit - 1) return kSaturates;
  if (as_signed < -bit && host == bit) return kSaturates;
  return as_unsigned >= 2 * bit && host == 2 * bit - 1 ? kSaturates : kWrong;
}

// Why the host's result of left op right differs from ours in one member.
Verdict judge(Op op, bool is_complex, const std::vector<Member>& members, const Member& member,
              const char* left, const char* right, const char* ours, const char* hosts) {
  if (std::memcmp(ours + member.offset, hosts + member.offset, member.bytes) == 0) return kSame;
  if (op == Op::maxloc || op == Op::minloc) {
    // With a NaN either operand may win, with all of its members.
    const Member& value = members[0];
    if (value.part == Part::integer) return kWrong;
    const long double a = read_real(left, value), b = read_real(right, value);
    const auto is = [&](const char* operand) {
      return std::memcmp(hosts + member.offset, operand + member.offset, member.bytes) == 0;
    };
    if (std::isnan(a) || std::isnan(b)) return is(left) || is(right) ? kSpecial : kWrong;
    // Of equal values, the sign of a zero is the host's choice.
    return &member == &value && a == b && read_real(hosts, value) == a ? kSpecial : kWrong;
  }
  if (member.part == Part::integer) return judge_integer(op, member, left, right, ours, hosts);
  const long double a = read_real(left, member), b = read_real(right, member);
  const long double x = read_real(ours, member), y = read_real(hosts, member);
  if (std::isnan(x) && std::isnan(y)) return kSpecial;
  if (op == Op::max || op == Op::min) {
    if (std::isnan(a) || std::isnan(b)) {
      return std::isnan(y) || y == a || y == b ? kSpecial : kWrong;
    }
    return a == b && x == y ? kSpecial : kWrong;
  }
  if (op == Op::prod && is_complex) {
    for (const Member& each : members) {
      if (!std::isfinite(read_real(left, each)) || !std::isfinite(read_real(right, each))) {
        return kSpecial;
      }
    }
  }
  return kWrong;
}

void print_element(const char* what, const char* element, const std::vector<Member>& members) {
  std::fprintf(stderr, " %s", what);
  for (const Member& member : members) {
    if (member.part != Part::integer) std::fprintf(stderr, " %.21Lg", read_real(element, member));
    for (std::size_t i = member.bytes; i > 0; --i) {
      std::fprintf(stderr, "%s%02x", i == member.bytes ? " 0x" : "",
                   static_cast<unsigned char>(element[member.offset + i - 1]));
    }
  }
}

// Returns false when the host refuses.
bool compare(const Type& type, const Operation& operation, Kind kind, Kernel kernel,
             Random& random) {
  const std::size_t step = extent_bytes(kind);
  const std::vector<Member> members = members_of(kind);
  const bool is_complex = kind >= Kind::complex_float && kind <= Kind::complex_long_double;
  long count_of[kVerdicts] = {};
  for (int round = 0; round < 300; ++round) {
    const bool special = round % 3 == 2;
    const std::size_t count = 1 + random() % (round % 2 == 0 ? 12 : 300);
    // Elements keep the alignment that C gives them; vectors do not.
    const std::size_t shift = (random() % 5) * (step % 16 == 0 ? 16 : step);
    std::vector<char> left(count * step + shift), right(left.size());
    for (std::size_t e = 0; e < count; ++e) {
      randomize(left.data() + shift + e * step, kind, members, special, random);
      randomize(right.data() + shift + e * step, kind, members, special, random);
    }
    std::vector<char> ours = right, hosts = right;
    if (MPI_Reduce_local(left.data() + shift, hosts.data() + shift, static_cast<int>(count),
                         type.handle, operation.handle) != MPI_SUCCESS) {
      return false;
    }
    reduce(kernel, ours.data() + shift, left.data() + shift, count);
    for (std::size_t e = 0; e < count; ++e) {
      const std::size_t at = shift + e * step;
      Verdict worst = kSame;
      for (const Member& member : members) {
        const Verdict verdict = judge(operation.op, is_complex, members, member, left.data() + at,
                                      right.data() + at, ours.data() + at, hosts.data() + at);
        if (verdict > worst) worst = verdict;
      }
      ++compared;
      // The first ones tell the story.
      if (++count_of[worst] > 2 || worst != kWrong) continue;
      std::fprintf(stderr, "FAIL %s %s, element %zu of %zu:", type.name, operation.name, e, count);
      print_element("in", left.data() + at, members);
      print_element("inout", right.data() + at, members);
      print_element("ours", ours.data() + at, members);
      print_element("host", hosts.data() + at, members);
      std::fprintf(stderr, "\n");
    }
  }
  failures += count_of[kWrong];
  for (const Verdict verdict : {kSpecial, kSaturates, kSignedness}) {
    if (count_of[verdict] == 0) continue;
    std::printf("NOTE %s %s %s %ld\n", type.name, operation.name, kReasons[verdict],
                count_of[verdict]);
  }
  return true;
}

std::vector<Type> all_types() {
  std::vector<Type> types;
#define ADD(type, category, family) \
  types.push_back({"MPI_" #type, MPI_##type, Category::category, Family::family});
  OD_PREDEFINED_C_TYPES(ADD)
  OD_PREDEFINED_CXX_TYPES(ADD)
  OD_PREDEFINED_FORTRAN_TYPES(ADD)
  OD_PREDEFINED_SIZED_FORTRAN_TYPES(ADD)
#undef ADD
  return types;
}

// The kind of a type whose layout in the host is the one that the kernels expect, else none.
Kind checked_kind(const Type& type) {
  int bytes = 0;
  if (type.handle == MPI_DATATYPE_NULL || MPI_Type_size(type.handle, &bytes) != MPI_SUCCESS ||
      bytes == 0) {
    std::printf("NOTE %s any absent 1\n", type.name);
    return Kind::none;
  }
  const Kind kind = kind_of(type.family, static_cast<std::size_t>(bytes));
  MPI_Aint lower = 0, extent = 0;
  MPI_Type_get_extent(type.handle, &lower, &extent);
  if (kind == Kind::none || lower != 0 || static_cast<std::size_t>(extent) != extent_bytes(kind)) {
    std::fprintf(stderr, "FAIL %s of %d bytes, extent %ld, is kind %s\n", type.name, bytes,
                 static_cast<long>(extent), name(kind));
    ++failures;
    return Kind::none;
  }
  return kind;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  Random random(seed);
  const Operation operations[] = {
      {"MPI_MAX", MPI_MAX, Op::max},          {"MPI_MIN", MPI_MIN, Op::min},
      {"MPI_SUM", MPI_SUM, Op::sum},          {"MPI_PROD", MPI_PROD, Op::prod},
      {"MPI_LAND", MPI_LAND, Op::land},       {"MPI_BAND", MPI_BAND, Op::band},
      {"MPI_LOR", MPI_LOR, Op::lor},          {"MPI_BOR", MPI_BOR, Op::bor},
      {"MPI_LXOR", MPI_LXOR, Op::lxor},       {"MPI_BXOR", MPI_BXOR, Op::bxor},
      {"MPI_MINLOC", MPI_MINLOC, Op::minloc}, {"MPI_MAXLOC", MPI_MAXLOC, Op::maxloc},
  };
  int combinations = 0;
  for (const Type& type : all_types()) {
    const Kind kind = checked_kind(type);
    if (kind == Kind::none) continue;
    for (const Operation& operation : operations) {
      if (!standard_allows(operation.op, type.category)) continue;
      const Kernel kernel = find_kernel(operation.op, kind);
      if (kernel == nullptr) {
        std::fprintf(stderr, "FAIL %s %s: no kernel\n", type.name, operation.name);
        ++failures;
      } else if (compare(type, operation, kind, kernel, random)) {
        ++combinations;
      } else {
        std::printf("NOTE %s %s refused 1\n", type.name, operation.name);
      }
    }
  }
  if (failures == 0) {
    std::printf("PASS %d combinations, %ld elements, kernels %s, seed %llu\n", combinations,
                compared, variant_name(best_variant()), static_cast<unsigned long long>(seed));
  }
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
