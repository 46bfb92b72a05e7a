// Templates of collectives about one vector: barrier, broadcast, reductions, scans.
#include <array>
#include <cstddef>

#include "coll/plan/hierarchy/levels.h"

namespace od::coll {
namespace {

// How many segments later the last steps of a segment stand in the program. Steps of the node are
// started in order: if the last ones of a segment came at once after its first ones, the next
// segment could not enter the node before this one is back from the network.
constexpr int kLag = kSegmentsInFlight - 1;

// Runs first(segment) for all, and last(segment) kLag segments later.
template <class First, class Last>
void in_flight(Builder& builder, std::int64_t parts, First first, Last last) {
  Turns turns(builder);
  for (std::int64_t i = 0; i < parts + kLag; ++i) {
    if (i < parts) {
      turns.next();
      first(i);
    }
    if (i < kLag) continue;
    builder.mark_segment(i - kLag);
    last(i - kLag);
  }
}

// Calls run(slice, first unit, units) for the slices of a segment that are not empty.
template <class Run>
void each_slice(const Levels& levels, const Cut& cut, std::int64_t segment, Run run) {
  const Cut slices = levels.slices(cut.size(segment));
  for (int slice = 0; slice < levels.leader_count(); ++slice) {
    if (slices.size(slice) == 0) continue;
    run(slice, cut.begin(segment) + slices.begin(slice), slices.size(slice));
  }
}

}  // namespace

void barrier_in_levels(Levels& levels) {
  Builder& builder = levels.builder();
  levels.arrive(levels.leader());
  builder.fence();
  if (levels.leads()) {
    levels.between(0, {});
    builder.fence();
  }
  levels.release(levels.leader());
}

void bcast_in_levels(Levels& levels) {
  Builder& builder = levels.builder();
  const Cut cut = levels.pipeline(levels.shape().count);
  Turns turns(builder);
  for (std::int64_t i = 0; i < cut.parts; ++i) {
    turns.next();
    const auto between = [&](int slice, std::int64_t at, std::int64_t size) {
      if (!levels.leads(slice)) return;
      levels.between(slice, {.count = size, .input = output(at), .output = output(at)});
    };
    if (levels.has_root() && levels.fixed_leaders()) {
      // The root may be no leader.
      const Place whole = output(cut.begin(i));
      levels.bcast_inside(levels.position_of_root(), whole, whole, cut.size(i));
      each_slice(levels, cut, i, between);
      continue;
    }
    if (levels.has_root()) {
      // The other leaders of this node get their slice with everything else; the root's own may
      // leave at once.
      each_slice(levels, cut, i, [&](int slice, std::int64_t at, std::int64_t size) {
        if (slice == 0) between(slice, at, size);
      });
      const Place whole = output(cut.begin(i));
      levels.bcast_inside(levels.leader(), whole, whole, cut.size(i));
      each_slice(levels, cut, i, [&](int slice, std::int64_t at, std::int64_t size) {
        if (slice != 0) between(slice, at, size);
      });
      continue;
    }
    each_slice(levels, cut, i, between);
    each_slice(levels, cut, i, [&](int slice, std::int64_t at, std::int64_t size) {
      levels.bcast_inside(levels.leader(levels.node(), slice), output(at), output(at), size);
    });
  }
}

void reduce_in_levels(Levels& levels) {
  Builder& builder = levels.builder();
  const Shape& shape = levels.shape();
  const Cut cut = levels.pipeline(shape.count);
  const bool in_place = shape.in_place && levels.is_root();
  Turns turns(builder);
  for (std::int64_t i = 0; i < cut.parts; ++i) {
    turns.next();
    each_slice(levels, cut, i, [&](int slice, std::int64_t at, std::int64_t size) {
      const int leader = levels.leader(levels.node(), slice);
      const bool leads = leader == levels.position();
      const Place own = in_place ? output(at) : Place{at, 0, Buffer::kInput};
      Place sum = own;
      if (!levels.alone()) {
        if (leads) sum = levels.is_root() ? output(at) : builder.scratch(size);
        levels.reduce_inside(leader, sum, own, size);
      }
      if (leads) {
        const Place result = levels.is_root() ? output(at) : sum;
        levels.between(slice, {.count = size,
                               .input = sum,
                               .output = result,
                               .in_place = levels.has_root() && result == sum});
        if (levels.has_root() && !levels.is_root()) builder.send(shape.root, result, size);
      }
      if (levels.is_root() && !leads) {
        builder.receive(levels.leader_rank(levels.node(), slice), output(at), size);
      }
    });
  }
}

void allreduce_in_levels(Levels& levels) {
  Builder& builder = levels.builder();
  const Shape& shape = levels.shape();
  const Cut cut = levels.pipeline(shape.count);
  const auto first = [&](std::int64_t i) {
    each_slice(levels, cut, i, [&](int slice, std::int64_t at, std::int64_t size) {
      const Place own = input(shape) + at;
      const bool alone = levels.alone();
      if (!alone) {
        levels.reduce_inside(levels.leader(levels.node(), slice), output(at), own, size);
      }
      if (!levels.leads(slice)) return;
      levels.between(slice, {.count = size,
                             .input = alone ? own : output(at),
                             .output = output(at),
                             .in_place = !alone || shape.in_place});
    });
  };
  const auto last = [&](std::int64_t i) {
    each_slice(levels, cut, i, [&](int slice, std::int64_t at, std::int64_t size) {
      levels.bcast_inside(levels.leader(levels.node(), slice), output(at), output(at), size);
    });
  };
  in_flight(builder, cut.parts, first, last);
}

// The members of a node have ranks that follow each other. The last one knows the node's sum; what
// the nodes before sum up to comes to it by an exclusive scan between these, and is joined with
// every member's own result.
namespace {

void scan_or_exscan(Levels& levels, Generate& exscan, bool exclusive) {
  Builder& builder = levels.builder();
  const Shape& shape = levels.shape();
  levels.lead_by_last();
  const int leader = levels.members() - 1;
  const bool leads = levels.position() == leader;
  const Cut cut = levels.pipeline(shape.count);
  struct Segment {
    Place local;   // result inside the node
    Place before;  // sum of the nodes before
  };
  std::array<Segment, kSegmentsInFlight> segments{};
  const auto of = [&](std::int64_t i) -> Segment& {
    return segments[static_cast<std::size_t>(i % kSegmentsInFlight)];
  };
  const auto first = [&](std::int64_t i) {
    const std::int64_t at = cut.begin(i);
    const std::int64_t size = cut.size(i);
    if (size == 0) return;
    const Place own = input(shape) + at;
    Segment& segment = of(i);
    segment.before = leads || levels.node() > 0 ? builder.scratch(size) : Place{};
    Place sum = own;
    if (!exclusive) {
      segment.local = output(at);
      levels.scan_inside(segment.local, own, size);
      sum = segment.local;
    } else {
      segment.local = builder.scratch(size);
      levels.exscan_inside(segment.local, own, size);
      if (leads && levels.position() > 0) {
        sum = builder.scratch(size);
        builder.reduce(sum, segment.local, own, size);
      }
    }
    if (!leads) return;
    levels.between(0, {.count = size, .input = sum, .output = segment.before}, exscan);
  };
  const auto last = [&](std::int64_t i) {
    const std::int64_t at = cut.begin(i);
    const std::int64_t size = cut.size(i);
    if (size == 0) return;
    const Segment& segment = of(i);
    const bool has_local = !exclusive || levels.position() > 0;
    if (levels.node() == 0) {
      if (has_local) builder.copy(output(at), segment.local, size);
      return;
    }
    levels.bcast_inside(leader, segment.before, segment.before, size);
    if (has_local) {
      builder.reduce(output(at), segment.before, segment.local, size);
    } else {
      builder.copy(output(at), segment.before, size);
    }
  };
  in_flight(builder, cut.parts, first, last);
}

}  // namespace

void scan_in_levels(Levels& levels) { scan_or_exscan(levels, levels.exscan_between(), false); }

void exscan_in_levels(Levels& levels) { scan_or_exscan(levels, levels.exscan_between(), true); }

}  // namespace od::coll
