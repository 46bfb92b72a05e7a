// Trees over ranks 0 .. n-1, and moving a vector down or up a tree in segments.
//
// All trees but the mirrored one of a pair have this property: the ranks of a subtree follow each
// other without a gap, and the children are listed in ascending order. So a reduction that joins
// children in the order of the list, those `before` on the left side, keeps the order of ranks.
#ifndef OVERDRIVE_COLL_PLAN_NET_TREES_H_
#define OVERDRIVE_COLL_PLAN_NET_TREES_H_

#include <cstdint>
#include <vector>

#include "coll/plan/builder.h"
#include "coll/plan/net/parts.h"
#include "coll/plan/shape.h"

namespace od::coll {

struct Tree {
  int parent = -1;            // -1: this is the root
  std::vector<int> children;  // ascending
  int before = 0;             // how many of the children are below this rank

  static constexpr int kRoot = -1;
};

// Rank 0 is the root; radix 2 is the binomial tree. A child's subtree is larger the later it comes.
Tree knomial_tree(int ranks, int rank, int radix);
// Rank 0 is the root of `chains` lines of about equal length.
Tree chain_tree(int ranks, int rank, int chains);
// Rank 0 is the root, each rank has at most two children, each with half of the rest.
Tree binary_tree(int ranks, int rank);
// One line from both ends to `root`, which is in its place in it.
Tree line_tree(int ranks, int rank, int root);
// Rank 0 is the root of both trees and has one child in each. A rank that has children in one tree
// has none in the other (but one rank if their number is odd). The second tree is not ordered.
Tree twin_tree(int ranks, int rank, bool second);

// Which rank of the communicator is which in a tree: (tree rank + shift) mod ranks.
struct Placement {
  int ranks;
  int shift;
  int rank(int in_tree) const { return (in_tree + shift) % ranks; }
};

// Moves `count` units from the root's `data` to that of all others.
void send_down(Builder& builder, const Tree& tree, Placement placement, Place data, Cut cut,
               int window);

// Reduces everyone's `own` to the root's `result`, in segments. `areas` segments are under way.
void reduce_up(Builder& builder, const Tree& tree, Placement placement, Place own, Place result,
               Cut cut, int areas);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_NET_TREES_H_
