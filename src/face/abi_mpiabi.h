// What is particular to the standard ABI of MPI 5.0: opaque pointers with small integer constants.
#ifndef OVERDRIVE_SRC_FACE_ABI_MPIABI_H_
#define OVERDRIVE_SRC_FACE_ABI_MPIABI_H_

#include <cstddef>
#include <cstdint>

#include "face/abi_constants.h"
#include "face/abi_pointers.h"

namespace od::face::abi {

inline constexpr od_abi kAbi = OD_ABI_MPIABI;
using Fint = int;  // Fortran's INTEGER

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
