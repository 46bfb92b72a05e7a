// Scattering, gathering and spreading the blocks of one vector.
#include "coll/plan/net/spread.h"

#include <algorithm>

namespace od::coll {

int subtree_end(int ranks, int me, int radix) {
  if (me == 0) return ranks;
  std::int64_t size = 1;
  while (me / size % radix == 0) size *= radix;
  return static_cast<int>(std::min<std::int64_t>(me + size, ranks));
}

void scatter_down(Builder& builder, Placement placement, int me, Place vector, const Blocks& blocks,
                  int radix) {
  const auto ranks = static_cast<int>(blocks.parts());
  const Tree tree = knomial_tree(ranks, me, radix);
  const auto size = [&](int first) {
    return blocks.begin(subtree_end(ranks, first, radix)) - blocks.begin(first);
  };
  if (tree.parent != Tree::kRoot) {
    builder.receive(placement.rank(tree.parent), vector + blocks.begin(me), size(me));
  }
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
    builder.send(placement.rank(*child), vector + blocks.begin(*child), size(*child));
  }
}

void gather_up(Builder& builder, Placement placement, int me, Place vector, const Blocks& blocks,
               int radix) {
  const auto ranks = static_cast<int>(blocks.parts());
  const Tree tree = knomial_tree(ranks, me, radix);
  const auto size = [&](int first) {
    return blocks.begin(subtree_end(ranks, first, radix)) - blocks.begin(first);
  };
  for (const int child : tree.children) {
    builder.receive(placement.rank(child), vector + blocks.begin(child), size(child));
  }
  if (tree.parent != Tree::kRoot) {
    builder.send(placement.rank(tree.parent), vector + blocks.begin(me), size(me));
  }
}

void spread_ring(Builder& builder, Placement placement, int me, Place vector,
                 const Blocks& blocks) {
  const auto ranks = static_cast<int>(blocks.parts());
  const int left = (me - 1 + ranks) % ranks;
  const int right = (me + 1) % ranks;
  for (int step = 0; step + 1 < ranks; ++step) {
    const int out = (me - step + ranks) % ranks;
    const int in = (left - step + ranks) % ranks;
    builder.send(placement.rank(right), vector + blocks.begin(out), blocks.size(out));
    builder.receive(placement.rank(left), vector + blocks.begin(in), blocks.size(in));
  }
}

void spread_doubling(Builder& builder, Placement placement, int me, Place vector,
                     const Blocks& blocks) {
  for (int distance = 1; distance < blocks.parts(); distance *= 2) {
    const int mine = me & -distance;
    const int other = mine ^ distance;
    const auto size = [&](int first) {
      return blocks.begin(first + distance) - blocks.begin(first);
    };
    const int peer = placement.rank(me ^ distance);
    builder.send(peer, vector + blocks.begin(mine), size(mine));
    builder.receive(peer, vector + blocks.begin(other), size(other));
  }
}

}  // namespace od::coll
