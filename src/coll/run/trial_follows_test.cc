// Trials whose samples include what calls do to later ones: on all ranks alike, one at a time, and
// what is quick itself but makes the next call slow loses.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "coll/run/communicator.h"
#include "coll/run/trial.h"

namespace od {
namespace {

constexpr int kOwn = Trial::kOwn;
constexpr int kSwitch = Trial::kRival;
constexpr Trial::Terms kSwitched = {.rival = Trial::Rival::in_network, .quiet = 0};

// A program's calls on a communicator where a switch competes, as the engine makes them
// (engine/collectives.cc): each kind of calls may have a contest.
class Program {
 public:
  // What a call of the kind takes on a rank, by the ways of all kinds' last calls.
  using Time = std::function<std::uint64_t(int rank, int kind, const std::vector<int>& ways)>;

  Program(int ranks, int kinds, int contested)
      : last_(static_cast<std::size_t>(kinds), kOwn), contested_(contested) {
    for (int rank = 0; rank < ranks; ++rank) {
      Rank& made = ranks_.emplace_back();
      for (int kind = 0; kind < contested; ++kind) {
        made.contests.push_back(std::make_unique<Contest>(kSwitched));
      }
    }
  }

  // Returns the way.
  int call(int kind, const Time& time) {
    if (kind >= contested_) {
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        const std::uint64_t ns = time(static_cast<int>(rank), kind, last_);
        if (ranks_[rank].samples.open()) ranks_[rank].samples.add(ns);
      }
      return kOwn;
    }
    const auto number = static_cast<std::size_t>(kind);
    std::size_t due = 0;
    for (Rank& rank : ranks_) {
      rank.samples.end(*rank.contests[number]);
      due += rank.contests[number]->due() ? 1 : 0;
    }
    EXPECT_TRUE(due == 0 || due == ranks_.size());
    if (due != 0) judge(number);
    std::vector<bool> measuring;
    int measured = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Contest& contest = *ranks_[rank].contests[number];
      OpenSamples& samples = ranks_[rank].samples;
      const bool others = samples.open();
      samples.shift_aside(contest);
      if (rank == 0) {
        last_[number] = contest.turn();
      } else {
        EXPECT_EQ(contest.turn(), last_[number]) << "rank " << rank;
      }
      const bool opens = contest.measuring();
      if (opens && others) {
        EXPECT_FALSE(contest.judged()) << "two samples at a time";
        EXPECT_EQ(last_[number] == kSwitch, switched_) << "of different ways";
      }
      measured += opens ? 1 : 0;
      const std::uint64_t ns = time(static_cast<int>(rank), kind, last_);
      if (others) samples.add(ns);
      EXPECT_FALSE(contest.took(ns)) << "the end of the sample is not known yet";
      if (opens) samples.begin(contest, last_[number] == kSwitch);
    }
    EXPECT_TRUE(measured == 0 || measured == static_cast<int>(ranks_.size()));
    if (measured != 0) {
      ++measured_;
      switched_ = last_[number] == kSwitch;
    }
    return last_[number];
  }
  int winner(int kind) const { return contest(kind).winner(); }
  bool judged(int kind) const { return contest(kind).judged(); }
  const Contest& contest(int kind) const {
    return *ranks_[0].contests[static_cast<std::size_t>(kind)];
  }
  int additions() const { return additions_; }
  int measured() const { return measured_; }

 private:
  struct Rank {
    std::vector<std::unique_ptr<Contest>> contests;
    OpenSamples samples;
  };

  void judge(std::size_t kind) {
    ++additions_;
    std::vector<std::int64_t> sums(ranks_[0].contests[kind]->samples().size());
    for (Rank& rank : ranks_) {
      const auto samples = rank.contests[kind]->samples();
      EXPECT_EQ(samples.size(), sums.size());
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += samples[i];
    }
    std::size_t verdicts = 0;
    for (Rank& rank : ranks_) {
      std::copy(sums.begin(), sums.end(), rank.contests[kind]->samples().begin());
      verdicts += rank.contests[kind]->judge() ? 1 : 0;
    }
    EXPECT_TRUE(verdicts == 0 || verdicts == ranks_.size());
  }

