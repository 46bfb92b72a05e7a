// Tests in-network computing as a whole with invented time (test_network.h).
#include "switch/compute.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "switch/test_network.h"

namespace od::fabric {
namespace {

class Tree : public ::testing::TestWithParam<std::pair<std::size_t, std::size_t>> {};

TEST_P(Tree, SumsAreRightForEveryOperationAndType) {
  const auto [leaders, tors] = GetParam();
  for (const bool reliable : {false, true}) {
    Network network({.leaders = leaders, .tors = tors, .reliable = reliable});
    network.add_group(7, 99);
    ASSERT_TRUE(network.join());
    for (int i = 0; i < 400; ++i) {
      ASSERT_EQ(run_job(network, leaders, tors, 50 * kUs), End::by_switch) << i;
    }
    EXPECT_EQ(network.leader(0).counters().repeated, 0u);
    EXPECT_EQ(network.compute().slots_in_use(), 0u);
    for (std::size_t i = 0; i < leaders; ++i) network.leader(i).leave();
    network.run_until([] { return false; }, 10 * kMs);
    for (std::size_t i = 0; i < (tors > 1 ? tors + 1 : 1); ++i) {
      EXPECT_EQ(network.compute(i).groups(), 0u) << "switch " << i;
      EXPECT_EQ(network.compute(i).memory_bytes(), 0u);
    }
    EXPECT_EQ(network.pool().in_use(), 0u);
  }
}

TEST_P(Tree, ARestartedSwitchLeavesTheOperationToTheHostOfAll) {
  const auto [leaders, tors] = GetParam();
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Network network({.leaders = leaders, .tors = tors}, {.loss = 0.02}, seed);
    network.add_group(7, 99);
    ASSERT_TRUE(network.join());
    ASSERT_EQ(run_job(network, leaders, tors, 0), End::by_switch);
    // At any moment of the operation.
    const End end = run_job(network, leaders, tors, 0, 0, [&] {
      const std::uint64_t until = network.now_ns_ + network.random()() % (20 * kUs);
      network.run_until([&] { return network.next_ns() > until; });
      network.restart_switches();
    });
    ASSERT_TRUE(end == End::by_switch || end == End::by_host)
        << "seed " << seed << ": " << static_cast<int>(end);
    // What comes after has one end as well, and after that it is the host's for all.
    const End next = run_job(network, leaders, tors, 0);
    ASSERT_EQ(next, End::by_host) << seed;
    ASSERT_EQ(run_job(network, leaders, tors, 0), End::by_host);
  }
}

TEST_P(Tree, AnUnreachableSwitchIsSettledAmongTheLeaders) {
  const auto [leaders, tors] = GetParam();
  int with_result = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    // Losses, so that some leaders have the result when the switch dies, and others do not.
    Network network({.leaders = leaders, .tors = tors}, {.loss = 0.1}, seed);
    network.add_group(7, 99);
    ASSERT_TRUE(network.join());
    ASSERT_EQ(run_job(network, leaders, tors, 0), End::by_switch);
    // The computing part dies in mid-operation, forwarding goes on: packets are swallowed.
    const End end = run_job(network, leaders, tors, 0, 0, [&] {
      const std::uint64_t until = network.now_ns_ + network.random()() % (3 * kMs);
      network.run_until([&] { return network.next_ns() > until; });
      network.stop_computing();
    });
    ASSERT_TRUE(end == End::by_switch || end == End::by_host)
        << seed << " " << static_cast<int>(end);
    with_result += network.settled_with_result() > 0 ? 1 : 0;
  }
  EXPECT_GT(with_result, 0);  // else the hardest case was not met
}

INSTANTIATE_TEST_SUITE_P(Shapes, Tree,
                         ::testing::Values(std::pair{2, 1}, std::pair{4, 1}, std::pair{9, 3},
                                           std::pair{5, 2}));

// Groups of leaders at several ToRs, below three spines in their program or each in its own.
class Spines : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr std::size_t kTors = 3;
  static constexpr std::size_t kSpines = 3;

  Spines() {
    for (std::size_t i = 0; i < 7; ++i) network_.announce(i);
    network_.run_until([] { return false; }, kMs);
  }
  // Returns the spine that the new group has taken.
  std::size_t join(std::uint32_t id) {
    std::vector<std::size_t> before;
    for (std::size_t i = 0; i < kSpines; ++i) before.push_back(groups_at(i));
    const std::size_t group =
        network_.add_group(id, 1000 + id, static_cast<std::uint16_t>(5000 + 10 * id));
    EXPECT_TRUE(network_.join(group)) << id;
    std::size_t taken = kSpines;
    for (std::size_t i = 0; i < kSpines; ++i) {
      if (groups_at(i) == before[i]) continue;
      EXPECT_EQ(groups_at(i), before[i] + 1);
      EXPECT_EQ(taken, kSpines) << "two spines have group " << id;
      taken = i;
    }
    return taken;
  }
  std::size_t groups_at(std::size_t spine) { return network_.compute(kTors + spine).groups(); }

  Network network_{{.leaders = 7, .tors = kTors, .spines = kSpines, .apart = GetParam()}};
};

