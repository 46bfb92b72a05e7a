// What is concluded from when ranks came: worth, periods, and when a measurement is made anew.

#include "coll/run/arrival_habit.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace od {
namespace {

constexpr int kRanks = 4;
constexpr std::uint64_t kInsideNs = 1'000'000;

// The ranks of a communicator on two nodes, all of whom are in this process.
class Job {
 public:
  // Who comes how late to which call, from which place.
  using Late = std::function<std::uint64_t(int rank, std::uint64_t call)>;
  using Place = std::function<std::uint64_t(int rank, std::uint64_t call)>;

  explicit Job(bool to_root, std::uint64_t bytes = 1 << 20)
      : ranks_(kRanks, ArrivalHabit(to_root, bytes)) {
    for (ArrivalHabit& rank : ranks_) rank.start();
  }

  void call(const Late& late, const Place& place, int root = 0) {
    if (ranks_[0].agreement_due()) {
      std::vector<ArrivalHabit::Told> all;
      for (const ArrivalHabit& rank : ranks_) {
        EXPECT_TRUE(rank.agreement_due());
        all.push_back(rank.offer());
      }
      for (ArrivalHabit& rank : ranks_) rank.judge(all, nodes_, message_ns);
      ++agreements;
    }
    now_ += 100 * kInsideNs;
    for (int rank = 0; rank < kRanks; ++rank) {
      // The clocks of the nodes have nothing to do with each other.
      const std::uint64_t came = now_ + (rank >= 2 ? 1'000'000'000'000 : 0) + late(rank, calls_);
      ArrivalHabit& habit = ranks_[index(rank)];
      if (habit.next_is_told()) {
        habit.begins(place(rank, calls_), came, root);
      } else {
        habit.passes();
      }
      if (habit.awaits_end() && !left_to_host) habit.ended(came + kInsideNs);
    }
    ++calls_;
    for (const ArrivalHabit& rank : ranks_) {
      EXPECT_EQ(rank.worth_measuring(), ranks_[0].worth_measuring());
      EXPECT_EQ(rank.period(), ranks_[0].period());
    }
  }
  bool worth() const { return ranks_[0].worth_measuring(); }
  std::uint64_t period() const { return ranks_[0].period(); }
  // Of the last call.
  bool fresh() {
    bool first = ranks_[0].take_fresh();
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      EXPECT_EQ(ranks_[rank].take_fresh(), first);
    }
    return first;
  }

  double message_ns = 1'000;
  int agreements = 0;
  bool left_to_host = false;

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::vector<ArrivalHabit> ranks_;
  coll::Nodes nodes_ = coll::Nodes::in_blocks(kRanks, 2);
  std::uint64_t calls_ = 0;
  std::uint64_t now_ = 0;
};

const Job::Place kOnePlace = [](int, std::uint64_t) { return 1; };
const Job::Late kTogether = [](int, std::uint64_t) { return 0; };

Job::Late always_late(int late) {
  return [late](int rank, std::uint64_t) { return rank == late ? kInsideNs : 0; };
}

bool worth_after(bool to_root, const Job::Late& late, int calls = 17) {
  Job job(to_root);
  for (int i = 0; i < calls; ++i) job.call(late, kOnePlace);
  return job.worth();
}

std::vector<int> agreements_of(std::uint64_t bytes) {
  Job job(false, bytes);
  std::vector<int> at;
  for (int i = 0, before = 0; i < 300; ++i) {
    job.call(kTogether, kOnePlace);
    if (job.agreements != before) at.push_back(i);
    before = job.agreements;
  }
  return at;
}

TEST(ArrivalHabit, RanksAgreeBeforePowersOfTwoOfShortCallsOfFour) {
  EXPECT_EQ(agreements_of(256 << 10), (std::vector<int>{16, 32, 64, 128, 256}));
  EXPECT_EQ(agreements_of(64 << 10), (std::vector<int>{64, 256}));
}

TEST(ArrivalHabit, NobodyAgreesWhileSomethingElseIsMeasured) {
  ArrivalHabit habit(false, 1 << 20);
  for (int i = 0; i < 33; ++i) {
    EXPECT_FALSE(habit.agreement_due());
    EXPECT_FALSE(habit.next_is_told());
    habit.passes();
  }
  habit.start();
  EXPECT_FALSE(habit.agreement_due());
  EXPECT_FALSE(habit.next_is_told());
  for (int i = 33; i < 64; ++i) habit.passes();
  EXPECT_TRUE(habit.agreement_due());
}

TEST(ArrivalHabit, CallsAreToldOfBeforeAgreementsAlone) {
  ArrivalHabit habit(false, 64 << 10);
  habit.start();
  std::vector<int> changes;
  bool before = false;
  for (int i = 0; i < 256; ++i) {
    if (habit.next_is_told() != before) changes.push_back(i);
    before = habit.next_is_told();
    if (before) {
      habit.begins(1, 0, 0);
    } else {
      habit.passes();
    }
    EXPECT_EQ(habit.awaits_end(), before);
  }
  EXPECT_EQ(changes, (std::vector<int>{48, 64, 240}));
}

