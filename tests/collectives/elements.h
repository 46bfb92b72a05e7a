// The predefined datatypes on which reductions work: what an element holds, which operations it
// takes, how to fill it and how to compare two results.
//
// Elements are compared by member, so padding does not count; real numbers by value. They are
// filled with small whole numbers, for which every order of additions gives the same sum.
#ifndef ELEMENTS_H_
#define ELEMENTS_H_

#include "coll/ops/predefined_types.h"
#include "odtest.h"

typedef enum {
  kFamily_signed_integer,
  kFamily_unsigned_integer,
  kFamily_ieee,
  kFamily_long_double,
  kFamily_ieee_complex,
  kFamily_long_double_complex,
  kFamily_boolean,
  kFamily_logical,
  kFamily_byte,
  kFamily_float_int,
  kFamily_double_int,
  kFamily_long_int,
  kFamily_short_int,
  kFamily_int_int,
  kFamily_long_double_int,
  kFamily_real_pair,
} Family;

typedef enum {
  kMax,
  kMin,
  kSum,
  kProd,
  kLand,
  kBand,
  kLor,
  kBor,
  kLxor,
  kBxor,
  kMinloc,
  kMaxloc
} OpName;
enum { kOps = 12 };
// Operations of the program (numbers from kOps on) count modulo this.
enum { kPrime = 1000003 };

