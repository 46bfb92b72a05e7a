// Trials of ranks that measure differently come to the same verdict, and to the right one.
#include "coll/run/trial.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

namespace od {
namespace {

using Turn = Trial::Turn;

struct Served {
  std::uint64_t own = 0;
  std::uint64_t host = 0;
  int additions = 0;
};

// Runs calls on all ranks; `time` is what one takes, by rank and by who serves it.
class Ranks {
 public:
  explicit Ranks(int count) : trials_(static_cast<std::size_t>(count)) {}

  Served run(std::uint64_t calls, const std::function<std::uint64_t(int, Turn)>& time) {
    Served run;
    for (std::uint64_t call = 0; call < calls; ++call) {
      const Turn turn = trials_[0].turn();
      ++(turn == Turn::own ? run.own : run.host);
      int due = 0;
      for (std::size_t rank = 0; rank < trials_.size(); ++rank) {
        EXPECT_EQ(trials_[rank].turn(), turn) << "rank " << rank << ", call " << call;
        due += trials_[rank].took(time(static_cast<int>(rank), turn)) ? 1 : 0;
      }
      if (due == 0) continue;
      EXPECT_EQ(due, static_cast<int>(trials_.size()));
      ++run.additions;
      add_up();
    }
    return run;
  }
  Turn winner() const { return trials_[0].winner(); }

 private:
  void add_up() {
    std::vector<std::int64_t> sums(trials_[0].samples().size());
    for (Trial& trial : trials_) {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        EXPECT_GT(trial.samples()[i], 0);
        sums[i] += trial.samples()[i];
      }
    }
    int verdicts = 0;
    for (Trial& trial : trials_) {
      std::copy(sums.begin(), sums.end(), trial.samples().begin());
      verdicts += trial.judge() ? 1 : 0;
    }
    EXPECT_TRUE(verdicts == 0 || verdicts == static_cast<int>(trials_.size()));
  }

  std::vector<Trial> trials_;
};

TEST(Trial, FewCallsMeasureNothing) {
  const Served run = Ranks(3).run(Trial::kQuiet, [](int, Turn) { return 0; });
  EXPECT_EQ(run.own, static_cast<std::uint64_t>(Trial::kQuiet));
  EXPECT_EQ(run.additions, 0);
}

TEST(Trial, AClearCaseTakesTwoBlocks) {
  Ranks ranks(2);
  const Served host =
      ranks.run(100, [](int, Turn turn) { return turn == Turn::own ? 2000 : 1000; });
  EXPECT_EQ(ranks.winner(), Turn::host);
  EXPECT_EQ(host.additions, 1);
  EXPECT_EQ(host.own, static_cast<std::uint64_t>(Trial::kQuiet + Trial::kBlock));
  Ranks others(2);
  const Served own =
      others.run(100, [](int, Turn turn) { return turn == Turn::own ? 1000 : 2000; });
  EXPECT_EQ(others.winner(), Turn::own);
  EXPECT_EQ(own.host, static_cast<std::uint64_t>(Trial::kBlock));
}

TEST(Trial, WhatOneRankGainsIsNotWorthWhatTheOthersLose) {
  Ranks ranks(3);
  // With the host the root leaves at once, and the others wait for longer than it gains.
  ranks.run(100, [](int rank, Turn turn) -> std::uint64_t {
    if (turn == Turn::own) return 1000;
    return rank == 0 ? 10 : 1800;
  });
  EXPECT_EQ(ranks.winner(), Turn::own);
}

TEST(Trial, ASmallGainWinsOnlyWithoutNoise) {
  std::mt19937 random(5);
  const auto with_noise = [&](double noise, double gain) {
    std::normal_distribution<double> stray(0, noise);
    int hosts = 0;
    for (int i = 0; i < 200; ++i) {
      Ranks ranks(1);
      ranks.run(50, [&](int, Turn turn) {
        return static_cast<std::uint64_t>(10000 * (turn == Turn::own ? 1 : 1 - gain) *
                                          (1 + stray(random)));
      });
      hosts += ranks.winner() == Turn::host ? 1 : 0;
    }
    return hosts;
  };
  EXPECT_EQ(with_noise(0.002, 0.1), 200);
  EXPECT_EQ(with_noise(0.002, 0.02), 0) << "less than the least gain";
  EXPECT_LT(with_noise(0.1, 0), 20) << "noise alone";
}

TEST(Trial, MeasuresAgainAndFollowsTheProgram) {
  Ranks ranks(2);
  ranks.run(100, [](int, Turn turn) { return turn == Turn::own ? 1000 : 3000; });
  EXPECT_EQ(ranks.winner(), Turn::own);
  const Served later =
      ranks.run(2 * Trial::kAgain, [](int, Turn turn) { return turn == Turn::own ? 3000 : 1000; });
  EXPECT_EQ(ranks.winner(), Turn::host);
  EXPECT_EQ(later.additions, 1);
  // The next one is 16 times as far away.
  EXPECT_EQ(ranks.run(8 * Trial::kAgain, [](int, Turn) { return 1000; }).additions, 0);
  EXPECT_EQ(ranks.run(16 * Trial::kAgain, [](int, Turn) { return 1000; }).additions, 2);
  EXPECT_EQ(ranks.winner(), Turn::host) << "nothing is gained by going back";
}

}  // namespace
}  // namespace od
