// The simulator against cases that can be worked out by hand, and the closed forms against it.
#include "coll/plan/model/simulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace od::coll {
namespace {

using enum Collective;

Machine plain() {
  Machine machine;
  machine.near = {100, 10, 20, 1};
  machine.far = {1000, 50, 100, 2};
  machine.add_byte_ns = 0.5;
  machine.copy_byte_ns = 0.25;
  machine.rendezvous_bytes = 1e18;
  return machine;
}

double simulated(Collective collective, const char* name, int ranks, int per_node,
                 std::uint64_t bytes, const Machine& machine) {
  const Algorithm& algorithm = *find_algorithm(collective, name);
  return simulate(algorithm, algorithm.defaults, ranks, per_node, bytes, machine).last_ns;
}

TEST(Simulate, OneMessageTakesWhatLogGpSays) {
  // overhead + latency + bytes + overhead
  EXPECT_DOUBLE_EQ(simulated(kBcast, "linear", 2, 2, 40, plain()), 10 + 100 + 40 + 10);
  EXPECT_DOUBLE_EQ(simulated(kBcast, "linear", 2, 1, 40, plain()), 50 + 1000 + 80 + 50);
}

TEST(Simulate, LargeMessagesWaitForTheirReceiver) {
  Machine machine = plain();
  machine.rendezvous_bytes = 40;
  // Two more latencies: may I, you may.
  EXPECT_DOUBLE_EQ(simulated(kBcast, "linear", 2, 1, 40, machine), 50 + 3000 + 80 + 50);
}

TEST(Simulate, RanksOfANodeShareTheirLink) {
  // Both ranks of node 0 send 1000 bytes to node 1 at the same time (ring of 4, 2 per node: only
  // one crosses; recursive doubling at distance 2: both do).
  const double one = simulated(kAllgather, "recursive_doubling", 2, 1, 1000, plain());
  const double both = simulated(kAllgather, "recursive_doubling", 4, 2, 1000, plain());
  // The second round moves 2000 bytes per rank, 4000 through the link.
  EXPECT_GT(both, one + 4000 * 2 - 2000);
}

TEST(Simulate, ABinomialTreeTakesItsLevels) {
  const double level = 50 + 1000 + 0 + 50;
  EXPECT_NEAR(simulated(kBcast, "binomial", 8, 1, 1, plain()), 3 * level, 3 * 2 + 1);
}

TEST(Simulate, CountsTrafficBetweenNodes) {
  const Algorithm& ring = *find_algorithm(kAllgather, "ring");
  const Simulated result = simulate(ring, {}, 4, 2, 100, plain());
  EXPECT_EQ(result.messages, 12u);
  EXPECT_EQ(result.far_bytes, 2u * 3 * 100);  // two borders, three rounds
}

// Steps of the node: all have come, then each member adds; the leader has come, then each reads.
TEST(Simulate, ASwitchAnswersWhenItHasHeardTheLast) {
  Machine machine = plain();
  const double without = simulated(kAllreduce, "in_network_node", 4, 1, 16, machine);
  EXPECT_DOUBLE_EQ(without, simulated(kAllreduce, "recursive_doubling", 4, 1, 16, machine));
  machine.switch_ports = 4;
  // To the switch and back is one latency, whatever the number of nodes.
  const double one_way = 50 + 1000 + 16 * 2 + 50;
  EXPECT_DOUBLE_EQ(simulated(kAllreduce, "in_network_node", 4, 1, 16, machine), one_way);
  machine.switch_ports = 2;
  EXPECT_DOUBLE_EQ(simulated(kAllreduce, "in_network_node", 4, 1, 16, machine),
                   one_way + 2 * machine.switch_hop_ns);
  EXPECT_DOUBLE_EQ(simulated(kAllreduce, "in_network_node", 300, 1, 16, machine),
                   one_way + 2 * machine.switch_hop_ns);
}

TEST(Simulate, StepsOfANodeTakeWhatTheirReadersNeed) {
  const Algorithm& tree = *find_algorithm(kBcast, "linear");
  const Nodes nodes = Nodes::in_blocks(4, 2);
  const Decision decision{&tree, Mode::kHierarchical, with_level_defaults(tree.defaults)};
  const Simulated result = simulate(decision, nodes, NodeDriver::kShared, 40, plain());
  // To the other leader; then a flag, half of what a message's bytes take, and a flag back.
  EXPECT_DOUBLE_EQ(result.last_ns, (50 + 1000 + 80 + 50) + 110 + 20 + 110);
  EXPECT_EQ(result.messages, 1u);
  const Algorithm& pairs = *find_algorithm(kAllreduce, "recursive_doubling");
  const Decision levels{&pairs, Mode::kHierarchical, with_level_defaults(pairs.defaults)};
  const Nodes one = Nodes::in_blocks(2, 2);
  EXPECT_DOUBLE_EQ(simulate(levels, one, NodeDriver::kShared, 64, plain()).last_ns,
                   node_cost(plain(), kAllreduce, 2, 64));
  // Messages inside nodes are messages, too.
  const Simulated shared = simulate(levels, nodes, NodeDriver::kShared, 64, plain());
  const Simulated messages = simulate(levels, nodes, NodeDriver::kMessages, 64, plain());
  EXPECT_EQ(shared.messages, 2u);
  EXPECT_EQ(messages.messages, 2u + 4u);
}

// One segment is inside a node while another is between them.
TEST(Simulate, SegmentsOverlap) {
  const Algorithm& ring = *find_algorithm(kAllreduce, "ring");
  Machine machine = plain();
  machine.far = {1000, 50, 100, 1};
  const Nodes nodes = Nodes::in_blocks(8, 2);
  const auto with_pipeline = [&](std::int64_t bytes, TimeLine* line) {
    Parameters parameters = ring.defaults;
    parameters.pipeline_bytes = bytes;
    const Decision decision{&ring, Mode::kHierarchical, with_level_defaults(parameters)};
    return simulate(decision, nodes, NodeDriver::kShared, 1 << 20, machine, line).last_ns;
  };
  TimeLine line;
  const double pipelined = with_pipeline(128 * 1024, &line);
  EXPECT_LT(pipelined, 0.75 * with_pipeline(-1, nullptr));
  // The time line has every step but joins, each within the whole.
  std::size_t steps = 0;
  for (const Schedule& schedule : line.schedules) {
    for (const Step& step : schedule.steps) steps += step.kind != StepKind::kJoin;
  }
  EXPECT_EQ(line.steps.size(), steps);
  bool overlap = false;
  for (const TimedStep& inside : line.steps) {
    EXPECT_LE(inside.begin_ns, inside.end_ns);
    EXPECT_LE(inside.end_ns, pipelined);
    const Step& step = line.schedules[static_cast<std::size_t>(inside.rank)].steps[inside.step];
    if (inside.rank != 0 || step.kind != StepKind::kNode) continue;
    for (const TimedStep& other : line.steps) {
      const Step& send = line.schedules[static_cast<std::size_t>(other.rank)].steps[other.step];
      overlap |= other.rank == 0 && send.kind == StepKind::kSend && send.segment != step.segment &&
                 other.begin_ns < inside.end_ns && inside.begin_ns < other.end_ns;
    }
  }
  EXPECT_TRUE(overlap);
}

// The closed form of a hierarchical collective against the simulation of its schedules.
TEST(Model, HierarchicalFormsAreAboutRight) {
  const Machine machine;
  double log_sum = 0;
  int points = 0;
  double worst = 1;
  std::string where;
  for (const Collective collective :
       {kBcast, kReduce, kAllreduce, kAllgather, kAlltoall, kReduceScatterBlock, kBarrier}) {
    for (const std::uint64_t bytes : {8u, 4096u, 262144u, 4194304u}) {
      if (collective == kBarrier && bytes > 8) continue;
      if (collective == kAlltoall && bytes > 262144) continue;
      for (const Algorithm& algorithm : algorithms(collective)) {
        if (algorithm.is_host()) continue;
        const Nodes nodes = Nodes::in_blocks(32, 4);
        const Decision decision{&algorithm, Mode::kHierarchical,
                                with_level_defaults(algorithm.defaults)};
        const double time = simulate(decision, nodes, NodeDriver::kShared, bytes, machine).last_ns;
        const double cost = hierarchy_cost(machine, collective, algorithm.cost, decision.parameters,
                                           8, 4, static_cast<double>(bytes))
                                .total();
        if (time == 0) continue;  // not one element per rank
        const double ratio = std::max(cost / time, time / cost);
        log_sum += std::log(ratio);
        ++points;
        if (ratio > worst) {
          worst = ratio;
          where = std::string(info(collective).name) + ' ' + algorithm.name + ", " +
                  std::to_string(bytes) + " bytes";
        }
      }
    }
  }
  const double mean = std::exp(log_sum / points);
  std::printf(
      "hierarchical model against simulation: %d points, off by %.3f in the mean, worst "
      "%.2f (%s)\n",
      points, mean, worst, where.c_str());
  EXPECT_LT(mean, 1.35);
}

// The model need not be exact: what it chooses must not be much slower than the best.
TEST(Model, ChoosesWhatTheSimulatorFindsGood) {
  const Machine machine;
  double worst = 1;
  std::string where;
  double log_sum = 0;
  int points = 0;
  for (const Collective collective :
       {kBcast, kReduce, kAllreduce, kAllgather, kAlltoall, kReduceScatterBlock, kBarrier}) {
    for (const auto& [ranks, per_node] : {std::pair{8, 1}, {16, 4}, {13, 1}}) {
      for (const std::uint64_t bytes : {8u, 4096u, 262144u}) {
        if (collective == kBarrier && bytes > 8) continue;
        const auto size = static_cast<double>(bytes);
        const Estimate estimate(machine, collective, ranks, per_node, size);
        double best = INFINITY;
        double cheapest = INFINITY;
        double time_of_cheapest = 0;
        std::string name;
        for (const Algorithm& algorithm : algorithms(collective)) {
          if (algorithm.is_host() || why_not(algorithm, {ranks, true}) != nullptr) continue;
          const Parameters& p = algorithm.defaults;
          const double time = simulate(algorithm, p, ranks, per_node, bytes, machine).last_ns;
          const double cost = algorithm.cost(estimate, size, p);
          best = std::min(best, time);
          if (cost < cheapest) {
            cheapest = cost;
            time_of_cheapest = time;
            name = algorithm.name;
          }
        }
        if (best == 0) continue;  // not one element per rank
        const double regret = time_of_cheapest / best;
        log_sum += std::log(regret);
        ++points;
        if (regret > worst) {
          worst = regret;
          where = std::string(info(collective).name) + ' ' + name + ", " + std::to_string(ranks) +
                  " ranks, " + std::to_string(per_node) + " per node, " + std::to_string(bytes) +
                  " bytes";
        }
      }
    }
  }
  const double mean = std::exp(log_sum / points);
  std::printf("model against simulation: %d points, mean %.3f times the best, worst %.2f (%s)\n",
              points, mean, worst, where.c_str());
  EXPECT_LT(mean, 1.15);
  EXPECT_LT(worst, 2.0) << where;
}

}  // namespace
}  // namespace od::coll
