// Reduction around the ring: block i of the vector travels from rank i + 1 to rank i and is added
// to on its way.
#ifndef OVERDRIVE_COLL_PLAN_NET_RING_H_
#define OVERDRIVE_COLL_PLAN_NET_RING_H_

#include "coll/plan/builder.h"
#include "coll/plan/net/parts.h"

namespace od::coll {

// Leaves the sum of block `shape.rank` of everyone's `own` in `result`. Blocks are cut into
// segments of `segment_bytes` (<= 0: not at all).
void ring_reduce(Builder& builder, const Shape& shape, Place own, Place result,
                 const Blocks& blocks, std::int64_t segment_bytes);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_NET_RING_H_