TEST_P(Spines, GroupsTakeTheOneWithTheLeastLoad) {
  constexpr std::uint32_t kGroups = 12;
  for (std::uint32_t id = 0; id < kGroups; ++id) ASSERT_LT(join(id), kSpines);
  for (std::size_t i = 0; i < kSpines; ++i) EXPECT_EQ(groups_at(i), kGroups / kSpines) << i;
  for (std::uint32_t id = 0; id < kGroups; ++id) {
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(run_job(network_, 7, kTors, 50 * kUs, id), End::by_switch) << id;
    }
    for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(network_.leader(i, id).counters().repeated, 0u);
  }
  // Those of the first spine end: it is the next one's.
  for (std::uint32_t id = 0; id < kGroups; ++id) {
    const std::size_t before = groups_at(0);
    for (std::size_t i = 0; i < 7; ++i) network_.leader(i, id).leave();
    network_.run_until([] { return false; }, kMs);
    if (groups_at(0) < before) break;
  }
  std::size_t least = 0;
  for (std::size_t i = 1; i < kSpines; ++i) least = groups_at(i) < groups_at(least) ? i : least;
  EXPECT_EQ(join(100), least);
}

TEST_P(Spines, OneThatIsFullIsNotTaken) {
  network_.restart_switch(kTors, 0);
  network_.restart_switch(kTors + 2, 1);
  for (std::uint32_t id = 0; id < 5; ++id) ASSERT_NE(join(id), 0u);
  EXPECT_EQ(groups_at(1), 4u);
  EXPECT_EQ(groups_at(2), 1u);
}

TEST_P(Spines, OneThatIsRestartedTakesItsOwnGroupsAlone) {
  std::vector<std::size_t> spine_of;
  for (std::uint32_t id = 0; id < 6; ++id) spine_of.push_back(join(id));
  network_.restart_switch(kTors + 1);
  for (std::uint32_t id = 0; id < 6; ++id) {
    EXPECT_EQ(run_job(network_, 7, kTors, 0, id),
              spine_of[id] == 1 ? End::by_host : End::by_switch);
  }
}

// Queries by one of them get lost: the others serve.
TEST_P(Spines, WhatIsLostByOneComesByAnother) {
  network_.restart_switch(kTors + 2, 0);
  const std::uint32_t first = network_.compute(kTors).settings().address;
  network_.lost_ = [&](std::size_t leader, const Packet& packet) {
    return leader == 0 && is(packet, innetwork::Kind::query) && packet.control.spine == first;
  };
  for (std::uint32_t id = 0; id < 8; ++id) ASSERT_EQ(join(id), 1u);
  network_.lost_ = {};
  for (std::uint32_t id = 0; id < 8; ++id) {
    ASSERT_EQ(run_job(network_, 7, kTors, 0, id), End::by_switch) << id;
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, Spines, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Several" : "One");
});

TEST(Compute, ALateLeaderIsWaitedFor) {
  Network network({.leaders = 4});
  network.add_group(7, 99);
  ASSERT_TRUE(network.join());
  // Ten times as late as a silent switch would be given up.
  ASSERT_EQ(run_job(network, 4, 1, 2000 * kMs), End::by_switch);
  EXPECT_GT(network.leader(0).counters().repeated + network.leader(1).counters().repeated, 0u);
}

// A leader that could not look for longer than a silent switch is waited for has to ask it before
// it takes it for silent: the others were just late.
TEST(Compute, ALeaderThatLooksSeldomDoesNotGiveUpTheSwitch) {
  int late = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Network network({.leaders = 4}, {}, seed);
    network.add_group(7, 99);
    ASSERT_TRUE(network.join());
    network.sleep(0);
    const End end = run_job(network, 4, 1, 2000 * kMs, 0, [&] { network.wake(0); });
    ASSERT_EQ(end, End::by_switch) << seed;
    ASSERT_EQ(network.settled_with_result(), 0u) << seed;
    ASSERT_FALSE(network.leader(0).abandoned()) << seed;
    late += network.leader(0).counters().repeated > 0 ? 1 : 0;
    EXPECT_EQ(run_job(network, 4, 1, 0), End::by_switch);
  }
  EXPECT_GT(late, 0);  // else none had to ask again
}

