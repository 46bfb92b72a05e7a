// Collectives whose blocks are equal at all ranks: Barrier, Bcast, Gather, Scatter, Allgather,
// Alltoall, in all forms.
#include "face/collectives.h"

namespace od::face {
namespace {

bool fill_bcast(const Comm& comm, FaceCall& call, void* buffer, std::int64_t count,
                MPI_Datatype type, int root) {
  call.root = root;
  return valid_root(comm, root) && set_recv(call, buffer, count, type);
}

// This rank's block of a buffer that has one for each rank.
BlockPlace own_block(const Comm& comm, std::int64_t count, const p2p::Layout& layout) {
  return {count, comm.rank * count * layout.extent};
}

bool fill_allgather(const Comm& comm, FaceCall& call, const void* sendbuf, std::int64_t sendcount,
                    MPI_Datatype sendtype, void* recvbuf, std::int64_t recvcount,
                    MPI_Datatype recvtype) {
  if (!set_recv(call, recvbuf, recvcount, recvtype)) return false;
  return set_or_leave_out(
      call, sendbuf, [&] { return set_send(call, sendbuf, sendcount, sendtype); },
      [&] {
        return same_block(sendbuf, sendcount, sendtype, recvbuf,
                          own_block(comm, recvcount, *call.recv_type), recvtype);
      });
}

bool fill_gather(const Comm& comm, FaceCall& call, const void* sendbuf, std::int64_t sendcount,
                 MPI_Datatype sendtype, void* recvbuf, std::int64_t recvcount,
                 MPI_Datatype recvtype, int root) {
  call.root = root;
  if (!valid_root(comm, root)) return false;
  if (comm.rank != root) return set_send(call, sendbuf, sendcount, sendtype);
  return fill_allgather(comm, call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
}

bool fill_scatter(const Comm& comm, FaceCall& call, const void* sendbuf, std::int64_t sendcount,
                  MPI_Datatype sendtype, void* recvbuf, std::int64_t recvcount,
                  MPI_Datatype recvtype, int root) {
  call.root = root;
  if (!valid_root(comm, root)) return false;
  if (comm.rank != root) return set_recv(call, recvbuf, recvcount, recvtype);
  if (!set_send(call, sendbuf, sendcount, sendtype)) return false;
  return set_or_leave_out(
      call, recvbuf, [&] { return set_recv(call, recvbuf, recvcount, recvtype); },
      [&] {
        return same_block(recvbuf, recvcount, recvtype, sendbuf,
                          own_block(comm, sendcount, *call.send_type), sendtype);
      });
}

bool fill_alltoall(const Comm&, FaceCall& call, const void* sendbuf, std::int64_t sendcount,
                   MPI_Datatype sendtype, void* recvbuf, std::int64_t recvcount,
                   MPI_Datatype recvtype) {
  if (!set_recv(call, recvbuf, recvcount, recvtype)) return false;
  return set_or_leave_out(
      call, sendbuf, [&] { return set_send(call, sendbuf, sendcount, sendtype); },
      [&] {
        return same_block(sendbuf, sendcount, sendtype, recvbuf, {recvcount, 0}, recvtype);
      });
}

constexpr auto fill_nothing = [](const Comm&, FaceCall&) { return true; };

}  // namespace
}  // namespace od::face

int od_MPI_Barrier(MPI_Comm comm) {
  using namespace od::face;
  return serve(comm, Collective::kBarrier, fill_nothing, [&] { return OD_HOST(Barrier)(comm); });
}
int od_MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  using namespace od::face;
  return serve_later<Later::started>(comm, request, Collective::kBarrier, fill_nothing,
                                     [&] { return OD_HOST(Ibarrier)(comm, request); });
}
int od_MPI_Barrier_init(MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  using namespace od::face;
  return serve_later<Later::persistent>(comm, request, Collective::kBarrier, fill_nothing,
                                        [&] { return OD_HOST(Barrier_init)(comm, info, request); });
}

#define OD_BCAST(Int, Displ) void *buffer, Int count, MPI_Datatype datatype, int root
#define OD_BLOCKS(Int, Displ)                                                              \
  const void *sendbuf, Int sendcount, MPI_Datatype sendtype, void *recvbuf, Int recvcount, \
      MPI_Datatype recvtype
#define OD_BLOCKS_ROOT(Int, Displ) OD_BLOCKS(Int, Displ), int root

OD_COLLECTIVE(Bcast, Ibcast, kBcast, bcast, OD_BCAST, (buffer, count, datatype, root))
OD_COLLECTIVE(Gather, Igather, kGather, gather, OD_BLOCKS_ROOT,
              (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root))
OD_COLLECTIVE(Scatter, Iscatter, kScatter, scatter, OD_BLOCKS_ROOT,
              (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root))
OD_COLLECTIVE(Allgather, Iallgather, kAllgather, allgather, OD_BLOCKS,
              (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype))
OD_COLLECTIVE(Alltoall, Ialltoall, kAlltoall, alltoall, OD_BLOCKS,
              (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype))
