// Finds schedules again; forgets those that have not been used for longest.
#include "coll/plan/schedule_cache.h"
#include "base/quiet_floats.h"

#include <algorithm>
#include <utility>

namespace od::coll {
namespace {

std::size_t size_of(const Schedule& schedule) {
  const std::size_t words =
      schedule.waits.size() + schedule.first_follower.size() + schedule.followers.size();
  return sizeof(Schedule) + schedule.steps.size() * sizeof(Step) + words * sizeof(std::uint32_t);
}

}  // namespace

template <class Make>
ScheduleCache::Found ScheduleCache::find(const Algorithm& algorithm,
                                         std::optional<NodeDriver> driver, bool scales,
                                         const Shape& shape, Make make) {
  Shape key = shape;
  std::int64_t units_per_unit = 1;
  const bool whole_blocks = info(algorithm.collective).counts_are_local();
  if (scales) {
    units_per_unit = shape.count;
    key.count = 1;
    key.unit_bytes = 1;
  }
  if (whole_blocks) {
    key.count = 0;
    units_per_unit = 1;
  }
  const std::size_t irregular = shape.counts != nullptr ? static_cast<std::size_t>(shape.ranks) : 0;
  const auto same = [&](const Entry& entry) {
    return entry.algorithm == &algorithm && entry.driver == driver && entry.count == key.count &&
           entry.root == key.root && entry.unit_bytes == key.unit_bytes &&
           entry.commutative == key.commutative && entry.in_place == key.in_place &&
           entry.parameters == key.parameters &&
           std::equal(entry.counts.begin(), entry.counts.end(), shape.counts,
                      shape.counts + irregular);
  };
  const auto found = std::find_if(entries_.begin(), entries_.end(), same);
  if (found != entries_.end()) {
    std::rotate(entries_.begin(), found, found + 1);
    return {entries_.front().schedule, units_per_unit};
  }
  ++made_;
  const QuietFloats quiet;
  auto schedule = std::make_shared<const Schedule>(make(key));
  const std::size_t bytes = size_of(*schedule) + irregular * sizeof(std::int64_t);
  if (bytes > budget_bytes_) return {std::move(schedule), units_per_unit};
  while (used_bytes_ + bytes > budget_bytes_) {
    used_bytes_ -= entries_.back().bytes;
    entries_.pop_back();
  }
  Entry entry{.algorithm = &algorithm,
              .driver = driver,
              .parameters = key.parameters,
              .count = key.count,
              .unit_bytes = key.unit_bytes,
              .counts = {},
              .root = key.root,
              .commutative = key.commutative,
              .in_place = key.in_place,
              .bytes = bytes,
              .schedule = schedule};
  if (irregular != 0) entry.counts.assign(shape.counts, shape.counts + irregular);
  entries_.insert(entries_.begin(), std::move(entry));
  used_bytes_ += bytes;
  return {std::move(schedule), units_per_unit};
}

ScheduleCache::Found ScheduleCache::get(const Algorithm& algorithm, const Shape& shape) {
  return find(algorithm, std::nullopt, algorithm.scales, shape,
              [&](const Shape& key) { return make_schedule(algorithm, key); });
}

ScheduleCache::Found ScheduleCache::get(const Decision& decision, Shape shape, const Nodes& nodes,
                                        NodeDriver driver) {
  const Algorithm& algorithm = *decision.algorithm;
  shape.parameters = decision.parameters;
  if (decision.mode != Mode::kHierarchical || nodes.most_per_node() == 1) {
    return get(algorithm, shape);
  }
  const bool one_node = nodes.count() == 1;
  if (one_node && driver == NodeDriver::kMessages) return get(algorithm, shape);
  const bool scales = one_node || hierarchical_scales(algorithm, shape, nodes);
  return find(algorithm, driver, scales, shape,
              [&](const Shape& key) { return make_hierarchical(algorithm, key, nodes, driver); });
}

}  // namespace od::coll
