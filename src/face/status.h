// Writes and reads the ABI's MPI_Status.
//
// Where a host keeps the size and the cancelled flag is part of its ABI (abi_*.h) but of no
// standard, so it is verified against the host's own functions when the job starts; a host that
// differs gets its statuses written through its functions, which is slower but right. MPI_ERROR is
// written only by functions that return MPI_ERR_IN_STATUS; everything here leaves it alone.
#ifndef OVERDRIVE_SRC_FACE_STATUS_H_
#define OVERDRIVE_SRC_FACE_STATUS_H_

#include "face/state.h"

namespace od::face {

// False until verify_status_layout() has found that the host agrees with abi::set_payload.
extern bool status_layout_verified;  // status.cc

// Compares abi::set_payload and payload_bytes with the host; call after the host's MPI_Init.
void verify_status_layout();

void write_payload_through_host(MPI_Status& status, std::int64_t bytes, bool cancelled);
host::Status read_status_through_host(const MPI_Status& status);

// `status` may be MPI_STATUS_IGNORE.
inline void write_status(MPI_Status* status, const host::Status& from) {
  if (status == MPI_STATUS_IGNORE) return;
  status->MPI_SOURCE = abi_source(from.source);
  status->MPI_TAG = abi_tag(from.tag);
  if (status_layout_verified) [[likely]] {
    abi::set_payload(*status, from.bytes, from.cancelled);
  } else {
    write_payload_through_host(*status, from.bytes, from.cancelled);
  }
}

// The status of MPI_REQUEST_NULL and of inactive requests.
inline void write_empty_status(MPI_Status* status) { write_status(status, host::Status{}); }

inline host::Status read_status(const MPI_Status& status) {
  if (!status_layout_verified) [[unlikely]]
    return read_status_through_host(status);
  host::Status result;
  result.source = status.MPI_SOURCE < 0 ? host::kAnySource : status.MPI_SOURCE;
  result.tag = normal_tag(status.MPI_TAG);
  result.bytes = abi::payload_bytes(status);
  result.cancelled = abi::payload_cancelled(status);
  return result;
}

// Everything but MPI_ERROR.
inline void copy_status(MPI_Status& to, const MPI_Status& from) {
  const int error = to.MPI_ERROR;
  to = from;
  to.MPI_ERROR = error;
}

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_STATUS_H_
