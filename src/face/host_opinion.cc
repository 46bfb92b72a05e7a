// Asks the host by calls on a communicator of this process alone.
#include "face/host_opinion.h"

#include <algorithm>

#include "face/collectives.h"
#include "face/predefined_constants.h"

namespace od::face {
namespace {

int complete(int error, MPI_Request* request) {
  return error == MPI_SUCCESS ? OD_HOST(Wait)(request, MPI_STATUS_IGNORE) : error;
}

// A call of the host: every block has `n` elements at the places of `send` and `recv`.
struct Question {
  Collective collective;
  bool later;  // non-blocking; persistent calls are judged like these
  int* send;
  int* recv;  // a broadcast's buffer, too
  int n;
  MPI_Datatype in;   // of what is sent
  MPI_Datatype out;  // of what is received, of reductions and broadcasts
};

#define OD_ASK(Name, IName, ...)                                                   \
  return q.later ? complete(OD_HOST(IName)(__VA_ARGS__, comm, &request), &request) \
                 : OD_HOST(Name)(__VA_ARGS__, comm)

int ask(const Question& q, MPI_Comm comm) {
  MPI_Request request = abi::request_null();
  // The same array where the types are the same: MPICH sees that a buffer is sent from and received
  // into only if everything that describes it is at the same address, and ends the job otherwise.
  const MPI_Datatype* const outs = q.in == q.out ? &q.in : &q.out;
  const int place = 0;
  const MPI_Op op = MPI_SUM;
  switch (q.collective) {
    case Collective::kAllgather:
      OD_ASK(Allgather, Iallgather, q.send, q.n, q.in, q.recv, q.n, q.out);
    case Collective::kAllgatherv:
      OD_ASK(Allgatherv, Iallgatherv, q.send, q.n, q.in, q.recv, &q.n, &place, q.out);
    case Collective::kAllreduce:
      OD_ASK(Allreduce, Iallreduce, q.send, q.recv, q.n, q.out, op);
    case Collective::kAlltoall:
      OD_ASK(Alltoall, Ialltoall, q.send, q.n, q.in, q.recv, q.n, q.out);
    case Collective::kAlltoallv:
      OD_ASK(Alltoallv, Ialltoallv, q.send, &q.n, &place, q.in, q.recv, &q.n, &place, q.out);
    case Collective::kAlltoallw:
      OD_ASK(Alltoallw, Ialltoallw, q.send, &q.n, &place, &q.in, q.recv, &q.n, &place, outs);
    case Collective::kBarrier:
      return MPI_SUCCESS;
    case Collective::kBcast:
      OD_ASK(Bcast, Ibcast, q.recv, q.n, q.out, 0);
    case Collective::kExscan:
      OD_ASK(Exscan, Iexscan, q.send, q.recv, q.n, q.out, op);
    case Collective::kGather:
      OD_ASK(Gather, Igather, q.send, q.n, q.in, q.recv, q.n, q.out, 0);
    case Collective::kGatherv:
      OD_ASK(Gatherv, Igatherv, q.send, q.n, q.in, q.recv, &q.n, &place, q.out, 0);
    case Collective::kReduce:
      OD_ASK(Reduce, Ireduce, q.send, q.recv, q.n, q.out, op, 0);
    case Collective::kReduceScatter:
      OD_ASK(Reduce_scatter, Ireduce_scatter, q.send, q.recv, &q.n, q.out, op);
    case Collective::kReduceScatterBlock:
      OD_ASK(Reduce_scatter_block, Ireduce_scatter_block, q.send, q.recv, q.n, q.out, op);
    case Collective::kScan:
      OD_ASK(Scan, Iscan, q.send, q.recv, q.n, q.out, op);
    case Collective::kScatter:
      OD_ASK(Scatter, Iscatter, q.send, q.n, q.in, q.recv, q.n, q.out, 0);
    case Collective::kScatterv:
      OD_ASK(Scatterv, Iscatterv, q.send, &q.n, &place, q.in, q.recv, q.n, q.out, 0);
  }
  return MPI_SUCCESS;
}
#undef OD_ASK

// What is sent and what is received in the same place.
int call_aliased(Collective collective, bool several, MPI_Comm comm) {
  if (coll::info(collective).input == coll::Part::kNone) return MPI_SUCCESS;  // one buffer at most
  int both[2] = {};
  return ask({collective, false, both, both, several ? 2 : 1, MPI_INT, MPI_INT}, comm);
}

// A null pointer, or a datatype for no elements. Where the host does not look at a null pointer the
// call may use it, as the program's own would.
int call_odd(const OddBuffer& odd, MPI_Comm comm) {
  int valid[2] = {};
  Question q{odd.collective, odd.later, &valid[0], &valid[1], 1, MPI_INT, MPI_INT};
  const coll::CollectiveInfo& kind = coll::info(odd.collective);
  const bool receives = odd.receives || kind.input == coll::Part::kNone;
  if (odd.null_pointer) {
    (receives ? q.recv : q.send) = nullptr;
  } else {
    q.n = 0;
    (receives || kind.reduces ? q.out : q.in) = odd.type;
  }
  return ask(q, comm);
}

}  // namespace

bool HostOpinion::communicator(MPI_Comm* comm) {
  const std::lock_guard lock(mutex_);
  if (comm_ == 0 && state.host.comm_dup(state.host.comm_self, &comm_) != host::kSuccess) {
    comm_ = 0;
    return false;
  }
  *comm = abi::from_handle<MPI_Comm>(comm_);
  return true;
}

void HostOpinion::finish() {
  if (comm_ != 0) state.host.comm_free(&comm_);
  comm_ = 0;
}

bool host_accepts_reduction(MPI_Op op, MPI_Datatype type) {
  MPI_Comm comm;
  if (!state.opinion.communicator(&comm)) return false;
  HostCallScope scope(HostCallKind::kLocal);
  long double in = 0, out = 0;  // not touched: no elements
  return OD_HOST(Allreduce)(&in, &out, 0, type, op, comm) == MPI_SUCCESS;
}

bool host_accepts_aliasing(Collective collective, bool several) {
  auto& known = state.opinion.aliasing_[static_cast<std::size_t>(collective)][several ? 1 : 0];
  HostOpinion::Answer answer = known.load(std::memory_order_relaxed);
  if (answer == HostOpinion::unknown) {
    MPI_Comm comm;
    if (!state.opinion.communicator(&comm)) return false;
    HostCallScope scope(HostCallKind::kLocal);
    answer = call_aliased(collective, several, comm) == MPI_SUCCESS ? HostOpinion::accepts
                                                                    : HostOpinion::refuses;
    known.store(answer, std::memory_order_relaxed);
  }
  return answer == HostOpinion::accepts;
}

bool host_accepts_no_type(MPI_Datatype type, bool receives) {
  MPI_Comm comm;
  if (!state.opinion.communicator(&comm)) return false;
  HostCallScope scope(HostCallKind::kLocal);
  const int error = receives
                        ? OD_HOST(Recv)(nullptr, 0, type, MPI_PROC_NULL, 0, comm, MPI_STATUS_IGNORE)
                        : OD_HOST(Send)(nullptr, 0, type, MPI_PROC_NULL, 0, comm);
  return error == MPI_SUCCESS;
}

bool host_accepts_odd(const OddBuffer& odd) {
  MPI_Comm comm;
  if (!state.opinion.communicator(&comm)) return false;
  HostCallScope scope(HostCallKind::kLocal);
  return call_odd(odd, comm) == MPI_SUCCESS;
}

const p2p::LayoutRef* layout_of_nothing(MPI_Datatype type, bool receives) {
  if (layout_of(abi::to_handle(type)) != nullptr) return nullptr;
  return host_accepts_no_type(type, receives) ? layout_of(abi::to_handle(abi::byte())) : nullptr;
}

const p2p::LayoutRef* odd_layout(const FaceCall& call, bool receives, const void* buf,
                                 std::int64_t count, MPI_Datatype type) {
  if (count < 0 || buf == MPI_IN_PLACE) return nullptr;
  OddBuffer odd{call.collective, call.later, receives, false, type};
  const p2p::LayoutRef* const known = layout_of(abi::to_handle(type));
  if (known == nullptr) {
    const bool passes = count == 0 && host_accepts_odd(odd);
    return passes ? layout_of(abi::to_handle(abi::byte())) : nullptr;
  }
  if (!null_data(buf, count, **known)) return nullptr;
  odd.null_pointer = true;
  return host_accepts_odd(odd) ? known : nullptr;
}

bool settle_aliasing(CollectiveCall& call) {
  const bool several = std::max(call.send_count, call.recv_count) > 1;
  if (!host_accepts_aliasing(call.collective, several)) return false;
  take_in_place(call);
  return true;
}

}  // namespace od::face
