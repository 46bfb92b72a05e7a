// A program on a network that the model takes for another one: what is compared, and what is found.
#include "coll/run/rivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace od {
namespace {

using coll::Collective;

constexpr coll::Layout kLayout{8, 4, 2};
constexpr std::uint64_t kBytes = 4096;
constexpr std::uint64_t kLateNs = 50'000'000;

coll::Selection with(const coll::Machine& machine) {
  coll::Selection selection;
  selection.set_machine(machine);
  return selection;
}

// A gigabit network.
coll::Machine slow_network() {
  coll::Machine machine;
  machine.far = {20'000, 3000, 2500, 8};
  return machine;
}

coll::Machine with_bytes(double times) {
  coll::Machine machine = slow_network();
  machine.far.byte_ns *= times;
  return machine;
}

// All ranks of a program take as long, which is what `truly` says of the way, and the host more.
class Program {
 public:
  Program(Collective collective, const coll::Selection& thought, const coll::Selection& truly)
      : Program(compared_of(collective, thought), thought, truly) {}

  // Of so many calls, of which a rank is late to each.
  void run(int calls, std::uint64_t late_ns = 0) {
    for (int i = 0; i < calls; ++i) {
      const coll::Decision& decision = contest_.decision(contest_.turn());
      sum_ns_ += cost(decision);
      const bool due = contest_.took(static_cast<std::uint64_t>(cost(decision)) + late_ns);
      if (contest_.awaits()) contest_.awaited(0);
      if (!due) continue;
      for (std::int64_t& ns : contest_.samples()) ns *= kLayout.ranks;
      if (begins_anew(contest_, thought_, kLayout)) {
        ++anew_;
      } else if (contest_.judge()) {
        renewed_ += renew_rivals(contest_, thought_, kLayout);
      }
    }
  }
  const Contest& contest() const { return contest_; }
  double sum_ns() const { return sum_ns_; }
  double cost(const coll::Decision& decision) const {
    constexpr double kHostNs = 1e6;
    if (decision.algorithm->is_host()) return kHostNs;
    const double ns = alike_ns_ > 0 ? alike_ns_ : truly_.cost(decision, kLayout, kBytes);
    return decision.algorithm->name == misjudged_ ? ns * times_ : ns;
  }
  int anew() const { return anew_; }
  int renewed() const { return renewed_; }
  // The algorithm truly takes so many times as long as the model says.
  void misjudge(std::string algorithm, double times) {
    misjudged_ = std::move(algorithm);
    times_ = times;
  }
  // All ways take as long.
  void level(double ns) { alike_ns_ = ns; }
  std::string found() const { return contest_.decision(contest_.winner()).algorithm->name; }
  // By how many times what has been found takes longer than the best of all.
  double regret() const {
    const Collective collective = contest_.compared.usual.algorithm->collective;
    double best = std::numeric_limits<double>::infinity();
    for (const coll::Algorithm& algorithm : coll::algorithms(collective)) {
      if (algorithm.is_host() || algorithm.works_elsewhere() ||
          coll::why_not_hierarchical(algorithm, kLayout, true) != nullptr) {
        continue;
      }
      best = std::min(
          best, cost(truly_.complete(algorithm, coll::Mode::kHierarchical, {}, kLayout, true)));
    }
    return cost(contest_.decision(contest_.winner())) / best;
  }

 private:
  Program(Compared compared, const coll::Selection& thought, const coll::Selection& truly)
      : thought_(thought), truly_(truly), contest_(terms(compared, thought)) {
    contest_.compared = std::move(compared);
  }
  static Compared compared_of(Collective collective, const coll::Selection& thought) {
    Compared made;
    made.usual = thought.decide(collective, kLayout, true, kBytes);
    made.typical_bytes = kBytes;
    made.others = Others::kFew;
    made.rivals = rivals_of(thought, kLayout, made, expects_long_calls(thought, kLayout, made));
    return made;
  }
  static Trial::Terms terms(const Compared& compared, const coll::Selection& thought) {
    const bool apart = coll::info(compared.usual.algorithm->collective).rooted();
    Trial::Terms made;
    made.ways = static_cast<int>(compared.rivals.size()) + 1;
    made.ranks = kLayout.ranks;
    made.quiet = apart ? Trial::kQuietAwaited : Trial::kQuietOfRival;
    made.ends = apart ? Trial::Ends::apart : Trial::Ends::alike;
    made.long_calls = expects_long_calls(thought, kLayout, compared);
    return made;
  }

  coll::Selection thought_;
  coll::Selection truly_;
  Contest contest_;
  int anew_ = 0;
  int renewed_ = 0;
  std::string misjudged_;
  double times_ = 1;
  double alike_ns_ = 0;
  double sum_ns_ = 0;
};

TEST(Rivals, ANetworkTakenForTooSlowIsCorrected) {
  for (const Collective collective :
       {Collective::kBcast, Collective::kAllreduce, Collective::kReduce}) {
    SCOPED_TRACE(coll::info(collective).name);
    Program program(collective, with(with_bytes(100)), with(slow_network()));
    program.run(200);
    EXPECT_GE(program.anew(), 1);
    EXPECT_TRUE(program.contest().judged());
    EXPECT_LT(program.regret(), 1.05);
  }
}

TEST(Rivals, ANetworkThatTheModelKnowsStays) {
  Program program(Collective::kAllreduce, with(slow_network()), with(slow_network()));
  program.run(200);
  EXPECT_EQ(program.anew(), 0);
  EXPECT_LT(program.regret(), 1.05);
}

// What takes long may be the program's doing: then it does so whatever is tried.
TEST(Rivals, LateRanksChangeNothing) {
  Program program(Collective::kAllreduce, with(slow_network()), with(slow_network()));
  program.run(200, kLateNs);
  EXPECT_TRUE(program.contest().judged());
  EXPECT_EQ(program.contest().winner(), Trial::kOwn);
}

// Nobody knows before what the host takes, but our own ways tell what calls take.
TEST(Rivals, CallsThatWereExpectedToBeLongAreMeasuredAsOthers) {
  Program program(Collective::kBcast, with(with_bytes(100)), with(slow_network()));
  EXPECT_TRUE(program.contest().long_calls());
  program.run(200);
  EXPECT_FALSE(program.contest().long_calls());
}

TEST(Rivals, AProgramThatMakesManyCallsFindsWhatTheModelMisjudges) {
  Program program(Collective::kAllreduce, with(slow_network()), with(slow_network()));
  program.misjudge("knomial", 0.3);
  program.run(200);
  EXPECT_NE(program.found(), "knomial");
  program.run(20'000);
  EXPECT_EQ(program.found(), "knomial");
  EXPECT_GE(program.renewed(), 1);
}

// Those that it tries first may all be good, but not the best.
TEST(Rivals, WhereNobodyHasLostOthersAreTriedAsWell) {
  Program program(Collective::kAllreduce, with(slow_network()), with(slow_network()));
  program.level(100'000);
  program.misjudge("knomial", 0.7);
  program.run(1000);
  EXPECT_NE(program.found(), "knomial");
  program.run(20'000);
  EXPECT_EQ(program.found(), "knomial");
}

// What is tried costs no more than measurements may cost.
TEST(Rivals, TryingOthersIsPaidForByWhatMeasurementsMayCost) {
  constexpr int kCalls = 50'000;
  Program program(Collective::kAllreduce, with(slow_network()), with(slow_network()));
  program.run(2000);
  const double before = program.sum_ns();
  program.run(kCalls);
  EXPECT_GE(program.renewed(), 2);
  const double usual = program.cost(program.contest().decision(program.contest().winner()));
  EXPECT_LT(program.sum_ns() - before, kCalls * usual * 1.015);
}

TEST(Rivals, WhoIsComparedWithTheHostAloneStaysSo) {
  const coll::Selection thought = with(with_bytes(100));
  Compared compared;
  compared.usual = thought.decide(Collective::kBcast, kLayout, true, kBytes);
  compared.typical_bytes = kBytes;
  EXPECT_EQ(rivals_of(thought, kLayout, compared, false).size(), 1u);
  compared.others = Others::kFew;
  EXPECT_EQ(rivals_of(thought, kLayout, compared, false).size(), 3u);
}

// Whatever an earlier run has found takes part, whether the model names it or not.
TEST(Rivals, WhatWasLearntIsOneOfTheWays) {
  const coll::Selection selection = with(slow_network());
  Compared compared;
  compared.usual = selection.own_choice(Collective::kAllreduce, kLayout, true, kBytes);
  compared.typical_bytes = kBytes;
  compared.others = Others::kFew;
  compared.rivals = rivals_of(selection, kLayout, compared, false);
  const std::vector<coll::Decision> named = compared.rivals;
  ASSERT_EQ(named.size(), 3u);
  EXPECT_EQ(way_of_learnt(compared.usual, compared), Trial::kOwn);
  EXPECT_EQ(way_of_learnt(coll::host_decision(Collective::kAllreduce), compared), Trial::kRival);
  EXPECT_EQ(way_of_learnt(named[2], compared), 3);
  EXPECT_EQ(compared.rivals, named);
  coll::Decision other =
      selection.complete(*coll::find_algorithm(Collective::kAllreduce, "segmented_ring"),
                         coll::Mode::kFlat, {}, kLayout, true);
  other.parameters.segment_bytes = 12345;
  EXPECT_EQ(way_of_learnt(other, compared), 3);
  EXPECT_EQ(compared.rivals, (std::vector{named[0], named[1], other}));
  // As many as there may be; more would not fit a contest.
  compared.rivals.pop_back();
  EXPECT_EQ(way_of_learnt(other, compared), 3);
}

}  // namespace
}  // namespace od
