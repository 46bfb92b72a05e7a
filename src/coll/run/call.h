// One collective call of the program in neutral terms: what a face hands to the engine.
//
// A face fills it for a valid call only. Ranks of one call may describe the same message by
// different datatypes, so nothing here but `collective`, `root`, the counts that the standard makes
// equal everywhere, and whether the operation is predefined and commutes may decide how a call is
// served.
#ifndef OVERDRIVE_COLL_RUN_CALL_H_
#define OVERDRIVE_COLL_RUN_CALL_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "coll/ops/kernels.h"
#include "coll/plan/shape.h"
#include "host/host_table.h"
#include "p2p/layout.h"

namespace od {

// What a reduction computes with two elements.
struct Reduction {
  // A predefined operation on a predefined datatype. Null: the host computes (MPI_Reduce_local),
  // for operations of the program and for datatypes that have no kernel.
  coll::ops::Kernel kernel = nullptr;
  host::Handle op = 0;
  host::Handle type = 0;
  bool commutative = true;
};

// One block of a collective whose blocks have counts and places of their own.
struct BlockPlace {
  std::int64_t count = 0;         // elements
  std::int64_t offset_bytes = 0;  // from the address of the buffer; the datatype's lower bound is
                                  // not included
};

// Whether all blocks have the same count; also where there are none.
inline bool equal_counts(const std::vector<BlockPlace>& blocks) {
  return std::all_of(blocks.begin(), blocks.end(),
                     [&](const BlockPlace& block) { return block.count == blocks.front().count; });
}

class Neighbourhood;

struct CollectiveCall {
  coll::Collective collective = coll::Collective::kBarrier;
  int root = 0;
  // MPI_IN_PLACE was given for the buffer that this rank may leave out: recv (scatter, scatterv: at
  // the root) or send (all others; gather, gatherv, reduce: at the root). That buffer is unset.
  bool in_place = false;

  // Input and output of this rank. Broadcasts use `recv` at every rank. Unset where they are not
  // significant: recv of gather(v) and reduce at ranks that are not the root, send of scatter(v)
  // likewise.
  const void* send = nullptr;
  void* recv = nullptr;
  p2p::LayoutRef send_type;
  p2p::LayoutRef recv_type;
  // Elements of the vector, or of the block that goes to or comes from one rank. Reductions have
  // recv_count and recv_type at every rank, whether or not it has an output; send_type, if set, is
  // the same type, and one of the two may be on a device.
  std::int64_t send_count = 0;
  std::int64_t recv_count = 0;

  // One per rank of the communicator, where the collective has counts: send_blocks for scatterv (at
  // the root), alltoallv and alltoallw; recv_blocks for gatherv (at the root), allgatherv,
  // alltoallv and alltoallw. reduce_scatter has recv_blocks with counts only.
  std::vector<BlockPlace> send_blocks;
  std::vector<BlockPlace> recv_blocks;
  // alltoallw only, one per rank; send_type and recv_type are then unset.
  std::vector<p2p::LayoutRef> send_types;
  std::vector<p2p::LayoutRef> recv_types;

  Reduction reduction;

  // Of a neighbourhood collective (then `collective` is its counterpart among all ranks: allgather,
  // allgatherv, alltoall, alltoallv or alltoallw): blocks are those of neighbours, in their order,
  // and those of nobody are empty. Null: of others. The communicator keeps it.
  const Neighbourhood* neighbours = nullptr;

  // One of Overdrive's own, which the program's statistics do not count.
  bool internal = false;
};

// What it is called in reports.
const char* name_of(const CollectiveCall& call);

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_CALL_H_
