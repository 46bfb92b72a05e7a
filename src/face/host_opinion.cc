// Asks the host by calls on a communicator of this process alone.
#include "face/host_opinion.h"

#include "face/collectives.h"
#include "face/predefined_constants.h"

namespace od::face {
namespace {

int call_aliased(Collective collective, MPI_Comm comm) {
  int buf = 0;
  int count = 1;
  int place = 0;
  MPI_Datatype type = MPI_INT;
  const MPI_Op op = MPI_SUM;
  switch (collective) {
    case Collective::kAllgather:
      return OD_HOST(Allgather)(&buf, 1, type, &buf, 1, type, comm);
    case Collective::kAllgatherv:
      return OD_HOST(Allgatherv)(&buf, 1, type, &buf, &count, &place, type, comm);
    case Collective::kAllreduce:
      return OD_HOST(Allreduce)(&buf, &buf, 1, type, op, comm);
    case Collective::kAlltoall:
      return OD_HOST(Alltoall)(&buf, 1, type, &buf, 1, type, comm);
    case Collective::kAlltoallv:
      return OD_HOST(Alltoallv)(&buf, &count, &place, type, &buf, &count, &place, type, comm);
    case Collective::kAlltoallw:
      return OD_HOST(Alltoallw)(&buf, &count, &place, &type, &buf, &count, &place, &type, comm);
    case Collective::kBarrier:
    case Collective::kBcast:
      return MPI_SUCCESS;  // have one buffer at most
    case Collective::kExscan:
      return OD_HOST(Exscan)(&buf, &buf, 1, type, op, comm);
    case Collective::kGather:
      return OD_HOST(Gather)(&buf, 1, type, &buf, 1, type, 0, comm);
    case Collective::kGatherv:
      return OD_HOST(Gatherv)(&buf, 1, type, &buf, &count, &place, type, 0, comm);
    case Collective::kReduce:
      return OD_HOST(Reduce)(&buf, &buf, 1, type, op, 0, comm);
    case Collective::kReduceScatter:
      return OD_HOST(Reduce_scatter)(&buf, &buf, &count, type, op, comm);
    case Collective::kReduceScatterBlock:
      return OD_HOST(Reduce_scatter_block)(&buf, &buf, 1, type, op, comm);
    case Collective::kScan:
      return OD_HOST(Scan)(&buf, &buf, 1, type, op, comm);
    case Collective::kScatter:
      return OD_HOST(Scatter)(&buf, 1, type, &buf, 1, type, 0, comm);
    case Collective::kScatterv:
      return OD_HOST(Scatterv)(&buf, &count, &place, type, &buf, 1, type, 0, comm);
  }
  return MPI_SUCCESS;
}

int complete(int error, MPI_Request* request) {
  return error == MPI_SUCCESS ? OD_HOST(Wait)(request, MPI_STATUS_IGNORE) : error;
}

// The two forms of a collective; persistent calls are judged like non-blocking ones.
#define OD_ASK(Name, IName, ...)                                                     \
  return odd.later ? complete(OD_HOST(IName)(__VA_ARGS__, comm, &request), &request) \
                   : OD_HOST(Name)(__VA_ARGS__, comm)

// Where the host does not look at a null pointer the call may use it, as the program's own would.
int call_odd(const OddBuffer& odd, MPI_Comm comm) {
  int valid[2] = {};
  MPI_Request request = abi::request_null();
  const MPI_Datatype good = MPI_INT;
  const MPI_Datatype type = odd.null_pointer ? good : odd.type;
  const MPI_Datatype in = odd.receives ? good : type;
  const MPI_Datatype out = odd.receives ? type : good;
  int* const send = odd.null_pointer && !odd.receives ? nullptr : &valid[0];
  int* const recv = odd.null_pointer && odd.receives ? nullptr : &valid[1];
  const int n = odd.null_pointer ? 1 : 0;
  const int place = 0;
  const MPI_Op op = MPI_SUM;
  switch (odd.collective) {
    case Collective::kAllgather:
      OD_ASK(Allgather, Iallgather, send, n, in, recv, n, out);
    case Collective::kAllgatherv:
      OD_ASK(Allgatherv, Iallgatherv, send, n, in, recv, &n, &place, out);
    case Collective::kAllreduce:
      OD_ASK(Allreduce, Iallreduce, send, recv, n, type, op);
    case Collective::kAlltoall:
      OD_ASK(Alltoall, Ialltoall, send, n, in, recv, n, out);
    case Collective::kAlltoallv:
      OD_ASK(Alltoallv, Ialltoallv, send, &n, &place, in, recv, &n, &place, out);
    case Collective::kAlltoallw:
      OD_ASK(Alltoallw, Ialltoallw, send, &n, &place, &in, recv, &n, &place, &out);
    case Collective::kBarrier:
      return MPI_SUCCESS;
    case Collective::kBcast:
      OD_ASK(Bcast, Ibcast, odd.null_pointer ? nullptr : &valid[0], n, type, 0);
    case Collective::kExscan:
      OD_ASK(Exscan, Iexscan, send, recv, n, type, op);
    case Collective::kGather:
      OD_ASK(Gather, Igather, send, n, in, recv, n, out, 0);
    case Collective::kGatherv:
      OD_ASK(Gatherv, Igatherv, send, n, in, recv, &n, &place, out, 0);
    case Collective::kReduce:
      OD_ASK(Reduce, Ireduce, send, recv, n, type, op, 0);
    case Collective::kReduceScatter:
      OD_ASK(Reduce_scatter, Ireduce_scatter, send, recv, &n, type, op);
    case Collective::kReduceScatterBlock:
      OD_ASK(Reduce_scatter_block, Ireduce_scatter_block, send, recv, n, type, op);
    case Collective::kScan:
      OD_ASK(Scan, Iscan, send, recv, n, type, op);
    case Collective::kScatter:
      OD_ASK(Scatter, Iscatter, send, n, in, recv, n, out, 0);
    case Collective::kScatterv:
      OD_ASK(Scatterv, Iscatterv, send, &n, &place, in, recv, n, out, 0);
  }
  return MPI_SUCCESS;
}
#undef OD_ASK

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

bool host_accepts_aliasing(Collective collective) {
  auto& known = state.opinion.aliasing_[static_cast<std::size_t>(collective)];
  HostOpinion::Answer answer = known.load(std::memory_order_relaxed);
  if (answer == HostOpinion::unknown) {
    MPI_Comm comm;
    if (!state.opinion.communicator(&comm)) return false;
    HostCallScope scope(HostCallKind::kLocal);
    answer =
        call_aliased(collective, comm) == MPI_SUCCESS ? HostOpinion::accepts : HostOpinion::refuses;
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
  if (!host_accepts_aliasing(call.collective)) return false;
  take_in_place(call);
  return true;
}

}  // namespace od::face
