// Reductions to one rank. For operations that do not commute operands are joined in rank order.
#include <algorithm>

#include "coll/plan/net/algorithms.h"
#include "coll/plan/net/halving.h"
#include "coll/plan/net/parts.h"
#include "coll/plan/net/trees.h"

namespace od::coll {
namespace {

// Segments under way from each child: one arrives, one is added, one leaves, one to spare.
constexpr int kAreas = 4;

// Along the tree that `make` gives for a rank. Trees keep ranks in order counted from their own
// root only: without commutativity that is rank 0, which hands the result on.
template <class MakeTree>
void along(Builder& builder, const Shape& shape, MakeTree make) {
  const bool direct = shape.commutative || shape.root == 0;
  const int shift = direct ? shape.root : 0;
  const int me = (shape.rank - shift + shape.ranks) % shape.ranks;
  const bool hands_on = !direct && shape.rank == 0;
  const Place result = hands_on ? builder.scratch(shape.count) : output();
  const bool in_place = shape.in_place && shape.rank == shape.root;
  const Place own = in_place ? output() : Place{};
  reduce_up(builder, make(me), {shape.ranks, shift}, own, result, segments(shape, shape.count),
            kAreas);
  if (hands_on) builder.send(shape.root, result, shape.count);
  if (!direct && shape.rank == shape.root) builder.receive(0, output(), shape.count);
}

}  // namespace

// Every rank sends to the root, which adds in rank order.
void reduce_linear(Builder& builder, const Shape& shape) {
  if (shape.rank != shape.root) {
    builder.send(shape.root, Place{}, shape.count);
    return;
  }
  // What is in the output buffer must survive until its turn comes.
  Place own = shape.in_place ? output() : Place{};
  if (shape.in_place && shape.root > 0 && shape.ranks > 1) {
    own = builder.scratch(shape.count);
    builder.copy(own, output(), shape.count);
  }
  Ring arrivals(builder, shape.ranks > 1 ? shape.count : 0,
                std::clamp(shape.parameters.window, 2, 64));
  Place sum = own;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Place operand = own;
    if (rank != shape.root) {
      operand = arrivals.next();
      builder.receive(rank, operand, shape.count);
    }
    if (rank == 0) {
      sum = operand;
      continue;
    }
    builder.reduce(output(), sum, operand, shape.count);
    sum = output();
  }
  builder.copy(output(), sum, shape.count);
}

void reduce_knomial(Builder& builder, const Shape& shape) {
  along(builder, shape,
        [&](int me) { return knomial_tree(shape.ranks, me, std::max(2, shape.parameters.radix)); });
}

void reduce_chain(Builder& builder, const Shape& shape) {
  along(builder, shape,
        [&](int me) { return chain_tree(shape.ranks, me, shape.parameters.radix); });
}

void reduce_binary(Builder& builder, const Shape& shape) {
  along(builder, shape, [&](int me) { return binary_tree(shape.ranks, me); });
}

// Two lines that end at the root, so that both directions of every link are used. Where order
// matters they are the ranks below and above the root.
void reduce_shumilin(Builder& builder, const Shape& shape) {
  if (shape.commutative) {
    along(builder, shape, [&](int me) { return chain_tree(shape.ranks, me, 2); });
    return;
  }
  const Place own = shape.in_place && shape.rank == shape.root ? output() : Place{};
  reduce_up(builder, line_tree(shape.ranks, shape.rank, shape.root), {shape.ranks, 0}, own,
            output(), segments(shape, shape.count), kAreas);
}

void reduce_double_binary_tree(Builder& builder, const Shape& shape) {
  const int me = from_root(shape, shape.rank);
  const Cut halves{shape.count, 2};
  const Place own = shape.in_place && shape.rank == shape.root ? output() : Place{};
  for (int half = 0; half < 2; ++half) {
    reduce_up(builder, twin_tree(shape.ranks, me, half == 1), {shape.ranks, shape.root},
              own + halves.begin(half), output(halves.begin(half)),
              segments(shape, halves.size(half)), kAreas);
  }
}

// Recursive halving leaves each member with the sum of one piece; the pieces go back to the root
// along the same pairs.
void reduce_rabenseifner(Builder& builder, const Shape& shape) {
  const Fold fold(shape.ranks);
  const Cut pieces{shape.count, fold.members};
  const bool is_root = shape.rank == shape.root;
  const Place own = shape.in_place && is_root ? output() : Place{};
  const bool passes_on = fold.aside(shape.root) && shape.rank == shape.root + 1;
  if (fold.aside(shape.rank)) {
    builder.send(shape.rank + 1, own, shape.count);
    if (is_root) builder.receive(shape.rank + 1, output(), shape.count);
    return;
  }
  const Place work = is_root ? output() : builder.scratch(shape.count);
  halve(builder, shape, own, work, pieces);
  const int me = fold.member(shape.rank);
  const int root = fold.member(shape.root);
  for (int distance = fold.members / 2; distance > 0; distance /= 2) {
    const Piece mine = piece_after(me, 2 * distance, pieces);
    const Piece other = piece_after(me ^ distance, 2 * distance, pieces);
    const int peer = fold.rank(me ^ distance);
    if (((me ^ root) & distance) != 0) {
      builder.send(peer, work + mine.begin, mine.size);
      return;
    }
    builder.receive(peer, work + other.begin, other.size);
  }
  if (passes_on) builder.send(shape.root, work, shape.count);
}

}  // namespace od::coll
