// Every algorithm against the definition of its collective, over random shapes and orders of
// events.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "coll/plan/registry.h"
#include "coll/plan/testing/all_ranks.h"
#include "coll/plan/testing/job_parts.h"
#include "coll/plan/testing/random_cases.h"

namespace od::coll {
namespace {

using testing::Case;
using testing::pick;
using testing::run_case;

Case random_case(const Algorithm& algorithm, std::mt19937_64& random) {
  Case test;
  test.algorithm = &algorithm;
  // Small numbers have most of the special cases.
  test.ranks = static_cast<int>(1 + random() % pick(random, {4, 9, 17, 40}));
  test.root = static_cast<int>(random() % static_cast<std::uint64_t>(test.ranks));
  test.count = static_cast<std::int64_t>(random() % pick(random, {1, 4, 20, 100}));
  test.unit_bytes = pick(random, {1, 4, 8, 16});
  test.commutative = !info(algorithm.collective).reduces || random() % 2 == 0;
  test.in_place = random() % 3 == 0 && algorithm.collective != Collective::kAlltoallv &&
                  algorithm.collective != Collective::kAlltoallw;
  test.parameters.radix = pick(random, {0, 0, 2, 3, 4, 5, 8, 50});
  test.parameters.segment_bytes = pick<std::int64_t>(random, {0, -1, 1, 8, 40, 200});
  test.parameters.window = pick(random, {0, -1, 1, 2, 5});
  test.seed = random();
  return test;
}

class EveryAlgorithm : public ::testing::TestWithParam<const Algorithm*> {};

// What is one too many or too few shows with some numbers of ranks only, also to sanitizers: where
// a vector is as long as the memory behind it. No such number is left to chance.
TEST_P(EveryAlgorithm, AgreesWithTheDefinitionForEverySmallNumberOfRanks) {
  constexpr int kMostRanks = 9;
  const Algorithm& algorithm = *GetParam();
  const std::uint64_t seed = testing::first_seed();
  std::mt19937_64 random(seed);
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    Case test = random_case(algorithm, random);
    test.ranks = ranks;
    test.root %= ranks;
    if (why_not(algorithm, {ranks, test.commutative}) != nullptr) test.commutative = true;
    if (why_not(algorithm, {ranks, test.commutative}) != nullptr) continue;
    const std::string report = testing::report_of_case(test, seed, ranks);
    ASSERT_TRUE(report.empty()) << report;
  }
}

TEST_P(EveryAlgorithm, AgreesWithTheDefinition) {
  const Algorithm& algorithm = *GetParam();
  constexpr int kCases = testing::cases_of_generator(60);
  const std::uint64_t seed = testing::first_seed();
  std::mt19937_64 random(seed);
  int served = 0;
  for (int i = 0; i < kCases || served < kCases / 2; ++i) {
    const Case test = random_case(algorithm, random);
    if (why_not(algorithm, {test.ranks, test.commutative}) != nullptr) continue;
    ++served;
    const std::string report = testing::report_of_case(test, seed, i);
    ASSERT_TRUE(report.empty()) << report;
  }
}

std::vector<const Algorithm*> own_algorithms() {
  std::vector<const Algorithm*> result;
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.is_host()) result.push_back(&algorithm);
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithm, ::testing::ValuesIn(own_algorithms()),
                         [](const auto& parameter) { return testing::name_of(*parameter.param); });

TEST(Schedules, LongVectorsHaveLargerSegments) {
  for (const Algorithm* algorithm : own_algorithms()) {
    constexpr int kRanks = 12;
    Shape shape;
    shape.ranks = kRanks;
    shape.rank = 5;
    shape.count = 1 << 20;
    shape.parameters.segment_bytes = 1;
    const std::vector<std::int64_t> counts(kRanks, 1 << 17);
    if (info(algorithm->collective).has_counts()) shape.counts = counts.data();
    const Schedule schedule = make_schedule(*algorithm, shape);
    EXPECT_LE(schedule.ordinals, kMostOrdinals)
        << info(algorithm->collective).name << ' ' << algorithm->name;
  }
}

// A schedule is made at the first use on a communicator, which must not take long.
// A rank's schedule grows with its messages, not with the square of the ranks: what making it takes
// and what it occupies follow its steps (times: bench/coll/od_select.cc).
TEST(Schedules, HaveFewSteps) {
  struct Point {
    Collective collective;
    const char* name;
    int ranks;
    std::int64_t count;
    std::size_t most_steps;
  };
  constexpr std::size_t kSegments = 512;  // of 16 KiB
  for (const Point& point : {Point{Collective::kAllreduce, "recursive_doubling", 64, 1, 6 * 3},
                             Point{Collective::kAllreduce, "ring", 64, 1 << 20, 63 * 5},
                             Point{Collective::kBcast, "chain", 64, 1 << 20, kSegments * 2},
                             Point{Collective::kAlltoall, "pairwise", 64, 1, 63 * 2 + 1},
                             Point{Collective::kAlltoall, "linear", 1024, 1, 1023 * 2 + 1}}) {
    Shape shape;
    shape.ranks = point.ranks;
    shape.rank = point.ranks / 3;
    shape.count = point.count;
    shape.unit_bytes = 8;
    const Algorithm& algorithm = *find_algorithm(point.collective, point.name);
    EXPECT_LE(make_schedule(algorithm, shape).steps.size(), point.most_steps)
        << point.name << " on " << point.ranks << " ranks";
  }
}

