// What is found again, what is kept apart, and the budget.
#include "coll/plan/schedule_cache.h"

#include <gtest/gtest.h>

namespace od::coll {
namespace {

Shape shape_of(std::int64_t count) {
  Shape shape;
  shape.ranks = 8;
  shape.rank = 3;
  shape.count = count;
  return shape;
}

TEST(ScheduleCache, OneScheduleServesAllSizesWhereItCan) {
  ScheduleCache cache(1 << 20);
  const Algorithm& doubling = *find_algorithm(Collective::kAllreduce, "recursive_doubling");
  const auto small = cache.get(doubling, shape_of(1));
  const auto large = cache.get(doubling, shape_of(1000));
  EXPECT_EQ(small.schedule, large.schedule);
  EXPECT_EQ(small.units_per_unit, 1);
  EXPECT_EQ(large.units_per_unit, 1000);
  EXPECT_EQ(cache.made(), 1u);

  const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
  EXPECT_NE(cache.get(ring, shape_of(1)).schedule, cache.get(ring, shape_of(1000)).schedule);
  EXPECT_EQ(cache.get(ring, shape_of(1000)).units_per_unit, 1);
  EXPECT_EQ(cache.made(), 3u);
}

TEST(ScheduleCache, KeepsWhatDiffersApart) {
  ScheduleCache cache(1 << 20);
  const Algorithm& tree = *find_algorithm(Collective::kBcast, "knomial");
  const auto first = cache.get(tree, shape_of(10)).schedule;
  Shape other = shape_of(10);
  other.root = 1;
  EXPECT_NE(cache.get(tree, other).schedule, first);
  other = shape_of(10);
  other.parameters.radix = 3;
  EXPECT_NE(cache.get(tree, other).schedule, first);
  EXPECT_EQ(cache.get(tree, shape_of(10)).schedule, first);

  const Algorithm& blocks = *find_algorithm(Collective::kAllgatherv, "ring");
  const std::int64_t a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::int64_t b[8] = {1, 2, 3, 4, 5, 6, 7, 9};
  Shape irregular = shape_of(0);
  irregular.counts = a;
  const auto of_a = cache.get(blocks, irregular).schedule;
  irregular.counts = b;
  EXPECT_NE(cache.get(blocks, irregular).schedule, of_a);
  irregular.counts = a;
  EXPECT_EQ(cache.get(blocks, irregular).schedule, of_a);
}

TEST(ScheduleCache, KeepsHierarchicalFormsBesideFlatOnes) {
  ScheduleCache cache(1 << 20);
  const Nodes nodes = Nodes::in_blocks(8, 2);
  const Algorithm& doubling = *find_algorithm(Collective::kAllreduce, "recursive_doubling");
  const auto get = [&](Mode mode, Parameters parameters, std::int64_t count) {
    parameters = effective_parameters(doubling, parameters);
    if (mode == Mode::kHierarchical) parameters = with_level_defaults(parameters);
    return cache.get(Decision{&doubling, mode, parameters}, shape_of(count), nodes,
                     NodeDriver::kShared);
  };
  const auto flat = get(Mode::kFlat, {}, 4);
  const auto two_levels = get(Mode::kHierarchical, {}, 4);
  EXPECT_NE(flat.schedule, two_levels.schedule);
  EXPECT_EQ(flat.schedule->node_steps, 0u);
  EXPECT_EQ(two_levels.schedule->node_steps, 2u);
  // One for all sizes that are not cut, and for as many leaders.
  EXPECT_EQ(get(Mode::kHierarchical, {}, 1000).schedule, two_levels.schedule);
  EXPECT_EQ(get(Mode::kHierarchical, {}, 1000).units_per_unit, 1000);
  EXPECT_NE(get(Mode::kHierarchical, {}, 2 * kPipelineBytes).schedule, two_levels.schedule);
  EXPECT_EQ(get(Mode::kHierarchical, {}, 2 * kPipelineBytes).units_per_unit, 1);
  EXPECT_NE(get(Mode::kHierarchical, {.leaders = 2}, 4).schedule, two_levels.schedule);
  EXPECT_EQ(get(Mode::kFlat, {}, 4).schedule, flat.schedule);
  EXPECT_EQ(cache.made(), 4u);
}

// A node goes by messages where a reduction has no kernel, in shared memory in the next call.
TEST(ScheduleCache, KeepsBothWaysInsideANode) {
  ScheduleCache cache(1 << 20);
  const int node_of[] = {0, 0, 1, 1};
  const Nodes nodes(node_of);
  const Algorithm& doubling = *find_algorithm(Collective::kAllreduce, "recursive_doubling");
  const Decision decision{&doubling, Mode::kHierarchical,
                          with_level_defaults(effective_parameters(doubling, {}))};
  const auto get = [&](NodeDriver driver) {
    return cache.get(decision, shape_of(4), nodes, driver).schedule;
  };
  const auto shared = get(NodeDriver::kShared);
  const auto messages = get(NodeDriver::kMessages);
  EXPECT_EQ(shared->node_steps, 2u);
  EXPECT_EQ(messages->node_steps, 0u);
  EXPECT_EQ(get(NodeDriver::kShared), shared);
  EXPECT_EQ(get(NodeDriver::kMessages), messages);
  EXPECT_EQ(cache.made(), 2u);
}

TEST(ScheduleCache, StaysWithinItsBudget) {
  constexpr std::size_t kBudget = 20'000;
  ScheduleCache cache(kBudget);
  const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
  const auto running = cache.get(ring, shape_of(1)).schedule;
  for (std::int64_t count = 2; count < 100; ++count) {
    cache.get(ring, shape_of(count));
    EXPECT_LE(cache.used_bytes(), kBudget);
  }
  EXPECT_GT(cache.entries(), 1u);
  EXPECT_FALSE(running->steps.empty());
  // The last ones are still there, the first are not.
  const std::uint64_t made = cache.made();
  cache.get(ring, shape_of(99));
  EXPECT_EQ(cache.made(), made);
  cache.get(ring, shape_of(1));
  EXPECT_EQ(cache.made(), made + 1);
  // Too large for the budget: made each time.
  ScheduleCache tiny(100);
  tiny.get(ring, shape_of(5));
  tiny.get(ring, shape_of(5));
  EXPECT_EQ(tiny.made(), 2u);
  EXPECT_EQ(tiny.entries(), 0u);
}

}  // namespace
}  // namespace od::coll
