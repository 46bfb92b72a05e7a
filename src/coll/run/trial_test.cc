// Trials of ranks that measure differently come to the same verdict, and to the right one.
#include "coll/run/trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "coll/run/test_trials.h"

namespace od {
namespace {

using trials::kHost;
using trials::kLongNs;
using trials::kOwn;
using trials::Ranks;
using trials::Served;
using trials::Simulated;

TEST(Trial, FewCallsMeasureNothing) {
  const Served run = Ranks(3).run(Trial::kQuiet, [](int, int) { return 0; });
  EXPECT_EQ(run.calls[kOwn], static_cast<std::uint64_t>(Trial::kQuiet));
  EXPECT_EQ(run.additions, 0);
}

TEST(Trial, TheFirstCallsGoTheWayOfWhomTheOwnerNames) {
  Ranks ranks(3, 2, kHost);
  const Served run = ranks.run(Trial::kQuiet, [](int, int) { return 1000; });
  EXPECT_EQ(run.calls[kHost], static_cast<std::uint64_t>(Trial::kQuiet));
  // It is no verdict: without one the usual way goes on.
  ranks.run(Trial::kAgain - Trial::kQuiet - 1, [](int, int) { return 1000; });
  EXPECT_TRUE(ranks.judged());
  EXPECT_EQ(ranks.winner(), kOwn);
  EXPECT_EQ(ranks.ns_of(kOwn), 3000) << "of all ranks";
}

// A program goes on where the one before has stopped: with its verdict, which is looked at again
// when that one would have done so.
TEST(Trial, WhatAnEarlierRunHasFoundIsAVerdict) {
  constexpr int kThird = 2;
  Ranks ranks({.ways = 3, .first = kThird, .ranks = 2, .calls = 5000});
  EXPECT_TRUE(ranks.judged());
  EXPECT_EQ(ranks.winner(), kThird);
  const auto time = [](int, int way) -> std::uint64_t { return way == kThird ? 1000 : 1500; };
  const Served before = ranks.run(8192 - 5000, time);
  EXPECT_EQ(before.calls[kThird], 8192u - 5000);
  EXPECT_EQ(before.additions, 0);
  const Served after = ranks.run(200, time);
  EXPECT_GT(after.calls[kOwn], 0u);
  EXPECT_GT(after.calls[kHost], 0u);
  EXPECT_GT(after.additions, 0);
  EXPECT_EQ(ranks.winner(), kThird);
}

TEST(Trial, WhatAnEarlierRunHasFoundMayBeWrong) {
  Ranks ranks({.ways = 3, .first = kHost, .ranks = 2, .calls = 100});
  ranks.run(2 * Trial::kEarly - 100,
            [](int, int way) -> std::uint64_t { return way == kHost ? 2000 : 1000; });
  EXPECT_NE(ranks.winner(), kHost);
}

// Three calls that something disturbs, as the first ones of a way often are, do not decide.
TEST(Trial, ABadStartIsGivenAnotherLook) {
  Ranks ranks(1);
  int of_host = 0;
  ranks.run(200, [&](int, int way) -> std::uint64_t {
    if (way == kOwn) return 1000;
    return of_host++ < Trial::kBlock ? 1400 : 700;
  });
  EXPECT_EQ(ranks.winner(), kHost);
}

// What few calls have told may be wrong; nobody waits a thousand calls for another look.
TEST(Trial, AnEarlyVerdictIsLookedAtAgain) {
  Ranks ranks(2);
  const auto of_host = [](std::uint64_t ns) {
    return [ns](int, int way) { return way == kOwn ? 1000 : ns; };
  };
  ranks.run(100, of_host(800));
  EXPECT_EQ(ranks.winner(), kHost);
  ranks.run(2 * Trial::kEarly - 100, of_host(1300));
  EXPECT_EQ(ranks.winner(), kOwn);
}

TEST(Trial, AClearCaseTakesTwoBlocks) {
  Ranks ranks(2);
  const Served host = ranks.run(100, [](int, int way) { return way == kOwn ? 2000 : 1000; });
  EXPECT_EQ(ranks.winner(), kHost);
  EXPECT_EQ(host.additions, 1);
  EXPECT_EQ(host.calls[kOwn], static_cast<std::uint64_t>(Trial::kQuiet + Trial::kBlock));
  Ranks others(2);
  const Served own = others.run(100, [](int, int way) { return way == kOwn ? 1000 : 2000; });
  EXPECT_EQ(others.winner(), kOwn);
  EXPECT_EQ(own.calls[kHost], static_cast<std::uint64_t>(Trial::kBlock));
}

TEST(Trial, WhatOneRankGainsIsNotWorthWhatTheOthersLose) {
  Ranks ranks(3);
  // With the host the root leaves at once, and the others wait for longer than it gains.
  ranks.run(100, [](int rank, int way) -> std::uint64_t {
    if (way == kOwn) return 1000;
    return rank == 0 ? 10 : 1800;
  });
  EXPECT_EQ(ranks.winner(), kOwn);
  EXPECT_TRUE(ranks.judged());
}

// In how many of 200 programs the rival serves after the first verdict.
int won_by(Trial::Rival rival, double noise, double gain) {
  int won = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    Ranks ranks({.rival = rival});
    Simulated simulated({10000, 10000 * (1 - gain)}, noise, 0, seed);
    ranks.run(50, [&](int, int way) { return simulated(way); });
    won += ranks.winner() == Trial::kRival ? 1 : 0;
  }
  return won;
}

int won_by_host(double noise, double gain) { return won_by(Trial::Rival::host, noise, gain); }

TEST(Trial, AGainBelowThreePercentIsNoReasonToChange) {
  EXPECT_EQ(won_by_host(0.002, 0.1), 200);
  EXPECT_EQ(won_by_host(0.002, 0.02), 0);
}

TEST(Trial, WhoeverComesFirstHasToGainATenth) {
  EXPECT_EQ(won_by(Trial::Rival::first_arrival, 0.002, 0.12), 200);
  EXPECT_EQ(won_by(Trial::Rival::first_arrival, 0.002, 0.08), 0);
}

// Of two ways that noise hides the usual one has no right to stay.
TEST(Trial, NoiseKeepsNobodyWhoIsSlower) {
  EXPECT_GT(won_by_host(0.3, 0.3), 170);
  EXPECT_GT(won_by_host(0.3, 0.2), 140);
  EXPECT_LT(won_by_host(0.3, -0.3), 30);
  EXPECT_LT(won_by_host(0.3, -0.5), 10);
}

TEST(Trial, AWrongStartIsLeftWithinTwoHundredCalls) {
  // The usual choice takes two to five times as long as the best, which is in any place.
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::vector<double> cost = {50000, 22000, 14000, 18000, 10000, 40000};
    std::rotate(cost.begin() + 1, cost.begin() + 1 + seed % 5, cost.end());
    Simulated simulated(cost, 0.02, 0.01, seed);
    Ranks ranks(1, Trial::kMostWays);
    ranks.run(200, [&](int, int way) { return simulated(way); });
    EXPECT_LE(cost[static_cast<std::size_t>(ranks.winner())], 10000 * 1.05) << "seed " << seed;
  }
}

