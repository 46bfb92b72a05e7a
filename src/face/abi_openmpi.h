// What is particular to Open MPI's ABI: handles are addresses of the host's objects.
//
// The handle constants of its mpi.h are addresses of data symbols, which must not be referenced
// (see face_mpi.h); resolve_predefined() looks them up in the host once, when the face is bound.
#ifndef OVERDRIVE_SRC_FACE_ABI_OPENMPI_H_
#define OVERDRIVE_SRC_FACE_ABI_OPENMPI_H_

#include <cstddef>
#include <cstdint>

#include "face/abi_pointers.h"

namespace od::face::abi {

inline constexpr od_abi kAbi = OD_ABI_OPENMPI;
using Fint = MPI_Fint;  // Fortran's INTEGER

struct Predefined {
  MPI_Comm comm_world = nullptr;
  MPI_Comm comm_self = nullptr;
  MPI_Comm comm_null = nullptr;
  MPI_Request request_null = nullptr;
  MPI_Message message_null = nullptr;
  MPI_Message message_no_proc = nullptr;
  MPI_Datatype type_null = nullptr;
  MPI_Datatype byte = nullptr;
  MPI_Datatype packed = nullptr;
  MPI_Datatype uint64 = nullptr;
  MPI_Op op_max = nullptr;
  MPI_Op op_null = nullptr;
  MPI_Errhandler errors_return = nullptr;
};
extern Predefined predefined;  // bind.cc

inline bool resolve_predefined(void* (*symbol)(const char*)) {
  const auto find = [symbol](const char* name, auto& handle) {
    handle = static_cast<std::remove_reference_t<decltype(handle)>>(symbol(name));
    return handle != nullptr;
  };
  Predefined& p = predefined;
  return find("ompi_mpi_comm_world", p.comm_world) && find("ompi_mpi_comm_self", p.comm_self) &&
         find("ompi_mpi_comm_null", p.comm_null) && find("ompi_request_null", p.request_null) &&
         find("ompi_message_null", p.message_null) &&
         find("ompi_message_no_proc", p.message_no_proc) &&
         find("ompi_mpi_datatype_null", p.type_null) && find("ompi_mpi_byte", p.byte) &&
         find("ompi_mpi_packed", p.packed) && find("ompi_mpi_uint64_t", p.uint64) &&
         find("ompi_mpi_op_max", p.op_max) && find("ompi_mpi_op_null", p.op_null) &&
         find("ompi_mpi_errors_return", p.errors_return);
}

inline MPI_Comm comm_world() { return predefined.comm_world; }
inline MPI_Comm comm_self() { return predefined.comm_self; }
inline MPI_Comm comm_null() { return predefined.comm_null; }
inline MPI_Request request_null() { return predefined.request_null; }
inline MPI_Message message_null() { return predefined.message_null; }
inline MPI_Message message_no_proc() { return predefined.message_no_proc; }
inline MPI_Datatype type_null() { return predefined.type_null; }
inline MPI_Datatype byte() { return predefined.byte; }
inline MPI_Datatype packed() { return predefined.packed; }
inline MPI_Datatype uint64() { return predefined.uint64; }
inline MPI_Op op_max() { return predefined.op_max; }
inline MPI_Op op_null() { return predefined.op_null; }
inline MPI_Errhandler errors_return() { return predefined.errors_return; }
inline void* buffer_automatic() { return nullptr; }  // no such constant in this ABI

// Layout of MPI_Status; checked against the host when the job starts (status.h).
inline void set_payload(MPI_Status& status, std::int64_t bytes, bool cancelled) {
  status._cancelled = cancelled ? 1 : 0;
  status._ucount = static_cast<std::size_t>(bytes);
}
inline std::int64_t payload_bytes(const MPI_Status& status) {
  return static_cast<std::int64_t>(status._ucount);
}
inline bool payload_cancelled(const MPI_Status& status) { return status._cancelled != 0; }

}  // namespace od::face::abi

#endif  // OVERDRIVE_SRC_FACE_ABI_OPENMPI_H_
