// Ranks that make the calls of a trial in a simulated program, for the tests of trials.
#ifndef OVERDRIVE_COLL_RUN_TEST_TRIALS_H_
#define OVERDRIVE_COLL_RUN_TEST_TRIALS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "coll/run/trial.h"

namespace od::trials {

inline constexpr int kOwn = Trial::kOwn;
inline constexpr int kHost = Trial::kRival;
// A call that is a sample by itself, or one of as few as may be.
inline constexpr std::uint64_t kLongNs = 1'000'000;

struct Served {
  std::array<std::uint64_t, Trial::kMostWays> calls{};  // by way
  int additions = 0;
  int waits = 0;
  int changes = 0;        // of the usual way
  int worse = 0;          // of those, to one whose cost is higher
  std::uint64_t sum = 0;  // of the times of rank 0
};

// Runs calls on all ranks; `time` is what one takes, by rank and by who serves it.
class Ranks {
 public:
  using Time = std::function<std::uint64_t(int rank, int way)>;

  explicit Ranks(int count, int ways = 2, int first = kOwn, Trial::Ends ends = Trial::Ends::alike)
      : Ranks({.ways = ways, .first = first, .ranks = count, .ends = ends}) {}
  explicit Ranks(const Trial::Terms& terms)
      : trials_(static_cast<std::size_t>(terms.ranks), Trial(terms)) {}

  // What it takes a rank to wait for all others.
  std::function<std::uint64_t(int rank)> wait = [](int) { return 0; };

  // `cost`: what the ways truly take, if changes for the worse are to be counted.
  Served run(std::uint64_t calls, const Time& time, const std::vector<double>& cost = {}) {
    Served run;
    for (std::uint64_t call = 0; call < calls; ++call) {
      const int turn = trials_[0].turn();
      ++run.calls[static_cast<std::size_t>(turn)];
      int due = 0;
      int waiting = 0;
      for (std::size_t rank = 0; rank < trials_.size(); ++rank) {
        EXPECT_EQ(trials_[rank].turn(), turn) << "rank " << rank << ", call " << call;
        const std::uint64_t taken = time(static_cast<int>(rank), turn);
        if (rank == 0) run.sum += taken;
        due += trials_[rank].took(taken) ? 1 : 0;
      }
      for (std::size_t rank = 0; rank < trials_.size(); ++rank) {
        if (!trials_[rank].awaits()) continue;
        ++waiting;
        trials_[rank].awaited(wait(static_cast<int>(rank)));
      }
      EXPECT_TRUE(waiting == 0 || waiting == static_cast<int>(trials_.size()));
      run.waits += waiting > 0 ? 1 : 0;
      if (due == 0) continue;
      EXPECT_EQ(due, static_cast<int>(trials_.size()));
      ++run.additions;
      const int before = winner();
      add_up();
      if (winner() == before) continue;
      ++run.changes;
      if (!cost.empty() &&
          cost[static_cast<std::size_t>(winner())] > cost[static_cast<std::size_t>(before)]) {
        ++run.worse;
      }
    }
    return run;
  }
  int winner() const { return trials_[0].winner(); }
  double ns_of(int way) const { return trials_[0].ns_of(way); }
  bool judged() const { return trials_[0].judged(); }

 private:
  void add_up() {
    std::vector<std::int64_t> sums(trials_[0].samples().size());
    for (Trial& trial : trials_) {
      EXPECT_EQ(trial.samples().size(), sums.size());
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

// What each way takes, in nanoseconds, with noise: a share that is normally distributed, and now
// and then a call that takes much longer.
class Simulated {
 public:
  Simulated(std::vector<double> costs, double noise, double outliers, unsigned seed)
      : cost(std::move(costs)), random_(seed), noise_(0, noise), outlier_(outliers) {}

  std::uint64_t operator()(int way) {
    double ns = cost[static_cast<std::size_t>(way)] * std::max(0.1, 1 + noise_(random_));
    if (outlier_(random_)) ns *= 20;
    return static_cast<std::uint64_t>(ns);
  }

  std::vector<double> cost;

 private:
  std::mt19937 random_;
  std::normal_distribution<double> noise_;
  std::bernoulli_distribution outlier_;
};

}  // namespace od::trials

#endif  // OVERDRIVE_COLL_RUN_TEST_TRIALS_H_
