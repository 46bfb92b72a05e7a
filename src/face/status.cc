// Verifies the layout of MPI_Status against the host, and the slow way for hosts that differ.
#include "face/status.h"

#include <cstring>

namespace od::face {

bool status_layout_verified = false;

namespace {

bool round_trip(std::int64_t bytes, bool cancelled) {
  MPI_Status status;
  std::memset(&status, 0x5a, sizeof status);
  status.MPI_SOURCE = 0;
  status.MPI_TAG = 0;
  status.MPI_ERROR = MPI_SUCCESS;
  abi::set_payload(status, bytes, cancelled);
  MPI_Count host_bytes = -1;
  int host_cancelled = -1;
  if (OD_HOST(Get_elements_x)(&status, abi::byte(), &host_bytes) != MPI_SUCCESS) return false;
  if (OD_HOST(Test_cancelled)(&status, &host_cancelled) != MPI_SUCCESS) return false;
  if (host_bytes != bytes || (host_cancelled != 0) != cancelled) return false;

  // And what the host writes must be what we read.
  std::memset(&status, 0, sizeof status);
  if (OD_HOST(Status_set_elements_x)(&status, abi::byte(), bytes) != MPI_SUCCESS) return false;
  if (OD_HOST(Status_set_cancelled)(&status, cancelled ? 1 : 0) != MPI_SUCCESS) return false;
  return abi::payload_bytes(status) == bytes && abi::payload_cancelled(status) == cancelled;
}

}  // namespace

void verify_status_layout() {
  if (!OD_HOST_HAS(Get_elements_x) || !OD_HOST_HAS(Status_set_elements_x)) return;
  status_layout_verified = round_trip(0, false) && round_trip(12345, false) &&
                           round_trip(12345, true) && round_trip(0x123456789a, false) &&
                           round_trip(0x123456789a, true);
}

void write_payload_through_host(MPI_Status& status, std::int64_t bytes, bool cancelled) {
  HostCallScope scope(HostCallKind::kLocal);
  if (OD_HOST_HAS(Status_set_elements_x)) {
    OD_HOST(Status_set_elements_x)(&status, abi::byte(), bytes);
  } else {
    OD_HOST(Status_set_elements)(&status, abi::byte(), static_cast<int>(bytes));
  }
  OD_HOST(Status_set_cancelled)(&status, cancelled ? 1 : 0);
}

host::Status read_status_through_host(const MPI_Status& status) {
  HostCallScope scope(HostCallKind::kLocal);
  host::Status result;
  result.source = status.MPI_SOURCE < 0 ? host::kAnySource : status.MPI_SOURCE;
  result.tag = normal_tag(status.MPI_TAG);
  if (OD_HOST_HAS(Get_elements_x)) {
    MPI_Count bytes = 0;
    OD_HOST(Get_elements_x)(&status, abi::byte(), &bytes);
    result.bytes = bytes;
  } else {
    int bytes = 0;
    OD_HOST(Get_elements)(&status, abi::byte(), &bytes);
    result.bytes = bytes;
  }
  int cancelled = 0;
  OD_HOST(Test_cancelled)(&status, &cancelled);
  result.cancelled = cancelled != 0;
  return result;
}

}  // namespace od::face