// The checker itself must find what it is there for.
void broken_length(Builder& builder, const Shape& shape) {
  if (shape.rank == 0) builder.send(1, {0, 0, Buffer::kOutput}, shape.count);
  if (shape.rank == 1) builder.receive(0, {0, 0, Buffer::kOutput}, shape.count - 1);
}
void broken_peer(Builder& builder, const Shape& shape) {
  if (shape.rank == 1) builder.receive(0, {0, 0, Buffer::kOutput}, shape.count);
}
void broken_unreceived(Builder& builder, const Shape& shape) {
  bcast_linear(builder, shape);
  if (shape.rank == 0) builder.signal(1);
}
void broken_bounds(Builder& builder, const Shape& shape) {
  if (shape.rank == 0) builder.send(1, {1, 0, Buffer::kOutput}, shape.count);
  if (shape.rank == 1) builder.receive(0, {1, 0, Buffer::kOutput}, shape.count);
}
void broken_result(Builder& builder, const Shape& shape) {
  if (shape.rank == 1) builder.receive(0, {0, 0, Buffer::kOutput}, shape.count - 1);
  if (shape.rank == 0) builder.send(1, {1, 0, Buffer::kOutput}, shape.count - 1);
}
void broken_cycle(Builder& builder, const Shape& shape) {
  if (shape.rank > 1) return;
  const auto arrival = builder.await(1 - shape.rank);
  builder.order(arrival, builder.signal(1 - shape.rank));
}

std::string outcome(Generate* generate) {
  Algorithm algorithm = *find_algorithm(Collective::kBcast, "linear");
  algorithm.generate = generate;
  algorithm.scales = false;
  Case test;
  test.algorithm = &algorithm;
  test.ranks = 2;
  test.count = 5;
  std::string worst;
  for (test.seed = 0; test.seed < 20; ++test.seed) worst = std::max(worst, run_case(test));
  return worst;
}

TEST(Checker, FindsWhatIsWrong) {
  EXPECT_EQ(outcome(bcast_linear), "");
  EXPECT_NE(outcome(broken_length).find("expects 4 units"), std::string::npos);
  EXPECT_NE(outcome(broken_peer).find("deadlock"), std::string::npos);
  EXPECT_NE(outcome(broken_unreceived).find("nobody receives"), std::string::npos)
      << outcome(broken_unreceived);
  EXPECT_NE(outcome(broken_bounds).find("leaves a buffer"), std::string::npos);
  EXPECT_NE(outcome(broken_result).find("wrong result"), std::string::npos);
  EXPECT_NE(outcome(broken_cycle).find("deadlock"), std::string::npos);
}

TEST(Checker, FindsStepsThatDisturbEachOther) {
  // A builder that knew of no memory: two receives into the same place.
  Builder builder;
  builder.receive(0, {0, 0, Buffer::kOutput}, 2);
  const auto second = builder.receive(0, {1, 0, Buffer::kOutput}, 2);
  const Schedule schedule = builder.finish();
  EXPECT_EQ(schedule.waits[static_cast<std::size_t>(second)], 1u);
}

TEST(Checker, FindsRangesThatDisturbEachOther) {
  using testing::Range;
  using Ranges = std::vector<Range>;
  const auto range = [](std::int64_t begin, std::int64_t end, bool writes) {
    return Range{Buffer::kOutput, 0, begin, end, writes};
  };
  constexpr std::optional<std::uint32_t> kNobody;
  testing::Running running;
  // A step may write what it reads.
  EXPECT_EQ(running.start(7, {range(10, 20, true), range(15, 25, false)}), kNobody);
  EXPECT_EQ(running.start(3, Ranges{range(0, 11, false)}), 7u);
  EXPECT_EQ(running.start(3, Ranges{range(19, 30, true)}), 7u);
  EXPECT_EQ(running.start(3, Ranges{range(24, 30, true)}), 7u) << "it is read";
  EXPECT_EQ(running.start(3, {range(0, 10, true), range(20, 30, false)}), kNobody);
  EXPECT_EQ(running.start(9, Ranges{{Buffer::kOutput, 1, 0, 30, true}}), kNobody);
  EXPECT_EQ(running.start(4, Ranges{{Buffer::kScratch, 0, 0, 30, true}}), kNobody);
  EXPECT_EQ(running.steps().size(), 4u);
  running.end(7);
  EXPECT_EQ(running.start(5, Ranges{range(12, 21, true)}), 3u) << "it is still read by another";
  EXPECT_EQ(running.start(5, Ranges{range(10, 20, true)}), kNobody);
}

TEST(Checker, Shrinks) {
  Algorithm algorithm = *find_algorithm(Collective::kBcast, "linear");
  algorithm.scales = false;
  algorithm.generate = [](Builder& builder, const Shape& shape) {
    Shape cut = shape;
    if (shape.ranks > 3) cut.count = std::max<std::int64_t>(0, shape.count - 1);
    bcast_linear(builder, cut);
  };
  Case test;
  test.algorithm = &algorithm;
  test.ranks = 30;
  test.root = 17;
  test.count = 80;
  test.seed = 5;
  const Case small = testing::shrink(test);
  EXPECT_EQ(small.ranks, 4);
  EXPECT_EQ(small.count, 1);
  EXPECT_EQ(small.root, 0);
}

}  // namespace
}  // namespace od::coll
