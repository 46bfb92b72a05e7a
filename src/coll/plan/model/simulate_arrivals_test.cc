// Ranks that come at different times, against cases that can be worked out by hand.
#include "coll/plan/model/simulate_arrivals.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace od::coll {
namespace {

using enum Collective;

// Links without latency; 1 ns per byte between nodes.
Machine plain() {
  Machine machine;
  machine.near = {0, 0, 0, 0};
  machine.far = {0, 0, 0, 1};
  machine.add_byte_ns = machine.copy_byte_ns = 0;
  machine.rendezvous_bytes = 1e18;
  return machine;
}

constexpr std::uint64_t kBytes = 1 << 20;
constexpr double kTime = kBytes;  // of the message on a link

TEST(SimulateArrivals, SchedulesBeginWhenTheirRanksCome) {
  const Nodes nodes = Nodes::in_blocks(2, 1);
  const Decision decision{find_algorithm(kBcast, "linear"), Mode::kFlat, {}};
  const std::vector<double> late = {0, 5e6};
  const Simulated together =
      simulate(decision, nodes, NodeDriver::kMessages, kBytes, plain(), nullptr);
  const Simulated found =
      simulate(decision, nodes, NodeDriver::kMessages, kBytes, plain(), nullptr, late);
  EXPECT_DOUBLE_EQ(together.last_ns, kTime);
  EXPECT_DOUBLE_EQ(together.inside_ns, kTime);
  // Sent without a handshake it is there when the other comes.
  EXPECT_DOUBLE_EQ(found.last_ns, 5e6);
  EXPECT_DOUBLE_EQ(found.inside_ns, kTime / 2);
}

TEST(SimulateArrivals, ALateLeaderDelaysItselfAlone) {
  const Nodes nodes = Nodes::in_blocks(8, 4);
  const std::vector<double> late = arrival_pattern("late-leader", nodes, 40e6);
  EXPECT_DOUBLE_EQ(late[4], 40e6);
  const Simulated found = simulate_first_arrival(kBcast, nodes, kBytes, plain(), late);
  EXPECT_DOUBLE_EQ(found.last_ns, 40e6);
  // The root and three ranks of the other node; the late one and the root's node find all there.
  EXPECT_DOUBLE_EQ(found.inside_ns, kTime * 4 / 8);
}

TEST(SimulateArrivals, AChainIsAsLongAsItsNodes) {
  const Nodes nodes = Nodes::in_blocks(3, 1);
  const std::vector<double> together(3, 0);
  const Simulated found = simulate_first_arrival(kBcast, nodes, kBytes, plain(), together);
  EXPECT_DOUBLE_EQ(found.last_ns, kTime + (64 << 10));
}

TEST(SimulateArrivals, ANodeThatComesLaterBeginsAnotherChain) {
  const Nodes nodes = Nodes::in_blocks(3, 1);
  const std::vector<double> late = {0, 0, 3 * kTime};
  const Simulated found = simulate_first_arrival(kBcast, nodes, kBytes, plain(), late);
  EXPECT_DOUBLE_EQ(found.last_ns, 4 * kTime);
  // The root stays for it; the other rank does not.
  EXPECT_DOUBLE_EQ(found.inside_ns, (4 * kTime + kTime + kTime) / 3);
}

TEST(SimulateArrivals, NobodyButTheRootWaitsForALateContribution) {
  const Nodes nodes = Nodes::in_blocks(8, 4);
  const std::vector<double> late = arrival_pattern("one-late", nodes, 40e6);
  for (const Collective collective : {kReduce, kGather}) {
    const Simulated found = simulate_first_arrival(collective, nodes, kBytes, plain(), late);
    // Of a gather the last rank sends its own block, as the first has sent the other three.
    EXPECT_DOUBLE_EQ(found.last_ns, 40e6 + kTime);
    const double sent_before = collective == kReduce ? 0 : 3 * kTime;
    EXPECT_DOUBLE_EQ(found.inside_ns, (40e6 + 2 * kTime + sent_before) / 8);
  }
}

TEST(SimulateArrivals, AScatterWaitsForTheFirstOfEachNode) {
  const Nodes nodes = Nodes::in_blocks(8, 4);
  const std::vector<double> late = arrival_pattern("late-leader", nodes, 40e6);
  const Simulated found = simulate_first_arrival(kScatter, nodes, kBytes, plain(), late);
  EXPECT_DOUBLE_EQ(found.last_ns, 40e6);
  // The root and the winner stay for four blocks; the other two take the third and the fourth when
  // they are there; the late one and the root's node find theirs.
  EXPECT_DOUBLE_EQ(found.inside_ns, (4 + 4 + 3 + 4) * kTime / 8);
}

TEST(SimulateArrivals, PatternsAreThoseOfTheBenchmark) {
  const Nodes nodes = Nodes::in_blocks(4, 2);
  EXPECT_EQ(arrival_pattern("linear", nodes, 30), (std::vector<double>{0, 10, 20, 30}));
  EXPECT_EQ(arrival_pattern("one-late", nodes, 30), (std::vector<double>{0, 0, 0, 30}));
  EXPECT_EQ(arrival_pattern("late-root", nodes, 30), (std::vector<double>{30, 0, 0, 0}));
  EXPECT_TRUE(arrival_pattern("sometimes", nodes, 30).empty());
  for (const double each : arrival_pattern("random", nodes, 30)) {
    EXPECT_GE(each, 0);
    EXPECT_LT(each, 30);
  }
  for (const std::string_view name : kArrivalPatterns) {
    EXPECT_EQ(arrival_pattern(name, nodes, 30).size(), 4u) << name;
  }
}

}  // namespace
}  // namespace od::coll
