// What reductions compute with: kinds of elements, operations, and which of them go together.
//
// A Kind is a representation in memory, not an MPI datatype: MPI_INT, MPI_INTEGER and MPI_INT32_T
// are all int32. A Category is the group of datatypes by which the MPI standard says what an
// operation accepts. predefined_types.h lists the datatypes with both.
#ifndef OVERDRIVE_COLL_OPS_KINDS_H_
#define OVERDRIVE_COLL_OPS_KINDS_H_

#include <cstddef>
#include <cstdint>

namespace od::coll::ops {

enum class Kind : std::uint8_t {
  none,  // nothing that is known here: the host reduces it
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float32,
  float64,
  long_double,
  complex_float,
  complex_double,
  complex_long_double,
  boolean,  // C's and C++'s bool
  // Fortran's LOGICAL by size in bits. False is 0; compilers differ in what true is, so operations
  // hand on the value of an operand and never make one of their own.
  logical8,
  logical16,
  logical32,
  logical64,
  byte,
  // A value and its index as members of a C structure, with the padding that the C compiler adds.
  // Padding is never written.
  float_int,
  double_int,
  long_int,
  short_int,
  int_int,  // also two Fortran INTEGERs
  long_double_int,
  // Fortran's pairs: the index is a floating-point number, too.
  float_float,
  double_double,
};
inline constexpr int kKinds = static_cast<int>(Kind::double_double) + 1;

enum class Op : std::uint8_t {
  max,
  min,
  sum,
  prod,
  land,
  band,
  lor,
  bor,
  lxor,
  bxor,
  minloc,
  maxloc,
  replace,  // the left operand: what MPI calls the incoming data
  no_op,    // the right operand: what is already there
};
inline constexpr int kOps = static_cast<int>(Op::no_op) + 1;

// The groups of datatypes in the chapter on predefined reduction operations of the MPI standard.
enum class Category : std::uint8_t {
  c_integer,
  fortran_integer,
  floating_point,
  logical,
  complex,
  byte,
  multi_language,  // MPI_AINT, MPI_OFFSET, MPI_COUNT
  pair,
};

// How a datatype represents its values; with the size that the host reports it gives the Kind.
enum class Family : std::uint8_t {
  signed_integer,
  unsigned_integer,
  ieee,  // float and double
  long_double,
  ieee_complex,
  long_double_complex,
  boolean,
  logical,
  byte,
  float_int,
  double_int,
  long_int,
  short_int,
  int_int,
  long_double_int,
  real_pair,
};

// True if the MPI standard allows the operation on datatypes of this category.
bool standard_allows(Op op, Category category);

// The kind of a datatype of this family whose size (MPI_Type_size) is `bytes`; Kind::none if there
// is none, as for a 16-byte INTEGER.
Kind kind_of(Family family, std::size_t bytes);

// Distance of two elements of an array.
std::size_t extent_bytes(Kind kind);

const char* name(Kind kind);
const char* name(Op op);

}  // namespace od::coll::ops

#endif  // OVERDRIVE_COLL_OPS_KINDS_H_
