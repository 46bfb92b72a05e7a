// Collectives that compute: Reduce, Allreduce, Scan, Exscan, Reduce_scatter, Reduce_scatter_block,
// in all forms.
#include <vector>

#include "face/collectives.h"

namespace od::face {
namespace {

// Datatype and operation, which every rank has. Also sets the count of the output.
bool set_operation(FaceCall& call, std::int64_t count, MPI_Datatype type, MPI_Op op) {
  if (count < 0) return false;
  const p2p::LayoutRef* layout = layout_of(abi::to_handle(type));
  if (layout == nullptr) return false;
  call.recv_type = *layout;
  call.recv_count = count;
  return state.reductions.find(op, type, **layout, &call.reduction);
}

// Where the result goes; `count` elements.
bool set_output(FaceCall& call, void* recvbuf, std::int64_t count, MPI_Datatype type) {
  call.recv = recvbuf;
  if (!memory::devices_possible()) [[likely]]
    return true;
  const p2p::LayoutRef* const found = find_where_it_lies(recvbuf, count, type, &call.recv_type);
  if (found == nullptr) return false;
  if (found != &call.recv_type) call.recv_type = *found;
  return true;
}

// The input, or that there is none of its own. `count` elements, of which `output` are the
// output's.
bool set_input(FaceCall& call, const void* sendbuf, void* recvbuf, std::int64_t count,
               std::int64_t output, MPI_Datatype type) {
  if (recvbuf == MPI_IN_PLACE) return false;
  const bool in_place = sendbuf == MPI_IN_PLACE;
  const std::int64_t room = in_place ? count : output;
  if (null_data(recvbuf, room, *call.recv_type) &&
      odd_layout(call, true, recvbuf, room, type) == nullptr) {
    return false;
  }
  if (!set_output(call, recvbuf, room, type)) return false;
  return set_or_leave_out(
      call, sendbuf, [&] { return set_send(call, sendbuf, count, type); },
      [&] { return sendbuf == recvbuf && count != 0; });
}

bool fill_allreduce(const Comm&, FaceCall& call, const void* sendbuf, void* recvbuf,
                    std::int64_t count, MPI_Datatype type, MPI_Op op) {
  return set_operation(call, count, type, op) &&
         set_input(call, sendbuf, recvbuf, count, count, type);
}

// The first rank gets no result: its output is significant only as an input in place.
bool fill_exscan(const Comm& comm, FaceCall& call, const void* sendbuf, void* recvbuf,
                 std::int64_t count, MPI_Datatype type, MPI_Op op) {
  if (!set_operation(call, count, type, op)) return false;
  if (comm.rank != 0 || sendbuf == MPI_IN_PLACE) {
    return set_input(call, sendbuf, recvbuf, count, count, type);
  }
  if (!set_send(call, sendbuf, count, type)) return false;
  if (recvbuf == MPI_IN_PLACE || null_data(recvbuf, count, *call.recv_type)) return true;
  if (!set_output(call, recvbuf, count, type)) return false;
  return sendbuf != recvbuf || count == 0 || settle_aliasing(call);
}

bool fill_reduce(const Comm& comm, FaceCall& call, const void* sendbuf, void* recvbuf,
                 std::int64_t count, MPI_Datatype type, MPI_Op op, int root) {
  call.root = root;
  if (!valid_root(comm, root) || !set_operation(call, count, type, op)) return false;
  if (comm.rank != root) return set_send(call, sendbuf, count, type);
  return set_input(call, sendbuf, recvbuf, count, count, type);
}

bool fill_reduce_scatter_block(const Comm& comm, FaceCall& call, const void* sendbuf, void* recvbuf,
                               std::int64_t recvcount, MPI_Datatype type, MPI_Op op) {
  return set_operation(call, recvcount, type, op) &&
         set_input(call, sendbuf, recvbuf, recvcount * comm.size, recvcount, type);
}

template <typename Int>
bool fill_reduce_scatter(const Comm& comm, FaceCall& call, const void* sendbuf, void* recvbuf,
                         const Int* recvcounts, MPI_Datatype type, MPI_Op op) {
  if (recvcounts == nullptr) return false;
  call.recv_blocks.resize(static_cast<std::size_t>(comm.size));
  std::int64_t total = 0;
  for (std::size_t i = 0; i < call.recv_blocks.size(); ++i) {
    if (recvcounts[i] < 0) return false;
    call.recv_blocks[i].count = recvcounts[i];
    total += recvcounts[i];
  }
  const std::int64_t own = recvcounts[comm.rank];
  return set_operation(call, own, type, op) && set_input(call, sendbuf, recvbuf, total, own, type);
}

}  // namespace
}  // namespace od::face

#define OD_REDUCTION(Int, Displ) \
  const void *sendbuf, void *recvbuf, Int count, MPI_Datatype datatype, MPI_Op op
#define OD_REDUCTION_ROOT(Int, Displ) OD_REDUCTION(Int, Displ), int root
#define OD_REDUCE_SCATTER(Int, Displ) \
  const void *sendbuf, void *recvbuf, const Int *recvcounts, MPI_Datatype datatype, MPI_Op op

OD_COLLECTIVE(Reduce, Ireduce, kReduce, reduce, OD_REDUCTION_ROOT,
              (sendbuf, recvbuf, count, datatype, op, root))
OD_COLLECTIVE(Allreduce, Iallreduce, kAllreduce, allreduce, OD_REDUCTION,
              (sendbuf, recvbuf, count, datatype, op))
OD_COLLECTIVE(Scan, Iscan, kScan, allreduce, OD_REDUCTION, (sendbuf, recvbuf, count, datatype, op))
OD_COLLECTIVE(Exscan, Iexscan, kExscan, exscan, OD_REDUCTION,
              (sendbuf, recvbuf, count, datatype, op))
OD_COLLECTIVE(Reduce_scatter, Ireduce_scatter, kReduceScatter, reduce_scatter, OD_REDUCE_SCATTER,
              (sendbuf, recvbuf, recvcounts, datatype, op))
OD_COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block, kReduceScatterBlock,
              reduce_scatter_block, OD_REDUCTION, (sendbuf, recvbuf, count, datatype, op))
