// Collectives among the neighbours of a topology: Neighbor_allgather(v), Neighbor_alltoall(v, w),
// in all forms. There is no MPI_IN_PLACE; what a rank has for nobody is not looked at.
#include <vector>

#include "coll/run/buffers.h"
#include "face/collectives.h"
#include "face/neighbours.h"

namespace od::face {
namespace {

using Edges = std::vector<Neighbourhood::Edge>;

// `buf` as it is `offset_bytes` further on; it may be MPI_BOTTOM.
const void* moved(const void* buf, std::int64_t offset_bytes) {
  return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(buf) +
                                       static_cast<std::uintptr_t>(offset_bytes));
}

// Who has no block leaves the description of it out.
const p2p::LayoutRef& bytes() { return CollectiveBuffers::byte_layout(); }

// Equal blocks that follow each other.
bool set_equal(p2p::LayoutRef& layout, std::int64_t& elements, const void* buf, std::int64_t count,
               MPI_Datatype type, std::int64_t blocks) {
  if (blocks == 0) {
    layout = bytes();
    elements = 0;
    return true;
  }
  elements = count;
  return set_layout(layout, buf, count, type);
}

bool set_equal_send(FaceCall& call, const void* buf, std::int64_t count, MPI_Datatype type,
                    std::size_t blocks) {
  call.send = buf;
  return set_equal(call.send_type, call.send_count, buf, count, type,
                   static_cast<std::int64_t>(blocks));
}

bool set_equal_recv(FaceCall& call, void* buf, std::int64_t count, MPI_Datatype type,
                    std::size_t blocks) {
  call.recv = buf;
  return set_equal(call.recv_type, call.recv_count, buf, count, type,
                   static_cast<std::int64_t>(blocks));
}

// Blocks with counts, and places in elements.
template <typename Int, typename Displ>
bool set_counted(std::vector<BlockPlace>& blocks, p2p::LayoutRef& layout, const Edges& edges,
                 const void* buf, const Int* counts, const Displ* displs, MPI_Datatype type) {
  blocks.assign(edges.size(), {});
  layout = bytes();
  if (edges.empty()) return true;
  const p2p::LayoutRef* found = layout_of(abi::to_handle(type));
  if (found == nullptr || buf == MPI_IN_PLACE || counts == nullptr || displs == nullptr) {
    return false;
  }
  const p2p::LayoutRef elements = layout = *found;
  bool located = false;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].is_nobody()) continue;
    blocks[i] = {counts[i], displs[i] * elements->extent};
    if (counts[i] < 0) return false;
    if (blocks[i].offset_bytes == 0 && null_data(buf, counts[i], *elements)) return false;
    if (counts[i] == 0 || located) continue;
    const p2p::LayoutRef* const there =
        where_it_lies(moved(buf, blocks[i].offset_bytes), counts[i], type, &elements);
    if (there == nullptr) return false;
    layout = *there;
    located = true;
  }
  return true;
}

// Blocks with counts, places in bytes and a datatype each, which an empty one may leave out.
template <typename Int, typename Displ>
bool set_typed(std::vector<BlockPlace>& blocks, std::vector<p2p::LayoutRef>& layouts,
               const Edges& edges, const void* buf, const Int* counts, const Displ* displs,
               const MPI_Datatype* types) {
  blocks.assign(edges.size(), {});
  layouts.assign(edges.size(), bytes());
  if (edges.empty()) return true;
  if (buf == MPI_IN_PLACE || counts == nullptr || displs == nullptr || types == nullptr) {
    return false;
  }
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].is_nobody()) continue;
    if (counts[i] < 0) return false;
    if (counts[i] == 0 && types[i] == abi::type_null()) continue;
    const p2p::LayoutRef* layout = layout_of(abi::to_handle(types[i]));
    if (layout == nullptr) return false;
    if (displs[i] == 0 && null_data(buf, counts[i], **layout)) return false;
    layout = where_it_lies(moved(buf, displs[i]), counts[i], types[i], layout);
    if (layout == nullptr) return false;
    blocks[i] = {counts[i], displs[i]};
    layouts[i] = *layout;
  }
  return true;
}

bool fill_neighbor_allgather(Comm& comm, FaceCall& call, const void* sendbuf,
                             std::int64_t sendcount, MPI_Datatype sendtype, void* recvbuf,
                             std::int64_t recvcount, MPI_Datatype recvtype) {
  call.neighbours = neighbours_of(comm);
  return call.neighbours != nullptr &&
         set_equal_send(call, sendbuf, sendcount, sendtype, call.neighbours->out().size()) &&
         set_equal_recv(call, recvbuf, recvcount, recvtype, call.neighbours->in().size());
}

bool fill_neighbor_alltoall(Comm& comm, FaceCall& call, const void* sendbuf, std::int64_t sendcount,
                            MPI_Datatype sendtype, void* recvbuf, std::int64_t recvcount,
                            MPI_Datatype recvtype) {
  return fill_neighbor_allgather(comm, call, sendbuf, sendcount, sendtype, recvbuf, recvcount,
                                 recvtype);
}

