// Sends for which there is no memory left: they wait for their receivers where they may, and none
// of them fails.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/test_rank.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using node::Exchange;
using node::run_forked_job;

// More than there are envelopes in the region.
constexpr int kMessages = 4500;
// Received in turned order, so that others stay behind.
constexpr int kTurned = 100;

std::uint64_t mark_of(int sender, int message) {
  return static_cast<std::uint64_t>(sender * kMessages + message);
}

config::Settings limited(std::uint64_t bytes) {
  config::Settings settings;
  settings.buffer_limit_bytes = bytes;
  return settings;
}

// Both ranks start all of their sends before either receives: none may wait for its receive.
int exchange_late(int me, const Exchange& exchange, std::uint64_t limit, std::size_t bytes) {
  auto rank = make_test_rank(exchange, limited(limit));
  const p2p::LayoutRef layout = byte_layout();
  const auto count = static_cast<std::int64_t>(bytes);
  std::vector<unsigned char> data(bytes * kMessages);
  std::vector<Request*> requests(kMessages);
  for (int i = 0; i < kMessages; ++i) {
    const std::span<unsigned char> message(data.data() + bytes * static_cast<std::size_t>(i),
                                           bytes);
    fill(message, mark_of(me, i));
    REQUIRE(rank->isend(message.data(), count, layout, 1 - me, i, *rank->world(),
                        SendMode::standard, &requests[static_cast<std::size_t>(i)]) == 0);
  }
  exchange.barrier();
  std::vector<unsigned char> received(bytes);
  host::Status status;
  for (int i = 0; i < kMessages; ++i) {
    const int tag = i < kTurned ? kTurned - 1 - i : i;
    REQUIRE(rank->recv(received.data(), count, layout, 1 - me, tag, *rank->world(), &status) == 0);
    REQUIRE(check(received, mark_of(1 - me, tag), bytes));
  }
  for (Request* request : requests) {
    rank->wait(*request);
    rank->release(*request);
  }
  rank->finalize();
  return 0;
}

TEST(MemoryLimit, NonBlockingSendsGoOnWithoutMemory) {
  expect_success(run_forked_job(
      2, [](int me, const Exchange& exchange) { return exchange_late(me, exchange, 0, 3000); }));
}

TEST(MemoryLimit, NonBlockingSendsGoOnAtTheLimit) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    return exchange_late(me, exchange, 1 << 20, 3000);
  }));
}

TEST(MemoryLimit, BlockingSendsWaitForTheirReceiver) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{3000}}) {
    expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
      auto rank = make_test_rank(exchange, limited(0));
      const p2p::LayoutRef layout = byte_layout();
      const auto count = static_cast<std::int64_t>(bytes);
      std::vector<unsigned char> data(bytes);
      host::Status status;
      // So late that everything is full by then.
      if (me == 1) usleep(200'000);
      for (int i = 0; i < kMessages && me == 0; ++i) {
        fill(data, mark_of(0, i));
        REQUIRE(rank->send(data.data(), count, layout, 1, 7, *rank->world(), SendMode::standard) ==
                0);
      }
      for (int i = 0; i < kMessages && me == 1; ++i) {
        REQUIRE(rank->recv(data.data(), count, layout, 0, 7, *rank->world(), &status) == 0);
        REQUIRE(check(data, mark_of(0, i), bytes));
      }
      rank->finalize();
      return 0;
    }));
  }
}

}  // namespace
}  // namespace od
