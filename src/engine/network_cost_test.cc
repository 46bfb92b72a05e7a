// Checks how the network's cost is measured, between forked processes, and what becomes of it.
#include "engine/network_cost.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/test_nodes_host.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

// `nodes`: the node of each rank, named by its lowest one. All hear the same.
void measure(const std::vector<int>& nodes) {
  NodesHost::prepare();
  const auto rank = [&](int, const node::Exchange& exchange) {
    const host::HostTable host = NodesHost::table(exchange, false);
    NetworkCost cost;
    if (!measure_network(host, nodes, &cost)) return 1;
    std::vector<NetworkCost> all(nodes.size());
    if (exchange.allgather(&cost, all.data(), sizeof cost) != 0) return 2;
    for (const NetworkCost& other : all) {
      if (other.message_ns != cost.message_ns || other.byte_ns != cost.byte_ns) return 3;
    }
    // A ring through shared memory: no message within 10 ns, no byte in a microsecond.
    return cost.message_ns > 10 && cost.byte_ns >= 0 && cost.byte_ns < 1000 ? 0 : 4;
  };
  expect_success(node::run_forked_job(static_cast<int>(nodes.size()), rank, 60));
  NodesHost::finish();
}

TEST(NetworkCost, OfOneNodeThereIsNone) {
  host::HostTable without_messages;
  without_messages.world_size = 2;
  NetworkCost cost;
  EXPECT_TRUE(measure_network(without_messages, {0, 0}, &cost));
  EXPECT_EQ(cost.message_ns, 0);
}

TEST(NetworkCost, OneRankOnEachNode) { measure({0, 1}); }
TEST(NetworkCost, NodesOfSeveralRanks) { measure({0, 0, 2, 2, 4, 4, 4}); }
TEST(NetworkCost, NodesInTurns) { measure({0, 1, 2, 0, 1, 2}); }

TEST(NetworkCost, MakesALinkOfTheSameShape) {
  const coll::Link usual{1500, 300, 250, 0.085};
  const coll::Link slow = link_of({21'000, 8.5}, usual);
  EXPECT_DOUBLE_EQ(slow.latency_ns, 15'000);
  EXPECT_DOUBLE_EQ(slow.overhead_ns, 3'000);
  EXPECT_DOUBLE_EQ(slow.gap_ns, 2'500);
  EXPECT_DOUBLE_EQ(slow.byte_ns, 8.5);
}

TEST(NetworkCost, WhatIsNotKnownStaysAsItWas) {
  const coll::Link usual{1500, 300, 250, 0.085};
  EXPECT_EQ(link_of({}, usual), usual);
  EXPECT_GT(link_of({2'100, 0}, usual).byte_ns, 0);  // not for nothing
}

}  // namespace
}  // namespace od