template <typename Int, typename Displ>
bool fill_neighbor_allgatherv(Comm& comm, FaceCall& call, const void* sendbuf, Int sendcount,
                              MPI_Datatype sendtype, void* recvbuf, const Int* recvcounts,
                              const Displ* displs, MPI_Datatype recvtype) {
  call.neighbours = neighbours_of(comm);
  call.recv = recvbuf;
  return call.neighbours != nullptr &&
         set_equal_send(call, sendbuf, sendcount, sendtype, call.neighbours->out().size()) &&
         set_counted(call.recv_blocks, call.recv_type, call.neighbours->in(), recvbuf, recvcounts,
                     displs, recvtype);
}

template <typename Int, typename Displ>
bool fill_neighbor_alltoallv(Comm& comm, FaceCall& call, const void* sendbuf, const Int* sendcounts,
                             const Displ* sdispls, MPI_Datatype sendtype, void* recvbuf,
                             const Int* recvcounts, const Displ* rdispls, MPI_Datatype recvtype) {
  call.neighbours = neighbours_of(comm);
  call.send = sendbuf;
  call.recv = recvbuf;
  return call.neighbours != nullptr &&
         set_counted(call.send_blocks, call.send_type, call.neighbours->out(), sendbuf, sendcounts,
                     sdispls, sendtype) &&
         set_counted(call.recv_blocks, call.recv_type, call.neighbours->in(), recvbuf, recvcounts,
                     rdispls, recvtype);
}

template <typename Int, typename Displ>
bool fill_neighbor_alltoallw(Comm& comm, FaceCall& call, const void* sendbuf, const Int* sendcounts,
                             const Displ* sdispls, const MPI_Datatype* sendtypes, void* recvbuf,
                             const Int* recvcounts, const Displ* rdispls,
                             const MPI_Datatype* recvtypes) {
  call.neighbours = neighbours_of(comm);
  call.send = sendbuf;
  call.recv = recvbuf;
  return call.neighbours != nullptr &&
         set_typed(call.send_blocks, call.send_types, call.neighbours->out(), sendbuf, sendcounts,
                   sdispls, sendtypes) &&
         set_typed(call.recv_blocks, call.recv_types, call.neighbours->in(), recvbuf, recvcounts,
                   rdispls, recvtypes);
}

}  // namespace
}  // namespace od::face

#define OD_BLOCKS(Int, Displ)                                                              \
  const void *sendbuf, Int sendcount, MPI_Datatype sendtype, void *recvbuf, Int recvcount, \
      MPI_Datatype recvtype
#define OD_ALLGATHERV(Int, Displ)                                                                  \
  const void *sendbuf, Int sendcount, MPI_Datatype sendtype, void *recvbuf, const Int *recvcounts, \
      const Displ *displs, MPI_Datatype recvtype
#define OD_ALLTOALLV(Int, Displ)                                                           \
  const void *sendbuf, const Int *sendcounts, const Displ *sdispls, MPI_Datatype sendtype, \
      void *recvbuf, const Int *recvcounts, const Displ *rdispls, MPI_Datatype recvtype
#define OD_ALLTOALLW(Int, Displ)                                                                   \
  const void *sendbuf, const Int *sendcounts, const Displ *sdispls, const MPI_Datatype *sendtypes, \
      void *recvbuf, const Int *recvcounts, const Displ *rdispls, const MPI_Datatype *recvtypes
#define OD_ALLTOALLW_ARGUMENTS \
  (sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes)

OD_COLLECTIVE(Neighbor_allgather, Ineighbor_allgather, kAllgather, neighbor_allgather, OD_BLOCKS,
              (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype))
OD_COLLECTIVE(Neighbor_allgatherv, Ineighbor_allgatherv, kAllgatherv, neighbor_allgatherv,
              OD_ALLGATHERV, (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype))
OD_COLLECTIVE(Neighbor_alltoall, Ineighbor_alltoall, kAlltoall, neighbor_alltoall, OD_BLOCKS,
              (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype))
OD_COLLECTIVE(Neighbor_alltoallv, Ineighbor_alltoallv, kAlltoallv, neighbor_alltoallv, OD_ALLTOALLV,
              (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype))
// Displacements are addresses in either size of counts.
OD_COLLECTIVE_SIZED(Neighbor_alltoallw, Ineighbor_alltoallw, kAlltoallw, neighbor_alltoallw,
                    OD_ALLTOALLW, OD_ALLTOALLW_ARGUMENTS, , int, MPI_Aint)
OD_COLLECTIVE_SIZED(Neighbor_alltoallw, Ineighbor_alltoallw, kAlltoallw, neighbor_alltoallw,
                    OD_ALLTOALLW, OD_ALLTOALLW_ARGUMENTS, _c, MPI_Count, MPI_Aint)
