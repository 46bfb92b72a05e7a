// How often the host is asked, by what is pending; no case depends on how fast the machine is.

#include "engine/host_drive.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/rank_state.h"
#include "engine/test_rank.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using Need = HostDrive::Need;
using node::Exchange;
using node::run_forked_job;

constexpr int kRounds = 1000;

int asked_in(HostDrive& drive, Need need) {
  int asked = 0;
  for (int i = 0; i < kRounds; ++i) {
    if (!drive.due(need)) continue;
    drive.ask([&] { ++asked; });
  }
  return asked;
}

TEST(HostDrive, EveryRoundAndQuiet) {
  HostDrive drive;
  EXPECT_EQ(asked_in(drive, Need::every_round), kRounds);
  EXPECT_LE(asked_in(drive, Need::quiet), kRounds / 32 + 1);
}

TEST(HostDrive, ForcedInterval) {
  HostDrive drive(8);
  EXPECT_EQ(asked_in(drive, Need::every_round), kRounds / 8);
  EXPECT_EQ(asked_in(drive, Need::shared), kRounds / 8);
  EXPECT_LE(asked_in(drive, Need::quiet), kRounds / 32 + 1);
}

// Who looks for messages and who is idle take turns in each round, whatever the interval.
TEST(HostDrive, ForcedIntervalServesAllWhoAsk) {
  for (const int interval : {1, 2, 3, 100}) {
    HostDrive drive(static_cast<std::uint32_t>(interval));
    int messages = 0;
    int idle = 0;
    for (int i = 0; i < kRounds; ++i) {
      if (drive.due_for_messages()) drive.ask([&] { ++messages; });
      if (drive.due(Need::shared)) drive.ask([&] { ++idle; });
    }
    EXPECT_EQ(messages, kRounds / interval) << interval;
    EXPECT_EQ(idle, kRounds / interval) << interval;
  }
}

// What asking costs follows what it has cost.
TEST(HostDrive, CostsAreMeasured) {
  HostDrive drive;
  const auto slow_answer = [] {
    const std::uint64_t start = now_ns();
    while (now_ns() - start < 10'000) {
    }
  };
  EXPECT_TRUE(drive.due(Need::shared));  // not known yet
  drive.ask(slow_answer);
  EXPECT_GE(drive.ask_ns(), 10'000U);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(drive.due(Need::every_round));
    drive.ask([] {});
  }
  EXPECT_LT(drive.ask_ns(), 10'000U);
}

TEST(HostNotes, WindowsAndStarts) {
  HostNotes notes;
  EXPECT_EQ(notes.need(), Need::quiet);
  notes.window_opened();
  notes.window_opened();
  notes.window_freed();
  EXPECT_TRUE(notes.any());
  EXPECT_FALSE(notes.started());
  EXPECT_EQ(notes.need(), Need::every_round);
  notes.window_freed();
  EXPECT_EQ(notes.need(), Need::quiet);
  notes.note(HostNotes::Kind::operation);
  EXPECT_TRUE(notes.started());
  EXPECT_EQ(notes.need(), Need::every_round);
}

TEST(HostNotes, MessagesAreForgotten) {
  HostNotes notes;
  notes.note(HostNotes::Kind::message);
  EXPECT_FALSE(notes.started());
  EXPECT_TRUE(notes.any());
  while (notes.need() != Need::quiet) {
  }
  EXPECT_FALSE(notes.any());
}

// The waits of a rank: in every idle round while it has a window, rarely otherwise.
TEST(HostDrive, WaitsFollowTheWindows) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    REQUIRE(rank && rank->active());
    RankState& s = rank->state();
    if (me == 0) {
      const auto polls_of = [&](auto&& step) {
        const std::uint64_t idle = s.counters.idle_rounds;
        const std::uint64_t polls = s.counters.host_polls;
        while (s.counters.idle_rounds < idle + kRounds) step();
        return s.counters.host_polls - polls;
      };
      const auto wait = [&](auto&& count) {
        Rank::WaitLoop loop(*rank, "test", false);
        return count([&] { loop.step(); });
      };
      const auto poll = [&](auto&& count) { return count([&] { rank->nothing_found(); }); };
      // A sleep or a long wait adds one now and then.
      REQUIRE(wait(polls_of) <= kRounds / 8);
      REQUIRE(poll(polls_of) <= kRounds / 8);
      rank->window_opened();
      REQUIRE(wait(polls_of) >= kRounds);
      REQUIRE(poll(polls_of) >= kRounds);
      rank->window_freed();
      REQUIRE(poll(polls_of) <= kRounds / 8);
    }
    rank->finalize();
    return 0;
  }));
}

}  // namespace
}  // namespace od
