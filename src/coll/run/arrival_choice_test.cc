// What serves calls to which ranks come far apart: first what is best of all else, then perhaps
// what starts with whoever comes first.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/plan/hierarchy/nodes.h"
#include "coll/plan/registry.h"
#include "coll/plan/select/selection.h"
#include "coll/run/communicator.h"

namespace od {
namespace {

constexpr int kRanks = 4;
constexpr std::uint64_t kBytes = 1 << 20;
constexpr std::uint64_t kInsideNs = 1'000'000;
constexpr std::uint64_t kUsualNs = 900'000;
constexpr std::uint64_t kHostNs = 600'000;

coll::Decision decision(const char* name) {
  coll::Decision made;
  made.algorithm = coll::find_algorithm(coll::Collective::kBcast, name);
  return made;
}

// One rank of a job on two nodes; all ranks take as long, and the leader of the second node is
// late.
class ArrivalChoiceTest : public ::testing::Test {
 protected:
  ArrivalChoiceTest() : usual_(Trial::Terms{.ranks = kRanks}), choice_(false, kRanks, first()) {
    usual_.compared.usual = decision("binomial");
    usual_.compared.rivals = {coll::host_decision(coll::Collective::kBcast)};
  }

  static Compared first() {
    Compared made;
    made.rivals = {decision("first_arrival")};
    made.least_bytes = kBytes;
    return made;
  }

  void agree(std::uint64_t late_ns) {
    ArrivalHabit& habit = choice_.habit;
    const ArrivalHabit::Told on_time = habit.offer();
    ArrivalHabit::Told late = on_time;
    for (std::int64_t& came : late.came_ns) came += static_cast<std::int64_t>(late_ns);
    habit.start();
    habit.judge(std::vector{on_time, on_time, late, on_time}, nodes_, 1000);
    ++agreements_;
  }
  // Whom the next call belongs to, and how it goes.
  const Contest* call(std::uint64_t first_ns, std::uint64_t late_ns) {
    ArrivalHabit& habit = choice_.habit;
    if (habit.agreement_due()) agree(late_ns);
    if (choice_.next_is_told()) {
      ++told_;
      habit.begins(1, now_ += 10 * kInsideNs, 0);
      habit.ended(now_ + kInsideNs);
    } else {
      habit.passes();
    }
    served_ = decision("binomial");
    Contest* const contest = choice_.decide(&usual_, &served_);
    if (contest == nullptr) return nullptr;
    contest->obey_turn(&served_);
    const bool by_first = served_.algorithm == choice_.compared.rivals[0].algorithm;
    const std::uint64_t ns =
        by_first ? first_ns : (served_.algorithm->is_host() ? kHostNs : kUsualNs);
    if (by_first) ++by_first_;
    if (contest->took(ns)) {
      for (std::int64_t& sample : contest->samples()) sample *= kRanks;
      const bool verdict = contest->judge();
      if (verdict && contest->arrivals != nullptr && !contest->arrivals->habit.started()) {
        agree(late_ns);
      }
    }
    return contest;
  }
  bool served_by(const coll::Decision& by) const { return served_.algorithm == by.algorithm; }

