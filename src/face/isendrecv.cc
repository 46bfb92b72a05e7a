// MPI_Isendrecv and MPI_Isendrecv_replace: one request for two transfers.
//
// When both halves are the host's the call is handed over whole. Otherwise the sending half is made
// independent of the program's buffer at once (our own buffered send, or a packed copy that the
// host sends), and the request that the program gets is that of the receiving half.
#include <limits>
#include <utility>

#include "face/calls.h"
#include "face/packed_copy.h"

namespace od::face {
namespace {

struct Sending {
  const void* buf;
  std::int64_t count;
  MPI_Datatype type;
  int dest;
  int tag;
};

// Hands the message to the host in a copy that nobody waits for.
template <typename Int>
int send_copy_through_host(const Sending& out, MPI_Comm comm) {
  const p2p::LayoutRef* layout = usable_layout(out.buf, out.count, out.type);
  HostCallScope scope(HostCallKind::kLocal);
  MPI_Request request = abi::request_null();
  if (layout == nullptr || out.dest == MPI_PROC_NULL) {
    // The host finds the fault or ignores the message; either way it keeps nothing of the buffer.
    const int error = OD_HOST_SIZED(Isend)(out.buf, static_cast<Int>(out.count), out.type, out.dest,
                                           out.tag, comm, &request);
    if (error == MPI_SUCCESS) OD_HOST(Wait)(&request, MPI_STATUS_IGNORE);
    return error;
  }
  PackedCopy copy(out.buf, out.count, **layout);
  if (copy.error() != MPI_SUCCESS) return raise_error(find_comm(comm), copy.error());
  if (copy.bytes() > std::numeric_limits<Int>::max()) {
    return raise_error(find_comm(comm), MPI_ERR_COUNT);
  }
  const int error = OD_HOST_SIZED(Isend)(copy.data(), static_cast<Int>(copy.bytes()), abi::packed(),
                                         out.dest, out.tag, comm, &request);
  if (error == MPI_SUCCESS) state.detached.add(request, copy.take());
  return error;
}

template <typename Int>
int exchange(Rank& rank, const Ours& out_ours, const Sending& out, const Ours& in, void* recvbuf,
             Int recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
             MPI_Request* request) {
  if (!out_ours) {
    note_host_send(&rank, comm, out.dest);
    const int error = send_copy_through_host<Int>(out, comm);
    if (error != MPI_SUCCESS) return error;
  }
  int error;
  if (in) {
    Request* started = nullptr;
    error = rank.irecv(recvbuf, recvcount, *in.layout, normal_source(source), normal_tag(recvtag),
                       *in.comm, &started);
    error = hand_out(rank, error, started, *in.comm, request);
  } else {
    note_host_receive(&rank, comm, source);
    HostCallScope scope(HostCallKind::kLocal);
    error = OD_HOST_SIZED(Irecv)(recvbuf, recvcount, recvtype, source, recvtag, comm, request);
  }
  if (error != MPI_SUCCESS || !out_ours) return error;
  error = rank.send(out.buf, out.count, *out_ours.layout, out.dest, out.tag, *out_ours.comm,
                    SendMode::buffered);
  return error == host::kSuccess ? MPI_SUCCESS : raise_error(out_ours.comm, error);
}

template <typename Int>
int isendrecv(const void* sendbuf, Int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
              void* recvbuf, Int recvcount, MPI_Datatype recvtype, int source, int recvtag,
              MPI_Comm comm, MPI_Request* request) {
  Rank* rank = serving();
  if (rank != nullptr && request != nullptr) {
    const Ours out = our_send(sendbuf, sendcount, sendtype, dest, sendtag, comm);
    const Ours in = our_receive(recvbuf, recvcount, recvtype, source, recvtag, comm);
    if (out || in) {
      return exchange<Int>(*rank, out, {sendbuf, sendcount, sendtype, dest, sendtag}, in, recvbuf,
                           recvcount, recvtype, source, recvtag, comm, request);
    }
  }
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST_SIZED(Isendrecv)(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                                  recvtype, source, recvtag, comm, request);
}

template <typename Int>
int isendrecv_replace(void* buf, Int count, MPI_Datatype type, int dest, int sendtag, int source,
                      int recvtag, MPI_Comm comm, MPI_Request* request) {
  Rank* rank = serving();
  if (rank != nullptr && request != nullptr) {
    Ours out = our_send(buf, count, type, dest, sendtag, comm);
    const Ours in = our_receive(buf, count, type, source, recvtag, comm);
    if (out || in) {
      // The receive may begin to overwrite the buffer as soon as it is posted.
      if (!out) {
        return exchange<Int>(*rank, out, {buf, count, type, dest, sendtag}, in, buf, count, type,
                             source, recvtag, comm, request);
      }
      const PackedCopy copy(buf, count, **out.layout);
      if (copy.error() != MPI_SUCCESS) return raise_error(out.comm, copy.error());
      out.layout = layout_of(abi::to_handle(abi::byte()));
      return exchange<Int>(*rank, out, {copy.data(), copy.bytes(), abi::packed(), dest, sendtag},
                           in, buf, count, type, source, recvtag, comm, request);
    }
  }
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST_SIZED(Isendrecv_replace)(buf, count, type, dest, sendtag, source, recvtag, comm,
                                          request);
}

}  // namespace
}  // namespace od::face

#define OD_ISENDRECV(suffix, Int)                                                                 \
  int od_MPI_Isendrecv##suffix(const void* sendbuf, Int sendcount, MPI_Datatype sendtype,         \
                               int dest, int sendtag, void* recvbuf, Int recvcount,               \
                               MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,     \
                               MPI_Request* request) {                                            \
    return od::face::isendrecv<Int>(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf,         \
                                    recvcount, recvtype, source, recvtag, comm, request);         \
  }                                                                                               \
  int od_MPI_Isendrecv_replace##suffix(void* buf, Int count, MPI_Datatype datatype, int dest,     \
                                       int sendtag, int source, int recvtag, MPI_Comm comm,       \
                                       MPI_Request* request) {                                    \
    return od::face::isendrecv_replace<Int>(buf, count, datatype, dest, sendtag, source, recvtag, \
                                            comm, request);                                       \
  }

OD_ISENDRECV(, int)
OD_ISENDRECV(_c, MPI_Count)