static MPI_Op op_handle(int op) {
  const MPI_Op handles[kOps] = {MPI_MAX, MPI_MIN, MPI_SUM,  MPI_PROD, MPI_LAND,   MPI_BAND,
                                MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
  return handles[op];
}
static const char* const kOpNames[kOps] = {"MAX", "MIN", "SUM",  "PROD", "LAND",   "BAND",
                                           "LOR", "BOR", "LXOR", "BXOR", "MINLOC", "MAXLOC"};

#define OP_BIT(op) (1u << (op))
enum {
  kArithmetic = OP_BIT(kMax) | OP_BIT(kMin) | OP_BIT(kSum) | OP_BIT(kProd),
  kBitwise = OP_BIT(kBand) | OP_BIT(kBor) | OP_BIT(kBxor),
  kLogic = OP_BIT(kLand) | OP_BIT(kLor) | OP_BIT(kLxor),
  kOps_c_integer = kArithmetic | kBitwise | kLogic,
  kOps_fortran_integer = kArithmetic | kBitwise,
  kOps_floating_point = kArithmetic,
  kOps_logical = kLogic,
  kOps_complex = OP_BIT(kSum) | OP_BIT(kProd),
  kOps_byte = kBitwise,
  kOps_multi_language = kArithmetic | kBitwise,
  kOps_pair = OP_BIT(kMinloc) | OP_BIT(kMaxloc),
};

typedef enum { kWhole, kFloat, kDouble, kLongDouble } Part;
typedef struct {
  int offset, bytes;
  Part part;
} Member;

typedef struct {
  const char* name;
  MPI_Datatype type;
  Family family;
  unsigned ops;
  int extent;
  int members;
  Member member[2];
} Base;

enum { kMostBases = 96 };
static Base bases[kMostBases];
static int base_count;

static Member whole_at(int offset, int bytes) { return (Member){offset, bytes, kWhole}; }
static Member real_at(int offset, int bytes) {
  return (Member){offset, bytes, bytes == 4 ? kFloat : bytes == 8 ? kDouble : kLongDouble};
}

#define PAIR_OF(V) \
  struct {         \
    V value;       \
    int index;     \
  }

// Fills in the members; 0 if the host's datatype is not what this file knows.
static int describe(Base* base, int size) {
  const int half = size / 2;
  base->members = 1;
  switch (base->family) {
    case kFamily_ieee:
      base->member[0] = real_at(0, size);
      return size == 4 || size == 8;
    case kFamily_long_double:
      base->member[0] = real_at(0, (int)sizeof(long double));
      return size == (int)sizeof(long double);
    case kFamily_ieee_complex:
    case kFamily_long_double_complex:
    case kFamily_real_pair:
      base->members = 2;
      base->member[0] = real_at(0, half);
      base->member[1] = real_at(half, half);
      return half == 4 || half == 8 || half == (int)sizeof(long double);
#define DESCRIBE_PAIR(family, V, make)                                                      \
  case family: {                                                                            \
    PAIR_OF(V) pair;                                                                        \
    base->members = 2;                                                                      \
    base->member[0] = make(0, (int)sizeof(V));                                              \
    base->member[1] = whole_at((int)((char*)&pair.index - (char*)&pair), (int)sizeof(int)); \
    return base->extent == (int)sizeof pair;                                                \
  }
      DESCRIBE_PAIR(kFamily_float_int, float, real_at)
      DESCRIBE_PAIR(kFamily_double_int, double, real_at)
      DESCRIBE_PAIR(kFamily_long_int, long, whole_at)
      DESCRIBE_PAIR(kFamily_short_int, short, whole_at)
      DESCRIBE_PAIR(kFamily_int_int, int, whole_at)
      DESCRIBE_PAIR(kFamily_long_double_int, long double, real_at)
#undef DESCRIBE_PAIR
    default:
      base->member[0] = whole_at(0, size);
      return size <= 8;
  }
}

static void add_base(const char* name, MPI_Datatype type, Family family, unsigned ops) {
  int size = 0;
  MPI_Aint lower, extent;
  if (type == MPI_DATATYPE_NULL) return;
  if (MPI_Type_size(type, &size) != MPI_SUCCESS || size == 0) return;
  MPI_Type_get_extent(type, &lower, &extent);
  Base* base = &bases[base_count];
  *base = (Base){.name = name, .type = type, .family = family, .ops = ops, .extent = (int)extent};
  if (describe(base, size)) base_count++;
}

static void find_bases(void) {
#define ADD_BASE(name, category, family) \
  add_base("MPI_" #name, MPI_##name, kFamily_##family, kOps_##category);
  OD_PREDEFINED_C_TYPES(ADD_BASE)
  OD_PREDEFINED_CXX_TYPES(ADD_BASE)
  OD_PREDEFINED_FORTRAN_TYPES(ADD_BASE)
  OD_PREDEFINED_SIZED_FORTRAN_TYPES(ADD_BASE)
#undef ADD_BASE
}

static int is_unsigned(const Base* base) {
  return base->family == kFamily_unsigned_integer || strcmp(base->name, "MPI_OFFSET") == 0;
}
static int is_real(const Base* base) {
  return base->member[0].part != kWhole && base->members == 1;
}

// What the host's own operations get wrong: values for which it would show are left out.
static int host_small_sums_saturate;  // sums of 8-bit and 16-bit integers
static int host_signedness_is_wrong;  // MAX and MIN of unsigned integers (or MPI_OFFSET)
// Real numbers of any value: sums depend on the order.
static int any_real_numbers;

static void put_real(char* element, const Member* member, long double value) {
  float f = (float)value;
  double d = (double)value;
  if (member->part == kFloat) memcpy(element + member->offset, &f, sizeof f);
  if (member->part == kDouble) memcpy(element + member->offset, &d, sizeof d);
  if (member->part == kLongDouble) memcpy(element + member->offset, &value, sizeof value);
}
static long double get_real(const char* element, const Member* member) {
  float f;
  double d;
  long double value;
  if (member->part == kFloat) return memcpy(&f, element + member->offset, sizeof f), f;
  if (member->part == kDouble) return memcpy(&d, element + member->offset, sizeof d), d;
  return memcpy(&value, element + member->offset, sizeof value), value;
}

static void fill_element(const Base* base, int op, char* element, uint64_t key) {
  // Beyond 16 ranks products of complex numbers and sums of bytes would not fit any more.
  const int many = odt.size > 16;
  for (int i = 0; i < base->members; i++) {
    const Member* member = &base->member[i];
    key = odt_mix(key + 17);
    if (member->part != kWhole) {
      static const int kFactors[] = {1, -1, 2, 1};
      long double value = (long double)(key % 17) - 8;
      if (op == kProd) value = many && i == 1 ? 0 : kFactors[key % 4];
      if (any_real_numbers) value = (long double)(int64_t)key * 1e-12L;
      if (base->members == 2 && op >= kMinloc) value = (long double)(key % 4);
      put_real(element, member, value);
      continue;
    }
    uint64_t value = key;
    if (key % 5 == 0) value = key % 2 == 0 ? 0 : ~UINT64_C(0);
    if (base->members == 2) value = i == 0 ? key % 4 : key % 1000;
    if (base->family == kFamily_boolean || base->family == kFamily_logical) value = key % 2;
    if (op >= kOps) value = key % kPrime;
    if (op == kSum && host_small_sums_saturate && member->bytes <= 2) {
      value = key % (many ? 2 : 8);
    }
    if ((op == kMax || op == kMin) && host_signedness_is_wrong && is_unsigned(base)) {
      value &= (UINT64_C(1) << (8 * member->bytes - 1)) - 1;
    }
    memcpy(element + member->offset, &value, (size_t)member->bytes);
  }
}

static int same_element(const Base* base, const char* a, const char* b) {
  for (int i = 0; i < base->members; i++) {
    const Member* member = &base->member[i];
    if (member->part == kWhole) {
      if (memcmp(a + member->offset, b + member->offset, (size_t)member->bytes) != 0) return 0;
    } else if (any_real_numbers) {
      const long double x = get_real(a, member), y = get_real(b, member);
      const long double close = member->part == kFloat ? 1e2L : 1e-6L;  // of sums of up to 1e7
      if (!(x - y <= close && y - x <= close)) return 0;
    } else if (get_real(a, member) != get_real(b, member)) {
      return 0;
    }
  }
  return 1;
}

static void print_element(const Base* base, const char* element, char* text, size_t room) {
  size_t used = 0;
  for (int i = 0; i < base->members && used < room; i++) {
    const Member* member = &base->member[i];
    if (member->part != kWhole) {
      used += (size_t)snprintf(text + used, room - used, "%s%Lg", i > 0 ? "," : "",
                               get_real(element, member));
      continue;
    }
    uint64_t value = 0;
    memcpy(&value, element + member->offset, (size_t)member->bytes);
    used += (size_t)snprintf(text + used, room - used, "%s0x%llx", i > 0 ? "," : "",
                             (unsigned long long)value);
  }
}

#endif  // ELEMENTS_H_
