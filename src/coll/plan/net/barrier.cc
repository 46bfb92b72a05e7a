// Barriers: messages without content, in rounds.
#include <algorithm>

#include "coll/plan/net/algorithms.h"
#include "coll/plan/net/parts.h"
#include "coll/plan/net/trees.h"

namespace od::coll {

// In each round the number of ranks that one rank has heard of is multiplied by the radix.
void barrier_dissemination(Builder& builder, const Shape& shape) {
  const int radix = std::max(2, shape.parameters.radix);
  for (std::int64_t known = 1; known < shape.ranks; known *= radix) {
    for (int i = 1; i < radix && i * known < shape.ranks; ++i) {
      builder.signal(static_cast<int>((shape.rank + i * known) % shape.ranks));
    }
    for (int i = 1; i < radix && i * known < shape.ranks; ++i) {
      builder.await(
          static_cast<int>((shape.rank - i * known % shape.ranks + shape.ranks) % shape.ranks));
    }
    builder.fence();
  }
}

void barrier_recursive_doubling(Builder& builder, const Shape& shape) {
  const Fold fold(shape.ranks);
  if (fold.aside(shape.rank)) {
    builder.signal(shape.rank + 1);
    builder.await(shape.rank + 1);
    return;
  }
  if (fold.doubled(shape.rank)) builder.await(shape.rank - 1);
  const int me = fold.member(shape.rank);
  for (int distance = 1; distance < fold.members; distance *= 2) {
    builder.fence();
    const int peer = fold.rank(me ^ distance);
    builder.signal(peer);
    builder.await(peer);
  }
  builder.fence();
  if (fold.doubled(shape.rank)) builder.signal(shape.rank - 1);
}

namespace {

void gather_and_release(Builder& builder, const Tree& tree) {
  for (const int child : tree.children) builder.await(child);
  builder.fence();
  if (tree.parent != Tree::kRoot) {
    builder.signal(tree.parent);
    builder.await(tree.parent);
    builder.fence();
  }
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
    builder.signal(*child);
  }
}

}  // namespace

void barrier_tree(Builder& builder, const Shape& shape) {
  gather_and_release(builder,
                     knomial_tree(shape.ranks, shape.rank, std::max(2, shape.parameters.radix)));
}

void barrier_linear(Builder& builder, const Shape& shape) {
  gather_and_release(builder, knomial_tree(shape.ranks, shape.rank, std::max(2, shape.ranks)));
}

// Twice around: everyone has come, everyone may go.
void barrier_ring(Builder& builder, const Shape& shape) {
  if (shape.ranks == 1) return;
  const int left = (shape.rank - 1 + shape.ranks) % shape.ranks;
  const int right = (shape.rank + 1) % shape.ranks;
  for (int round = 0; round < 2; ++round) {
    if (shape.rank != 0) {
      builder.await(left);
      builder.fence();
    }
    builder.signal(right);
    if (shape.rank == 0) {
      builder.await(left);
      builder.fence();
    }
  }
}

// Losers tell their winner and wait; when the champion knows that all have come, the news goes back
// along the same pairs.
void barrier_tournament(Builder& builder, const Shape& shape) {
  int distance = 1;
  while (distance < shape.ranks && (shape.rank & distance) == 0) {
    if (shape.rank + distance < shape.ranks) {
      builder.await(shape.rank + distance);
      builder.fence();
    }
    distance *= 2;
  }
  if (distance < shape.ranks) {
    builder.signal(shape.rank - distance);
    builder.await(shape.rank - distance);
    builder.fence();
  }
  for (distance /= 2; distance > 0; distance /= 2) {
    if (shape.rank + distance < shape.ranks) builder.signal(shape.rank + distance);
  }
}

}  // namespace od::coll
