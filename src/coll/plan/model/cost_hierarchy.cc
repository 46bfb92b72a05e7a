// Costs of what the ranks of a node do in shared memory, and of collectives in two levels.
#include <algorithm>
#include <cmath>

#include "coll/plan/hierarchy/hierarchy.h"
#include "coll/plan/model/cost_parts.h"

namespace od::coll {
namespace {

// Steps inside a node, each as long as the slowest member.
class Inside {
 public:
  Inside(const Machine& machine, int members)
      : machine_(machine),
        // A message is copied in and out; here data is read where it lies.
        byte_ns_(machine.near.byte_ns / 2),
        members_(members) {}

  // Everyone sees what one has written, or one sees what all have written: the time of a message
  // without content, and a little more for every other member (lines are fetched side by side).
  double told() const { return members_ > 1 ? flag() + 0.05 * (members_ - 2) * flag() : 0; }
  double move(double bytes) const { return members_ > 1 ? bytes * byte_ns_ : 0; }
  // Small vectors one rank adds alone; of large ones each has a part, and all add at once.
  double add_alone(double bytes) const {
    return (members_ - 1) * bytes * (machine_.add_byte_ns + byte_ns_);
  }
  double add_parts(double bytes) const { return add_alone(bytes) / members_; }
  // Everything but the own part.
  double other_parts(double bytes) const { return bytes * byte_ns_ * (members_ - 1) / members_; }
  double copy(double bytes) const { return bytes * machine_.copy_byte_ns; }
  double bcast(double bytes) const { return told() + move(bytes); }
  double reduce(double bytes) const {
    return std::min(told() + add_alone(bytes), 2 * told() + add_parts(bytes) + other_parts(bytes));
  }
  double allreduce(double bytes) const {
    return std::min(told() + add_alone(bytes),
                    2 * told() + add_parts(bytes) + other_parts(bytes) + leave(bytes));
  }
  double scan(double bytes) const {
    return std::min(told() + add_alone(bytes), 2 * told() + 2 * add_parts(bytes));
  }
  // Large blocks are read where they lie: they may not be left before that.
  double leave(double bytes) const { return bytes > kCopiedBytes ? told() / 2 : 0; }
  // One rank reads or writes the blocks of all.
  double blocks(double bytes) const { return told() + move(members_ * bytes); }

 private:
  double flag() const { return machine_.near.latency_ns + machine_.near.overhead_ns; }

  const Machine& machine_;
  double byte_ns_;
  double members_;
};

}  // namespace

double node_cost(const Machine& machine, Collective collective, int ranks, double bytes) {
  if (ranks <= 1) return 0;
  const Inside in(machine, ranks);
  const double others = static_cast<double>(ranks - 1);
  const CollectiveInfo& kind = info(collective);
  if (kind.counts_are_local()) bytes = cost::kTypicalBlock;
  if (kind.output == Part::kNone) return in.told();
  if (kind.reduces) {
    if (kind.rooted()) return in.reduce(bytes);
    if (kind.flow == Flow::kPrefix) {
      // Of two the second gets what the first one has.
      const bool adds = kind.takes_self || ranks > 2;
      return (adds ? in.scan(bytes) : in.bcast(bytes)) + in.leave(bytes);
    }
    if (kind.input == Part::kOne) return in.allreduce(bytes);
    return in.told() + in.add_parts(bytes) + in.leave(bytes);
  }
  if (kind.size_rule() == SizeRule::kVector) return in.bcast(bytes);
  if (kind.rooted()) return in.blocks(bytes);
  const double moved = kind.has_counts() ? in.other_parts(bytes) : others * in.move(bytes);
  return in.told() + moved + in.leave(bytes);
}

HierarchyCost hierarchy_cost(const Machine& machine, Collective collective, Cost* between,
                             const Parameters& parameters, int nodes, int per_node, double bytes) {
  const Inside in(machine, per_node);
  const double members = per_node;
  const double ranks = members * nodes;
  const int leaders = std::clamp(parameters.leaders, 1, per_node);
  // Leaders of a node share its link.
  Machine shared = machine;
  shared.far.byte_ns *= leaders;
  const Estimate estimate(shared, collective, nodes, 1, bytes);
  const auto net = [&](double size) { return between(estimate, size / leaders, parameters); };
  const auto pipeline = static_cast<double>(parameters.pipeline_bytes);
  HierarchyCost result;
  double segment = bytes;
  const CollectiveInfo& kind = info(collective);
  const bool scans = kind.flow == Flow::kPrefix;
  const bool gathers = !kind.reduces && kind.input == Part::kOne;
  if (kind.counts_are_local()) {
    // There is no such form.
  } else if (kind.output == Part::kNone) {
    result.first_ns = in.told();
    result.last_ns = in.told();
  } else if (kind.size_rule() == SizeRule::kVector) {
    if (pipeline > 0) segment = bytes / std::max(1.0, std::ceil(bytes / pipeline));
    const double extra = (leaders - 1) * in.told();
    if (kind.reduces) result.first_ns = (scans ? in.scan(segment) : in.reduce(segment)) + extra;
    if (kind.flow != Flow::kToRoot) {
      result.last_ns = in.bcast(segment) + (scans ? segment * machine.add_byte_ns : 0) + extra;
    }
  } else if (kind.reduces) {
    result.first_ns = in.reduce(bytes);
    result.last_ns = in.blocks(bytes / ranks);
  } else if (kind.rooted()) {
    (gathers ? result.first_ns : result.last_ns) = in.blocks(bytes);
    segment = bytes * members;
  } else if (!gathers) {
    result.first_ns = in.blocks(bytes * ranks) + in.copy(bytes * ranks * members);
    result.last_ns = result.first_ns;
    segment = bytes * members * members;
  } else if (kind.has_counts()) {
    result.first_ns = in.blocks(bytes / ranks);
    // Blocks lie anywhere: they are put there from one piece.
    result.last_ns = in.bcast(bytes) + in.copy(bytes);
  } else {
    result.first_ns = in.blocks(bytes);
    result.last_ns = in.bcast(bytes * ranks);
    segment = bytes * members;
  }
  result.leader_bytes = segment;
  result.between_ns = net(segment);
  const double segments = segment > 0 ? bytes / segment : 1;
  if (segments > 1) {
    // The next segment follows when the leaders' processors are free, and when the network is: as
    // long as more bytes would take there, or as segments in flight let it. (Several segments more,
    // so that the step at rendezvous_bytes does not count in full.)
    constexpr double kMore = 4;
    const double width = std::max((net((1 + kMore) * segment) - result.between_ns) / kMore,
                                  result.between_ns / kSegmentsInFlight);
    result.rest_ns = (segments - 1) * std::max(result.first_ns + result.last_ns, width);
  } else if (collective == Collective::kAllgather && pipeline > 0 && bytes * ranks > pipeline) {
    // A node's blocks are handed out while the next ones arrive.
    const double piece = result.last_ns / nodes;
    result.rest_ns = std::max(0.0, result.last_ns - piece - result.between_ns);
    result.last_ns = piece;
  }
  return result;
}

}  // namespace od::coll
