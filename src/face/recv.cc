// Receives: MPI_Recv, MPI_Irecv, MPI_Recv_init and their large forms.
#include "face/calls.h"

namespace od::face {
namespace {

template <typename Int>
[[gnu::noinline]] int recv_through_host(Rank* rank, void* buf, Int count, MPI_Datatype type,
                                        int source, int tag, MPI_Comm comm, MPI_Status* status) {
  note_host_receive(rank, comm, source);
  // A receive from nobody returns at once; as a request not every host fills its status.
  if (rank != nullptr && source != MPI_PROC_NULL && rank->has_pending_work()) {
    MPI_Request request = abi::request_null();
    int error;
    {
      HostCallScope scope(HostCallKind::kLocal);
      error = OD_HOST_SIZED(Irecv)(buf, count, type, source, tag, comm, &request);
    }
    return error == MPI_SUCCESS ? wait_for_host(*rank, &request, status, "MPI_Recv") : error;
  }
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST_SIZED(Recv)(buf, count, type, source, tag, comm, status);
}

template <typename Int>
inline int recv(void* buf, Int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                MPI_Status* status) {
  Rank* rank = serving();
  if (rank != nullptr) [[likely]] {
    if (const Ours ours = our_receive(buf, count, type, source, tag, comm)) [[likely]] {
      host::Status result;
      const int error = rank->recv(buf, count, *ours.layout, normal_source(source), normal_tag(tag),
                                   *ours.comm, &result);
      write_status(status, result);
      return error == host::kSuccess ? MPI_SUCCESS : raise_error(ours.comm, error);
    }
  }
  return recv_through_host(rank, buf, count, type, source, tag, comm, status);
}

template <typename Int>
inline int irecv(void* buf, Int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                 MPI_Request* request) {
  Rank* rank = serving();
  if (rank != nullptr && request != nullptr) [[likely]] {
    if (const Ours ours = our_receive(buf, count, type, source, tag, comm)) [[likely]] {
      Request* started = nullptr;
      const int error = rank->irecv(buf, count, *ours.layout, normal_source(source),
                                    normal_tag(tag), *ours.comm, &started);
      return hand_out(*rank, error, started, *ours.comm, request);
    }
  }
  note_host_receive(rank, comm, source);
  HostCallScope scope(HostCallKind::kMessageStart);
  return OD_HOST_SIZED(Irecv)(buf, count, type, source, tag, comm, request);
}

template <typename Int>
int recv_init(void* buf, Int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request* request) {
  Rank* rank = serving();
  Comm* mixed = nullptr;
  if (rank != nullptr && request != nullptr) {
    mixed = comm_of_other_node(comm, source, tag);
    const Ours ours = mixed == nullptr ? our_receive(buf, count, type, source, tag, comm) : Ours{};
    if (ours) {
      Request* made = nullptr;
      const int error = rank->recv_init(buf, count, *ours.layout, normal_source(source),
                                        normal_tag(tag), *ours.comm, &made);
      return hand_out(*rank, error, made, *ours.comm, request);
    }
  }
  note_host_receive(rank, comm, source);
  int error;
  {
    HostCallScope scope(HostCallKind::kLocal);
    error = OD_HOST_SIZED(Recv_init)(buf, count, type, source, tag, comm, request);
  }
  const p2p::LayoutRef* layout = mixed != nullptr ? usable_layout(buf, count, type) : nullptr;
  if (error != MPI_SUCCESS || layout == nullptr) return error;
  // Each start decides who receives, see start_ours().
  const MPI_Request twin = *request;
  Request* made = nullptr;
  error = rank->recv_init(buf, count, *layout, source, normal_tag(tag), *mixed, &made);
  if (error == host::kSuccess) {
    made->host_twin = abi::to_handle(twin);
    made->in_host = true;
    state.twins.fetch_add(1, std::memory_order_relaxed);
  }
  return hand_out(*rank, error, made, *mixed, request);
}

}  // namespace
}  // namespace od::face

#define OD_RECEIVES(name, function, last)                                                       \
  int od_MPI_##name(void* buf, int count, MPI_Datatype datatype, int source, int tag,           \
                    MPI_Comm comm, last) {                                                      \
    return od::face::function(buf, count, datatype, source, tag, comm, result);                 \
  }                                                                                             \
  int od_MPI_##name##_c(void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, \
                        MPI_Comm comm, last) {                                                  \
    return od::face::function(buf, count, datatype, source, tag, comm, result);                 \
  }

OD_RECEIVES(Recv, recv, MPI_Status* result)
OD_RECEIVES(Irecv, irecv, MPI_Request* result)
OD_RECEIVES(Recv_init, recv_init, MPI_Request* result)
