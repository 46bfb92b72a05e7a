// Collectives whose blocks have counts and places of their own: Gatherv, Scatterv, Allgatherv,
// Alltoallv, Alltoallw, in all forms.
#include <vector>

#include "face/collectives.h"

namespace od::face {
namespace {

// Counts and displacements in elements. False if they are wrong, or a block lies at a null pointer.
template <typename Int, typename Displ>
bool set_places(std::vector<BlockPlace>& blocks, const Comm& comm, const void* buf,
                const Int* counts, const Displ* displs, const p2p::Layout& layout) {
  if (buf == MPI_IN_PLACE || counts == nullptr || displs == nullptr) return false;
  blocks.resize(static_cast<std::size_t>(comm.size));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = {counts[i], displs[i] * layout.extent};
    if (counts[i] < 0) return false;
    if (blocks[i].offset_bytes == 0 && null_data(buf, counts[i], layout)) return false;
  }
  return true;
}

template <typename Int, typename Displ>
bool set_send_places(CollectiveCall& call, const Comm& comm, const void* buf, const Int* counts,
                     const Displ* displs, MPI_Datatype type) {
  const p2p::LayoutRef* layout = layout_of(abi::to_handle(type));
  if (layout == nullptr) return false;
  call.send = buf;
  call.send_type = *layout;
  return set_places(call.send_blocks, comm, buf, counts, displs, **layout);
}

template <typename Int, typename Displ>
bool set_recv_places(CollectiveCall& call, const Comm& comm, void* buf, const Int* counts,
                     const Displ* displs, MPI_Datatype type) {
  const p2p::LayoutRef* layout = layout_of(abi::to_handle(type));
  if (layout == nullptr) return false;
  call.recv = buf;
  call.recv_type = *layout;
  return set_places(call.recv_blocks, comm, buf, counts, displs, **layout);
}

// Whether this rank's block of the larger buffer is the smaller buffer itself.
bool same_place(const void* small, std::int64_t count, MPI_Datatype small_type, const void* large,
                const BlockPlace& block, MPI_Datatype large_type) {
  return count == block.count && count != 0 && small_type == large_type &&
         small == at(large, block.offset_bytes);
}

template <typename Int, typename Displ>
bool fill_gatherv(const Comm& comm, CollectiveCall& call, const void* sendbuf, Int sendcount,
                  MPI_Datatype sendtype, void* recvbuf, const Int* recvcounts, const Displ* displs,
                  MPI_Datatype recvtype, int root) {
  call.root = root;
  if (!valid_root(comm, root)) return false;
  if (comm.rank != root) return set_send(call, sendbuf, sendcount, sendtype);
  if (!set_recv_places(call, comm, recvbuf, recvcounts, displs, recvtype)) return false;
  if (sendbuf == MPI_IN_PLACE) {
    call.in_place = true;
    return true;
  }
  if (!set_send(call, sendbuf, sendcount, sendtype)) return false;
  const BlockPlace& own = call.recv_blocks[static_cast<std::size_t>(comm.rank)];
  return !same_place(sendbuf, sendcount, sendtype, recvbuf, own, recvtype) || settle_aliasing(call);
}

template <typename Int, typename Displ>
bool fill_scatterv(const Comm& comm, CollectiveCall& call, const void* sendbuf,
                   const Int* sendcounts, const Displ* displs, MPI_Datatype sendtype, void* recvbuf,
                   Int recvcount, MPI_Datatype recvtype, int root) {
  call.root = root;
  if (!valid_root(comm, root)) return false;
  if (comm.rank != root) return set_recv(call, recvbuf, recvcount, recvtype);
  if (!set_send_places(call, comm, sendbuf, sendcounts, displs, sendtype)) return false;
  if (recvbuf == MPI_IN_PLACE) {
    call.in_place = true;
    return true;
  }
  if (!set_recv(call, recvbuf, recvcount, recvtype)) return false;
  const BlockPlace& own = call.send_blocks[static_cast<std::size_t>(comm.rank)];
  return !same_place(recvbuf, recvcount, recvtype, sendbuf, own, sendtype) || settle_aliasing(call);
}

template <typename Int, typename Displ>
bool fill_allgatherv(const Comm& comm, CollectiveCall& call, const void* sendbuf, Int sendcount,
                     MPI_Datatype sendtype, void* recvbuf, const Int* recvcounts,
                     const Displ* displs, MPI_Datatype recvtype) {
  if (!set_recv_places(call, comm, recvbuf, recvcounts, displs, recvtype)) return false;
  if (sendbuf == MPI_IN_PLACE) {
    call.in_place = true;
    return true;
  }
  if (!set_send(call, sendbuf, sendcount, sendtype)) return false;
  const BlockPlace& own = call.recv_blocks[static_cast<std::size_t>(comm.rank)];
  return !same_place(sendbuf, sendcount, sendtype, recvbuf, own, recvtype) || settle_aliasing(call);
}

// Whether all blocks of both sides are described alike; then equal addresses mean equal memory.
bool same_blocks(const CollectiveCall& call) {
  bool any = false;
  for (std::size_t i = 0; i < call.recv_blocks.size(); ++i) {
    const BlockPlace &out = call.send_blocks[i], &in = call.recv_blocks[i];
    if (out.count != in.count || out.offset_bytes != in.offset_bytes) return false;
    any = any || out.count != 0;
  }
  return any;
}

template <typename Int, typename Displ>
bool fill_alltoallv(const Comm& comm, CollectiveCall& call, const void* sendbuf,
                    const Int* sendcounts, const Displ* sdispls, MPI_Datatype sendtype,
                    void* recvbuf, const Int* recvcounts, const Displ* rdispls,
                    MPI_Datatype recvtype) {
  if (!set_recv_places(call, comm, recvbuf, recvcounts, rdispls, recvtype)) return false;
  if (sendbuf == MPI_IN_PLACE) {
    call.in_place = true;
    return true;
  }
  if (!set_send_places(call, comm, sendbuf, sendcounts, sdispls, sendtype)) return false;
  const bool aliased = sendbuf == recvbuf && sendtype == recvtype && same_blocks(call);
  return !aliased || settle_aliasing(call);
}

// Displacements are bytes, each block has a datatype. An empty block may leave its datatype out.
template <typename Int, typename Displ>
bool set_typed_places(std::vector<BlockPlace>& blocks, std::vector<p2p::LayoutRef>& layouts,
                      const Comm& comm, const void* buf, const Int* counts, const Displ* displs,
                      const MPI_Datatype* types) {
  if (buf == MPI_IN_PLACE || counts == nullptr || displs == nullptr || types == nullptr) {
    return false;
  }
  blocks.resize(static_cast<std::size_t>(comm.size));
  layouts.resize(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = {counts[i], displs[i]};
    if (counts[i] < 0) return false;
    const bool left_out = counts[i] == 0 && types[i] == abi::type_null();
    const p2p::LayoutRef* layout = layout_of(abi::to_handle(left_out ? abi::byte() : types[i]));
    if (layout == nullptr) return false;
    if (displs[i] == 0 && null_data(buf, counts[i], **layout)) return false;
    layouts[i] = *layout;
  }
  return true;
}

template <typename Int, typename Displ>
bool fill_alltoallw(const Comm& comm, CollectiveCall& call, const void* sendbuf,
                    const Int* sendcounts, const Displ* sdispls, const MPI_Datatype* sendtypes,
                    void* recvbuf, const Int* recvcounts, const Displ* rdispls,
                    const MPI_Datatype* recvtypes) {
  call.recv = recvbuf;
  if (!set_typed_places(call.recv_blocks, call.recv_types, comm, recvbuf, recvcounts, rdispls,
                        recvtypes)) {
    return false;
  }
  if (sendbuf == MPI_IN_PLACE) {
    call.in_place = true;
    return true;
  }
  call.send = sendbuf;
  if (!set_typed_places(call.send_blocks, call.send_types, comm, sendbuf, sendcounts, sdispls,
                        sendtypes)) {
    return false;
  }
  if (sendbuf != recvbuf || !same_blocks(call)) return true;
  for (std::size_t i = 0; i < call.recv_types.size(); ++i) {
    if (sendtypes[i] != recvtypes[i] && call.recv_blocks[i].count != 0) return true;
  }
  return settle_aliasing(call);
}

}  // namespace
}  // namespace od::face

