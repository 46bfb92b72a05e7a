// Trees, and vectors that travel along them.
#include "coll/plan/net/trees.h"

#include <algorithm>
#include <bit>

namespace od::coll {

Tree knomial_tree(int ranks, int rank, int radix) {
  Tree tree;
  std::int64_t stride = 1;
  // Children: rank + digit * stride for every stride below the rank's lowest digit that is not 0.
  while (stride < ranks) {
    const auto digit = rank / stride % radix;
    if (digit != 0) {
      tree.parent = static_cast<int>(rank - digit * stride);
      break;
    }
    for (int i = 1; i < radix && rank + i * stride < ranks; ++i) {
      tree.children.push_back(static_cast<int>(rank + i * stride));
    }
    stride *= radix;
  }
  return tree;
}

Tree chain_tree(int ranks, int rank, int chains) {
  Tree tree;
  const Cut cut{ranks - 1, std::min(std::max(chains, 1), std::max(ranks - 1, 1))};
  for (int chain = 0; chain < cut.parts; ++chain) {
    const int first = static_cast<int>(1 + cut.begin(chain));
    const int end = static_cast<int>(1 + cut.begin(chain + 1));
    if (rank == 0 && first < end) tree.children.push_back(first);
    if (rank < first || rank >= end) continue;
    tree.parent = rank == first ? 0 : rank - 1;
    if (rank + 1 < end) tree.children.push_back(rank + 1);
  }
  return tree;
}

Tree binary_tree(int ranks, int rank) {
  Tree tree;
  int root = 0;
  int end = ranks;  // the subtree of `root` is [root, end)
  while (true) {
    const int left = root + 1;
    const int right = left + (end - left + 1) / 2;
    if (root == rank) {
      if (left < end) tree.children.push_back(left);
      if (right < end) tree.children.push_back(right);
      return tree;
    }
    tree.parent = root;
    if (rank < right) {
      root = left;
      end = right;
    } else {
      root = right;
    }
  }
}

Tree line_tree(int ranks, int rank, int root) {
  Tree tree;
  if (rank < root) tree.parent = rank + 1;
  if (rank > root) tree.parent = rank - 1;
  if (rank <= root && rank > 0) {
    tree.children.push_back(rank - 1);
    tree.before = 1;
  }
  if (rank >= root && rank + 1 < ranks) tree.children.push_back(rank + 1);
  return tree;
}

namespace {

// The tree over positions 1 .. count in which odd positions are leaves: the children of position i
// are half of its lowest bit away.
Tree position_tree(int count, int position) {
  Tree tree;
  const int bit = position & -position;
  const int top = static_cast<int>(std::bit_floor(static_cast<unsigned>(count)));
  if (position == top) {
    tree.parent = 0;
  } else {
    const int up = (position ^ bit) | (bit << 1);
    tree.parent = up <= count ? up : position ^ bit;
  }
  if (bit > 1) {
    tree.children.push_back(position - bit / 2);
    tree.before = 1;
    int step = bit / 2;
    while (step > 0 && position + step > count) step /= 2;
    if (step > 0) tree.children.push_back(position + step);
  }
  return tree;
}

}  // namespace

Tree twin_tree(int ranks, int rank, bool second) {
  const int count = ranks - 1;
  if (count == 0) return {};
  // The second tree moves every rank to a position of the other parity: mirrored if their number is
  // even, by one place if it is odd.
  const bool mirrored = count % 2 == 0;
  const auto position_of = [&](int r) {
    if (!second) return r;
    return mirrored ? count + 1 - r : (r == 1 ? count : r - 1);
  };
  const auto rank_of = [&](int position) {
    if (!second) return position;
    return mirrored ? count + 1 - position : (position == count ? 1 : position + 1);
  };
  if (rank == 0) {
    Tree root;
    root.children.push_back(
        rank_of(static_cast<int>(std::bit_floor(static_cast<unsigned>(count)))));
    return root;
  }
  Tree tree = position_tree(count, position_of(rank));
  if (tree.parent != 0) tree.parent = rank_of(tree.parent);
  for (int& child : tree.children) child = rank_of(child);
  return tree;
}

void send_down(Builder& builder, const Tree& tree, Placement placement, Place data, Cut cut,
               int window) {
  Window receives(builder, window);
  for (std::int64_t segment = 0; segment < cut.parts; ++segment) {
    const Place place = data + cut.begin(segment);
    const std::int64_t size = cut.size(segment);
    if (tree.parent != Tree::kRoot) {
      receives.add(builder.receive(placement.rank(tree.parent), place, size));
    }
    // The deepest subtree first.
    for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
      builder.send(placement.rank(*child), place, size);
    }
  }
}

void reduce_up(Builder& builder, const Tree& tree, Placement placement, Place own, Place result,
               Cut cut, int areas) {
  const auto children = static_cast<int>(tree.children.size());
  const int used = static_cast<int>(std::min<std::int64_t>(areas, cut.parts));
  const bool is_root = tree.parent == Tree::kRoot;
  Ring arrivals(builder, children > 0 ? cut.largest() : 0, std::max(1, children * used));
  Ring sums(builder, !is_root && children > 0 ? cut.largest() : 0, used);
  for (std::int64_t segment = 0; segment < cut.parts; ++segment) {
    const std::int64_t size = cut.size(segment);
    Place current = own + cut.begin(segment);
    const Place sum = is_root ? result + cut.begin(segment) : sums.next();
    const auto join = [&](int child, bool left) {
      const Place arrival = arrivals.next();
      builder.receive(placement.rank(tree.children[static_cast<std::size_t>(child)]), arrival,
                      size);
      builder.reduce(sum, left ? arrival : current, left ? current : arrival, size);
      current = sum;
    };
    for (int child = tree.before; child < children; ++child) join(child, false);
    for (int child = tree.before - 1; child >= 0; --child) join(child, true);
    if (!is_root) {
      builder.send(placement.rank(tree.parent), current, size);
    } else {
      builder.copy(sum, current, size);
    }
  }
}

}  // namespace od::coll
