// MPI_Sendrecv and MPI_Sendrecv_replace: two halves, each of them ours or the host's.
//
// When both halves are the host's the call is handed over whole. Otherwise both are started without
// blocking and driven together, so that neither waits for the other.
#include <limits>

#include "face/calls.h"
#include "face/packed_copy.h"

namespace od::face {
namespace {

// Up to here a blocking send needs no request and does not wait for the receiver.
constexpr std::int64_t kSmallBytes = 8192;

struct Half {
  Ours ours;
  void* buf;  // only read in the sending half
  std::int64_t count;
  MPI_Datatype type;
  int peer;
  int tag;
};

int first_error(int one, int other) { return one != MPI_SUCCESS ? one : other; }

// Takes back a receive that was posted in vain.
void withdraw(Rank& rank, Request& request) {
  rank.cancel(request);
  rank.wait(request);
  rank.release(request);
}

int both_ours(Rank& rank, const Half& out, const Half& in, MPI_Status* status) {
  Comm& comm = *out.ours.comm;
  Request* receiving = nullptr;
  int error = rank.irecv(in.buf, in.count, *in.ours.layout, normal_source(in.peer),
                         normal_tag(in.tag), comm, &receiving);
  if (error != host::kSuccess) return raise_error(&comm, error);
  Request* sending = nullptr;
  if (out.count * (*out.ours.layout)->size <= kSmallBytes) {
    error = rank.send(out.buf, out.count, *out.ours.layout, out.peer, out.tag, comm,
                      SendMode::standard);
  } else {
    error = rank.isend(out.buf, out.count, *out.ours.layout, out.peer, out.tag, comm,
                       SendMode::standard, &sending);
  }
  if (error != host::kSuccess) {
    withdraw(rank, *receiving);
    return raise_error(&comm, error);
  }
  rank.wait(*receiving);
  if (sending != nullptr) {
    rank.wait(*sending);
    error = sending->status.error;
    rank.release(*sending);
  }
  error = first_error(error, receiving->status.error);
  write_status(status, receiving->status);
  rank.release(*receiving);
  return error == MPI_SUCCESS ? MPI_SUCCESS : raise_error(&comm, error);
}

template <typename Int>
int mixed(Rank& rank, MPI_Comm comm, const Half& out, const Half& in, MPI_Status* status) {
  const bool we_receive = static_cast<bool>(in.ours);
  if (we_receive) {
    note_host_send(&rank, comm, out.peer);
  } else {
    note_host_receive(&rank, comm, in.peer);
  }
  Comm& served = we_receive ? *in.ours.comm : *out.ours.comm;
  // The host's half first: it may find fault with its arguments.
  MPI_Request theirs = abi::request_null();
  int error;
  {
    HostCallScope scope(HostCallKind::kLocal);
    error = we_receive ? OD_HOST_SIZED(Isend)(out.buf, static_cast<Int>(out.count), out.type,
                                              out.peer, out.tag, comm, &theirs)
                       : OD_HOST_SIZED(Irecv)(in.buf, static_cast<Int>(in.count), in.type, in.peer,
                                              in.tag, comm, &theirs);
  }
  if (error != MPI_SUCCESS) return error;
  Request* mine = nullptr;
  error = we_receive ? rank.irecv(in.buf, in.count, *in.ours.layout, normal_source(in.peer),
                                  normal_tag(in.tag), served, &mine)
                     : rank.isend(out.buf, out.count, *out.ours.layout, out.peer, out.tag, served,
                                  SendMode::standard, &mine);
  if (error != host::kSuccess) {
    HostCallScope scope(HostCallKind::kLocal);
    OD_HOST(Cancel)(&theirs);
    OD_HOST(Request_free)(&theirs);
    return raise_error(&served, error);
  }

  MPI_Status* host_status = we_receive ? MPI_STATUS_IGNORE : status;
  Rank::WaitLoop loop(rank, "MPI_Sendrecv", true, mine);
  int host_error = MPI_SUCCESS;
  bool host_done = false;
  for (;;) {
    const bool mine_done = is_complete(*mine);
    if (!host_done && (mine_done || loop.host_turn())) {
      HostCallScope scope(HostCallKind::kLocal);
      int flag = 0;
      host_error = loop.ask_host([&] { return OD_HOST(Test)(&theirs, &flag, host_status); });
      host_done = flag != 0 || host_error != MPI_SUCCESS;
    }
    if (mine_done && host_done) break;
    loop.step();
  }
  error = mine->status.error;
  if (we_receive) {
    write_status(status, mine->status);
  } else if (in.peer == MPI_PROC_NULL) {
    // Not every host's test function fills the status of a receive from nobody.
    host::Status nobody;
    nobody.source = host::kProcNull;
    write_status(status, nobody);
  }
  rank.release(*mine);
  if (host_error != MPI_SUCCESS) return host_error;  // the host has raised it
  return error == MPI_SUCCESS ? MPI_SUCCESS : raise_error(&served, error);
}

template <typename Int>
int sendrecv(const void* sendbuf, Int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
             void* recvbuf, Int recvcount, MPI_Datatype recvtype, int source, int recvtag,
             MPI_Comm comm, MPI_Status* status) {
  if (Rank* rank = serving()) {
    const Half out{our_send(sendbuf, sendcount, sendtype, dest, sendtag, comm),
                   const_cast<void*>(sendbuf),
                   sendcount,
                   sendtype,
                   dest,
                   sendtag};
    const Half in{our_receive(recvbuf, recvcount, recvtype, source, recvtag, comm),
                  recvbuf,
                  recvcount,
                  recvtype,
                  source,
                  recvtag};
    if (out.ours && in.ours) return both_ours(*rank, out, in, status);
    if (out.ours || in.ours) return mixed<Int>(*rank, comm, out, in, status);
    note_host_send(rank, comm, dest);
    note_host_receive(rank, comm, source);
  }
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST_SIZED(Sendrecv)(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                                 recvtype, source, recvtag, comm, status);
}

template <typename Int>
int sendrecv_replace(void* buf, Int count, MPI_Datatype type, int dest, int sendtag, int source,
                     int recvtag, MPI_Comm comm, MPI_Status* status) {
  if (Rank* rank = serving()) {
    const Ours out = our_send(buf, count, type, dest, sendtag, comm);
    const Ours in = our_receive(buf, count, type, source, recvtag, comm);
    if (out || in) {
      const PackedCopy copy(buf, count, out ? **out.layout : **in.layout);
      if (copy.error() != MPI_SUCCESS) return raise_error(find_comm(comm), copy.error());
      // Only the host cannot send so many bytes behind an int count, and it has no other form then.
      if (!out && copy.bytes() > std::numeric_limits<Int>::max()) {
        return raise_error(find_comm(comm), MPI_ERR_COUNT);
      }
      const Half sending{out ? Ours{out.comm, layout_of(abi::to_handle(abi::byte()))} : Ours{},
                         copy.data(),
                         copy.bytes(),
                         abi::packed(),
                         dest,
                         sendtag};
      const Half receiving{in, buf, count, type, source, recvtag};
      return out && in ? both_ours(*rank, sending, receiving, status)
                       : mixed<Int>(*rank, comm, sending, receiving, status);
    }
    note_host_send(rank, comm, dest);
    note_host_receive(rank, comm, source);
  }
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST_SIZED(Sendrecv_replace)(buf, count, type, dest, sendtag, source, recvtag, comm,
                                         status);
}

}  // namespace
}  // namespace od::face

#define OD_SENDRECV(suffix, Int)                                                                   \
  int od_MPI_Sendrecv##suffix(const void* sendbuf, Int sendcount, MPI_Datatype sendtype, int dest, \
                              int sendtag, void* recvbuf, Int recvcount, MPI_Datatype recvtype,    \
                              int source, int recvtag, MPI_Comm comm, MPI_Status* status) {        \
    return od::face::sendrecv<Int>(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf,           \
                                   recvcount, recvtype, source, recvtag, comm, status);            \
  }                                                                                                \
  int od_MPI_Sendrecv_replace##suffix(void* buf, Int count, MPI_Datatype datatype, int dest,       \
                                      int sendtag, int source, int recvtag, MPI_Comm comm,         \
                                      MPI_Status* status) {                                        \
    return od::face::sendrecv_replace<Int>(buf, count, datatype, dest, sendtag, source, recvtag,   \
                                           comm, status);                                          \
  }

OD_SENDRECV(, int)
OD_SENDRECV(_c, MPI_Count)
