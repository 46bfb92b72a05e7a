// How busy the agent is: without a pause while somebody waits, and not any longer than that.
// Starts threads.
#include "engine/overlap_agent.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace od {
namespace {

constexpr std::uint64_t kShortestPauseNs = 250'000;
constexpr std::uint64_t kWindowNs = 60'000'000;

void nap() {
  const timespec while_others_work{0, 1'000'000};
  nanosleep(&while_others_work, nullptr);
}

class Rounds final : public AgentWork {
 public:
  bool agent_round(bool* moved) override {
    *moved = false;
    made_.fetch_add(1, std::memory_order_relaxed);
    return !over_.load(std::memory_order_relaxed);
  }
  void agent_starts() override {}

  std::uint64_t made() const { return made_.load(std::memory_order_relaxed); }
  void end() { over_.store(true, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> made_{0};
  std::atomic<bool> over_{false};
};

// Pauses are never shorter than asked for, so there is a most of rounds, on any machine.
void expect_pauses(const Rounds& rounds) {
  const std::uint64_t before = rounds.made();
  const std::uint64_t began_ns = now_ns();
  while (now_ns() - began_ns < kWindowNs) nap();
  const std::uint64_t made = rounds.made() - before;
  const std::uint64_t passed_ns = now_ns() - began_ns;
  EXPECT_LE(made, passed_ns / kShortestPauseNs + 3);
}

TEST(OverlapAgentTest, PausesUnlessSomebodyWaits) {
  Rounds rounds;
  OverlapAgent agent(rounds);
  ASSERT_TRUE(agent.start());
  agent.work();
  expect_pauses(rounds);

  agent.hurry(true);
  const std::uint64_t before = rounds.made();
  const std::uint64_t began_ns = now_ns();
  std::uint64_t most_with_pauses = 0;
  do {
    nap();
    most_with_pauses = (now_ns() - began_ns) / kShortestPauseNs + 3;
    ASSERT_LT(now_ns() - began_ns, 20'000'000'000u);
  } while (rounds.made() - before <= most_with_pauses);
  agent.hurry(false);
  nap();
  expect_pauses(rounds);

  rounds.end();
  while (!agent.wait_until_idle()) {
  }
  agent.claim();
}

}  // namespace
}  // namespace od