  const coll::Nodes nodes_{std::vector<int>{0, 0, 1, 1}};
  Contest usual_;
  ArrivalChoice choice_;
  coll::Decision served_;
  std::uint64_t now_ = kInsideNs;
  int by_first_ = 0;
  int agreements_ = 0;
  int told_ = 0;
};

TEST_F(ArrivalChoiceTest, WhoComesTogetherMeasuresNothingMore) {
  for (int i = 0; i < 500; ++i) EXPECT_EQ(call(1, 0), &usual_);
  EXPECT_EQ(by_first_, 0);
  EXPECT_TRUE(served_by(usual_.compared.rivals[0]));
}

TEST_F(ArrivalChoiceTest, TheFirstIsComparedWithTheBestOfAllElse) {
  int calls = 0;
  while (call(kHostNs * 3 / 4, kInsideNs) == &usual_) {
    ASSERT_LT(++calls, 100);
    EXPECT_TRUE(!served_by(choice_.compared.rivals[0]));
  }
  // Only after the first verdict, with what it says, and at once.
  EXPECT_TRUE(usual_.judged());
  EXPECT_EQ(agreements_, 1);
  // The end of each of two stages, which might have been the last, but the very first call.
  EXPECT_EQ(told_, calls - 1);
  EXPECT_EQ(calls, Trial::kQuiet + 6 * Trial::kBlock);
  EXPECT_TRUE(served_by(usual_.compared.rivals[0]));
  while (call(kHostNs * 3 / 4, kInsideNs) != nullptr) ASSERT_LT(++calls, 100);
  EXPECT_TRUE(served_by(choice_.compared.rivals[0]));
  EXPECT_FALSE(choice_.gains()) << "not because ranks come apart";
  // It serves all calls from then on, and nothing is measured anew before ranks agree for long.
  for (; calls < 1000; ++calls) EXPECT_EQ(call(kHostNs * 3 / 4, kInsideNs), nullptr);
}

TEST_F(ArrivalChoiceTest, WhereItLosesByFarItHasOneBlock) {
  for (int i = 0; i < 1000; ++i) call(3 * kHostNs, kInsideNs);
  EXPECT_EQ(by_first_, Trial::kBlock);
  EXPECT_EQ(call(3 * kHostNs, kInsideNs), &usual_);
  EXPECT_TRUE(served_by(usual_.compared.rivals[0]));
}

// Where processors are shared it may be faster although ranks come together: a program that makes
// many calls finds that.
TEST_F(ArrivalChoiceTest, RanksThatComeTogetherTryItOnce) {
  for (std::uint64_t i = 0; i < ArrivalHabit::kAgain; ++i) call(3 * kHostNs, 0);
  EXPECT_EQ(by_first_, 0);
  for (std::uint64_t i = 0; i < 20 * ArrivalHabit::kAgain; ++i) call(3 * kHostNs, 0);
  EXPECT_EQ(by_first_, Trial::kBlock) << "it has lost";
  EXPECT_EQ(call(3 * kHostNs, 0), &usual_);
}

TEST_F(ArrivalChoiceTest, WhereTryingItGainsItServes) {
  for (std::uint64_t i = 0; i < ArrivalHabit::kAgain + 100; ++i) call(kHostNs / 2, 0);
  EXPECT_EQ(call(kHostNs / 2, 0), nullptr);
  EXPECT_TRUE(served_by(choice_.compared.rivals[0]));
  EXPECT_TRUE(choice_.gains());
  // And is looked at again, as all is.
  for (std::uint64_t i = 0; i < 2 * ArrivalHabit::kAgain; ++i) call(3 * kHostNs, 0);
  EXPECT_EQ(call(3 * kHostNs, 0), &usual_);
  const int by_first = by_first_;
  for (std::uint64_t i = 0; i < 20 * ArrivalHabit::kAgain; ++i) call(3 * kHostNs, 0);
  EXPECT_EQ(by_first_, by_first);
}

TEST_F(ArrivalChoiceTest, WhatHasGainedInAnEarlierRunServesAtOnce) {
  EXPECT_FALSE(choice_.gains());
  choice_.begin_with_gain(5000);
  EXPECT_TRUE(choice_.gains());
  for (std::uint64_t i = 0; i < ArrivalHabit::kAgain / 2; ++i) {
    ASSERT_EQ(call(kHostNs / 2, 0), nullptr) << i;
    ASSERT_TRUE(served_by(choice_.compared.rivals[0])) << i;
  }
  EXPECT_EQ(choice_.calls(), 5000 + ArrivalHabit::kAgain / 2);
  // If it loses now that is found.
  for (std::uint64_t i = 0; i < 2 * ArrivalHabit::kAgain; ++i) call(3 * kHostNs, 0);
  EXPECT_EQ(call(3 * kHostNs, 0), &usual_);
  EXPECT_FALSE(choice_.gains());
  EXPECT_TRUE(served_by(usual_.compared.rivals[0]));
}

// Between the usual choice and the host it would win.
TEST_F(ArrivalChoiceTest, BetterThanTheUsualWayIsNotEnough) {
  for (int i = 0; i < 1000; ++i) call((kUsualNs + kHostNs) / 2, kInsideNs);
  EXPECT_EQ(call(kHostNs, kInsideNs), &usual_);
  EXPECT_TRUE(served_by(usual_.compared.rivals[0]));
}

TEST_F(ArrivalChoiceTest, RanksThatComeTogetherAgainGoTheUsualWay) {
  for (int i = 0; i < 200; ++i) call(kHostNs / 2, kInsideNs);
  EXPECT_EQ(call(kHostNs / 2, kInsideNs), nullptr);
  for (int i = 0; i < 100; ++i) call(kHostNs / 2, 0);
  EXPECT_EQ(call(kHostNs / 2, 0), &usual_);
}

}  // namespace
}  // namespace od
