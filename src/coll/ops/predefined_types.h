// The predefined MPI datatypes on which predefined operations work: X(name, category, family).
//
// Plain preprocessor text without mpi.h; whoever includes it defines X and undefines it again. The
// size that completes the description (kinds.h, kind_of) comes from the host's MPI_Type_size. A
// host that lacks a type lacks its name as a macro, or defines it as MPI_DATATYPE_NULL. Quadruple
// precision (MPI_REAL16, MPI_COMPLEX32), half precision and C++ long double complex of a foreign
// size are left to the host.
#ifndef OVERDRIVE_COLL_OPS_PREDEFINED_TYPES_H_
#define OVERDRIVE_COLL_OPS_PREDEFINED_TYPES_H_

#define OD_PREDEFINED_C_TYPES(X)                         \
  X(SIGNED_CHAR, c_integer, signed_integer)              \
  X(UNSIGNED_CHAR, c_integer, unsigned_integer)          \
  X(SHORT, c_integer, signed_integer)                    \
  X(UNSIGNED_SHORT, c_integer, unsigned_integer)         \
  X(INT, c_integer, signed_integer)                      \
  X(UNSIGNED, c_integer, unsigned_integer)               \
  X(LONG, c_integer, signed_integer)                     \
  X(UNSIGNED_LONG, c_integer, unsigned_integer)          \
  X(LONG_LONG_INT, c_integer, signed_integer)            \
  X(UNSIGNED_LONG_LONG, c_integer, unsigned_integer)     \
  X(INT8_T, c_integer, signed_integer)                   \
  X(INT16_T, c_integer, signed_integer)                  \
  X(INT32_T, c_integer, signed_integer)                  \
  X(INT64_T, c_integer, signed_integer)                  \
  X(UINT8_T, c_integer, unsigned_integer)                \
  X(UINT16_T, c_integer, unsigned_integer)               \
  X(UINT32_T, c_integer, unsigned_integer)               \
  X(UINT64_T, c_integer, unsigned_integer)               \
  X(AINT, multi_language, signed_integer)                \
  X(OFFSET, multi_language, signed_integer)              \
  X(COUNT, multi_language, signed_integer)               \
  X(FLOAT, floating_point, ieee)                         \
  X(DOUBLE, floating_point, ieee)                        \
  X(LONG_DOUBLE, floating_point, long_double)            \
  X(C_FLOAT_COMPLEX, complex, ieee_complex)              \
  X(C_DOUBLE_COMPLEX, complex, ieee_complex)             \
  X(C_LONG_DOUBLE_COMPLEX, complex, long_double_complex) \
  X(C_BOOL, logical, boolean)                            \
  X(BYTE, byte, byte)                                    \
  X(FLOAT_INT, pair, float_int)                          \
  X(DOUBLE_INT, pair, double_int)                        \
  X(LONG_INT, pair, long_int)                            \
  X(SHORT_INT, pair, short_int)                          \
  X(2INT, pair, int_int)                                 \
  X(LONG_DOUBLE_INT, pair, long_double_int)

// Of the C++ language; null where the host was built without it.
#define OD_PREDEFINED_CXX_TYPES(X)             \
  X(CXX_BOOL, logical, boolean)                \
  X(CXX_FLOAT_COMPLEX, complex, ieee_complex)  \
  X(CXX_DOUBLE_COMPLEX, complex, ieee_complex) \
  X(CXX_LONG_DOUBLE_COMPLEX, complex, long_double_complex)

// Of Fortran; null where the host was built without it.
#define OD_PREDEFINED_FORTRAN_TYPES(X)        \
  X(INTEGER, fortran_integer, signed_integer) \
  X(REAL, floating_point, ieee)               \
  X(DOUBLE_PRECISION, floating_point, ieee)   \
  X(COMPLEX, complex, ieee_complex)           \
  X(DOUBLE_COMPLEX, complex, ieee_complex)    \
  X(LOGICAL, logical, logical)                \
  X(2INTEGER, pair, int_int)                  \
  X(2REAL, pair, real_pair)                   \
  X(2DOUBLE_PRECISION, pair, real_pair)

// Of Fortran with a size; a host may lack any of them.
#define OD_PREDEFINED_SIZED_FORTRAN_TYPES(X)   \
  X(INTEGER1, fortran_integer, signed_integer) \
  X(INTEGER2, fortran_integer, signed_integer) \
  X(INTEGER4, fortran_integer, signed_integer) \
  X(INTEGER8, fortran_integer, signed_integer) \
  X(REAL4, floating_point, ieee)               \
  X(REAL8, floating_point, ieee)               \
  X(COMPLEX8, complex, ieee_complex)           \
  X(COMPLEX16, complex, ieee_complex)

#endif  // OVERDRIVE_COLL_OPS_PREDEFINED_TYPES_H_
