// Pieces of which the costs of algorithms consist.
#ifndef OVERDRIVE_COLL_PLAN_MODEL_COST_PARTS_H_
#define OVERDRIVE_COLL_PLAN_MODEL_COST_PARTS_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "coll/plan/model/cost.h"

namespace od::coll::cost {

// Stands for the blocks of collectives whose sizes only their owners know.
inline constexpr double kTypicalBlock = 4096;

// n segments through a pipeline: the first one takes `depth`, each other one follows after `width`.
struct Pipeline {
  double segment;
  double count;

  Pipeline(double bytes, std::int64_t segment_bytes) {
    const auto wanted = static_cast<double>(segment_bytes);
    count = wanted <= 0 || bytes <= wanted ? 1 : std::ceil(bytes / wanted);
    segment = bytes / count;
  }
  double time(double depth, double width) const { return depth + (count - 1) * width; }
};

inline double levels_of(const Estimate& e, int radix) {
  double levels = 0;
  for (double reached = 1; reached < e.ranks(); reached *= radix) ++levels;
  return levels;
}

inline double power_below(const Estimate& e) {
  return std::bit_floor(static_cast<unsigned>(e.ranks()));
}
// The number of ranks is not a power of two.
inline bool folded(const Estimate& e) { return power_below(e) != e.ranks(); }

// How far the farthest child on a level of a k-nomial tree is.
inline double farthest_child(const Estimate& e, double stride, double children) {
  return std::min(children * stride, e.ranks() - 1.0);
}

// One message down (or up) all levels of a k-nomial tree.
inline double knomial_depth(const Estimate& e, double bytes, int radix) {
  double total = 0;
  for (double stride = 1; stride < e.ranks(); stride *= radix) {
    const double children = std::min<double>(radix - 1, std::ceil(e.ranks() / stride) - 1);
    const double far = farthest_child(e, stride, children);
    total += e.hop(bytes, far, 1) + (children - 1) * e.gap(bytes, far);
  }
  return total;
}

// How long the root is busy with one message to all its children.
inline double knomial_width(const Estimate& e, double bytes, int radix) {
  double total = 0;
  for (double stride = 1; stride < e.ranks(); stride *= radix) {
    const double children = std::min<double>(radix - 1, std::ceil(e.ranks() / stride) - 1);
    total += children * e.gap(bytes, farthest_child(e, stride, children));
  }
  return total;
}

// How long a rank of a binary tree is busy with one segment: two children, and in a node several
// ranks may have theirs elsewhere.
inline double binary_width(const Estimate& e, double bytes) {
  const double near = 2 * e.gap(bytes, 0);
  if (e.nodes() == 1) return near;
  return std::max(near, 2 * e.gap(bytes, e.per_node(), std::min(e.per_node(), 2)));
}

inline double binary_depth(const Estimate& e, double bytes) {
  double total = 0;
  for (double stride = 1; stride < e.ranks(); stride *= 2) {
    total += e.hop(bytes, stride, 1) + e.gap(bytes, stride) / 2;
  }
  return total;
}

// All ranks send to the one `distance` further on, around the ring: however near that is, some
// cross the border of their node.
inline double shift(const Estimate& e, double bytes, double distance) {
  const double near = e.is_near(distance) ? e.hop(bytes, distance, 1) : 0;
  if (e.nodes() == 1) return near;
  const int flows = static_cast<int>(std::min<double>(distance, e.per_node()));
  // Half-way around it comes from there, too.
  const double back = 2 * distance == e.ranks() ? e.both_ways(bytes, distance, flows) : 0;
  return std::max(near, e.hop(bytes, e.per_node(), flows) + back);
}

// Along a line of `length` ranks.
inline double line(const Estimate& e, double bytes, double length) {
  const double far = std::min(length, std::floor(length / e.per_node()));
  const double crossings = e.nodes() > 1 ? far : 0;
  return crossings * e.hop(bytes, e.per_node(), 1) + (length - crossings) * e.hop(bytes, 0, 1);
}

// One rank exchanges a message with every other one, one after the other.
inline double from_all(const Estimate& e, double bytes) {
  if (e.ranks() == 1) return 0;
  const double last = e.hop(bytes, e.ranks() - 1, 1);
  const int far = e.far_partners();
  if (far == 0) return last + (e.near_partners() - 1) * e.gap(bytes, 0);
  return last + e.near_partners() * e.gap(bytes, 0) + (far - 1) * e.gap(bytes, e.per_node());
}

// Every rank sends a message to every other one.
inline double all_to_all(const Estimate& e, double bytes) {
  if (e.ranks() == 1) return 0;
  return e.hop(bytes, e.ranks() - 1, 1) + e.near_partners() * e.gap(bytes, 0) +
         e.far_partners() * e.gap(bytes, e.per_node(), e.per_node());
}

// Blocks of `block` bytes go up a k-nomial tree, whole subtrees at once.
inline double blocks_up(const Estimate& e, double block, int radix) {
  double total = 0;
  for (double stride = 1; stride < e.ranks(); stride *= radix) {
    const double blocks = std::min(stride, e.ranks() - stride);
    const double children = std::min<double>(radix - 1, std::ceil(e.ranks() / stride) - 1);
    const double far = farthest_child(e, stride, children);
    total += e.hop(blocks * block, far, 1) + (children - 1) * e.gap(blocks * block, far);
  }
  return total;
}

// Down it. All that a rank sends shares its link, so the largest subtree, on which most depends,
// has its blocks together with the last of the others.
inline double blocks_down(const Estimate& e, double block, int radix) {
  double top = 1;
  while (top * radix < e.ranks()) top *= radix;
  double total = 0;
  double size = e.ranks();  // of the subtree whose first rank sends now
  for (double largest = top; largest >= 1; largest /= radix) {
    if (size <= largest) continue;
    for (double stride = largest; stride >= 1; stride /= radix) {
      const double children = std::min<double>(radix - 1, std::ceil(size / stride) - 1);
      const double bytes = std::min(stride, size - stride) * block;
      const double far = std::min(children * stride, size - 1);
      const bool last = stride == largest;
      if (last) total += e.hop(bytes, far, 1);
      total += (last ? children - 1 : children) * e.gap(bytes, far);
    }
    size = largest;
  }
  return total;
}

// Recursive doubling of blocks.
inline double doubling(const Estimate& e, double block) {
  double total = 0;
  for (double d = 1; 2 * d <= e.ranks(); d *= 2) total += e.exchange(d * block, d);
  return total;
}

// Recursive halving of a vector, near partners first, without and with adding.
inline double halves(const Estimate& e, double bytes) {
  double total = 0;
  for (double d = 1; 2 * d <= e.ranks(); d *= 2) total += e.exchange(bytes / (2 * d), d);
  return total;
}
inline double halving(const Estimate& e, double bytes) {
  double total = halves(e, bytes);
  for (double d = 1; 2 * d <= e.ranks(); d *= 2) total += e.add(bytes / (2 * d));
  return total;
}

}  // namespace od::coll::cost

#endif  // OVERDRIVE_COLL_PLAN_MODEL_COST_PARTS_H_
