// What is particular to the standard ABI of MPI 5.0: opaque pointers with small integer constants.
#ifndef OVERDRIVE_SRC_FACE_ABI_MPIABI_H_
#define OVERDRIVE_SRC_FACE_ABI_MPIABI_H_

#include <cstddef>
#include <cstdint>

#include "host/host_table.h"

namespace od::face::abi {

inline constexpr od_abi kAbi = OD_ABI_MPIABI;
using Fint = int;  // Fortran's INTEGER
inline constexpr bool kPointerHandles = true;

template <typename T>
inline host::Handle to_handle(T* object) {
  return reinterpret_cast<host::Handle>(object);
}
template <typename T>
inline T from_handle(host::Handle handle) {
  return reinterpret_cast<T>(handle);
}

inline bool resolve_predefined(void* (*)(const char*)) { return true; }  // all are constants

inline MPI_Comm comm_world() { return MPI_COMM_WORLD; }
inline MPI_Comm comm_self() { return MPI_COMM_SELF; }
inline MPI_Comm comm_null() { return MPI_COMM_NULL; }
inline MPI_Request request_null() { return MPI_REQUEST_NULL; }
inline MPI_Message message_null() { return MPI_MESSAGE_NULL; }
inline MPI_Message message_no_proc() { return MPI_MESSAGE_NO_PROC; }
inline MPI_Datatype type_null() { return MPI_DATATYPE_NULL; }
inline MPI_Datatype byte() { return MPI_BYTE; }
inline MPI_Datatype packed() { return MPI_PACKED; }
inline MPI_Datatype uint64() { return MPI_UINT64_T; }
inline MPI_Op op_max() { return MPI_MAX; }
inline MPI_Op op_null() { return MPI_OP_NULL; }
inline MPI_Errhandler errors_return() { return MPI_ERRORS_RETURN; }
inline void* buffer_automatic() { return MPI_BUFFER_AUTOMATIC; }

// The five internal words of MPI_Status belong to the implementation. MPICH keeps the low half of
// the count in the first word and the high half, shifted by the cancelled bit, in the second;
// whether this host does so as well is found out when the job starts (status.h).
inline void set_payload(MPI_Status& status, std::int64_t bytes, bool cancelled) {
  const auto count = static_cast<std::uint64_t>(bytes);
  status.MPI_internal[0] = static_cast<int>(static_cast<std::uint32_t>(count));
  status.MPI_internal[1] =
      static_cast<int>(static_cast<std::uint32_t>(count >> 32) << 1 | (cancelled ? 1u : 0u));
}
inline std::int64_t payload_bytes(const MPI_Status& status) {
  const std::uint64_t high = static_cast<std::uint32_t>(status.MPI_internal[1]) >> 1;
  return static_cast<std::int64_t>(high << 32 | static_cast<std::uint32_t>(status.MPI_internal[0]));
}
inline bool payload_cancelled(const MPI_Status& status) {
  return (status.MPI_internal[1] & 1) != 0;
}

}  // namespace od::face::abi

#endif  // OVERDRIVE_SRC_FACE_ABI_MPIABI_H_
