// Blocking sends: MPI_Send, Bsend, Ssend, Rsend and their large forms.
//
// A ready send is a standard send: that the receive is posted is the program's promise and needs no
// check. When a message goes to another node while we have work of our own, the host's non-blocking
// form is used so that our progress goes on.
#include "face/calls.h"

namespace od::face {
namespace {

template <SendMode kMode, typename Int>
int host_send(const void* buf, Int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
  if constexpr (kMode == SendMode::buffered) {
    return OD_HOST_SIZED(Bsend)(buf, count, type, dest, tag, comm);
  } else if constexpr (kMode == SendMode::synchronous) {
    return OD_HOST_SIZED(Ssend)(buf, count, type, dest, tag, comm);
  } else if constexpr (kMode == SendMode::ready) {
    return OD_HOST_SIZED(Rsend)(buf, count, type, dest, tag, comm);
  } else {
    return OD_HOST_SIZED(Send)(buf, count, type, dest, tag, comm);
  }
}

template <SendMode kMode, typename Int>
[[gnu::noinline]] int send_through_host(Rank* rank, const char* where, const void* buf, Int count,
                                        MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
  note_host_send(rank, comm, dest);
  // A buffered send does not block.
  if (kMode != SendMode::buffered && rank != nullptr && rank->has_pending_work()) {
    MPI_Request request = abi::request_null();
    const int error = host_isend<kMode>(buf, count, type, dest, tag, comm, &request);
    return error == MPI_SUCCESS ? wait_for_host(*rank, &request, MPI_STATUS_IGNORE, where) : error;
  }
  HostCallScope scope(kMode == SendMode::buffered ? HostCallKind::kLocal : HostCallKind::kBlocking);
  return host_send<kMode>(buf, count, type, dest, tag, comm);
}

template <SendMode kMode, typename Int>
inline int send(const char* where, const void* buf, Int count, MPI_Datatype type, int dest, int tag,
                MPI_Comm comm) {
  Rank* rank = serving();
  if (rank != nullptr) [[likely]] {
    if (const Ours ours = our_send(buf, count, type, dest, tag, comm)) [[likely]] {
      if (kMode == SendMode::buffered && !bsend_fits(ours, count)) {
        return raise_error(ours.comm, MPI_ERR_BUFFER);
      }
      const int error = rank->send(buf, count, *ours.layout, dest, tag, *ours.comm, kMode);
      return error == host::kSuccess ? MPI_SUCCESS : raise_error(ours.comm, error);
    }
  }
  return send_through_host<kMode>(rank, where, buf, count, type, dest, tag, comm);
}

}  // namespace
}  // namespace od::face

#define OD_SENDS(stem, mode)                                                                 \
  int od_MPI_##stem(const void* buf, int count, MPI_Datatype datatype, int dest, int tag,    \
                    MPI_Comm comm) {                                                         \
    return od::face::send<od::SendMode::mode>("MPI_" #stem, buf, count, datatype, dest, tag, \
                                              comm);                                         \
  }                                                                                          \
  int od_MPI_##stem##_c(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest,   \
                        int tag, MPI_Comm comm) {                                            \
    return od::face::send<od::SendMode::mode>("MPI_" #stem, buf, count, datatype, dest, tag, \
                                              comm);                                         \
  }

OD_SENDS(Send, standard)
OD_SENDS(Bsend, buffered)
OD_SENDS(Ssend, synchronous)
OD_SENDS(Rsend, ready)
