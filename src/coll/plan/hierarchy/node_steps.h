// What the ranks of a node do together in a step of kind kNode, exactly.
//
// Positions. The ranks of a communicator that lie on one node are its members; position p is the
// p-th of them in ascending order of rank. One position is the leader of a step.
//
// A step has `count` units (elements of the reduction, or bytes), `source` and `target`, places of
// the rank that executes it, and in `peer` the work and the leader. All members execute the step
// with the same work, leader and count; places differ. `ordinal` is the same at all of them:
// members start the steps of a schedule in its order (Run does), several may be under way.
//
//   work       leader                              other members
//   kReduce    target[count] = sources of all      source is read; target is unset
//              positions, joined in ascending order
//   kBcast     source is read; target is unset     target[count] = the leader's source
//   kGather    target[p * count ...] = source of    source is read; target is unset
//              position p, for all p
//   kScatter   source[p * count ...] is the block   target[count] = the block of this position
//              of p; target[count] = the leader's
//   kScan      target[count] = sources of positions 0 up to this one, joined in that order (the
//              leader has no special part)
//   kExscan    the same without this one; position 0 has no target
//   kWhole     the whole collective as the program called it, with the buffers of the call: all
//              ranks of the communicator are on this node. No places, count is 0.
//
// Target and source of one rank are the same place (the result of a reduction or scan replaces its
// operand; the leader's own block of a gather or scatter is in place already: source is target +
// leader * count, or the other way round) or do not overlap.
//
// A step with a count of 0 is the signal alone: kReduce is complete at the leader when all members
// have started it, kBcast is complete at the others when the leader has started it.
//
// A step is complete at a rank when its target may be used and its source be overwritten. How long
// that takes at a member whose part is only to hand something over is free: whether it waits until
// its source has been read, or has left a copy.
#ifndef OVERDRIVE_COLL_PLAN_HIERARCHY_NODE_STEPS_H_
#define OVERDRIVE_COLL_PLAN_HIERARCHY_NODE_STEPS_H_

#include <cstdint>

#include "coll/plan/schedule.h"

namespace od::coll {

enum class NodeWork : std::uint8_t { kReduce, kBcast, kGather, kScatter, kScan, kExscan, kWhole };

// Step::peer of a step of the node.
inline int node_code(NodeWork work, int leader) { return leader << 4 | static_cast<int>(work); }
inline NodeWork node_work(const Step& step) { return static_cast<NodeWork>(step.peer & 15); }
inline int node_leader(const Step& step) { return step.peer >> 4; }

// For people.
inline const char* step_name(const Step& step) {
  constexpr const char* kKinds[] = {"send", "receive", "copy",     "reduce",
                                    "node", "join",    "elsewhere"};
  constexpr const char* kWorks[] = {"node reduce", "node bcast",  "node gather", "node scatter",
                                    "node scan",   "node exscan", "node whole"};
  if (step.kind == StepKind::kNode) return kWorks[static_cast<int>(node_work(step))];
  return kKinds[static_cast<int>(step.kind)];
}

// Units of its source that a position reads, and of its target that it writes.
struct NodeUse {
  std::int64_t reads = 0;
  std::int64_t writes = 0;
};
inline NodeUse node_use(const Step& step, int position, int members) {
  const std::int64_t count = step.count;
  const bool leads = position == node_leader(step);
  switch (node_work(step)) {
    case NodeWork::kReduce:
      return {count, leads ? count : 0};
    case NodeWork::kBcast:
      return leads ? NodeUse{count, 0} : NodeUse{0, count};
    case NodeWork::kGather:
      return {count, leads ? members * count : 0};
    case NodeWork::kScatter:
      if (!leads) return {0, count};
      return {members * count, step.target == step.source + position * count ? 0 : count};
    case NodeWork::kScan:
      return {count, count};
    case NodeWork::kExscan:
      return {count, position == 0 ? 0 : count};
    case NodeWork::kWhole:
      break;
  }
  return {};
}

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_HIERARCHY_NODE_STEPS_H_