TEST(Trial, NoiseDoesNotMakeItFlap) {
  int changes = 0, worse = 0;
  double cost = 0;
  constexpr int kPrograms = 50;
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
    // Near each other, so that noise of ten percent and more hides which one is best.
    Simulated simulated({10000, 10200, 10500, 11000}, seed % 2 == 0 ? 0.1 : 0.3, 0.02, seed);
    Ranks ranks(1, 4);
    const Served run = ranks.run(
        100'000, [&](int, int way) { return simulated(way); }, simulated.cost);
    EXPECT_LE(run.worse, 2) << "seed " << seed;
    changes += run.changes;
    worse += run.worse;
    cost += simulated.cost[static_cast<std::size_t>(ranks.winner())] / 10000;
  }
  // Of about nine measurements in each program. Who is a few percent slower may win the first one.
  EXPECT_LT(changes, 50);
  EXPECT_LT(worse, 30);
  EXPECT_LT(cost / kPrograms, 1.02);
}

TEST(Trial, WhatDisturbsAWholeBlockUndoesNoVerdict) {
  Ranks ranks(1, 3);
  std::uint64_t call = 0;
  // All calls of the first block of later measurements, the usual way's, are ten times as long.
  const Served run = ranks.run(5000, [&](int, int way) -> std::uint64_t {
    const std::uint64_t at = call++;
    const bool disturbed = at >= Trial::kAgain && (at & (at - 1)) < Trial::kBlock &&
                           (at & ~std::uint64_t{3}) == std::uint64_t{1}
                                                           << (63 - __builtin_clzll(at));
    return (disturbed ? 10 : 1) * (way == 0 ? kLongNs : kLongNs * 6 / 5);
  });
  EXPECT_EQ(ranks.winner(), 0);
  EXPECT_EQ(run.changes, 0);
  EXPECT_GT(run.additions, 3) << "it was disturbed";
}

TEST(Trial, MeasuresAgainAndFollowsTheProgram) {
  Ranks ranks(2);
  ranks.run(100, [](int, int way) { return way == kOwn ? 1000 : 3000; });
  EXPECT_EQ(ranks.winner(), kOwn);
  ranks.run(2 * Trial::kAgain, [](int, int way) { return way == kOwn ? 3000 : 1000; });
  EXPECT_EQ(ranks.winner(), kHost);
  const Served later = ranks.run(8 * Trial::kAgain, [](int, int) { return 1000; });
  EXPECT_EQ(ranks.winner(), kHost) << "nothing is gained by going back";
  EXPECT_GT(later.additions, 0);
}