// It has asked often enough, but none of it came through, and then it did not look: what it does
// not know by then may be long past.
TEST(Compute, ALeaderThatLooksAgainAsksAgain) {
  int asked = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Network network({.leaders = 4}, {}, seed);
    network.add_group(7, 99);
    ASSERT_TRUE(network.join());
    const End end = run_job(network, 4, 1, 0, 0, [&] {
      network.lost_ = [](std::size_t leader, const Packet&) { return leader == 0; };
      network.run_until([] { return false; }, 100 * kMs);
      network.sleep(0);
      network.run_until([] { return false; }, 400 * kMs);
      network.lost_ = {};
      network.wake(0);
    });
    ASSERT_EQ(end, End::by_switch) << seed;
    ASSERT_EQ(network.settled_with_result(), 0u) << seed;
    asked += network.leader(0).counters().repeated > Leader::kLeastTries ? 1 : 0;
    EXPECT_EQ(run_job(network, 4, 1, 0), End::by_switch);
  }
  EXPECT_GT(asked, 0);
}

// However seldom it looks, it does not ask for ever.
TEST(Compute, ALeaderThatLooksSeldomGivesUpASwitchThatIsGone) {
  Network network({.leaders = 4});
  network.add_group(7, 99);
  ASSERT_TRUE(network.join());
  network.stop_computing();
  const End end = run_job(network, 4, 1, 0, 0, [&] {
    for (int looks = 0; looks < 20 && !network.leader(0).abandoned(); ++looks) {
      for (std::size_t i = 0; i < 4; ++i) network.sleep(i);
      network.run_until([] { return false; }, kMs);
      network.now_ns_ += 1500 * kMs;
      for (std::size_t i = 0; i < 4; ++i) {
        network.wake(i);
        network.leader(i).advance(network.now_ns_);
      }
    }
    EXPECT_TRUE(network.leader(0).abandoned());
  });
  EXPECT_EQ(end, End::by_host);
}

// One leader has got its result from another one, and a third has heard nothing of it: it must not
// wait at the switch, which lives, for values that do not come.
TEST(Compute, WhoHasNotHeardOfASettlementIsToldInTheNextOperation) {
  // With room for every operation in one packet.
  Network network({.leaders = 3, .payload_bytes = 1024});
  network.add_group(7, 99);
  ASSERT_TRUE(network.join());
  ASSERT_EQ(run_job(network, 3, 1, 0), End::by_switch);
  network.lost_ = [](std::size_t leader, const Packet& packet) {
    return (leader == 2 &&
            (is(packet, innetwork::Kind::result) || is(packet, innetwork::Kind::refuse))) ||
           (leader == 1 && is(packet, innetwork::Kind::ask));
  };
  ASSERT_EQ(run_job(network, 3, 1, 0), End::by_switch);
  ASSERT_EQ(network.settled_with_result(), 1u);
  ASSERT_FALSE(network.leader(1).abandoned());
  network.lost_ = {};
  EXPECT_EQ(run_job(network, 3, 1, 0), End::by_host);
  EXPECT_EQ(run_job(network, 3, 1, 0), End::by_host);
}

TEST(Compute, WithoutASwitchThatComputesJoiningFailsInTime) {
  Network network({.leaders = 4, .compute = false});
  network.add_group(7, 99);
  const std::uint64_t begin_ns = network.now_ns_;
  EXPECT_FALSE(network.join());
  EXPECT_LE(network.now_ns_ - begin_ns, 600 * kMs);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(network.leader(i).state(), Leader::State::failed);
    EXPECT_EQ(network.leader(i).cause(), innetwork::Cause::cannot_compute);
  }
}

TEST(Compute, ExhaustedSwitchesRefuseGroupsAndKeepTheOthers) {
  Network network({.leaders = 3});
  network.set_most_groups(1);
  network.add_group(7, 99);
  network.add_group(8, 100, 6000);
  ASSERT_TRUE(network.join(0));
  EXPECT_FALSE(network.join(1));
  EXPECT_EQ(network.leader(1, 1).cause(), innetwork::Cause::no_slots);
  ASSERT_EQ(run_job(network, 3, 1, 0), End::by_switch);
}

TEST(Compute, JobsWithTheSameIdDoNotSeeEachOther) {
  Network network({.leaders = 3, .tors = 1}, {.loss = 0.02, .duplication = 0.05});
  network.add_group(7, 99);
  network.add_group(7, 100, 6000);
  ASSERT_TRUE(network.join(0));
  ASSERT_TRUE(network.join(1));
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(run_job(network, 3, 1, 50 * kUs, 0), End::by_switch);
    ASSERT_EQ(run_job(network, 3, 1, 50 * kUs, 1), End::by_switch);
  }
  EXPECT_EQ(network.compute().groups(), 2u);
}

