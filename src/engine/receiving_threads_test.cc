// Several threads of a rank receive at the same time.

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/rank_state.h"
#include "engine/test_rank.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using node::Exchange;
using node::run_forked_job;

// The thread that looks for messages takes the next one itself, although another thread, which does
// not run, asked for it first: nobody has to be given the processor before it goes on.
TEST(ReceivingThreads, WhoLooksNeedNotWaitForWhoDoesNotRun) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, {}, true);
    REQUIRE(rank && rank->active());
    const p2p::LayoutRef bytes = byte_layout();
    constexpr int kMessages = 20;
    if (me == 0) {
      for (unsigned char i = 0; i < kMessages; ++i) {
        REQUIRE(rank->send(&i, 1, bytes, 1, 5, *rank->world(), SendMode::standard) == 0);
        host::Status status;
        unsigned char answer = 0;
        REQUIRE(rank->recv(&answer, 1, bytes, 1, 6, *rank->world(), &status) == 0);
        REQUIRE(answer == i);
      }
    } else {
      // The receives of two threads that are in MPI_Recv; the first one has lost its core.
      const auto begin_receive = [&](unsigned char* data) {
        Request* request = nullptr;
        const int error = rank->irecv(data, 1, bytes, 0, 5, *rank->world(), &request);
        if (error == 0) request->blocking = true;
        return error == 0 ? request : nullptr;
      };
      unsigned char data[2] = {255, 255};
      Request* const other = begin_receive(&data[0]);
      REQUIRE(other != nullptr);
      const Rank::WaitLoop of_other(*rank, "MPI_Recv", false, other);
      for (int i = 0; i < kMessages - 1; ++i) {
        Request* const mine = begin_receive(&data[1]);
        REQUIRE(mine != nullptr);
        {
          Rank::WaitLoop loop(*rank, "MPI_Recv", false, mine);
          while (!mine->complete && !other->complete) loop.step();
        }
        REQUIRE(mine->complete && !other->complete);
        REQUIRE(data[1] == i);
        rank->release(*mine);
        REQUIRE(rank->send(&data[1], 1, bytes, 0, 6, *rank->world(), SendMode::standard) == 0);
      }
      REQUIRE(rank->state().counters.thread_yields == 0);
      rank->wait(*other);
      REQUIRE(data[0] == kMessages - 1);
      REQUIRE(rank->send(&data[0], 1, bytes, 0, 6, *rank->world(), SendMode::standard) == 0);
      rank->release(*other);
    }
    rank->finalize();
    return 0;
  }));
}

// Ranks of several threads that come to share a core, which nobody could know when they joined:
// they give it away soon, instead of waiting as where each has its own.
TEST(ReceivingThreads, LearnThatACoreIsShared) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  if (CPU_COUNT(&mask) < 2) GTEST_SKIP() << "ranks know that they share the only core";
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, {}, true);
    REQUIRE(rank && rank->active());
    RankState& s = rank->state();
    cpu_set_t one;
    CPU_ZERO(&one);
    REQUIRE(sched_getaffinity(0, sizeof one, &one) == 0);
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &one) && found++ != 0) CPU_CLR(cpu, &one);
    }
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    exchange.barrier();
    const p2p::LayoutRef bytes = byte_layout();
    // Somebody else on the core makes ranks look oftener, and may do so for a while: the quietest
    // of several series counts.
    constexpr int kSeries = 8;
    const int messages = node::rounds_of_processes(1000);
    std::uint64_t fewest = std::numeric_limits<std::uint64_t>::max();
    char data[8] = {};
    host::Status status;
    for (int series = 0; series < kSeries; ++series) {
      const std::uint64_t before = s.counters.idle_rounds;
      for (int i = 0; i < messages; ++i) {
        if (me == 0) {
          REQUIRE(rank->send(data, 8, bytes, 1, 5, *rank->world(), SendMode::standard) == 0);
        }
        REQUIRE(rank->recv(data, 8, bytes, 1 - me, 5, *rank->world(), &status) == 0);
        if (me == 1) {
          REQUIRE(rank->send(data, 8, bytes, 0, 5, *rank->world(), SendMode::standard) == 0);
        }
      }
      fewest = std::min(fewest, s.counters.idle_rounds - before);
    }
    // 200 rounds for each message without what is tested here.
    if (s.wait_plan.peer_spin_ns == 0) {
      REQUIRE(fewest < static_cast<std::uint64_t>(messages) * 50);
    }
    rank->finalize();
    return 0;
  }));
}

// Both threads run: each message is received once, whoever takes it.
TEST(ReceivingThreads, EveryMessageComesOnce) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, {}, true);
    REQUIRE(rank && rank->active());
    const p2p::LayoutRef bytes = byte_layout();
    constexpr std::int64_t kBytes[] = {4, 200, 5000, 100'000};
    const int rounds = node::rounds_of_processes(200);
    for (const std::int64_t size : kBytes) {
      std::vector<int> seen(static_cast<std::size_t>(2 * rounds));
      const auto work = [&](int thread) {
        std::vector<unsigned char> data(static_cast<std::size_t>(size));
        for (int i = 0; i < rounds; ++i) {
          host::Status status;
          if (me == 0) {
            const int number = 2 * i + thread;
            std::memcpy(data.data(), &number, sizeof number);
            if (rank->send(data.data(), size, bytes, 1, 5, *rank->world(), SendMode::standard)) {
              return;
            }
            if (rank->recv(data.data(), size, bytes, 1, 6, *rank->world(), &status)) return;
          } else {
            if (rank->recv(data.data(), size, bytes, 0, 5, *rank->world(), &status)) return;
            if (rank->send(data.data(), size, bytes, 0, 6, *rank->world(), SendMode::standard)) {
              return;
            }
          }
          int number = -1;
          std::memcpy(&number, data.data(), sizeof number);
          // Each number comes to one thread of either side.
          if (number >= 0 && number < 2 * rounds) ++seen[static_cast<std::size_t>(number)];
        }
      };
      std::thread first(work, 0);
      std::thread second(work, 1);
      first.join();
      second.join();
      for (const int times : seen) REQUIRE(times == 1);
    }
    rank->finalize();
    return 0;
  }));
}

}  // namespace
}  // namespace od
