// Steps inside a node in both ways, and algorithms between leaders.
#include "coll/plan/hierarchy/levels.h"

#include <algorithm>

#include "coll/plan/net/algorithms.h"

namespace od::coll {
namespace {

// Messages inside a node go along trees of this radix: nodes are small, and so two or three levels.
constexpr int kInsideRadix = 4;

}  // namespace

Levels::Levels(Builder& builder, const Algorithm& algorithm, const Shape& shape, const Nodes& nodes,
               NodeDriver driver)
    : builder_(builder),
      algorithm_(algorithm),
      shape_(shape),
      nodes_(nodes),
      driver_(driver),
      group_(nodes.members(nodes.node_of(shape.rank))),
      node_(nodes.node_of(shape.rank)),
      position_(nodes.position_of(shape.rank)),
      leader_count_(std::clamp(shape.parameters.leaders, 1, nodes.least_per_node())),
      rooted_(info(algorithm.collective).rooted()),
      fixed_leaders_(algorithm.works_elsewhere()) {
  leaders_.resize(static_cast<std::size_t>(leader_count_));
}

int Levels::leader(int node, int slice) const {
  if (last_leads_) return static_cast<int>(nodes_.members(node).size()) - 1;
  if (!rooted_ || fixed_leaders_ || node != root_node()) return slice;
  const int root = nodes_.position_of(shape_.root);
  if (slice == 0) return root;
  return slice == root ? 0 : slice;
}

void Levels::between(int slice, const Between& what, Generate& generate) {
  std::vector<int>& peers = leaders_[static_cast<std::size_t>(slice)];
  if (peers.empty()) {
    for (int node = 0; node < nodes_.count(); ++node) peers.push_back(leader_rank(node, slice));
  }
  Shape shape = shape_;
  shape.ranks = nodes_.count();
  shape.rank = node_;
  shape.root = rooted_ ? root_node() : 0;
  shape.count = what.count;
  shape.counts = what.counts;
  shape.one_piece = what.counts != nullptr;
  shape.in_place = what.in_place;
  shape.most_segments =
      std::max<std::int64_t>(1, shape_.most_segments / pipeline(shape_.count).parts);
  builder_.enter({peers, what.input, what.output, slice});
  generate(builder_, shape);
  builder_.leave();
}

Generate& Levels::exscan_between() const {
  return *find_algorithm(Collective::kExscan, algorithm_.name)->generate;
}

void Levels::by_messages(Generate& generate, int leader, Place target, Place source,
                         std::int64_t count, bool in_place) {
  Shape shape = shape_;
  shape.ranks = members();
  shape.rank = position_;
  shape.root = leader;
  shape.count = count;
  shape.counts = nullptr;
  shape.in_place = in_place;
  shape.parameters = {};
  shape.parameters.radix = kInsideRadix;
  shape.parameters.segment_bytes = -1;
  shape.parameters.window = -1;
  builder_.enter({group_, source, target, 0});
  generate(builder_, shape);
  builder_.leave();
}

void Levels::node_step(NodeWork work, int leader, Place target, Place source, std::int64_t count) {
  Step step{.count = count,
            .target = target,
            .source = source,
            .peer = node_code(work, leader),
            .kind = StepKind::kNode};
  const NodeUse use = node_use(step, position_, members());
  // What this rank has no part in is unset.
  if (use.reads == 0) step.source = {};
  if (use.writes == 0 && work != NodeWork::kScatter) step.target = {};
  builder_.node(step, use.reads, use.writes);
}

void Levels::inside(NodeWork work, Generate& generate, int leader, Place target, Place source,
                    std::int64_t count, bool in_place) {
  if (count == 0) return;
  if (alone()) {
    builder_.copy(target, source, count);
  } else if (driver_ == NodeDriver::kShared) {
    node_step(work, leader, target, source, count);
  } else {
    by_messages(generate, leader, target, source, count, in_place);
  }
}

void Levels::reduce_inside(int leader, Place target, Place source, std::int64_t count) {
  const bool in_place = leader == position_ && target == source;
  inside(NodeWork::kReduce, reduce_knomial, leader, target, source, count, in_place);
}

void Levels::bcast_inside(int leader, Place target, Place source, std::int64_t count) {
  if (alone()) return;
  if (leader == position_) target = source;
  inside(NodeWork::kBcast, bcast_knomial, leader, target, source, count, false);
}

void Levels::gather_inside(int leader, Place target, Place source, std::int64_t count) {
  const bool in_place = leader == position_ && target + position_ * count == source;
  inside(NodeWork::kGather, gather_linear, leader, target, source, count, in_place);
}

void Levels::scatter_inside(int leader, Place target, Place source, std::int64_t count) {
  const bool in_place = leader == position_ && source + position_ * count == target;
  inside(NodeWork::kScatter, scatter_linear, leader, target, source, count, in_place);
}

void Levels::scan_inside(Place target, Place source, std::int64_t count) {
  const bool in_place = target == source;
  inside(NodeWork::kScan, scan_recursive_doubling, 0, target, source, count, in_place);
}

void Levels::exscan_inside(Place target, Place source, std::int64_t count) {
  if (alone()) return;
  const bool in_place = target == source;
  inside(NodeWork::kExscan, exscan_recursive_doubling, 0, target, source, count, in_place);
}

Tree Levels::tree_below(int leader) const {
  Tree tree = knomial_tree(members(), (position_ - leader + members()) % members(), kInsideRadix);
  const Placement placement{members(), leader};
  for (int& child : tree.children) child = rank_at(placement.rank(child));
  if (tree.parent != Tree::kRoot) tree.parent = rank_at(placement.rank(tree.parent));
  return tree;
}

void Levels::arrive(int leader) {
  if (alone()) return;
  if (driver_ == NodeDriver::kShared) {
    node_step(NodeWork::kReduce, leader, {}, {}, 0);
    return;
  }
  const Tree tree = tree_below(leader);
  for (const int child : tree.children) builder_.await(child);
  if (tree.parent == Tree::kRoot) return;
  builder_.fence();
  builder_.signal(tree.parent);
}

void Levels::release(int leader) {
  if (alone()) return;
  if (driver_ == NodeDriver::kShared) {
    node_step(NodeWork::kBcast, leader, {}, {}, 0);
    return;
  }
  const Tree tree = tree_below(leader);
  if (tree.parent != Tree::kRoot) {
    builder_.await(tree.parent);
    builder_.fence();
  }
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
    builder_.signal(*child);
  }
}

void Turns::next() {
  constexpr auto kTurns = static_cast<std::size_t>(kSegmentsInFlight);
  if (turn_ > 0 && turn_ <= kTurns) parts_.back().end = builder_.scratch_units();
  if (turn_ < kTurns) {
    parts_.push_back({builder_.scratch_units(), builder_.scratch_units()});
  } else {
    const Part& part = parts_[turn_ % kTurns];
    builder_.reuse_scratch(part.begin, part.end);
  }
  builder_.mark_segment(static_cast<std::int64_t>(turn_));
  ++turn_;
}

}  // namespace od::coll