  std::vector<Rank> ranks_;
  std::vector<int> last_;
  int contested_;
  int additions_ = 0;
  int measured_ = 0;
  bool switched_ = false;  // the last call that was measured
};

// A barrier of 700 or, by a switch, 150, and a call after it that is no longer the same then.
Program::Time barrier_and_call(double after_host, double after_switch, double noise,
                               unsigned seed) {
  auto random = std::make_shared<std::mt19937>(seed);
  return [=](int, int kind, const std::vector<int>& ways) {
    std::normal_distribution<double> strays(1, noise);
    const bool switched = ways[0] == kSwitch;
    const double ns = kind == 0 ? (switched ? 150 : 700) : (switched ? after_switch : after_host);
    return static_cast<std::uint64_t>(1000 * ns * std::max(0.2, strays(*random)));
  };
}

int won_by_switch(double after_host, double after_switch, double noise, int calls = 60) {
  int won = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Program program(1, 2, 1);
    const Program::Time time = barrier_and_call(after_host, after_switch, noise, seed);
    for (int i = 0; i < calls; ++i) {
      program.call(0, time);
      program.call(1, time);
    }
    EXPECT_TRUE(program.judged(0));
    won += program.winner(0) == kSwitch ? 1 : 0;
  }
  return won;
}

TEST(TrialOfWhatFollows, WhatIsQuickAndMakesTheNextCallSlowLoses) {
  EXPECT_EQ(won_by_switch(4000, 6500, 0), 0);
  EXPECT_LE(won_by_switch(4000, 6500, 0.1), 2);
  EXPECT_LE(won_by_switch(2000, 3500, 0.15), 2);
}

TEST(TrialOfWhatFollows, WhatIsQuickAndLeavesTheNextCallAsItIsWins) {
  EXPECT_EQ(won_by_switch(600, 600, 0.1), 100);
  EXPECT_GE(won_by_switch(2000, 2000, 0.1), 98);
  EXPECT_GE(won_by_switch(600, 300, 0.1), 100) << "or quicker still";
  EXPECT_GE(won_by_switch(2000, 2200, 0.05), 95) << "less is lost than won";
}

// What strays by more than a call takes does not keep it from its way.
TEST(TrialOfWhatFollows, LongCallsThatStrayHideNothing) {
  EXPECT_GE(won_by_switch(50'000, 50'000, 0.2), 95);
  EXPECT_GE(won_by_switch(1'000'000, 1'000'000, 0.3), 99);
}

// Nor does chance in such calls win for a way that is slower itself.
TEST(TrialOfWhatFollows, NobodyWinsByWhatHeSeemsToSpareOthers) {
  int won = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> strays(1, 0.1);
    Program program(1, 2, 1);
    const auto time = [&](int, int kind, const std::vector<int>& ways) {
      const double ns = kind == 1 ? 6000 : (ways[0] == kSwitch ? 2100 : 2000);
      return static_cast<std::uint64_t>(ns * std::max(0.2, strays(random)));
    };
    for (int i = 0; i < 60; ++i) {
      program.call(0, time);
      program.call(1, time);
    }
    won += program.winner(0) == kSwitch ? 1 : 0;
  }
  EXPECT_LE(won, 24);
}

// The way that was chosen while later calls were short is left when it harms those of later.
TEST(TrialOfWhatFollows, IsMeasuredAgain) {
  Program program(1, 2, 1);
  const Program::Time before = barrier_and_call(600, 600, 0.05, 1);
  for (int i = 0; i < 60; ++i) {
    program.call(0, before);
    program.call(1, before);
  }
  EXPECT_EQ(program.winner(0), kSwitch);
  const Program::Time later = barrier_and_call(2000, 4000, 0.05, 2);
  for (std::uint64_t i = 0; i < 2 * Trial::kAgain; ++i) {
    program.call(0, later);
    program.call(1, later);
  }
  EXPECT_EQ(program.winner(0), kOwn);
}

