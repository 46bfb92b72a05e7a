// The choice of copy paths against made-up costs: finds the best path, follows a change, keeps its
// price, does not flap, measures whole windows, keeps distances apart.
#include "p2p/path_choice.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "base/clock.h"
#include "memory/send_history.h"
#include "observe/counters.h"
#include "p2p/path_table.h"

namespace od::p2p {
namespace {

constexpr unsigned kAll = 0b01111;  // cells, pull, cooperative, push
constexpr std::uint64_t kBytes = 65536;

// A program that sends one message after the other, each of which takes what `costs` says.
class Program {
 public:
  explicit Program(std::array<std::uint64_t, 5> costs_ns, std::uint64_t bytes = kBytes)
      : costs_(costs_ns), bytes_(bytes) {
    choice.begin(Path::cells, kAll, false, bytes);
  }
  Path send() {
    if (sends_ % window_ == 0) ++moment_.receives;
    if (!choice.rests(bytes_)) {
      const PathChoice::Event event = choice.step(bytes_, moment_, true, false);
      trials += event == PathChoice::Event::trial_begun;
      changes += event == PathChoice::Event::path_changed;
    }
    const Path path = choice.path();
    std::uint64_t ns = costs_[static_cast<std::size_t>(path)];
    if (noise_) ns += noise_();
    ++sends_;
    if (path != choice.usual()) tried_ns += ns;
    all_ns += ns;
    owed_ns_ += ns;
    // In a window the program waits once, at its end.
    if (sends_ % window_ == 0) {
      moment_.now_ns += owed_ns_;
      owed_ns_ = 0;
    }
    return path;
  }
  void run(int sends) {
    for (int i = 0; i < sends; ++i) send();
  }
  void costs(std::array<std::uint64_t, 5> costs_ns) { costs_ = costs_ns; }
  void window(std::uint64_t sends) { window_ = sends; }
  void noise(std::function<std::uint64_t()> noise) { noise_ = std::move(noise); }

  PathChoice choice;
  int trials = 0;
  int changes = 0;
  std::uint64_t all_ns = 0;
  std::uint64_t tried_ns = 0;

