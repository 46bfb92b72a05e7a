// Reductions whose result all ranks get.
//
// Every rank gets the same bits: either one rank makes each unit of the result and the others copy
// it, or all join the same operands in the same order.
#include <algorithm>

#include "coll/plan/net/algorithms.h"
#include "coll/plan/net/halving.h"
#include "coll/plan/net/parts.h"
#include "coll/plan/net/ring.h"
#include "coll/plan/net/spread.h"
#include "coll/plan/net/trees.h"

namespace od::coll {
namespace {

constexpr int kAreas = 4;

void reduce_and_bcast(Builder& builder, const Shape& shape, int radix) {
  const Tree tree = knomial_tree(shape.ranks, shape.rank, std::max(2, radix));
  const Placement placement{shape.ranks, 0};
  const Cut cut = segments(shape, shape.count);
  reduce_up(builder, tree, placement, input(shape), output(), cut, kAreas);
  send_down(builder, tree, placement, output(), cut, 0);
}

}  // namespace

void allreduce_recursive_doubling(Builder& builder, const Shape& shape) {
  const Fold fold(shape.ranks);
  Place current = input(shape);
  if (fold.aside(shape.rank)) {
    builder.send(shape.rank + 1, current, shape.count);
    builder.receive(shape.rank + 1, output(), shape.count);
    return;
  }
  Ring arrivals(builder, shape.ranks > 1 ? shape.count : 0, 2);
  const auto join = [&](int peer) {
    const Place arrival = arrivals.next();
    builder.receive(peer, arrival, shape.count);
    const bool left = peer < shape.rank;
    builder.reduce(output(), left ? arrival : current, left ? current : arrival, shape.count);
    current = output();
  };
  if (fold.doubled(shape.rank)) join(shape.rank - 1);
  const int me = fold.member(shape.rank);
  for (int distance = 1; distance < fold.members; distance *= 2) {
    const int peer = fold.rank(me ^ distance);
    builder.send(peer, current, shape.count);
    join(peer);
  }
  if (fold.doubled(shape.rank)) builder.send(shape.rank - 1, output(), shape.count);
  builder.copy(output(), current, shape.count);
}

void allreduce_rabenseifner(Builder& builder, const Shape& shape) {
  const Fold fold(shape.ranks);
  const Cut pieces{shape.count, fold.members};
  if (fold.aside(shape.rank)) {
    builder.send(shape.rank + 1, input(shape), shape.count);
    builder.receive(shape.rank + 1, output(), shape.count);
    return;
  }
  halve(builder, shape, input(shape), output(), pieces);
  const int me = fold.member(shape.rank);
  for (int distance = fold.members / 2; distance > 0; distance /= 2) {
    const Piece mine = piece_after(me, 2 * distance, pieces);
    const Piece other = piece_after(me ^ distance, 2 * distance, pieces);
    const int peer = fold.rank(me ^ distance);
    builder.send(peer, output(mine.begin), mine.size);
    builder.receive(peer, output(other.begin), other.size);
  }
  if (fold.doubled(shape.rank)) builder.send(shape.rank - 1, output(), shape.count);
}

void allreduce_reduce_bcast(Builder& builder, const Shape& shape) {
  reduce_and_bcast(builder, shape, 2);
}

void allreduce_knomial(Builder& builder, const Shape& shape) {
  reduce_and_bcast(builder, shape, shape.parameters.radix);
}

// Rank 0 gets all vectors as they are, adds them in rank order and hands out the result.
void allreduce_gather_scatter(Builder& builder, const Shape& shape) {
  const int end = subtree_end(shape.ranks, shape.rank, 2);
  const Blocks vectors(Cut{shape.count * shape.ranks, shape.ranks});
  const Place held = builder.scratch(shape.count * (end - shape.rank));
  builder.copy(held, input(shape), shape.count);
  gather_up(builder, {shape.ranks, 0}, shape.rank, part_of(held, vectors.begin(shape.rank)),
            vectors);
  if (shape.rank == 0) {
    Place sum = held;
    for (int rank = 1; rank < shape.ranks; ++rank) {
      builder.reduce(output(), sum, held + vectors.begin(rank), shape.count);
      sum = output();
    }
    builder.copy(output(), sum, shape.count);
  }
  send_down(builder, knomial_tree(shape.ranks, shape.rank, 2), {shape.ranks, 0}, output(),
            Cut{shape.count, 1}, 0);
}

// Segments run from rank 0 to the last one and are added to on the way; as results they run on from
// the last rank around the ring.
void allreduce_shumilin_ring(Builder& builder, const Shape& shape) {
  const int last = shape.ranks - 1;
  const int left = shape.rank == 0 ? last : shape.rank - 1;
  const int right = shape.rank == last ? 0 : shape.rank + 1;
  const Cut cut = segments(shape, shape.count);
  const auto areas = static_cast<int>(std::min<std::int64_t>(kAreas, cut.parts));
  Ring arrivals(builder, shape.rank > 0 ? cut.largest() : 0, areas);
  for (std::int64_t segment = 0; segment < cut.parts; ++segment) {
    const std::int64_t at = cut.begin(segment);
    const std::int64_t size = cut.size(segment);
    const Place own = input(shape, 0) + at;
    Place sum = own;
    if (shape.rank > 0) {
      const Place arrival = arrivals.next();
      builder.receive(left, arrival, size);
      sum = shape.rank == last ? output(at) : arrival;
      builder.reduce(sum, arrival, own, size);
    }
    if (shape.rank < last) {
      builder.send(right, sum, size);
      builder.receive(left, output(at), size);
      if (shape.rank + 1 < last) builder.send(right, output(at), size);
    } else {
      builder.copy(output(at), sum, size);
      if (last > 0) builder.send(right, output(at), size);
    }
  }
}

void allreduce_ring(Builder& builder, const Shape& shape) {
  const Cut blocks{shape.count, shape.ranks};
  ring_reduce(builder, shape, input(shape), output(blocks.begin(shape.rank)), blocks, -1);
  spread_ring(builder, {shape.ranks, 0}, shape.rank, output(), blocks);
}

void allreduce_segmented_ring(Builder& builder, const Shape& shape) {
  const Cut blocks{shape.count, shape.ranks};
  ring_reduce(builder, shape, input(shape), output(blocks.begin(shape.rank)), blocks,
              shape.parameters.segment_bytes);
  spread_ring(builder, {shape.ranks, 0}, shape.rank, output(), blocks);
}

void allreduce_double_binary_tree(Builder& builder, const Shape& shape) {
  const Cut halves{shape.count, 2};
  const Placement placement{shape.ranks, 0};
  for (int half = 0; half < 2; ++half) {
    const Tree tree = twin_tree(shape.ranks, shape.rank, half == 1);
    const Cut cut = segments(shape, halves.size(half));
    const std::int64_t begin = halves.begin(half);
    reduce_up(builder, tree, placement, input(shape) + begin, output(begin), cut, kAreas);
    send_down(builder, tree, placement, output(begin), cut, 0);
  }
}

}  // namespace od::coll
