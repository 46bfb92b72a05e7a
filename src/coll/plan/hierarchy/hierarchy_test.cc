// Every hierarchical form with every algorithm between leaders against the definition of its
// collective, over random placements of ranks on nodes.
#include "coll/plan/hierarchy/hierarchy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "coll/plan/hierarchy/node_steps.h"
#include "coll/plan/testing/all_ranks.h"
#include "coll/plan/testing/random_cases.h"

namespace od::coll {
namespace {

using enum Collective;
using testing::Case;
using testing::pick;

// Blocks, round robin, blocks of uneven size, anything.
std::vector<int> random_placement(int ranks, std::mt19937_64& random) {
  std::vector<int> node_of;
  const int nodes = static_cast<int>(1 + random() % pick(random, {2, 4, 9}));
  const int per_node = (ranks + nodes - 1) / nodes;
  const auto kind = random() % 4;
  int node = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (kind == 0) node = rank / per_node;
    if (kind == 1) node = rank % nodes;
    if (kind == 2 && random() % static_cast<std::uint64_t>(per_node) == 0) ++node;
    if (kind == 3) node = static_cast<int>(random() % static_cast<std::uint64_t>(nodes));
    node_of.push_back(node);
  }
  return node_of;
}

Case random_case(const Algorithm& algorithm, std::mt19937_64& random) {
  Case test;
  test.algorithm = &algorithm;
  test.ranks = static_cast<int>(2 + random() % pick(random, {3, 8, 16, 30}));
  test.node_of = random_placement(test.ranks, random);
  test.root = static_cast<int>(random() % static_cast<std::uint64_t>(test.ranks));
  test.count = static_cast<std::int64_t>(random() % pick(random, {1, 4, 20, 60}));
  test.unit_bytes = pick(random, {1, 4, 8, 16});
  test.commutative = !info(algorithm.collective).reduces || random() % 2 == 0;
  test.in_place = random() % 3 == 0;
  test.parameters.radix = pick(random, {0, 0, 2, 3, 4, 50});
  test.parameters.segment_bytes = pick<std::int64_t>(random, {0, -1, 1, 8, 40});
  test.parameters.window = pick(random, {0, -1, 1, 2, 5});
  test.parameters.leaders = pick(random, {0, 1, 1, 2, 3, 8});
  test.parameters.pipeline_bytes = pick<std::int64_t>(random, {0, -1, 8, 30, 100});
  test.seed = random();
  return test;
}

class EveryHierarchy : public ::testing::TestWithParam<const Algorithm*> {};

// As EveryAlgorithm, for placements: what is one too many or too few shows with some numbers of
// nodes and of members only.
TEST_P(EveryHierarchy, AgreesWithTheDefinitionOnEverySmallNumberOfNodes) {
  constexpr int kMostNodes = 6;
  const Algorithm& algorithm = *GetParam();
  const std::uint64_t seed = testing::first_seed();
  std::mt19937_64 random(seed);
  int served = 0;
  for (int number = 0; number < 4 * (kMostNodes - 1); ++number) {
    const int nodes = 2 + number / 4;
    const bool dealt_out = number % 2 != 0;
    Case test = random_case(algorithm, random);
    // Two ranks for each node, one fewer or one more.
    test.ranks = 2 * nodes + (number % 4 < 2 ? -1 : 1);
    test.root %= test.ranks;
    test.node_of.clear();
    for (int rank = 0; rank < test.ranks; ++rank) {
      test.node_of.push_back(dealt_out ? rank % nodes : std::min(rank / 2, nodes - 1));
    }
    if (test.why_not() != nullptr) test.commutative = true;
    if (test.why_not() != nullptr) continue;
    ++served;
    const std::string report = testing::report_of_case(test, seed, number);
    ASSERT_TRUE(report.empty()) << report;
  }
  EXPECT_GT(served, 0);
}

TEST_P(EveryHierarchy, AgreesWithTheDefinition) {
  const Algorithm& algorithm = *GetParam();
  constexpr int kCases = testing::cases_of_generator(150);
  const std::uint64_t seed = testing::first_seed();
  std::mt19937_64 random(seed);
  for (int i = 0, served = 0; served < kCases; ++i) {
    const Case test = random_case(algorithm, random);
    if (test.why_not() != nullptr) continue;
    ++served;
    const std::string report = testing::report_of_case(test, seed, i);
    ASSERT_TRUE(report.empty()) << report;
  }
}

std::vector<const Algorithm*> with_hierarchy() {
  std::vector<const Algorithm*> result;
  for (const Algorithm& algorithm : algorithms()) {
    const Layout layout{.ranks = 8, .nodes = 4, .most_per_node = 2};
    if (why_not_hierarchical(algorithm, layout, true) == nullptr) result.push_back(&algorithm);
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryHierarchy, ::testing::ValuesIn(with_hierarchy()),
                         [](const auto& parameter) { return testing::name_of(*parameter.param); });

Shape shape_of(int ranks, int rank, std::int64_t count) {
  Shape shape;
  shape.ranks = ranks;
  shape.rank = rank;
  shape.count = count;
  shape.unit_bytes = 8;
  return shape;
}

Schedule made(Collective collective, const char* name, Shape shape, const Nodes& nodes,
              NodeDriver driver) {
  const Algorithm& algorithm = *find_algorithm(collective, name);
  shape.parameters = with_level_defaults(effective_parameters(algorithm, shape.parameters));
  return make_hierarchical(algorithm, shape, nodes, driver);
}

TEST(Nodes, NumbersNodesByTheirLowestRank) {
  const std::vector<int> names = {7, 7, 3, 7, 3, 5};
  const Nodes nodes(names);
  EXPECT_EQ(nodes.count(), 3);
  EXPECT_EQ(nodes.node_of(2), 1);
  EXPECT_EQ(nodes.position_of(3), 2);
  EXPECT_EQ(std::vector<int>(nodes.members(0).begin(), nodes.members(0).end()),
            (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(nodes.ranks_before(2), 5);
  EXPECT_FALSE(nodes.contiguous());
  EXPECT_FALSE(nodes.even());
  EXPECT_TRUE(Nodes::in_blocks(7, 3).contiguous());
  const Layout layout = nodes.layout();
  EXPECT_EQ(layout.ranks, 6);
  EXPECT_EQ(layout.nodes, 3);
  EXPECT_EQ(layout.most_per_node, 3);
  EXPECT_FALSE(layout.contiguous);
}

TEST(Hierarchy, OneNodeIsOneStep) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.is_host()) continue;
    const Nodes nodes = Nodes::in_blocks(4, 4);
    ASSERT_EQ(why_not_hierarchical(algorithm, nodes.layout(), true), nullptr);
    Shape shape = shape_of(4, 1, 10);
    const std::int64_t counts[] = {1, 2, 3, 4};
    if (info(algorithm.collective).has_counts()) shape.counts = counts;
    shape.parameters = effective_parameters(algorithm, {});
    const Schedule shared = make_hierarchical(algorithm, shape, nodes, NodeDriver::kShared);
    ASSERT_EQ(shared.steps.size(), 1u);
    EXPECT_EQ(node_work(shared.steps[0]), NodeWork::kWhole);
    EXPECT_EQ(make_hierarchical(algorithm, shape, nodes, NodeDriver::kMessages),
              make_schedule(algorithm, shape));
    // One rank per node: nothing is inside.
    EXPECT_EQ(make_hierarchical(algorithm, shape, Nodes::in_blocks(4, 1), NodeDriver::kShared),
              make_schedule(algorithm, shape));
  }
}

TEST(Hierarchy, SaysWhatItCannotServe) {
  const Layout blocks{.ranks = 8, .nodes = 4, .most_per_node = 2};
  Layout robin = blocks;
  robin.contiguous = false;
  const auto reason = [](Collective collective, int number, const Layout& layout, bool commutes) {
    const char* text = why_not_hierarchical(*find_algorithm(collective, number), layout, commutes);
    return std::string(text == nullptr ? "" : text);
  };
  EXPECT_EQ(reason(kAllreduce, 101, blocks, false), "");
  EXPECT_EQ(reason(kAllreduce, 101, robin, true), "");
  EXPECT_NE(reason(kAllreduce, 101, robin, false), "");
  EXPECT_NE(reason(kAllreduce, 106, blocks, false), "");  // the ring itself
  // On one node the algorithm itself runs wherever shared memory cannot serve.
  const Layout together{.ranks = 8, .nodes = 1, .most_per_node = 8};
  EXPECT_EQ(reason(kAllreduce, 106, together, true), "");
  EXPECT_NE(reason(kAllreduce, 106, together, false), "");
  EXPECT_EQ(reason(kScan, 101, blocks, false), "");
  EXPECT_NE(reason(kScan, 101, robin, true), "");
  EXPECT_NE(reason(kAlltoallv, 101, blocks, true), "");
  EXPECT_NE(reason(kBcast, 100, blocks, true), "");
}

// While a segment is between the nodes, the next ones are reduced inside them: their steps do not
// wait for it.
TEST(Hierarchy, SegmentsAreInFlightTogether) {
  const Nodes nodes = Nodes::in_blocks(8, 2);
  Shape shape = shape_of(8, 2, 6 * 1024);
  shape.parameters.pipeline_bytes = 1024 * 8;
  const Schedule schedule =
      made(kAllreduce, "recursive_doubling", shape, nodes, NodeDriver::kShared);
  od::coll::Run run;
  run.begin(schedule);
  int reductions = 0;
  std::uint32_t step = 0;
  std::vector<std::uint32_t> messages;
  // Everything but messages completes at once.
  while (run.take(step)) {
    const Step& taken = schedule.steps[step];
    if (taken.kind == StepKind::kNode) {
      EXPECT_EQ(node_work(taken), NodeWork::kReduce);
      ++reductions;
      run.complete(step);
    } else {
      messages.push_back(step);
    }
  }
  EXPECT_EQ(reductions, kSegmentsInFlight);
  // Of each segment in flight the first round, and the receive of the second.
  EXPECT_EQ(messages.size(), 3u * kSegmentsInFlight);
}

// Memory does not grow with the number of segments.
TEST(Hierarchy, SegmentsShareScratchMemory) {
  const Nodes nodes = Nodes::in_blocks(8, 2);
  const auto scratch = [&](Collective collective, const char* name, std::int64_t segments) {
    Shape shape = shape_of(8, 2, segments * 1024);
    shape.parameters.pipeline_bytes = 1024 * 8;
    return made(collective, name, shape, nodes, NodeDriver::kShared).scratch_units;
  };
  for (const char* name : {"recursive_doubling", "rabenseifner", "ring"}) {
    EXPECT_EQ(scratch(kAllreduce, name, 40), scratch(kAllreduce, name, kSegmentsInFlight)) << name;
  }
  EXPECT_EQ(scratch(kReduce, "binomial", 40), scratch(kReduce, "binomial", kSegmentsInFlight));
  EXPECT_EQ(scratch(kScan, "linear", 40), scratch(kScan, "linear", kSegmentsInFlight));
}

TEST(Hierarchy, LongVectorsHaveLargerSegments) {
  for (const Algorithm* algorithm : with_hierarchy()) {
    Shape shape = shape_of(12, 4, 1 << 20);
    shape.parameters.segment_bytes = 1;
    shape.parameters.pipeline_bytes = 8;
    const std::vector<std::int64_t> counts(12, 1 << 17);
    if (info(algorithm->collective).has_counts()) shape.counts = counts.data();
    const Schedule schedule = made(algorithm->collective, algorithm->name, shape,
                                   Nodes::in_blocks(12, 4), NodeDriver::kMessages);
    EXPECT_LE(schedule.ordinals, kMostOrdinals)
        << info(algorithm->collective).name << ' ' << algorithm->name;
  }
}

// As Schedules.HaveFewSteps: what is in one node's shared memory needs no step for each member.
TEST(Hierarchy, HasFewSteps) {
  struct Point {
    Collective collective;
    const char* name;
    int nodes;
    int per_node;
    std::int64_t count;
    std::size_t most_by_messages;
    std::size_t most_shared;
  };
  constexpr std::size_t kSent = 256;  // segments of 16 KiB in 4 MiB
  for (const Point& point :
       {Point{kAllreduce, "recursive_doubling", 8, 8, 1, 3 * 3 + 12, 3 * 3 + 2},
        Point{kAllreduce, "ring", 8, 8, 1 << 19, 376, 296},
        Point{kBcast, "chain", 8, 8, 1 << 19, kSent + 32, kSent + 8},
        Point{kAllgather, "ring", 8, 8, 1 << 16, 54, 23},
        Point{kAlltoall, "pairwise", 8, 8, 1, 607, 593},
        Point{kReduceScatterBlock, "pairwise", 4, 2, 1 << 10, 13, 11}}) {
    const int ranks = point.nodes * point.per_node;
    const auto steps = [&](NodeDriver driver) {
      const Shape shape = shape_of(ranks, 0, point.count);
      const Nodes nodes = Nodes::in_blocks(ranks, point.per_node);
      return made(point.collective, point.name, shape, nodes, driver).steps.size();
    };
    EXPECT_LE(steps(NodeDriver::kMessages), point.most_by_messages) << point.name;
    EXPECT_LE(steps(NodeDriver::kShared), point.most_shared) << point.name;
  }
}

}  // namespace
}  // namespace od::coll
