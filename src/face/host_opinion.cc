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

bool settle_aliasing(CollectiveCall& call) {
  if (!host_accepts_aliasing(call.collective)) return false;
  take_in_place(call);
  return true;
}

}  // namespace od::face
