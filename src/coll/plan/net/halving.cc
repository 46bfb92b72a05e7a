// Recursive vector halving.
#include "coll/plan/net/halving.h"

namespace od::coll {

Piece piece_after(int member, int distance, Cut pieces) {
  std::int64_t first = 0;
  std::int64_t end = pieces.parts;
  for (int d = 1; d < distance; d *= 2) {
    const std::int64_t middle = (first + end) / 2;
    if ((member & d) == 0) {
      end = middle;
    } else {
      first = middle;
    }
  }
  return {pieces.begin(first), pieces.begin(end) - pieces.begin(first)};
}

void halve(Builder& builder, const Shape& shape, Place own, Place work, Cut pieces) {
  const Fold fold(shape.ranks);
  const int me = fold.member(shape.rank);
  Place current = own;
  const bool doubled = fold.doubled(shape.rank);
  // Each half is at most half of the vector rounded up to whole pieces.
  const Place even = builder.scratch(doubled ? shape.count : piece_after(0, 2, pieces).size);
  const Place odd = builder.scratch(piece_after(0, 4, pieces).size);
  if (doubled) {
    builder.receive(shape.rank - 1, even, shape.count);
    builder.reduce(work, even, own, shape.count);
    current = work;
  }
  bool turn = false;
  for (int distance = 1; distance < fold.members; distance *= 2, turn = !turn) {
    const Piece mine = piece_after(me, 2 * distance, pieces);
    const Piece other = piece_after(me ^ distance, 2 * distance, pieces);
    const int peer = fold.rank(me ^ distance);
    const Place arrival = turn ? odd : even;
    builder.send(peer, current + other.begin, other.size);
    builder.receive(peer, arrival, mine.size);
    const Place kept = current + mine.begin;
    const bool left = peer < shape.rank;
    builder.reduce(work + mine.begin, left ? arrival : kept, left ? kept : arrival, mine.size);
    current = work;
  }
  if (fold.members == 1) builder.copy(work, current, shape.count);
}

}  // namespace od::coll
