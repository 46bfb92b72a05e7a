// Trials of calls that a rank may leave before the others have what they need.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "coll/run/test_trials.h"
#include "coll/run/trial.h"

namespace od {
namespace {

using trials::kHost;
using trials::kLongNs;
using trials::kOwn;
using trials::Ranks;
using trials::Served;
using trials::Simulated;

Ranks apart(int count, int ways = 2, int first = kOwn) {
  return Ranks(count, ways, first, Trial::Ends::apart);
}

// One way's calls only begin the work; the next way's calls find it undone, or the wait does.
struct RunsAhead {
  std::uint64_t operator()(int rank, int way) {
    std::uint64_t& left = undone[static_cast<std::size_t>(rank)];
    if (way == kOwn && left < 800'000) {
      left += 90'000;
      return 10'000;
    }
    const std::uint64_t taken = left + 70'000;
    left = 0;
    return taken;
  }
  std::uint64_t wait(int rank) {
    const std::uint64_t left = undone[static_cast<std::size_t>(rank)];
    undone[static_cast<std::size_t>(rank)] = 0;
    return left + 20'000;
  }
  std::vector<std::uint64_t> undone = {0, 0};
};

TEST(TrialApart, WhatAWayLeavesUndoneIsItsOwn) {
  RunsAhead program;
  Ranks misled(2);
  misled.run(200, [&](int rank, int way) { return program(rank, way); });
  EXPECT_EQ(misled.winner(), kOwn) << "without the wait the other way pays";
  program = {};
  Ranks ranks = apart(2);
  ranks.wait = [&](int rank) { return program.wait(rank); };
  ranks.run(200, [&](int rank, int way) { return program(rank, way); });
  EXPECT_EQ(ranks.winner(), kHost);
}

// What the first wait needs, and what the calls before have left, belongs to no sample.
TEST(TrialApart, TheFirstWaitCountsForNobody) {
  Ranks ranks = apart(2, 2, kHost);
  bool first = true;
  ranks.wait = [&](int rank) {
    const std::uint64_t ns = first ? 100'000'000 : 10'000;
    if (rank == 1) first = false;
    return ns;
  };
  const Served run = ranks.run(200, [](int, int way) { return way == kOwn ? 60'000 : 50'000; });
  EXPECT_FALSE(first);
  EXPECT_EQ(ranks.winner(), kHost);
  // One before each measurement. The first has two blocks, then four; the other one two, which show
  // that nothing has changed.
  EXPECT_EQ(run.waits, (1 + 2 + 4) + (1 + 2));
}

// Calls of one way are alternately short and long, as where one waits for two.
TEST(TrialApart, TheMeanCounts) {
  Ranks ranks = apart(1);
  std::uint64_t call = 0;
  ranks.run(200, [&](int, int way) -> std::uint64_t {
    if (way == kOwn) return ++call % 3 == 0 ? 150'000 : 10'000;
    return 50'000;
  });
  EXPECT_EQ(ranks.winner(), kHost);
}

// One block of the host's is disturbed; it is looked at again.
TEST(TrialApart, OneDisturbedBlockDoesNotEndIt) {
  for (int disturbed = 0; disturbed < 2; ++disturbed) {
    Ranks ranks = apart(1);
    int blocks = 0, before = kHost;
    ranks.run(200, [&](int, int way) -> std::uint64_t {
      if (way == kHost && before != kHost) ++blocks;
      before = way;
      if (way == kOwn) return 100'000;
      return blocks == disturbed + 1 ? 1'000'000 : 70'000;
    });
    EXPECT_EQ(ranks.winner(), kHost) << "block " << disturbed;
  }
}

TEST(TrialApart, AWrongStartIsLeftWithinTwoHundredCalls) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::vector<double> cost = {50000, 22000, 14000, 18000, 10000, 40000};
    std::rotate(cost.begin() + 1, cost.begin() + 1 + seed % 5, cost.end());
    Simulated simulated(cost, 0.02, 0, seed);
    Ranks ranks = apart(1, Trial::kMostWays);
    ranks.run(200, [&](int, int way) { return simulated(way); });
    EXPECT_LE(cost[static_cast<std::size_t>(ranks.winner())], 10000 * 1.05) << "seed " << seed;
  }
}

TEST(TrialApart, NoiseDoesNotMakeItFlap) {
  int changes = 0, worse = 0;
  double cost = 0;
  constexpr int kPrograms = 50;
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
    Simulated simulated({10000, 10200, 10500, 11000}, seed % 2 == 0 ? 0.1 : 0.3, 0.02, seed);
    Ranks ranks = apart(1, 4);
    const Served run = ranks.run(
        100'000, [&](int, int way) { return simulated(way); }, simulated.cost);
    changes += run.changes;
    worse += run.worse;
    cost += simulated.cost[static_cast<std::size_t>(ranks.winner())] / 10000;
  }
  EXPECT_LT(changes, 80);
  EXPECT_LT(worse, 40);
  EXPECT_LT(cost / kPrograms, 1.03);
}

// What a way has won in the second stage by far is not lost by one bad moment in the third.
TEST(TrialApart, AllLooksOfAMeasurementCount) {
  constexpr std::uint64_t kNs = 20'000;
  Ranks ranks = apart(1);
  ranks.run(Trial::kAgain, [](int, int way) { return way == kOwn ? kNs : kNs * 3 / 2; });
  EXPECT_EQ(ranks.winner(), kOwn);
  // A block of the host's, then four.
  constexpr int kLongBlock = Trial::kMostMeasured * Trial::kMostGroup * 4 / 3;
  int of_host = 0;
  ranks.run(Trial::kAgain, [&](int, int way) -> std::uint64_t {
    if (way == kOwn) return kNs;
    const int block = of_host++ / kLongBlock;
    return block == 0 ? kNs * 9 / 10 : (block < 3 ? kNs / 2 : kNs * 51 / 50);
  });
  EXPECT_GE(of_host, 5 * kLongBlock);
  EXPECT_EQ(ranks.winner(), kHost);
}

TEST(TrialApart, MeasuresAgainAndFollowsTheProgram) {
  Ranks ranks = apart(2);
  ranks.run(200, [](int, int way) { return way == kOwn ? 1000 : 3000; });
  EXPECT_EQ(ranks.winner(), kOwn);
  ranks.run(2 * Trial::kAgain, [](int, int way) { return way == kOwn ? 3000 : 1000; });
  EXPECT_EQ(ranks.winner(), kHost);
}

TEST(TrialApart, LongCallsAreMeasuredRarely) {
  Ranks ranks = apart(2);
  const auto time = [](int, int way) { return way == kOwn ? kLongNs : kLongNs * 5 / 4; };
  const Served run = ranks.run(100, time);
  EXPECT_TRUE(ranks.judged());
  EXPECT_EQ(run.calls[kHost], static_cast<std::uint64_t>(3 * (1 + Trial::kFirstAwaited)));
}

}  // namespace
}  // namespace od
