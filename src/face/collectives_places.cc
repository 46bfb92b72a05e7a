// Collectives whose blocks have counts and places of their own: Gatherv, Scatterv, Allgatherv,
// Alltoallv, Alltoallw, in all forms.
#include <algorithm>
#include <vector>

#include "face/collectives.h"

namespace od::face {
namespace {

// All blocks are parts of one buffer, of which the first that is not empty tells where it lies.
bool set_where_they_lie(const std::vector<BlockPlace>& blocks, p2p::LayoutRef& layout,
                        const void* buf, MPI_Datatype type) {
  if (!memory::devices_possible()) [[likely]]
    return true;
  for (const BlockPlace& block : blocks) {
    if (block.count == 0) continue;
    const auto* const start = reinterpret_cast<const void*>(
        reinterpret_cast<std::uintptr_t>(buf) + static_cast<std::uintptr_t>(block.offset_bytes));
    const p2p::LayoutRef* const found = find_where_it_lies(start, block.count, type, &layout);
    if (found == nullptr) return false;
    if (found != &layout) layout = *found;
    break;
  }
  return true;
}

// Counts and displacements in elements. False if they are wrong, or a block lies at a null pointer.
template <typename Int, typename Displ>
bool set_places(const FaceCall& call, bool receives, std::vector<BlockPlace>& blocks,
                p2p::LayoutRef& layout, const Comm& comm, const void* buf, const Int* counts,
                const Displ* displs, MPI_Datatype type) {
  if (buf == MPI_IN_PLACE || counts == nullptr || displs == nullptr) return false;
  const p2p::LayoutRef* found = layout_of(abi::to_handle(type));
  if (found == nullptr) [[unlikely]] {
    if (!std::all_of(counts, counts + comm.size, [](Int count) { return count == 0; })) {
      return false;
    }
    found = odd_layout(call, receives, buf, 0, type);
    if (found == nullptr) return false;
  }
  layout = *found;
  blocks.resize(static_cast<std::size_t>(comm.size));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = {counts[i], displs[i] * layout->extent};
    if (counts[i] < 0) return false;
    if (blocks[i].offset_bytes == 0 && null_data(buf, counts[i], *layout) &&
        odd_layout(call, receives, buf, counts[i], type) == nullptr) {
      return false;
    }
  }
  return set_where_they_lie(blocks, layout, buf, type);
}

template <typename Int, typename Displ>
bool set_send_places(FaceCall& call, const Comm& comm, const void* buf, const Int* counts,
                     const Displ* displs, MPI_Datatype type) {
  call.send = buf;
  return set_places(call, false, call.send_blocks, call.send_type, comm, buf, counts, displs, type);
}

template <typename Int, typename Displ>
bool set_recv_places(FaceCall& call, const Comm& comm, void* buf, const Int* counts,
                     const Displ* displs, MPI_Datatype type) {
  call.recv = buf;
  return set_places(call, true, call.recv_blocks, call.recv_type, comm, buf, counts, displs, type);
}

const BlockPlace& own_block(const Comm& comm, const std::vector<BlockPlace>& blocks) {
  return blocks[static_cast<std::size_t>(comm.rank)];
}

template <typename Int, typename Displ>
bool fill_allgatherv(const Comm& comm, FaceCall& call, const void* sendbuf, Int sendcount,
                     MPI_Datatype sendtype, void* recvbuf, const Int* recvcounts,
                     const Displ* displs, MPI_Datatype recvtype) {
  if (!set_recv_places(call, comm, recvbuf, recvcounts, displs, recvtype)) return false;
  return set_or_leave_out(
      call, sendbuf, [&] { return set_send(call, sendbuf, sendcount, sendtype); },
      [&] {
        return same_block(sendbuf, sendcount, sendtype, recvbuf, own_block(comm, call.recv_blocks),
                          recvtype);
      });
}

template <typename Int, typename Displ>
bool fill_gatherv(const Comm& comm, FaceCall& call, const void* sendbuf, Int sendcount,
                  MPI_Datatype sendtype, void* recvbuf, const Int* recvcounts, const Displ* displs,
                  MPI_Datatype recvtype, int root) {
  call.root = root;
  if (!valid_root(comm, root)) return false;
  if (comm.rank != root) return set_send(call, sendbuf, sendcount, sendtype);
  return fill_allgatherv(comm, call, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs,
                         recvtype);
}

template <typename Int, typename Displ>
bool fill_scatterv(const Comm& comm, FaceCall& call, const void* sendbuf, const Int* sendcounts,
                   const Displ* displs, MPI_Datatype sendtype, void* recvbuf, Int recvcount,
                   MPI_Datatype recvtype, int root) {
  call.root = root;
  if (!valid_root(comm, root)) return false;
  if (comm.rank != root) return set_recv(call, recvbuf, recvcount, recvtype);
  if (!set_send_places(call, comm, sendbuf, sendcounts, displs, sendtype)) return false;
  return set_or_leave_out(
      call, recvbuf, [&] { return set_recv(call, recvbuf, recvcount, recvtype); },
      [&] {
        return same_block(recvbuf, recvcount, recvtype, sendbuf, own_block(comm, call.send_blocks),
                          sendtype);
      });
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
bool fill_alltoallv(const Comm& comm, FaceCall& call, const void* sendbuf, const Int* sendcounts,
                    const Displ* sdispls, MPI_Datatype sendtype, void* recvbuf,
                    const Int* recvcounts, const Displ* rdispls, MPI_Datatype recvtype) {
  if (!set_recv_places(call, comm, recvbuf, recvcounts, rdispls, recvtype)) return false;
  return set_or_leave_out(
      call, sendbuf,
      [&] { return set_send_places(call, comm, sendbuf, sendcounts, sdispls, sendtype); },
      [&] { return sendbuf == recvbuf && sendtype == recvtype && same_blocks(call); });
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
    if (!left_out) {
      const auto* const start = reinterpret_cast<const void*>(
          reinterpret_cast<std::uintptr_t>(buf) + static_cast<std::uintptr_t>(displs[i]));
      layout = where_it_lies(start, counts[i], types[i], layout);
      if (layout == nullptr) return false;
    }
    layouts[i] = *layout;
  }
  return true;
}

template <typename Int, typename Displ>
bool fill_alltoallw(const Comm& comm, FaceCall& call, const void* sendbuf, const Int* sendcounts,
                    const Displ* sdispls, const MPI_Datatype* sendtypes, void* recvbuf,
                    const Int* recvcounts, const Displ* rdispls, const MPI_Datatype* recvtypes) {
  call.recv = recvbuf;
  if (!set_typed_places(call.recv_blocks, call.recv_types, comm, recvbuf, recvcounts, rdispls,
                        recvtypes)) {
    return false;
  }
  return set_or_leave_out(
      call, sendbuf,
      [&] {
        call.send = sendbuf;
        return set_typed_places(call.send_blocks, call.send_types, comm, sendbuf, sendcounts,
                                sdispls, sendtypes);
      },
      [&] {
        if (sendbuf != recvbuf || !same_blocks(call)) return false;
        for (std::size_t i = 0; i < call.recv_types.size(); ++i) {
          if (sendtypes[i] != recvtypes[i] && call.recv_blocks[i].count != 0) return false;
        }
        return true;
      });
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
