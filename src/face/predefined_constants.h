// Makes mpi.h's constants for predefined operations and datatypes (MPI_SUM, MPI_INT) usable.
//
// In Open MPI's ABI they are addresses of the host's data, which must not be referenced (see
// face_mpi.h): where this header is included they are looked up by name instead, each time they
// are used. Not for code that runs often.
#ifndef OVERDRIVE_SRC_FACE_PREDEFINED_CONSTANTS_H_
#define OVERDRIVE_SRC_FACE_PREDEFINED_CONSTANTS_H_

#include "face/face_mpi.h"
#include "face/state.h"

#if defined(OD_FACE_OPENMPI)
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global) \
  static_cast<type>(::od::face::host_data_symbol(#global))
#endif

#endif  // OVERDRIVE_SRC_FACE_PREDEFINED_CONSTANTS_H_
