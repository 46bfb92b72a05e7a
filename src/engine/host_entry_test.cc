// Ranks that come to a collective call of the host: who would have to lend a receive waits for the
// others of its node, and for nobody else.

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/test_rank.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using node::Exchange;
using node::run_forked_job;

constexpr int kTag = 5;

// The host never has a message; the last rank is on another node.
std::unique_ptr<Rank> make_rank(const Exchange& exchange, bool threads = false) {
  host::HostTable host = forked_host(exchange);
  host.iprobe = [](int, int, host::Handle, bool* flag, host::Status*) {
    *flag = false;
    return host::kSuccess;
  };
  host.improbe = [](int, int, host::Handle, bool* flag, host::Handle*, host::Status*) {
    *flag = false;
    return host::kSuccess;
  };
  config::Settings settings;
  settings.test_remote.pairs = {{0, 2}, {1, 2}};
  return Rank::create(host, settings, threads);
}

int receive_from_any(Rank& rank, int* value, Request** receive) {
  return rank.irecv(value, sizeof *value, byte_layout(), host::kAnySource, kTag, *rank.world(),
                    receive);
}

// A neighbour's synchronous send, made before the neighbour comes, has its receive when the call
// begins: none is left to lend. Its payload may be on its way yet.
TEST(HostEntry, ReceivesAreMatchedBeforeTheCall) {
  expect_success(run_forked_job(3, [](int me, const Exchange& exchange) {
    auto rank = make_rank(exchange);
    REQUIRE(rank);
    RankState& s = rank->state();
    Comm& world = *rank->world();
    for (int round = 1; round <= 3; ++round) {
      int value = 0;
      Request* request = nullptr;
      if (me == 0) REQUIRE(receive_from_any(*rank, &value, &request) == 0);
      exchange.barrier();
      if (me == 1) {
        usleep(20'000);  // mostly the first one waits by then
        REQUIRE(rank->isend(&round, sizeof round, byte_layout(), 0, kTag, world,
                            SendMode::synchronous, &request) == 0);
        rank->wait(*request);
      }
      const Rank::HostEntry entry(rank.get(), &world);
      if (me == 0) {
        REQUIRE(s.matching.host_candidates().empty() && s.matching.posted_count() == 0);
        REQUIRE(s.counters.host_entries_awaited == static_cast<std::uint64_t>(round));
        rank->wait(*request);
        REQUIRE(request->status.source == 1 && value == round);
      }
      if (request != nullptr) rank->release(*request);
      exchange.barrier();  // the call, which nobody leaves before all have come
    }
    REQUIRE(world.awaits_entries);
    rank->finalize();
    return 0;
  }));
}

// A receive may stay pending: then it is over when the neighbour has come, whoever comes elsewhere.
TEST(HostEntry, WaitsForTheNodeOnly) {
  expect_success(run_forked_job(3, [](int me, const Exchange& exchange) {
    auto rank = make_rank(exchange);
    REQUIRE(rank);
    int value = 0;
    Request* request = nullptr;
    if (me == 0) REQUIRE(receive_from_any(*rank, &value, &request) == 0);
    if (me == 1) usleep(20'000);
    if (me != 2) {
      const Rank::HostEntry entry(rank.get(), rank->world());
      if (me == 0) REQUIRE(!request->complete && rank->world()->awaits_entries);
      exchange.barrier();
    } else {
      exchange.barrier();  // without having come
    }
    if (me == 0) {
      rank->cancel(*request);
      rank->release(*request);
    }
    exchange.barrier();
    rank->finalize();
    return 0;
  }));
}

// Nobody waits without such a receive, nor for a rank whose threads may be in several calls.
TEST(HostEntry, OthersAreNotWaitedFor) {
  for (const bool several : {false, true}) {
    expect_success(run_forked_job(3, [several](int me, const Exchange& exchange) {
      auto rank = make_rank(exchange, several && me == 1);
      REQUIRE(rank);
      RankState& s = rank->state();
      int value = 0;
      Request* request = nullptr;
      if (me == 0 && several) REQUIRE(receive_from_any(*rank, &value, &request) == 0);
      if (me == 0) {
        const Rank::HostEntry entry(rank.get(), rank->world());
        REQUIRE(s.counters.host_entries_awaited == (several ? 1U : 0U));
        REQUIRE(rank->world()->awaits_entries);
      }
      exchange.barrier();  // the others have not come
      if (request != nullptr) {
        rank->cancel(*request);
        rank->release(*request);
      }
      exchange.barrier();
      rank->finalize();
      return 0;
    }));
  }
}

}  // namespace
}  // namespace od