#define OD_GATHERV(Int, Displ)                                                                     \
  const void *sendbuf, Int sendcount, MPI_Datatype sendtype, void *recvbuf, const Int *recvcounts, \
      const Displ *displs, MPI_Datatype recvtype, int root
#define OD_SCATTERV(Int, Displ)                                                           \
  const void *sendbuf, const Int *sendcounts, const Displ *displs, MPI_Datatype sendtype, \
      void *recvbuf, Int recvcount, MPI_Datatype recvtype, int root
#define OD_ALLGATHERV(Int, Displ)                                                                  \
  const void *sendbuf, Int sendcount, MPI_Datatype sendtype, void *recvbuf, const Int *recvcounts, \
      const Displ *displs, MPI_Datatype recvtype
#define OD_ALLTOALLV(Int, Displ)                                                           \
  const void *sendbuf, const Int *sendcounts, const Displ *sdispls, MPI_Datatype sendtype, \
      void *recvbuf, const Int *recvcounts, const Displ *rdispls, MPI_Datatype recvtype
#define OD_ALLTOALLW(Int, Displ)                                                                   \
  const void *sendbuf, const Int *sendcounts, const Displ *sdispls, const MPI_Datatype *sendtypes, \
      void *recvbuf, const Int *recvcounts, const Displ *rdispls, const MPI_Datatype *recvtypes

OD_COLLECTIVE(Gatherv, Igatherv, kGatherv, gatherv, OD_GATHERV,
              (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root))
OD_COLLECTIVE(Scatterv, Iscatterv, kScatterv, scatterv, OD_SCATTERV,
              (sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root))
OD_COLLECTIVE(Allgatherv, Iallgatherv, kAllgatherv, allgatherv, OD_ALLGATHERV,
              (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype))
OD_COLLECTIVE(Alltoallv, Ialltoallv, kAlltoallv, alltoallv, OD_ALLTOALLV,
              (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype))
OD_COLLECTIVE(Alltoallw, Ialltoallw, kAlltoallw, alltoallw, OD_ALLTOALLW,
              (sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes))
