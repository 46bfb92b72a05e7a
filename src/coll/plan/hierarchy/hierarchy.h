// Collectives in two levels: inside nodes, and between them, as one schedule.
//
// A template says for a collective which steps inside a node come before and after which collective
// between the leaders of the nodes. What happens between the leaders is any algorithm of the
// registry; what happens inside a node is done by messages or by steps of the node in shared memory
// (node_steps.h). Vectors are cut into segments (Parameters::pipeline_bytes), of which one is
// between the nodes while others are inside them.
//
// With several leaders (Parameters::leaders) each of them has a slice of every segment: the
// algorithm runs once per slice, between the leaders of the same number. A root that
// would not be a leader takes the place of the first one of its node.
//
// Everything that ranks of different nodes exchange is the same for both ways inside a node: each
// node may go its own.
#ifndef OVERDRIVE_COLL_PLAN_HIERARCHY_HIERARCHY_H_
#define OVERDRIVE_COLL_PLAN_HIERARCHY_HIERARCHY_H_

#include <cstdint>

#include "coll/plan/hierarchy/nodes.h"
#include "coll/plan/registry.h"
#include "coll/plan/schedule.h"
#include "coll/plan/shape.h"

namespace od::coll {

enum class NodeDriver : std::uint8_t {
  kMessages,  // sends, receives and reductions between the ranks of the node
  kShared,    // steps of kind kNode
};

// Segments of one call that are between their first and their last step.
inline constexpr int kSegmentsInFlight = 4;

// Default size of a segment. A few are in flight at once, and each is large enough to be cut again
// by the algorithm between the leaders.
inline constexpr std::int64_t kPipelineBytes = 512 * 1024;

// The parameters of both levels in which 0 does not stand for a default any more; the others are
// effective ones already.
inline Parameters with_level_defaults(Parameters parameters) {
  if (parameters.leaders == 0) parameters.leaders = 1;
  if (parameters.pipeline_bytes == 0) parameters.pipeline_bytes = kPipelineBytes;
  return parameters;
}

// Null if the collective has a hierarchical form on these nodes with `algorithm` between the
// leaders, else a reason in words. The same on all ranks. On one node the form is one step
// (NodeWork::kWhole), which every collective has, or the algorithm itself.
const char* why_not_hierarchical(const Algorithm& algorithm, const Layout& layout,
                                 bool commutative);

// One rank's schedule; the parameters are effective ones. Only where why_not_hierarchical() finds
// no reason.
//   one node             kShared: NodeWork::kWhole alone; kMessages: the algorithm itself
//   one rank per node    the algorithm itself
Schedule make_hierarchical(const Algorithm& algorithm, const Shape& shape, const Nodes& nodes,
                           NodeDriver driver);

// The schedule for n units is that for one unit with units n times as large.
bool hierarchical_scales(const Algorithm& algorithm, const Shape& shape, const Nodes& nodes);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_HIERARCHY_HIERARCHY_H_
