// The halves of scatter-and-allgather algorithms, over the first `blocks.parts()` ranks of a
// placement: block i of a vector that is one piece belongs to rank i.
#ifndef OVERDRIVE_COLL_PLAN_NET_SPREAD_H_
#define OVERDRIVE_COLL_PLAN_NET_SPREAD_H_

#include "coll/plan/builder.h"
#include "coll/plan/net/parts.h"
#include "coll/plan/net/trees.h"

namespace od::coll {

// Ranks from `me` up to the result are the subtree of `me` in the k-nomial tree.
int subtree_end(int ranks, int me, int radix);

// `vector` with only the units from `begin` on, at `piece`.
inline Place part_of(Place piece, std::int64_t begin) { return piece + -begin; }

// Rank 0 has the vector; then rank i has block i (inner ranks also those of their subtree).
void scatter_down(Builder& builder, Placement placement, int me, Place vector, const Blocks& blocks,
                  int radix = 2);

// Rank i has block i; then rank 0 has the vector. The blocks of a subtree pass through `vector`.
void gather_up(Builder& builder, Placement placement, int me, Place vector, const Blocks& blocks,
               int radix = 2);

// Rank i has block i; then all have the vector. Blocks travel around the ring.
void spread_ring(Builder& builder, Placement placement, int me, Place vector, const Blocks& blocks);

// The same in log2(parts) rounds; the number of blocks is a power of two.
void spread_doubling(Builder& builder, Placement placement, int me, Place vector,
                     const Blocks& blocks);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_NET_SPREAD_H_