// A program with one kind of calls alone, whose samples nothing follows: as if only these counted,
// but that a stage is judged when the next call begins.
TEST(TrialOfWhatFollows, ACallAloneIsMeasuredAsItIs) {
  Program program(3, 1, 1);
  const auto time = [](int rank, int, const std::vector<int>& ways) -> std::uint64_t {
    return (ways[0] == kSwitch ? 1000 : 2000) + static_cast<std::uint64_t>(rank);
  };
  for (int i = 0; i < 2 * Trial::kBlock; ++i) {
    EXPECT_EQ(program.call(0, time), i < Trial::kBlock ? kOwn : kSwitch);
  }
  EXPECT_FALSE(program.judged(0));
  EXPECT_EQ(program.call(0, time), kSwitch);
  EXPECT_TRUE(program.judged(0));
  EXPECT_EQ(program.additions(), 1);
  EXPECT_EQ(program.contest(0).ns_of(kSwitch), 3003) << "of all ranks";
  EXPECT_EQ(program.contest(0).ns_of(kOwn), 6003);
  EXPECT_EQ(program.contest(0).ns_after(kSwitch), 0);
}

// The time of the next three calls belongs to a sample, not that of a fourth.
TEST(TrialOfWhatFollows, FewCallsBelongToASample) {
  Program program(2, 2, 1);
  const auto time = [](int, int kind, const std::vector<int>& ways) -> std::uint64_t {
    if (kind == 1) return 10;
    return ways[0] == kSwitch ? 1000 : 2000;
  };
  for (int i = 0; i <= 2 * Trial::kBlock; ++i) {
    program.call(0, time);
    for (int k = 0; k < 8; ++k) program.call(1, time);
  }
  EXPECT_EQ(program.winner(0), kSwitch);
  EXPECT_EQ(program.contest(0).ns_after(kSwitch), 2 * 10 * Trial::kFollowing);
}

// Kinds that come one after the other would be measured in the same blocks, and what one way does
// be taken for the other's doing. Call 0 by the switch makes call 1 slow, whose own ways are equal.
TEST(TrialOfWhatFollows, TwoKindsAreNotMeasuredInTheSameCalls) {
  Program program(2, 2, 2);
  const auto time = [](int, int kind, const std::vector<int>& ways) -> std::uint64_t {
    if (kind == 0) return ways[0] == kSwitch ? 200 : 700;
    return (ways[0] == kSwitch ? 4000 : 2000) + (ways[1] == kSwitch ? 0 : 100);
  };
  for (int i = 0; i < 100; ++i) {
    program.call(0, time);
    program.call(1, time);
  }
  EXPECT_TRUE(program.judged(0));
  EXPECT_TRUE(program.judged(1));
  EXPECT_EQ(program.winner(0), kOwn);
  EXPECT_EQ(program.winner(1), kSwitch) << "it gains five percent";
}

// What two kinds of calls take depends on both ways. Whatever is best of the four is found, with
// noise of a tenth, within a hundred rounds; or what is as good.
TEST(TrialOfWhatFollows, WaysThatGainOnlyTogetherAreFound) {
  struct Case {
    const char* text;
    // Of both kinds, by the ways of both.
    std::array<std::array<std::array<double, 2>, 2>, 2> ns;
    std::array<int, 2> best;
  };
  const Case cases[] = {
      {"gain together", {{{{{950, 730}, {680, 2800}}}, {{{800, 2600}, {220, 215}}}}}, {1, 1}},
      {"each gains", {{{{{950, 1000}, {900, 500}}}, {{{300, 1000}, {300, 400}}}}}, {1, 1}},
      {"long ones lose", {{{{{1400, 5600}, {1500, 13000}}}, {{{800, 7800}, {200, 9000}}}}}, {0, 0}},
      {"the first gains", {{{{{1000, 5000}, {1000, 9000}}}, {{{200, 5000}, {200, 9000}}}}}, {1, 0}},
      {"the second gains", {{{{{500, 2000}, {500, 900}}}, {{{1500, 2000}, {900, 900}}}}}, {0, 1}},
  };
  for (const Case& each : cases) {
    int found = 0;
    for (unsigned seed = 0; seed < 100; ++seed) {
      std::mt19937 random(seed);
      std::normal_distribution<double> strays(1, 0.1);
      Program program(1, 2, 2);
      const auto time = [&](int, int kind, const std::vector<int>& ways) {
        const auto& both = each.ns[static_cast<std::size_t>(ways[0])];
        const double ns = both[static_cast<std::size_t>(ways[1])][static_cast<std::size_t>(kind)];
        return static_cast<std::uint64_t>(1000 * ns * std::max(0.2, strays(random)));
      };
      for (int i = 0; i < 100; ++i) {
        program.call(0, time);
        program.call(1, time);
      }
      found += program.winner(0) == each.best[0] && program.winner(1) == each.best[1] ? 1 : 0;
    }
    EXPECT_GE(found, 95) << each.text;
  }
}

