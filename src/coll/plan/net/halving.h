// Recursive vector halving that keeps the order of ranks: the first half of Rabenseifner's
// algorithms.
//
// Members (Fold) exchange half of the vector with their neighbour, then a quarter two places away,
// and so on: the longest messages stay near, and what has been added at any time comes from ranks
// that follow each other.
#ifndef OVERDRIVE_COLL_PLAN_NET_HALVING_H_
#define OVERDRIVE_COLL_PLAN_NET_HALVING_H_

#include "coll/plan/builder.h"
#include "coll/plan/net/parts.h"

namespace od::coll {

struct Piece {
  std::int64_t begin;
  std::int64_t size;
};

// The part of the vector that a member has after the exchanges over all distances below `distance`.
Piece piece_after(int member, int distance, Cut pieces);

// For members only (a doubled one first receives what its neighbour gives). Afterwards `work` has
// the sum of piece_after(member, members). Uses `work` as a whole.
void halve(Builder& builder, const Shape& shape, Place own, Place work, Cut pieces);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_NET_HALVING_H_
