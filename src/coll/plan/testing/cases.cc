// Cases: what they consist of, and how a failing one is made smaller.
#include <algorithm>

#include "coll/plan/testing/all_ranks.h"

namespace od::coll::testing {

std::int64_t Case::irregular(int from, int to) const {
  const CollectiveInfo& kind = info(algorithm->collective);
  // Otherwise each rank has one count.
  if (kind.input != kind.output) to = 0;
  // Some blocks are empty, some are larger than `count`.
  std::uint64_t mix = seed * 31 + static_cast<std::uint64_t>(from) * 1000003 +
                      static_cast<std::uint64_t>(to) * 7919 + 12345;
  mix ^= mix >> 33;
  mix *= 0xff51afd7ed558ccdu;
  mix ^= mix >> 33;
  return mix % 4 == 0 ? 0 : static_cast<std::int64_t>(mix >> 8) % (2 * count + 1);
}

std::vector<std::int64_t> Case::counts() const {
  std::vector<std::int64_t> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(irregular(rank, 0));
  return result;
}

NodeDriver Case::driver(int node) const {
  const std::uint64_t way = seed % 4;
  if (way == 3)
    return (seed >> (8 + node % 32) & 1) != 0 ? NodeDriver::kShared : NodeDriver::kMessages;
  return way == 0 ? NodeDriver::kMessages : NodeDriver::kShared;
}

const char* Case::why_not() const {
  if (node_of.empty()) return coll::why_not(*algorithm, {ranks, commutative});
  const Layout layout = Nodes(node_of).layout();
  // The whole collective in one step is the business of whoever executes it.
  if (layout.nodes == 1) return "there is one node";
  return why_not_hierarchical(*algorithm, layout, commutative);
}

Shape Case::shape(int rank, const std::vector<std::int64_t>& counts) const {
  Shape shape;
  shape.ranks = ranks;
  shape.rank = rank;
  shape.root = root;
  shape.count = count;
  shape.unit_bytes = unit_bytes;
  shape.commutative = commutative;
  shape.in_place = in_place;
  shape.parameters = parameters;
  if (info(algorithm->collective).has_counts()) shape.counts = counts.data();
  return shape;
}

std::string Case::text() const {
  std::string nodes;
  for (const int node : node_of) nodes += (nodes.empty() ? ", nodes " : " ") + std::to_string(node);
  if (!node_of.empty()) {
    nodes += ", leaders " + std::to_string(parameters.leaders) + ", pipeline " +
             std::to_string(parameters.pipeline_bytes);
  }
  return std::string(info(algorithm->collective).name) + ' ' + algorithm->name + ": ranks " +
         std::to_string(ranks) + ", root " + std::to_string(root) + ", count " +
         std::to_string(count) + ", unit bytes " + std::to_string(unit_bytes) +
         (commutative ? "" : ", does not commute") + (in_place ? ", in place" : "") + ", radix " +
         std::to_string(parameters.radix) + ", segment " +
         std::to_string(parameters.segment_bytes) + ", window " +
         std::to_string(parameters.window) + nodes + ", seed " + std::to_string(seed);
}

Case shrink(Case failing) {
  // Each attempt makes one thing smaller; what still fails is kept.
  using Change = void (*)(Case&);
  static constexpr Change kChanges[] = {
      [](Case& c) { c.ranks /= 2; },
      [](Case& c) { c.ranks -= 1; },
      [](Case& c) { c.count /= 2; },
      [](Case& c) { c.count -= 1; },
      [](Case& c) { c.root = 0; },
      [](Case& c) { c.in_place = false; },
      [](Case& c) { c.unit_bytes = 1; },
      [](Case& c) { c.seed %= 16; },
      [](Case& c) { c.parameters = {}; },
      // Never back from the defaults, or it would not end.
      [](Case& c) { c.parameters.radix = std::min(c.parameters.radix, 2); },
      [](Case& c) { c.parameters.window = std::min(c.parameters.window, 1); },
      [](Case& c) {
        if (c.parameters.segment_bytes > 0) c.parameters.segment_bytes = -1;
      },
      [](Case& c) {
        if (c.parameters.pipeline_bytes > 0) c.parameters.pipeline_bytes = -1;
      },
      [](Case& c) { c.parameters.leaders = std::min(c.parameters.leaders, 1); },
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (const Change change : kChanges) {
      Case smaller = failing;
      change(smaller);
      if (smaller.ranks < 1 || smaller.count < 0 || smaller.text() == failing.text()) continue;
      smaller.root = std::min(smaller.root, smaller.ranks - 1);
      if (!smaller.node_of.empty()) smaller.node_of.resize(static_cast<std::size_t>(smaller.ranks));
      if (smaller.why_not() != nullptr) continue;
      if (run_case(smaller).empty()) continue;
      failing = smaller;
      progress = true;
    }
  }
  return failing;
}

}  // namespace od::coll::testing
