// Test support: collectives of a plan that all ranks share, each by every member the way it likes,
// with random delays, sleeping ranks and little patience.
#ifndef OVERDRIVE_COLL_SHM_TEST_MIXED_LINES_H_
#define OVERDRIVE_COLL_SHM_TEST_MIXED_LINES_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <vector>

#include "coll/shm/test_carrier.h"
#include "coll/shm/test_team.h"

namespace od::coll::shm {

// A member of a team, which serves collectives as lines or as operations from the start.
class LineMember {
 public:
  LineMember(Team& team, TestNode& node) : team_(team), node_(node) {}
  std::uint64_t lines() const { return lines_; }

 protected:
  // `patience` < 0: as an operation, which start(op) starts; so is what serve_line() has refused.
  template <typename ServeLine, typename Start>
  void serve(int patience, bool may_be_line, ServeLine&& serve_line, Start&& start) {
    if (patience >= 0 && may_be_line && serve_line()) {
      ++lines_;
      return;
    }
    Operation op;
    start(op);
    node_.wait_for(team_, op);
    REQUIRE(op.lengths_agree());
  }

  Team& team_;
  TestNode& node_;

 private:
  std::uint64_t lines_ = 0;
};

// `delays`: members are late by chance and give up at once or soon. `make_case(plan, number)` gives
// the next collective, alike on all ranks; Member has run(case, patience) and lines(), how many of
// them were lines. With `message_min` blocks of so many bytes between two members are messages.
template <typename Member, typename MakeCase>
void mixed_lines(int ranks, unsigned seed, bool delays, bool fences, int rounds,
                 MakeCase&& make_case, std::uint64_t message_min = Tuning::kNever) {
  const auto carrier = std::make_unique<TestCarrier>();
  const std::vector<int> codes = od::node::run_forked_job(
      ranks,
      [&](int me, const od::node::Exchange& exchange) {
        TestTeamOptions options;
        options.force_fences = options.tuning.oversubscribed = fences;
        if (message_min != Tuning::kNever) options.carrier = carrier.get();
        for (Tuning::Row* row : {&options.tuning.near_row, &options.tuning.oversubscribed_row}) {
          row->message_rooted = row->message_everyone = row->message_rewritten = message_min;
        }
        TestNode node(exchange, options);
        carrier->begin(node, me);
        auto team = node.make_team();
        REQUIRE(team);
        node.sleep_until_woken(
            od::node::plan_waiting(od::node::WaitPolicy::automatic, fences || ranks > 2, 0));
        Member member(*team, node);
        std::mt19937 plan(seed);  // alike on all ranks
        std::mt19937 own(seed * 31 + static_cast<unsigned>(me));
        for (int number = 0; number < rounds; ++number) {
          const auto one = make_case(plan, number);
          int patience = fences ? 500 : 1'000'000;
          if (delays) {
            if (own() % 32 == 0) usleep(static_cast<unsigned>(own() % 200));
            patience = static_cast<int>(own() % 4 == 0 ? own() % 1000 : own() % 3) - 1;
          }
          member.run(one, patience);
        }
        node.wait(*team, [&] { return team->idle(); });
        REQUIRE(node.lost_wakes() == 0);
        REQUIRE(team->counters().lines == member.lines());
        REQUIRE(member.lines() > 0);
        REQUIRE((team->counters().shown_message > 0) == (message_min != Tuning::kNever));
        exchange.barrier();
        return 0;
      },
      100);
  for (std::size_t rank = 0; rank < codes.size(); ++rank) EXPECT_EQ(codes[rank], 0) << rank;
}

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_TEST_MIXED_LINES_H_
