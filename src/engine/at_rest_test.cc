// The word that says that a rank has nothing under way, whatever may be under way.

#include "p2p/at_rest.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "coll/run/call.h"
#include "engine/engine.h"
#include "engine/rank_state.h"
#include "engine/test_rank.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using node::Exchange;
using node::run_forked_job;

constexpr std::int64_t kLong = 3'000'000;

TEST(AtRest, IsTakenBackByWhateverIsLeftUnderWay) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    REQUIRE(rank && rank->active());
    std::atomic<bool> word{true};
    rank->rest_in(word);
    REQUIRE(!word);
    REQUIRE(rank->comes_to_rest() && word);

    const p2p::LayoutRef bytes = byte_layout();
    Comm& world = *rank->world();
    const int peer = 1 - me;
    std::vector<unsigned char> out(kLong, 1), in(kLong);
    host::Status status;
    const auto exchange_bytes = [&](std::int64_t size) {
      if (me == 0 && rank->send(out.data(), size, bytes, peer, 1, world, SendMode::standard) != 0) {
        return false;
      }
      if (rank->recv(in.data(), size, bytes, peer, 1, world, &status) != 0) return false;
      return me == 0 ||
             rank->send(out.data(), size, bytes, peer, 1, world, SendMode::standard) == 0;
    };

    // Calls that leave nothing.
    REQUIRE(exchange_bytes(8));
    REQUIRE(word);

    // A receive that is pending, and then is not.
    Request* request = nullptr;
    exchange.barrier();
    REQUIRE(rank->irecv(in.data(), 8, bytes, peer, 2, world, &request) == 0);
    REQUIRE(!word);
    REQUIRE(!rank->comes_to_rest() && !word);
    exchange.barrier();
    REQUIRE(rank->send(out.data(), 8, bytes, peer, 2, world, SendMode::standard) == 0);
    rank->wait(*request);
    rank->release(*request);
    REQUIRE(rank->comes_to_rest() && word);

    // The same as a persistent one, which gets its request long before.
    Request* kept = nullptr;
    REQUIRE(rank->recv_init(in.data(), 8, bytes, peer, 3, world, &kept) == 0);
    for (int round = 0; round < 2; ++round) {
      REQUIRE(rank->comes_to_rest() && word);
      REQUIRE(rank->start(*kept) == 0);
      REQUIRE(!word && !rank->comes_to_rest());
      exchange.barrier();
      REQUIRE(rank->send(out.data(), 8, bytes, peer, 3, world, SendMode::standard) == 0);
      rank->wait(*kept);
      rank->release(*kept);
    }
    rank->free_request(*kept);

    // A long send that nobody receives yet, and its like from a blocking call.
    REQUIRE(rank->comes_to_rest() && word);
    REQUIRE(rank->isend(out.data(), kLong, bytes, peer, 4, world, SendMode::standard, &request) ==
            0);
    REQUIRE(!word && !rank->comes_to_rest());
    exchange.barrier();  // before it, the other's receive would finish it
    REQUIRE(rank->recv(in.data(), kLong, bytes, peer, 4, world, &status) == 0);
    rank->wait(*request);
    rank->release(*request);
    for (int round = 0; round < 20; ++round) {
      REQUIRE(exchange_bytes(kLong));
      REQUIRE(!word || !rank->state().transport->streams_active());
    }

    // A collective that goes on after its call; rank 1 comes later.
    exchange.barrier();
    while (!rank->comes_to_rest()) rank->progress();
    if (me == 1) exchange.barrier();
    CollectiveCall call;
    call.collective = coll::Collective::kBarrier;
    bool served = false;
    REQUIRE(rank->icollective(std::move(call), world, &request, &served) == 0 && served);
    if (me == 0) {
      REQUIRE(!word && !rank->comes_to_rest());
      exchange.barrier();
    }
    rank->wait(*request);
    rank->release(*request);

    // Nothing is left at the end, and the word follows.
    exchange.barrier();
    while (!rank->comes_to_rest()) rank->progress();
    REQUIRE(word);
    rank->stays_awake();
    REQUIRE(!word && rank->comes_to_rest() && !word);
    rank->finalize();
    return 0;
  }));
}

}  // namespace
}  // namespace od