TEST(Compute, StrangersAndReplaysChangeNothing) {
  Network network({.leaders = 3});
  network.add_group(7, 99);
  ASSERT_TRUE(network.join());
  ASSERT_EQ(run_job(network, 3, 1, 0), End::by_switch);
  const std::vector<std::uint8_t> old = network.last_data(1);
  for (int i = 0; i < 50; ++i) {
    const End end = run_job(network, 3, 1, 0, 0, [&] {
      for (int k = 0; k < 20; ++k) {
        network.inject(2, old);  // an old packet, from another port
        Packet forged;
        forged.common.kind = static_cast<std::uint8_t>(innetwork::Kind::data);
        forged.common.group = 7;
        // Without the key, or with it but from a wrong address.
        forged.common.key = k % 2 == 0 ? 98 : 99;
        forged.common.member = 1;
        forged.common.sequence =
            network.compute().counters().combined != 0 ? static_cast<std::uint32_t>(k + i) : 0;
        network.inject(2, network.frame_of(2, {0x0a4d0003, 5000}, {0x0a4d0001, 4791}, forged));
      }
    });
    ASSERT_EQ(end, End::by_switch) << i;
  }
  EXPECT_GT(network.compute().counters().strangers, 500u);
}

TEST(Compute, GroupsOfDeadJobsAreFreedByTime) {
  Network network({.leaders = 3});
  network.add_group(7, 99);
  ASSERT_TRUE(network.join());
  ASSERT_EQ(run_job(network, 3, 1, 0), End::by_switch);
  EXPECT_EQ(network.compute().groups(), 1u);
  network.run_until([] { return false; }, 70'000 * kMs);
  EXPECT_EQ(network.compute().groups(), 0u);
  EXPECT_EQ(network.compute().counters().expired, 1u);
  // The leaders live after all: they learn it at once, and all use the host.
  EXPECT_EQ(run_job(network, 3, 1, 0), End::by_host);
}

TEST(Compute, WhatIsWrongIsCountedAndDropped) {
  Network network({.leaders = 3});
  network.add_group(7, 99);
  ASSERT_TRUE(network.join());
  Packet packet;
  packet.common.kind = static_cast<std::uint8_t>(innetwork::Kind::data);
  std::vector<std::uint8_t> frame =
      network.frame_of(0, {0x0a4d0001, 5000}, {0x0a4d0002, 4791}, packet);
  frame.back() ^= 1;
  network.inject(0, frame);
  EXPECT_EQ(network.compute().counters().bad_checks, 1u);
  frame = network.frame_of(0, {0x0a4d0001, 5000}, {0x0a4d0002, 4791}, packet);
  frame[kHead + 20 + 2] = 9;
  innetwork::seal({frame.data() + kHead, frame.size() - kHead}, {0x0a4d0001, 5000},
                  {0x0a4d0002, 4791});
  network.inject(0, frame);
  EXPECT_EQ(network.compute().counters().bad_versions, 1u);
}

TEST(Combine, ShortFloatsRoundLikeTheirTypes) {
  const auto sum = [](Type type, std::uint16_t left, std::uint16_t right) {
    std::uint16_t out = 0;
    const std::uint8_t* sources[] = {reinterpret_cast<const std::uint8_t*>(&left),
                                     reinterpret_cast<const std::uint8_t*>(&right)};
    EXPECT_TRUE(combine(static_cast<std::uint8_t>(Operation::sum), static_cast<std::uint8_t>(type),
                        sources, 1, reinterpret_cast<std::uint8_t*>(&out)));
    return out;
  };
  EXPECT_EQ(sum(Type::float16, 0x3c00, 0x4000), 0x4200);  // 1 + 2 = 3
  EXPECT_EQ(sum(Type::float16, 0x6800, 0x3c00), 0x6800);  // 2048 + 1: ties to even
  EXPECT_EQ(sum(Type::float16, 0x6801, 0x3c00), 0x6802);  // 2050 + 1: ties to even, upwards
  EXPECT_EQ(sum(Type::float16, 0x7bff, 0x7bff), 0x7c00);  // overflow
  EXPECT_EQ(sum(Type::float16, 0x0001, 0x0001), 0x0002);  // subnormals
  EXPECT_EQ(sum(Type::float16, 0x03ff, 0x0001), 0x0400);  // and out of them
  EXPECT_EQ(sum(Type::float16, 0x8000, 0x8000), 0x8000);  // -0
  EXPECT_EQ(sum(Type::float16, 0x7c00, 0xfc00) & 0x7e00, 0x7e00);  // infinity - infinity
  EXPECT_EQ(sum(Type::bfloat16, 0x3f80, 0x4000), 0x4040);          // 1 + 2 = 3
  EXPECT_EQ(sum(Type::bfloat16, 0x4380, 0x3f80), 0x4380);          // 256 + 1: ties to even
  EXPECT_EQ(sum(Type::bfloat16, 0x7f80, 0xff80) & 0x7fc0, 0x7fc0);
}

}  // namespace
}  // namespace od::fabric
