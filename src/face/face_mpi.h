// Brings in the mpi.h of the ABI this translation unit is compiled for, and what differs by ABI.
//
// Every face source is compiled once per ABI with one of OD_FACE_OPENMPI, OD_FACE_MPICH,
// OD_FACE_MPIABI defined. Nothing of mpi.h that is a data symbol of the host may be used (Open
// MPI's handle constants are such symbols): the library is loaded before the host is, so every
// handle constant comes from the functions of abi, or from mpi.h by way of predefined_constants.h.
#ifndef OVERDRIVE_SRC_FACE_FACE_MPI_H_
#define OVERDRIVE_SRC_FACE_FACE_MPI_H_

// The C++ bindings of old MPI versions would make us depend on the host's C++ library.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#if !defined(OD_FACE_OPENMPI) && !defined(OD_FACE_MPICH) && !defined(OD_FACE_MPIABI)
#error "define OD_FACE_OPENMPI, OD_FACE_MPICH or OD_FACE_MPIABI"
#endif

#include <mpi.h>

#include <type_traits>

#include "face/face_abi.h"
#include "face/host_call_scope.h"
#include "face_entries.inc"

#if defined(OD_FACE_OPENMPI)
#include "face/abi_openmpi.h"
#elif defined(OD_FACE_MPICH)
#include "face/abi_mpich.h"
#else
#include "face/abi_mpiabi.h"
#endif

// The plain or the large form of a host function, chosen by the count type `Int` of the template
// that uses it.
#define OD_HOST_SIZED(stem)                   \
  ([] {                                       \
    if constexpr (std::is_same_v<Int, int>) { \
      return OD_HOST(stem);                   \
    } else {                                  \
      return OD_HOST(stem##_c);               \
    }                                         \
  }())

#endif  // OVERDRIVE_SRC_FACE_FACE_MPI_H_
