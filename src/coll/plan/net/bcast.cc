// Broadcasts. All ranks, also the root, have the data in the output buffer.
#include <algorithm>

#include "coll/plan/net/algorithms.h"
#include "coll/plan/net/parts.h"
#include "coll/plan/net/spread.h"
#include "coll/plan/net/trees.h"

namespace od::coll {
namespace {

void along(Builder& builder, const Shape& shape, const Tree& tree) {
  send_down(builder, tree, {shape.ranks, shape.root}, output(), segments(shape, shape.count),
            shape.parameters.window);
}

}  // namespace

void bcast_linear(Builder& builder, const Shape& shape) {
  if (shape.rank != shape.root) {
    builder.receive(shape.root, output(), shape.count);
    return;
  }
  Window sends(builder, shape.parameters.window);
  for (int i = 1; i < shape.ranks; ++i) {
    sends.add(builder.send(to_rank(shape, i), output(), shape.count));
  }
}

void bcast_knomial(Builder& builder, const Shape& shape) {
  along(
      builder, shape,
      knomial_tree(shape.ranks, from_root(shape, shape.rank), std::max(2, shape.parameters.radix)));
}

void bcast_chain(Builder& builder, const Shape& shape) {
  along(builder, shape,
        chain_tree(shape.ranks, from_root(shape, shape.rank), shape.parameters.radix));
}

void bcast_binary(Builder& builder, const Shape& shape) {
  along(builder, shape, binary_tree(shape.ranks, from_root(shape, shape.rank)));
}

// Each half of the vector goes down its own tree; who passes on one half is a leaf for the other,
// so that every rank receives the vector once and sends it about once.
void bcast_double_binary_tree(Builder& builder, const Shape& shape) {
  const int me = from_root(shape, shape.rank);
  const Placement placement{shape.ranks, shape.root};
  const Cut halves{shape.count, 2};
  const Tree trees[2] = {twin_tree(shape.ranks, me, false), twin_tree(shape.ranks, me, true)};
  const Cut cuts[2] = {segments(shape, halves.size(0)), segments(shape, halves.size(1))};
  const std::int64_t rounds = std::max(cuts[0].parts, cuts[1].parts);
  Window receives(builder, shape.parameters.window);
  for (std::int64_t segment = 0; segment < rounds; ++segment) {
    for (int half = 0; half < 2; ++half) {
      if (segment >= cuts[half].parts) continue;
      const Place place = output(halves.begin(half) + cuts[half].begin(segment));
      const std::int64_t size = cuts[half].size(segment);
      if (trees[half].parent != Tree::kRoot) {
        receives.add(builder.receive(placement.rank(trees[half].parent), place, size));
      }
      for (const int child : trees[half].children) builder.send(placement.rank(child), place, size);
    }
  }
}

// The left half of the ranks passes on the first half of the vector, the right half the second one;
// then pairs of one rank from each side exchange what the other has not.
void bcast_split_binary(Builder& builder, const Shape& shape) {
  const int me = from_root(shape, shape.rank);
  const Cut halves{shape.count, 2};
  // Ranks 1 .. left_size are on the left side, the others (as many or one less) on the right.
  const int left_size = shape.ranks / 2;
  const int right_size = shape.ranks - 1 - left_size;
  for (int side = 0; side < 2; ++side) {
    const int first = side == 0 ? 1 : 1 + left_size;
    const int size = side == 0 ? left_size : right_size;
    const bool member = me >= first && me < first + size;
    if (size == 0 || (me != 0 && !member)) continue;
    // The root stands before the first rank of the side as its parent.
    Tree tree;
    if (me == 0) {
      tree.children.push_back(first);
    } else {
      tree = binary_tree(size, me - first);
      tree.parent = tree.parent == Tree::kRoot ? 0 : tree.parent + first;
      for (int& child : tree.children) child += first;
    }
    send_down(builder, tree, {shape.ranks, shape.root}, output(halves.begin(side)),
              segments(shape, halves.size(side)), shape.parameters.window);
  }
  // The left rank without a partner gets the second half from the last rank on the right, which has
  // no children, or from the root.
  const int odd = left_size > right_size ? left_size : 0;
  const int helper = right_size > 0 ? left_size + right_size : 0;
  const auto exchange = [&](int peer, int mine, int other) {
    builder.send(to_rank(shape, peer), output(halves.begin(mine)), halves.size(mine));
    builder.receive(to_rank(shape, peer), output(halves.begin(other)), halves.size(other));
  };
  if (me != 0 && me <= left_size && me != odd) exchange(me + left_size, 0, 1);
  if (me > left_size) exchange(me - left_size, 1, 0);
  if (odd == 0) return;
  if (me == odd) {
    builder.receive(to_rank(shape, helper), output(halves.begin(1)), halves.size(1));
  } else if (me == helper) {
    builder.send(to_rank(shape, odd), output(halves.begin(1)), halves.size(1));
  }
}

void bcast_scatter_ring(Builder& builder, const Shape& shape) {
  const int me = from_root(shape, shape.rank);
  const Placement placement{shape.ranks, shape.root};
  const Cut blocks{shape.count, shape.ranks};
  scatter_down(builder, placement, me, output(), blocks);
  spread_ring(builder, placement, me, output(), blocks);
}

// The ranks beyond the largest power of two get the whole vector at the end.
void bcast_scatter_doubling(Builder& builder, const Shape& shape) {
  const int me = from_root(shape, shape.rank);
  const Fold fold(shape.ranks);
  const Placement placement{shape.ranks, shape.root};
  if (me >= fold.members) {
    builder.receive(placement.rank(me - fold.members), output(), shape.count);
    return;
  }
  const Cut blocks{shape.count, fold.members};
  scatter_down(builder, placement, me, output(), blocks);
  spread_doubling(builder, placement, me, output(), blocks);
  if (me + fold.members < shape.ranks) {
    builder.send(placement.rank(me + fold.members), output(), shape.count);
  }
}

}  // namespace od::coll
