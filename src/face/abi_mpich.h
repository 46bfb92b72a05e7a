// What is particular to the ABI of MPICH, Intel MPI and MVAPICH: handles are 32-bit integers.
#ifndef OVERDRIVE_SRC_FACE_ABI_MPICH_H_
#define OVERDRIVE_SRC_FACE_ABI_MPICH_H_

#include <cstddef>
#include <cstdint>

#include "face/abi_constants.h"
#include "host/host_table.h"

namespace od::face::abi {

inline constexpr od_abi kAbi = OD_ABI_MPICH;
using Fint = MPI_Fint;  // Fortran's INTEGER
inline constexpr bool kPointerHandles = false;

static_assert(std::is_same_v<MPI_Comm, int> && std::is_same_v<MPI_Datatype, int> &&
              std::is_same_v<MPI_Request, int> && std::is_same_v<MPI_Message, int>);

inline host::Handle to_handle(int object) { return static_cast<std::uint32_t>(object); }
template <typename T>
inline T from_handle(host::Handle handle) {
  return static_cast<T>(static_cast<std::uint32_t>(handle));
}

// MPI_BUFFER_AUTOMATIC, which headers before MPI 4.1 lack.
inline void* buffer_automatic() { return reinterpret_cast<void*>(std::intptr_t{-2}); }

// Layout of MPI_Status: 63 bits of count around the cancelled bit; checked against the host when
// the job starts (status.h).
inline void set_payload(MPI_Status& status, std::int64_t bytes, bool cancelled) {
  const auto count = static_cast<std::uint64_t>(bytes);
  status.count_lo = static_cast<int>(static_cast<std::uint32_t>(count));
  status.count_hi_and_cancelled =
      static_cast<int>(static_cast<std::uint32_t>(count >> 32) << 1 | (cancelled ? 1u : 0u));
}
inline std::int64_t payload_bytes(const MPI_Status& status) {
  const std::uint64_t high = static_cast<std::uint32_t>(status.count_hi_and_cancelled) >> 1;
  return static_cast<std::int64_t>(high << 32 | static_cast<std::uint32_t>(status.count_lo));
}
inline bool payload_cancelled(const MPI_Status& status) {
  return (status.count_hi_and_cancelled & 1) != 0;
}

}  // namespace od::face::abi

#endif  // OVERDRIVE_SRC_FACE_ABI_MPICH_H_
