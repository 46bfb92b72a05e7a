// Reductions of a vector of blocks of which each rank keeps its own.
#include <algorithm>

#include "coll/plan/net/algorithms.h"
#include "coll/plan/net/parts.h"
#include "coll/plan/net/ring.h"
#include "coll/plan/net/spread.h"
#include "coll/plan/net/trees.h"

namespace od::coll {

// Pairs exchange the half that the other side keeps, at half the distance each round. What a member
// holds at any time comes from ranks that are far apart, so the operation must commute.
void reduce_scatter_halving(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  const Fold fold(shape.ranks);
  const Place own = input(shape);
  const std::int64_t mine_size = blocks.size(shape.rank);
  if (fold.aside(shape.rank)) {
    builder.send(shape.rank + 1, own, blocks.total());
    builder.receive(shape.rank + 1, output(), mine_size);
    return;
  }
  const int me = fold.member(shape.rank);
  // Members first .. end-1 keep these units.
  const auto begin = [&](int member) {
    return member == fold.members ? blocks.total() : blocks.begin(fold.first(member));
  };
  const Place work = builder.scratch(blocks.total());
  const Place arrival = builder.scratch(blocks.total());
  Place current = own;
  if (fold.doubled(shape.rank)) {
    builder.receive(shape.rank - 1, arrival, blocks.total());
    builder.reduce(work, arrival, own, blocks.total());
    current = work;
  }
  int first = 0;
  int end = fold.members;
  for (int distance = fold.members / 2; distance > 0; distance /= 2) {
    const int middle = first + distance;
    const int peer = fold.rank(me ^ distance);
    const bool low = me < middle;
    const int out_first = low ? middle : first;
    const int out_end = low ? end : middle;
    first = low ? first : middle;
    end = low ? middle : end;
    builder.send(peer, current + begin(out_first), begin(out_end) - begin(out_first));
    const std::int64_t size = begin(end) - begin(first);
    builder.receive(peer, arrival + begin(first), size);
    const bool left = peer < shape.rank;
    const Place other = arrival + begin(first);
    const Place kept = current + begin(first);
    builder.reduce(work + begin(first), left ? other : kept, left ? kept : other, size);
    current = work;
  }
  if (fold.doubled(shape.rank)) {
    builder.send(shape.rank - 1, current + blocks.begin(shape.rank - 1),
                 blocks.size(shape.rank - 1));
  }
  builder.copy(output(), current + blocks.begin(shape.rank), mine_size);
}

// Each rank sends every other one its block and adds what comes for its own.
void reduce_scatter_pairwise(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  const int ranks = shape.ranks;
  const std::int64_t size = blocks.size(shape.rank);
  const Place own = input(shape);
  const int depth = shape.parameters.window <= 0 ? 4 : shape.parameters.window;
  Ring arrivals(builder, ranks > 1 ? size : 0, std::min(depth, std::max(1, ranks - 1)));
  Window sends(builder, depth);
  // In place, the result would overwrite a block that still has to be sent.
  const Place result = shape.in_place ? builder.scratch(size) : output();
  Place sum = own + blocks.begin(shape.rank);
  for (int step = 1; step < ranks; ++step) {
    const int to = (shape.rank + step) % ranks;
    const int from = (shape.rank - step + ranks) % ranks;
    sends.add(builder.send(to, own + blocks.begin(to), blocks.size(to)));
    const Place arrival = arrivals.next();
    builder.receive(from, arrival, size);
    builder.reduce(result, arrival, sum, size);
    sum = result;
  }
  builder.copy(output(), sum, size);
}

void reduce_scatter_ring(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  ring_reduce(builder, shape, input(shape), output(), blocks, shape.parameters.segment_bytes);
}

// All ranks add the whole vector, each keeps its block.
void reduce_scatter_doubling(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  const Fold fold(shape.ranks);
  const std::int64_t total = blocks.total();
  Place current = input(shape);
  if (fold.aside(shape.rank)) {
    builder.send(shape.rank + 1, current, total);
    builder.receive(shape.rank + 1, output(), blocks.size(shape.rank));
    return;
  }
  Ring arrivals(builder, shape.ranks > 1 ? total : 0, 2);
  const Place work = builder.scratch(shape.ranks > 1 ? total : 0);
  const auto join = [&](int peer) {
    const Place arrival = arrivals.next();
    builder.receive(peer, arrival, total);
    const bool left = peer < shape.rank;
    builder.reduce(work, left ? arrival : current, left ? current : arrival, total);
    current = work;
  };
  if (fold.doubled(shape.rank)) join(shape.rank - 1);
  const int me = fold.member(shape.rank);
  for (int distance = 1; distance < fold.members; distance *= 2) {
    const int peer = fold.rank(me ^ distance);
    builder.send(peer, current, total);
    join(peer);
  }
  if (fold.doubled(shape.rank)) {
    builder.send(shape.rank - 1, current + blocks.begin(shape.rank - 1),
                 blocks.size(shape.rank - 1));
  }
  builder.copy(output(), current + blocks.begin(shape.rank), blocks.size(shape.rank));
}

// Rank 0 gets the sum of the whole vector and scatters it.
void reduce_scatter_nonoverlapping(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  const Placement placement{shape.ranks, 0};
  const int end = subtree_end(shape.ranks, shape.rank, 2);
  const bool leaf = end == shape.rank + 1 && shape.rank != 0;
  const std::int64_t first = blocks.begin(shape.rank);
  const Place held = leaf ? output() : builder.scratch(blocks.begin(end) - first);
  reduce_up(builder, knomial_tree(shape.ranks, shape.rank, 2), placement, input(shape), held,
            segments(shape, blocks.total()), 4);
  scatter_down(builder, placement, shape.rank, part_of(held, first), blocks);
  builder.copy(output(), held, blocks.size(shape.rank));
}

}  // namespace od::coll