TEST(Trial, APatternThatChangesHalfWayIsFollowed) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Simulated simulated({10000, 15000, 30000, 12000}, 0.02, 0.01, seed);
    Ranks ranks(1, 4);
    ranks.run(30'000, [&](int, int way) { return simulated(way); });
    EXPECT_EQ(ranks.winner(), 0);
    // What was worst is best now, which calls 32,768 and 65,536 tell.
    simulated.cost = {20000, 15000, 8000, 30000};
    ranks.run(40'000, [&](int, int way) { return simulated(way); });
    EXPECT_EQ(ranks.winner(), 2) << "seed " << seed;
  }
}

// What a measurement of calls of some length costs, however slow the others are; what the first one
// takes is left out.
void expect_cheap(std::uint64_t ns, double allowed_calls) {
  for (const double slow : {1.05, 1.5, 4.0, 50.0}) {
    Ranks ranks(1, Trial::kMostWays);
    const auto time = [&](int, int way) {
      return way == 0 ? ns : static_cast<std::uint64_t>(static_cast<double>(ns) * slow);
    };
    ranks.run(Trial::kAgain, time);
    EXPECT_EQ(ranks.winner(), 0);
    std::uint64_t calls = Trial::kAgain;
    double sum = 0;
    const double allowed = allowed_calls * static_cast<double>(ns);
    for (const std::uint64_t more : {1024, 2048, 28672, 98304}) {
      sum += static_cast<double>(ranks.run(more, time).sum);
      calls += more;
      const auto least = static_cast<double>((calls - Trial::kAgain) * ns);
      EXPECT_LE(sum, 1.021 * least + allowed) << slow << " times, " << calls << " calls";
    }
    EXPECT_LE(sum, 1.01 * static_cast<double>(calls * ns) + allowed) << slow;
  }
}

TEST(Trial, MeasuringTakesAtMostOnePercent) { expect_cheap(kLongNs, 0); }

TEST(Trial, MeasuringShortCallsTakesTheAllowanceBeyondIt) {
  expect_cheap(1000, Trial::kAllowance * Trial::kMostGroup);
}

// A library whose calls have stood aside is slow at first: its links have rested, and each root is
// another one. In blocks of four calls it seems two times as slow as it is.
TEST(Trial, WhoIsSlowAtFirstIsFoundWhereCallsAreShort) {
  for (const std::uint64_t ns : {std::uint64_t{12'000}, std::uint64_t{20'000}}) {
    for (const int roots : {4, 8}) {
      Ranks ranks(4);
      int after_own = 0;
      const auto time = [&](int rank, int way) -> std::uint64_t {
        if (rank == 0) after_own = way == kOwn ? 0 : after_own + 1;
        if (way == kOwn) return ns;
        return after_own <= roots ? 2 * ns : ns * 7 / 10;
      };
      ranks.run(Trial::kAgain, time);
      EXPECT_EQ(ranks.winner(), kOwn);
      ranks.run(Trial::kAgain, time);
      EXPECT_EQ(ranks.winner(), kHost) << ns << " ns, " << roots << " slow calls";
    }
  }
}

TEST(Trial, LongCallsAreSamplesEach) {
  Ranks ranks(2);
  const auto time = [](int, int way) { return way == kOwn ? kLongNs : kLongNs * 5 / 4; };
  ranks.run(Trial::kAgain, time);
  const Served run = ranks.run(Trial::kAgain, time);
  // At call 1,024 one block of the first stage and two of the second.
  EXPECT_EQ(run.calls[kHost], static_cast<std::uint64_t>(3 * Trial::kBlock));
}

// Calls of milliseconds, of which a program makes perhaps a hundred.
TEST(Trial, CallsExpectedToBeLongAreMeasuredByFew) {
  constexpr int kWays = 4;
  for (const Trial::Ends ends : {Trial::Ends::alike, Trial::Ends::apart}) {
    const bool apart = ends == Trial::Ends::apart;
    const auto measured_calls = [&](const std::array<std::uint64_t, kWays>& ms) {
      Ranks ranks({.ways = kWays, .ranks = 2, .ends = ends, .long_calls = true});
      std::uint64_t calls = 0;
      while (!ranks.judged() && calls < Trial::kEarly) {
        ranks.run(1, [&](int, int way) { return ms[static_cast<std::size_t>(way)] * 1'000'000; });
        ++calls;
      }
      EXPECT_EQ(ranks.winner(), kHost);
      return calls - Trial::kQuiet;
    };
    constexpr std::uint64_t kStage = kWays * Trial::kFewCalls;
    // One sample alone may have been disturbed and decides nothing.
    EXPECT_EQ(measured_calls({13, 10, 14, 15}), kStage + (apart ? 2 * 2 * Trial::kFewCalls : 0));
    EXPECT_EQ(measured_calls({11, 10, 20, 20}), kStage + 2 * 2 * Trial::kFewCalls);
  }
}

}  // namespace
}  // namespace od
