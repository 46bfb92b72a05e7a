// The table of templates, and when they serve.
#include "coll/plan/hierarchy/hierarchy.h"

#include <utility>

#include "coll/plan/hierarchy/levels.h"

namespace od::coll {
namespace {

using enum Collective;

Template* template_of(Collective collective) {
  switch (collective) {
    case kBarrier:
      return barrier_in_levels;
    case kBcast:
      return bcast_in_levels;
    case kReduce:
      return reduce_in_levels;
    case kAllreduce:
      return allreduce_in_levels;
    case kScan:
      return scan_in_levels;
    case kExscan:
      return exscan_in_levels;
    case kGather:
      return gather_in_levels;
    case kScatter:
      return scatter_in_levels;
    case kAllgather:
    case kAllgatherv:
      return allgather_in_levels;
    case kAlltoall:
      return alltoall_in_levels;
    case kReduceScatter:
    case kReduceScatterBlock:
      return reduce_scatter_in_levels;
    case kAlltoallv:
    case kAlltoallw:
    case kGatherv:
    case kScatterv:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

const char* why_not_hierarchical(const Algorithm& algorithm, const Layout& layout,
                                 bool commutative) {
  if (algorithm.is_host()) return "the host MPI's own has no leaders";
  // Where the node's memory cannot serve a call, the algorithm itself runs between all ranks.
  if (layout.nodes == 1) return why_not(algorithm, {layout.ranks, commutative});
  const Collective collective = algorithm.collective;
  if (template_of(collective) == nullptr) {
    return "has no hierarchical form: ranks do not know each other's sizes";
  }
  if (!layout.contiguous && (collective == kScan || collective == kExscan)) {
    return "needs ranks of a node that follow each other";
  }
  if (!layout.contiguous && !commutative && info(collective).reduces) {
    return "needs ranks of a node that follow each other, or an operation that commutes";
  }
  return why_not(algorithm, {layout.nodes, commutative});
}

Schedule make_hierarchical(const Algorithm& algorithm, const Shape& shape, const Nodes& nodes,
                           NodeDriver driver) {
  Builder builder;
  if (nodes.count() == 1 && driver == NodeDriver::kShared) {
    builder.node({.peer = node_code(NodeWork::kWhole, 0), .kind = StepKind::kNode}, 0, 0);
  } else if (nodes.count() == 1 || nodes.most_per_node() == 1) {
    algorithm.generate(builder, shape);
  } else {
    Levels levels(builder, algorithm, shape, nodes, driver);
    template_of(algorithm.collective)(levels);
  }
  return builder.finish();
}

bool hierarchical_scales(const Algorithm& algorithm, const Shape& shape, const Nodes& nodes) {
  if (!algorithm.scales || shape.counts != nullptr) return false;
  const std::int64_t pipeline_bytes = shape.parameters.pipeline_bytes;
  const std::int64_t block_bytes = shape.count * shape.unit_bytes;
  switch (algorithm.collective) {
    case kBcast:
    case kReduce:
    case kAllreduce:
    case kScan:
    case kExscan:
      return (pipeline_bytes <= 0 || block_bytes <= pipeline_bytes) &&
             shape.parameters.leaders <= 1;
    case kAllgather:
    case kReduceScatterBlock:
      return !blocks_travel_alone(block_bytes * nodes.ranks(), pipeline_bytes);
    default:
      return true;
  }
}

}  // namespace od::coll
