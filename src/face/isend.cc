// Non-blocking and persistent sends: MPI_Isend, MPI_Send_init and their families.
#include "face/calls.h"

namespace od::face {
namespace {

template <SendMode kMode, typename Int>
int host_send_init(const void* buf, Int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
                   MPI_Request* request) {
  HostCallScope scope(HostCallKind::kLocal);
  if constexpr (kMode == SendMode::buffered) {
    return OD_HOST_SIZED(Bsend_init)(buf, count, type, dest, tag, comm, request);
  } else if constexpr (kMode == SendMode::synchronous) {
    return OD_HOST_SIZED(Ssend_init)(buf, count, type, dest, tag, comm, request);
  } else if constexpr (kMode == SendMode::ready) {
    return OD_HOST_SIZED(Rsend_init)(buf, count, type, dest, tag, comm, request);
  } else {
    return OD_HOST_SIZED(Send_init)(buf, count, type, dest, tag, comm, request);
  }
}

template <SendMode kMode, typename Int>
inline int isend(const void* buf, Int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
                 MPI_Request* request) {
  Rank* rank = serving();
  if (rank != nullptr && request != nullptr) [[likely]] {
    if (const Ours ours = our_send(buf, count, type, dest, tag, comm)) [[likely]] {
      if (kMode == SendMode::buffered && !bsend_fits(ours, count)) {
        return raise_error(ours.comm, MPI_ERR_BUFFER);
      }
      Request* started = nullptr;
      const int error =
          rank->isend(buf, count, *ours.layout, dest, tag, *ours.comm, kMode, &started);
      return hand_out(*rank, error, started, *ours.comm, request);
    }
  }
  note_host_send(rank, comm, dest);
  return host_isend<kMode>(buf, count, type, dest, tag, comm, request);
}

// A persistent buffered send may be set up before its buffer is attached; MPI_Start checks then.
template <SendMode kMode, typename Int>
int send_init(const void* buf, Int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
              MPI_Request* request) {
  Rank* rank = serving();
  if (rank != nullptr && request != nullptr) {
    if (const Ours ours = our_send(buf, count, type, dest, tag, comm)) {
      Request* made = nullptr;
      const int error =
          rank->send_init(buf, count, *ours.layout, dest, tag, *ours.comm, kMode, &made);
      return hand_out(*rank, error, made, *ours.comm, request);
    }
  }
  note_host_send(rank, comm, dest);
  return host_send_init<kMode>(buf, count, type, dest, tag, comm, request);
}

}  // namespace
}  // namespace od::face

#define OD_ISENDS(name, function, mode)                                                            \
  int od_MPI_##name(const void* buf, int count, MPI_Datatype datatype, int dest, int tag,          \
                    MPI_Comm comm, MPI_Request* request) {                                         \
    return od::face::function<od::SendMode::mode>(buf, count, datatype, dest, tag, comm, request); \
  }                                                                                                \
  int od_MPI_##name##_c(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest,         \
                        int tag, MPI_Comm comm, MPI_Request* request) {                            \
    return od::face::function<od::SendMode::mode>(buf, count, datatype, dest, tag, comm, request); \
  }

OD_ISENDS(Isend, isend, standard)
OD_ISENDS(Ibsend, isend, buffered)
OD_ISENDS(Issend, isend, synchronous)
OD_ISENDS(Irsend, isend, ready)
OD_ISENDS(Send_init, send_init, standard)
OD_ISENDS(Bsend_init, send_init, buffered)
OD_ISENDS(Ssend_init, send_init, synchronous)
OD_ISENDS(Rsend_init, send_init, ready)