TEST(ArrivalHabit, AnyLateRankIsWorthABroadcastButTheRoot) {
  EXPECT_FALSE(worth_after(false, kTogether));
  EXPECT_FALSE(worth_after(false, always_late(0)));
  EXPECT_TRUE(worth_after(false, always_late(1)));  // the root stays until it has the data
  EXPECT_TRUE(worth_after(false, always_late(2)));  // the other one of its node waits for it
  EXPECT_FALSE(worth_after(false, always_late(2), 16));
  EXPECT_TRUE(worth_after(false, always_late(3)));  // its leader stays until it has the data
}

TEST(ArrivalHabit, InABroadcastRanksThatFollowTheirLeaderAreWaitedFor) {
  // As with linear arrival: the leader is the first of its node.
  const auto late = [](int rank, std::uint64_t) {
    return static_cast<std::uint64_t>(rank) * kInsideNs / 3;
  };
  EXPECT_TRUE(worth_after(false, late));
}

TEST(ArrivalHabit, AnyLateRankIsWorthAReductionButTheRoot) {
  EXPECT_FALSE(worth_after(true, kTogether));
  EXPECT_TRUE(worth_after(true, always_late(0)));
  EXPECT_FALSE(worth_after(true, always_late(1)));  // only the root waits for it
  EXPECT_TRUE(worth_after(true, always_late(2)));
  EXPECT_TRUE(worth_after(true, always_late(3)));
}

TEST(ArrivalHabit, LittleIsNotWorthIt) {
  const auto little = [](int rank, std::uint64_t) { return rank == 2 ? kInsideNs / 2 : 0; };
  EXPECT_FALSE(worth_after(false, little));
}

TEST(ArrivalHabit, WhatAFewMessagesTakeIsNotWorthIt) {
  // One of four ranks is late by a whole call, for which one other waits: a quarter in the mean.
  for (const auto& [messages, worth] : {std::pair{11.0, true}, {9.0, false}}) {
    Job job(false);
    job.message_ns = kInsideNs / 4.0 / messages;
    for (int i = 0; i < 17; ++i) job.call(always_late(1), kOnePlace);
    EXPECT_EQ(job.worth(), worth) << messages;
  }
}

TEST(ArrivalHabit, OneCallIsNoHabit) {
  const auto once = [](int rank, std::uint64_t call) {
    return rank == 2 && call == 12 ? 100 * kInsideNs : 0;
  };
  EXPECT_FALSE(worth_after(false, once));
  const auto twice = [](int rank, std::uint64_t call) {
    return rank == 2 && (call == 9 || call == 12) ? 100 * kInsideNs : 0;
  };
  EXPECT_TRUE(worth_after(false, twice));
}

TEST(ArrivalHabit, PlacesThatTakeTurnsAreJudgedApart) {
  // The root stands elsewhere than the others. Every third call has a late leader.
  const auto place = [](int rank, std::uint64_t call) { return call % 3 * 10 + (rank == 0); };
  const auto late = [](int rank, std::uint64_t call) {
    return rank == 2 && call % 3 == 1 ? kInsideNs : 0;
  };
  Job job(false);
  for (std::uint64_t i = 0; i < 40; ++i) {
    job.call(late, place);
    if (i < 16) continue;
    EXPECT_EQ(job.period(), 3u);
    EXPECT_EQ(job.worth(), i % 3 == 1) << i;
  }
}

TEST(ArrivalHabit, WithoutAPeriodOfAllRanksCallsAreNotToldApart) {
  const auto place = [](int rank, std::uint64_t call) {
    return rank == 3 ? call * call % 7 : call % 2;
  };
  Job job(false);
  for (int i = 0; i < 20; ++i) job.call(kTogether, place);
  EXPECT_EQ(job.period(), 1u);
}

TEST(ArrivalHabit, WhatHasChangedIsMeasuredAnew) {
  Job job(false);
  for (int i = 0; i < 17; ++i) job.call(always_late(2), kOnePlace);
  EXPECT_TRUE(job.fresh());
  for (int i = 17; i < 33; ++i) {
    job.call(always_late(2), kOnePlace);
    EXPECT_FALSE(job.fresh()) << i;
  }
  for (int i = 33; i < 64; ++i) job.call(kTogether, kOnePlace);
  EXPECT_TRUE(job.worth());
  job.call(kTogether, kOnePlace);
  EXPECT_FALSE(job.worth());
  EXPECT_TRUE(job.fresh());
}

TEST(ArrivalHabit, LongProgramsAreMeasuredAgain) {
  Job job(false);
  std::vector<int> at;
  for (int i = 0; i < 4200; ++i) {
    job.call(always_late(2), kOnePlace);
    if (job.fresh()) at.push_back(i);
  }
  EXPECT_EQ(at, (std::vector<int>{16, 1024, 2048, 4096}));
}

TEST(ArrivalHabit, CallsOfWhichNothingIsKnownChangeNothing) {
  Job job(false);
  for (int i = 0; i < 17; ++i) job.call(always_late(2), kOnePlace);
  job.left_to_host = true;
  for (int i = 17; i < 80; ++i) job.call(kTogether, kOnePlace);
  EXPECT_TRUE(job.worth());
}

}  // namespace
}  // namespace od
