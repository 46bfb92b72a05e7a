// The table of templates, and when they serve.
#include "coll/plan/hierarchy/hierarchy.h"

#include <utility>

#include "coll/plan/hierarchy/levels.h"

namespace od::coll {
namespace {

// By what reaches whom; null: there is none.
Template* template_of(Collective collective) {
  const CollectiveInfo& kind = info(collective);
  if (kind.counts_are_local()) return nullptr;
  if (kind.output == Part::kNone) return barrier_in_levels;
  if (kind.flow == Flow::kFromRoot) return kind.scatters() ? scatter_in_levels : bcast_in_levels;
  if (kind.flow == Flow::kToRoot) return kind.reduces ? reduce_in_levels : gather_in_levels;
  if (kind.flow == Flow::kPrefix) return kind.takes_self ? scan_in_levels : exscan_in_levels;
  if (kind.reduces) {
    return kind.input == Part::kEach ? reduce_scatter_in_levels : allreduce_in_levels;
  }
  return kind.input == Part::kEach ? alltoall_in_levels : allgather_in_levels;
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
  if (!layout.contiguous && info(collective).flow == Flow::kPrefix) {
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
  const CollectiveInfo& kind = info(algorithm.collective);
  if (kind.size_rule() == SizeRule::kVector) {
    return (pipeline_bytes <= 0 || block_bytes <= pipeline_bytes) && shape.parameters.leaders <= 1;
  }
  // Allgather, reduce_scatter_block.
  if (!kind.rooted() && kind.input != kind.output) {
    return !blocks_travel_alone(block_bytes * nodes.ranks(), pipeline_bytes);
  }
  return true;
}

}  // namespace od::coll