 private:
  std::array<std::uint64_t, 5> costs_;
  std::uint64_t bytes_;
  std::function<std::uint64_t()> noise_;
  std::uint64_t window_ = 1;
  std::uint64_t owed_ns_ = 0;
  std::uint64_t sends_ = 0;
  PathMoment moment_{1000, 1};
};

TEST(PathChoice, FindsTheBestPathWithinTwoHundredSends) {
  for (std::size_t best = 0; best < 4; ++best) {
    std::array<std::uint64_t, 5> costs = {5000, 5000, 5000, 5000, 5000};
    costs[best] = 3000;
    Program program(costs);
    program.run(200);
    EXPECT_EQ(program.choice.usual(), static_cast<Path>(best));
  }
}

TEST(PathChoice, FewLongMessagesSuffice) {
  Program program({500000, 700000, 300000, 600000, 500000}, 1 << 20);
  program.run(60);
  EXPECT_EQ(program.choice.usual(), Path::cooperative);
  program.all_ns = program.tried_ns = 0;
  program.run(20000);
  EXPECT_LE(program.tried_ns * 1000, program.all_ns * 21);
}

TEST(PathChoice, SomewhatLongMessagesNeedFewAsWell) {
  Program program({7000, 32000, 12000, 14000, 7000}, 256 << 10);
  program.choice.begin(Path::cooperative, kAll, false, 256 << 10);
  program.run(80);
  EXPECT_EQ(program.choice.usual(), Path::cells);
}

TEST(PathChoice, StaysWithPathsThatAreAlike) {
  Program program({5000, 4900, 5000, 5100, 5000});
  program.run(20000);
  EXPECT_EQ(program.changes, 0);
  EXPECT_GT(program.trials, 3);
}

TEST(PathChoice, TrialsTakeTwoPercentOfTheTime) {
  for (const std::uint64_t other_ns : {5000u, 9000u, 18000u, 100000u}) {
    Program program({5000, other_ns, other_ns, other_ns, other_ns});
    program.run(1000);
    program.all_ns = program.tried_ns = 0;
    program.run(200000);
    EXPECT_GT(program.tried_ns, 0u);
    EXPECT_LE(program.tried_ns * 1000, program.all_ns * 21) << other_ns;
  }
}

TEST(PathChoice, FollowsAProgramThatChanges) {
  Program program({5000, 8000, 9000, 20000, 5000});
  program.run(50000);
  EXPECT_EQ(program.choice.usual(), Path::cells);
  program.costs({9000, 8000, 4000, 20000, 9000});
  program.run(3000);
  EXPECT_EQ(program.choice.usual(), Path::cooperative);
}

TEST(PathChoice, InterruptionsDoNotMakeItFlap) {
  Program program({5000, 5100, 5600, 7000, 5000});
  std::uint64_t state = 7;
  program.noise([&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t random = state >> 33;
    // Up to 20 % of noise in each message, and one in 500 takes a hundred times as long.
    return random % 1000 + (random % 500 == 0 ? 500000 : 0);
  });
  program.run(100000);
  EXPECT_LE(program.changes, 1);
  EXPECT_TRUE(program.choice.usual() == Path::cells || program.choice.usual() == Path::pull);
}

TEST(PathChoice, MeasuresWindowsOfMessagesAsAWhole) {
  Program program({5000, 3000, 6000, 6000, 5000});
  program.window(32);
  program.run(4000);
  EXPECT_EQ(program.choice.usual(), Path::pull);
  EXPECT_EQ(program.changes, 1);
}

TEST(PathChoice, APathThatIsMuchTooSlowIsLeftAtOnce) {
  Program program({50000, 5000000, 5000000, 5000000, 50000});
  int slow = 0;
  for (int i = 0; i < 200; ++i) slow += program.send() != Path::cells;
  EXPECT_LE(slow, 3 * 4);
  EXPECT_EQ(program.choice.usual(), Path::cells);
}

TEST(PathChoice, WhatIsDoneOnlyOnceDoesNotCount) {
  // The first two messages on the best path have to map pages first: a millisecond each.
  for (const std::uint64_t bytes : {std::uint64_t{32} << 10, std::uint64_t{1} << 20}) {
    Program program({5000, 3000, 7000, 7000, 5000}, bytes);
    int met = 0;
    program.noise([&] {
      return program.choice.path() == Path::pull && met++ < 2 ? std::uint64_t{1'000'000} : 0;
    });
    program.run(400);
    EXPECT_EQ(program.choice.usual(), Path::pull) << bytes;
  }
}

TEST(PathChoice, AnInterruptedTrialIsNotPaidForForThousandsOfSends) {
  Program program({5000, 3000, 7000, 7000, 5000});
  int met = 0;
  program.noise([&] {
    // In its second trial.
    return program.choice.path() == Path::pull && ++met == 13 ? std::uint64_t{5'000'000} : 0;
  });
  program.run(3000);
  EXPECT_EQ(program.choice.usual(), Path::pull);
}

TEST(PathChoice, APathThatIsNotToBeHadDoesNotWin) {
  Program program({5000, 3000, 6000, 6000, 5000});
  for (int i = 0; i < 5000; ++i) {
    if (program.send() == Path::pull) program.choice.spoil();
  }
  EXPECT_EQ(program.choice.usual(), Path::cells);
}

TEST(PathTable, KeepsPeersSizesAndUsesApartAndLetsOneTryAtATime) {
  observe::Counters counters{};
  PathTable table(counters, 0, 3);
  PathTable::Question first{.peer = 1,
                            .reachable = true,
                            .use = memory::BufferUse::rewritten,
                            .bytes = kBytes,
                            .prior = Path::push,
                            .able = kAll};
  PathTable::Question second = first;
  second.use = memory::BufferUse::received;
  second.prior = Path::cells;
  bool together = false;
  for (int i = 0; i < 3000; ++i) {
    ++counters.matched_posted;
    const bool first_tries = table.choose(first) != table.usual(first);
    ++counters.matched_posted;
    const bool second_tries = table.choose(second) != table.usual(second);
    together |= first_tries && second_tries;
  }
  EXPECT_GT(counters.path_trials, 0u);
  EXPECT_FALSE(together);
  PathTable::Question other = first;
  other.peer = 2;
  other.prior = Path::pull;
  EXPECT_EQ(table.choose(other), Path::pull);
  other.bytes = 2 * kBytes;
  other.prior = Path::cells;
  EXPECT_EQ(table.choose(other), Path::cells);
}

TEST(PathTable, KnowsAgainWhatItHasLearntAtADistance) {
  observe::Counters counters{};
  PathTable table(counters, 0, 2);
  PathTable::Question near{.peer = 1,
                           .reachable = true,
                           .use = memory::BufferUse::rewritten,
                           .bytes = kBytes,
                           .prior = Path::push,
                           .able = kAll};
  PathTable::Question far = near;
  far.far = true;
  EXPECT_EQ(table.choose(near), Path::push);
  for (int i = 0; i < 1000000; ++i) {
    ++counters.matched_posted;
    // Every other path takes much longer than this one, by the real clock.
    const std::uint64_t until_ns = now_ns() + (table.choose(near) == Path::pull ? 200 : 2000);
    while (now_ns() < until_ns) continue;
    if (table.usual(near) == Path::pull) break;
  }
  ASSERT_EQ(table.usual(near), Path::pull);
  EXPECT_EQ(table.choose(far), Path::push);
  EXPECT_EQ(table.usual(far), Path::push);
  EXPECT_EQ(table.usual(near), Path::pull);
}

TEST(PathTable, TakesThePriorWhereTheLearntPathCannotServe) {
  observe::Counters counters{};
  PathTable table(counters, 0, 2);
  PathTable::Question question{.peer = 1,
                               .reachable = true,
                               .use = memory::BufferUse::unchanged,
                               .bytes = kBytes,
                               .prior = Path::pull,
                               .able = kAll};
  EXPECT_EQ(table.choose(question), Path::pull);
  question.able = PathChoice::bit(Path::cells);
  question.prior = Path::cells;
  EXPECT_EQ(table.choose(question), Path::cells);
}

}  // namespace
}  // namespace od::p2p
