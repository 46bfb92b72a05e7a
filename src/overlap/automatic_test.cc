// Ranks that run the same calls: they always do the same, turn on where that pays, and off again.
#include "overlap/automatic.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace od::overlap {
namespace {

using Turn = Automatic::Turn;
using Verdict = Automatic::Verdict;

struct Seen {
  std::uint64_t traced = 0;
  std::uint64_t on = 0;
  std::vector<std::uint64_t> agreements;  // numbers of the calls after them
  std::vector<Verdict> verdicts;
};

// How long a rank's call takes, and what of it could be hidden.
using Takes = std::function<std::uint64_t(std::uint64_t call, int rank, bool on)>;

class Job {
 public:
  explicit Job(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  void agree() {
    std::vector<std::int64_t> sum;
    for (Automatic& rank : ranks_) {
      const std::span<std::int64_t> mine = rank.offer();
      sum.resize(mine.size());
      for (std::size_t i = 0; i < mine.size(); ++i) sum[i] += mine[i];
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      std::copy(sum.begin(), sum.end(), ranks_[i].offer().begin());
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Verdict verdict = ranks_[i].judge(static_cast<int>(ranks_.size()));
      if (i == 0) seen.verdicts.push_back(verdict);
      EXPECT_EQ(verdict, seen.verdicts.back());
    }
    seen.agreements.push_back(call_ + 1);
  }

  void run(std::uint64_t calls, const Takes& takes, std::uint64_t hidden, int deaf_rank = -1) {
    for (std::uint64_t n = 0; n < calls; ++n) {
      const bool due = ranks_[0].agreement_due();
      for (const Automatic& rank : ranks_) ASSERT_EQ(rank.agreement_due(), due);
      if (due) agree();
      ++call_;
      const Turn turn = ranks_[0].next();
      for (std::size_t i = 1; i < ranks_.size(); ++i) ASSERT_EQ(ranks_[i].next(), turn);
      seen.traced += turn == Turn::kTrace ? 1u : 0u;
      seen.on += turn == Turn::kOn ? 1u : 0u;
      for (std::size_t i = 0; i < ranks_.size(); ++i) {
        const int rank = static_cast<int>(i);
        if (!ranks_[i].measured() || rank == deaf_rank) continue;
        ranks_[i].took(takes(call_, rank, turn == Turn::kOn), hidden);
      }
    }
  }
  bool on() const { return ranks_[0].on(); }
  Automatic& rank(int i) { return ranks_[static_cast<std::size_t>(i)]; }
  Seen seen;

 private:
  std::vector<Automatic> ranks_;
  std::uint64_t call_ = 0;
};

std::uint64_t noise(std::uint64_t call, int rank) {
  return (call * 7919 + static_cast<std::uint64_t>(rank) * 104729) % 1000;
}

TEST(AutomaticTest, TurnsOnWhereItGains) {
  Job job(3);
  const Takes takes = [](std::uint64_t call, int rank, bool on) {
    return (on ? 70'000u : 100'000u) + noise(call, rank);
  };
  job.run(15, takes, 40'000);
  EXPECT_FALSE(job.on());
  EXPECT_EQ(job.seen.traced, 1u);
  EXPECT_EQ(job.seen.on, 4u);
  job.run(1, takes, 40'000);
  EXPECT_TRUE(job.on());
  job.run(1008, takes, 40'000);
  EXPECT_TRUE(job.on());
  EXPECT_EQ(job.seen.agreements, (std::vector<std::uint64_t>{8, 16, 32, 64, 128, 256, 512, 1024}));
  EXPECT_GT(job.seen.on, 960u);
}

TEST(AutomaticTest, NothingIsTriedWhereNothingCanBeHidden) {
  Job job(2);
  job.run(
      5000, [](std::uint64_t call, int rank, bool) { return 100'000 + noise(call, rank); }, 2'000);
  EXPECT_EQ(job.seen.on, 0u);
  EXPECT_FALSE(job.on());
}

TEST(AutomaticTest, StaysOffWithoutAGainAndTriesRarely) {
  Job job(2);
  job.run(
      1024,
      [](std::uint64_t call, int rank, bool on) {
        return (on ? 101'000u : 100'000u) + noise(call, rank);
      },
      50'000);
  EXPECT_FALSE(job.on());
  // Four of each doubling.
  EXPECT_EQ(job.seen.on, 7u * 4u);
}

TEST(AutomaticTest, NoiseIsNoGain) {
  Job job(2);
  job.run(
      40,
      [](std::uint64_t call, int, bool on) {
        return (on ? 90'000u : 100'000u) + (call % 3) * 20'000;
      },
      50'000);
  EXPECT_FALSE(job.on());
}

TEST(AutomaticTest, TurnsOffAgainWhenTheGainIsGone) {
  Job job(2);
  job.run(
      20,
      [](std::uint64_t call, int rank, bool on) {
        return (on ? 70'000u : 100'000u) + noise(call, rank);
      },
      40'000);
  EXPECT_TRUE(job.on());
  job.run(
      20,
      [](std::uint64_t call, int rank, bool on) {
        return (on ? 110'000u : 100'000u) + noise(call, rank);
      },
      40'000);
  EXPECT_FALSE(job.on());
  EXPECT_EQ(job.seen.verdicts.back(), Verdict::kTurnedOff);
}

TEST(AutomaticTest, ARankThatCannotMeasureKeepsAllOff) {
  Job job(3);
  job.run(
      200, [](std::uint64_t, int, bool on) { return on ? 10'000u : 100'000u; }, 90'000, 1);
  EXPECT_EQ(job.seen.on, 0u);
}

TEST(AutomaticTest, TheTracedCallGivesTheOrder) {
  Job job(2);
  Accesses accesses;
  accesses.block_us[0] = 9;
  accesses.block_us[1] = 3;
  accesses.block_count[0] = accesses.block_count[1] = 1;
  job.run(
      2, [](std::uint64_t, int, bool) { return 1u; }, 0);
  job.rank(1).touched(accesses);
  job.run(
      6, [](std::uint64_t, int, bool) { return 1u; }, 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(job.rank(i).order().turn_of_rank, (std::vector<std::int32_t>{1, 0}));
  }
}

}  // namespace
}  // namespace od::overlap