// Of many kinds in any order each comes to its verdict, on all ranks alike, and each to its own.
TEST(TrialOfWhatFollows, ManyKindsInAnyOrderAreAllMeasured) {
  constexpr int kKinds = 7;
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Program program(3, kKinds + 1, kKinds);
    const auto time = [](int rank, int kind, const std::vector<int>& ways) -> std::uint64_t {
      if (kind == kKinds) return 5000;
      const bool switched = ways[static_cast<std::size_t>(kind)] == kSwitch;
      return static_cast<std::uint64_t>((kind % 2 == 0) == switched ? 1000 : 2000 + rank);
    };
    for (int i = 0; i < 2000; ++i) {
      program.call(seed % 2 == 0 ? static_cast<int>(random() % (kKinds + 1)) : i % (kKinds + 1),
                   time);
    }
    for (int kind = 0; kind < kKinds; ++kind) {
      EXPECT_TRUE(program.judged(kind)) << "kind " << kind << ", seed " << seed;
      EXPECT_EQ(program.winner(kind), kind % 2 == 0 ? kSwitch : kOwn) << "kind " << kind;
    }
  }
}

// Wherever the program stops, all ranks have measured the same; a stage that has not ended is left.
TEST(TrialOfWhatFollows, AProgramMayStopAnywhere) {
  const Program::Time time = [](int rank, int kind, const std::vector<int>& ways) {
    const std::uint64_t ns = ways[static_cast<std::size_t>(kind)] == kSwitch ? 1500 : 2000;
    return ns + static_cast<std::uint64_t>(rank);
  };
  for (int calls = 1; calls < 90; ++calls) {
    Program program(3, 2, 2);
    for (int i = 0; i < calls; ++i) program.call(i % 3 == 2 ? 1 : 0, time);
    EXPECT_LE(program.measured(), calls);
    if (calls > 2 * Trial::kBlock) continue;
    EXPECT_EQ(program.additions(), 0) << calls;
  }
}

// Later measurements cost one percent at most, whatever a way does to the calls after it.
TEST(TrialOfWhatFollows, MeasuringTakesAtMostOnePercent) {
  for (const double harm : {600.0, 2000.0, 40'000.0}) {
    Program program(1, 2, 1);
    double sum = 0;
    const auto time = [&](int, int kind, const std::vector<int>& ways) -> std::uint64_t {
      const bool switched = ways[0] == kSwitch;
      const double ns = kind == 0 ? (switched ? 500 : 1000) : 3000 + (switched ? harm : 0);
      sum += ns;
      return static_cast<std::uint64_t>(ns);
    };
    const auto run = [&](std::uint64_t calls) {
      for (std::uint64_t i = 0; i < calls; ++i) {
        program.call(0, time);
        program.call(1, time);
      }
    };
    run(Trial::kAgain);
    EXPECT_EQ(program.winner(0), kOwn);
    sum = 0;
    run(63 * Trial::kAgain);
    EXPECT_LE(sum, 1.01 * 4000 * 63 * static_cast<double>(Trial::kAgain)) << harm;
  }
}

TEST(TrialOfWhatFollows, RanksThatCannotAddUpGoOnAsTheyWere) {
  Trial trial(kSwitched);
  for (int i = 0; i < 2 * Trial::kBlock; ++i) trial.took(1000);
  ASSERT_TRUE(trial.due());
  trial.give_up();
  EXPECT_FALSE(trial.due());
  EXPECT_FALSE(trial.measuring());
  EXPECT_EQ(trial.turn(), kOwn);
  for (std::uint64_t i = 0; i < Trial::kAgain; ++i) trial.took(0);
  EXPECT_TRUE(trial.measuring()) << "much later";
}

}  // namespace
}  // namespace od
