// MPI_Buffer_attach and its relatives: the host keeps the buffers, we remember that they are there.
#include <type_traits>

#include "face/state.h"

namespace od::face {
namespace {

// 0 stands for the buffer of the process.
constexpr host::Handle kProcess = 0;

// Our buffered sends need no space; what stays true is the error for a buffer that is too small.
std::int64_t room(void* buffer, std::int64_t size) {
  const bool automatic = abi::buffer_automatic() != nullptr && buffer == abi::buffer_automatic();
  return automatic ? BsendLedger::kUnlimited : size;
}

template <typename Int>
int attach(void* buffer, Int size) {
  HostCallScope scope(HostCallKind::kLocal);
  const int error = OD_HOST_SIZED(Buffer_attach)(buffer, size);
  if (error == MPI_SUCCESS) state.bsend.attach(kProcess, room(buffer, size));
  return error;
}

// Detaching waits until the host has sent what lies in the buffer.
template <typename Int>
int detach(void* buffer_addr, Int* size) {
  HostCallScope scope(HostCallKind::kBlocking);
  const int error = OD_HOST_SIZED(Buffer_detach)(buffer_addr, size);
  if (error == MPI_SUCCESS) state.bsend.detach(kProcess);
  return error;
}

template <typename Int>
int comm_attach(MPI_Comm comm, void* buffer, Int size) {
  HostCallScope scope(HostCallKind::kLocal);
  const int error = OD_HOST_SIZED(Comm_attach_buffer)(comm, buffer, size);
  if (error == MPI_SUCCESS) state.bsend.attach(abi::to_handle(comm), room(buffer, size));
  return error;
}

template <typename Int>
int comm_detach(MPI_Comm comm, void* buffer_addr, Int* size) {
  HostCallScope scope(HostCallKind::kBlocking);
  const int error = OD_HOST_SIZED(Comm_detach_buffer)(comm, buffer_addr, size);
  if (error == MPI_SUCCESS) state.bsend.detach(abi::to_handle(comm));
  return error;
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Buffer_attach(void* buffer, int size) { return attach(buffer, size); }
int od_MPI_Buffer_attach_c(void* buffer, MPI_Count size) { return attach(buffer, size); }
int od_MPI_Buffer_detach(void* buffer_addr, int* size) { return detach(buffer_addr, size); }
int od_MPI_Buffer_detach_c(void* buffer_addr, MPI_Count* size) { return detach(buffer_addr, size); }
int od_MPI_Comm_attach_buffer(MPI_Comm comm, void* buffer, int size) {
  return comm_attach(comm, buffer, size);
}
int od_MPI_Comm_attach_buffer_c(MPI_Comm comm, void* buffer, MPI_Count size) {
  return comm_attach(comm, buffer, size);
}
int od_MPI_Comm_detach_buffer(MPI_Comm comm, void* buffer_addr, int* size) {
  return comm_detach(comm, buffer_addr, size);
}
int od_MPI_Comm_detach_buffer_c(MPI_Comm comm, void* buffer_addr, MPI_Count* size) {
  return comm_detach(comm, buffer_addr, size);
}

// Communicators made from a session are not ours, and only those may use a session's buffer.
int od_MPI_Session_attach_buffer(MPI_Session session, void* buffer, int size) {
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST(Session_attach_buffer)(session, buffer, size);
}
int od_MPI_Session_attach_buffer_c(MPI_Session session, void* buffer, MPI_Count size) {
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST(Session_attach_buffer_c)(session, buffer, size);
}
int od_MPI_Session_detach_buffer(MPI_Session session, void* buffer_addr, int* size) {
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST(Session_detach_buffer)(session, buffer_addr, size);
}
int od_MPI_Session_detach_buffer_c(MPI_Session session, void* buffer_addr, MPI_Count* size) {
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST(Session_detach_buffer_c)(session, buffer_addr, size);
}

// Messages of ours have left the program's buffer when the send returns, so only the host has
// something to flush.
int od_MPI_Buffer_flush() {
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST(Buffer_flush)();
}
int od_MPI_Buffer_iflush(MPI_Request* request) {
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST(Buffer_iflush)(request);
}
int od_MPI_Comm_flush_buffer(MPI_Comm comm) {
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST(Comm_flush_buffer)(comm);
}
int od_MPI_Comm_iflush_buffer(MPI_Comm comm, MPI_Request* request) {
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST(Comm_iflush_buffer)(comm, request);
}
int od_MPI_Session_flush_buffer(MPI_Session session) {
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST(Session_flush_buffer)(session);
}
int od_MPI_Session_iflush_buffer(MPI_Session session, MPI_Request* request) {
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST(Session_iflush_buffer)(session, request);
}
