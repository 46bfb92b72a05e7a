// Non-blocking and persistent collectives on communicators that span nodes: ranks in forked
// processes, of which some are taken for other nodes', call random ones, many at once, served by
// random algorithms; every result is compared with the definition.
//
// Starts threads: the helper, which makes them go on while a rank sits in a call of the host.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coll/ops/kernels.h"
#include "coll/run/call.h"
#include "coll/run/host_tags.h"
#include "engine/engine.h"
#include "engine/test_calls.h"
#include "engine/test_nodes_host.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using node::Exchange;
using node::run_forked_job;
using test_calls::Trial;

using config::ProgressMode;

config::Settings between_nodes(ProgressMode progress = ProgressMode::kCalls) {
  config::Settings settings;
  settings.progress = progress;
  settings.nonblocking_min_bytes = settings.nonblocking_reduce_min_bytes = 0;
  settings.stall_report_ns = 5'000'000'000;
  return settings;
}

// `nodes`: the node of each rank.
std::unique_ptr<Rank> make_rank(const std::string& nodes, config::Settings settings,
                                const Exchange& exchange, bool host_threads = true) {
  for (std::size_t a = 0; a < nodes.size(); ++a) {
    for (std::size_t b = a + 1; b < nodes.size(); ++b) {
      if (nodes[a] == nodes[b]) continue;
      settings.test_remote.pairs.emplace_back(static_cast<int>(a), static_cast<int>(b));
    }
  }
  return Rank::create(NodesHost::table(exchange, host_threads), settings, false);
}

void run(const std::string& nodes, const std::function<int(int, const Exchange&)>& rank) {
  NodesHost::prepare();
  expect_success(run_forked_job(static_cast<int>(nodes.size()), rank, 100));
  NodesHost::finish();
}

// A call under way.
struct Open {
  std::unique_ptr<Trial> trial;
  Request* request = nullptr;
};

bool complete(Rank& rank, Open& open) {
  rank.wait(*open.request);
  if (open.request->status.error != 0) return false;
  const std::int64_t wrong = open.trial->first_wrong();
  if (wrong != -1) {
    std::fprintf(stderr, "%s: wrong at %lld\n", open.trial->text().c_str(),
                 static_cast<long long>(wrong));
  }
  rank.release(*open.request);
  return wrong == -1;
}

bool start(Rank& rank, Comm& comm, Open& open) {
  bool served = false;
  CollectiveCall copy = open.trial->call();
  return rank.icollective(std::move(copy), comm, &open.request, &served) == 0 && served;
}

void random_calls(const std::string& nodes, int calls,
                  ProgressMode progress = ProgressMode::kCalls) {
  calls = node::rounds_of_processes(calls);
  run(nodes, [&](int me, const Exchange& exchange) {
    config::Settings settings = between_nodes(progress);
    settings.collective_shuffle = 3;
    auto rank = make_rank(nodes, settings, exchange);
    REQUIRE(rank && rank->active());
    Comm& world = *rank->world();
    std::mt19937_64 same(71);
    std::mt19937_64 own(static_cast<std::uint64_t>(me));
    std::vector<Open> open;
    std::uint64_t ours = 0;
    for (int number = 0; number < calls; ++number) {
      Open next{std::make_unique<Trial>(number, me, exchange.size, same)};
      bool served = false;
      if (number % 5 == 4) {
        REQUIRE(rank->collective(next.trial->call(), world, &served) == 0);
        REQUIRE(!served || next.trial->first_wrong() == -1);
        continue;
      }
      CollectiveCall copy = next.trial->call();
      REQUIRE(rank->icollective(std::move(copy), world, &next.request, &served) == 0);
      if (!served) continue;  // by chance it was the host's turn
      ++ours;
      open.push_back(std::move(next));
      if (open.size() < 12) continue;
      const auto i = static_cast<std::ptrdiff_t>(own() % open.size());
      REQUIRE(complete(*rank, open[static_cast<std::size_t>(i)]));
      open.erase(open.begin() + i);
    }
    for (Open& each : open) REQUIRE(complete(*rank, each));
    REQUIRE(ours > static_cast<std::uint64_t>(calls) / 3);
    REQUIRE(rank->state().counters.collectives_between == ours);
    REQUIRE(rank->state().collectives.active.empty());
    REQUIRE(rank->state().collectives.active_between == 0);
    rank->finalize();
    return 0;
  });
}

TEST(BetweenNodes, RandomCallsOfTwoNodes) { random_calls("0011", 300); }
TEST(BetweenNodes, RandomCallsOfRanksInTurn) { random_calls("01012", 200); }
TEST(BetweenNodes, RandomCallsOfRanksThatAreAlone) { random_calls("012", 300); }

TEST(BetweenNodes, RandomCallsWithAnAgent) { random_calls("0011", 200, ProgressMode::kAgent); }

// No call of MPI between the start and the end.
TEST(BetweenNodes, AnAgentFinishesThemWhileTheProgramComputes) {
  const std::string nodes = "0011";
  run(nodes, [&](int me, const Exchange& exchange) {
    auto rank = make_rank(nodes, between_nodes(ProgressMode::kAgent), exchange);
    std::mt19937_64 same(61);
    for (int round = 0; round < 20; ++round) {
      std::vector<Open> open;
      for (int i = 0; i < 6; ++i) {
        open.push_back({std::make_unique<Trial>(round * 6 + i, me, exchange.size, same)});
        REQUIRE(start(*rank, *rank->world(), open.back()));
      }
      for (const Open& each : open) {
        while (!each.request->complete) usleep(100);
      }
      for (Open& each : open) REQUIRE(complete(*rank, each));
    }
    REQUIRE(rank->state().counters.helper_rounds > 0);
    rank->finalize();
    return 0;
  });
}

TEST(BetweenNodes, PersistentOnesMayBeStartedInAnyOrder) {
  const std::string nodes = "0011";
  run(nodes, [&](int me, const Exchange& exchange) {
    NodesHost::tag_ub = (1 << 28) - 1;
    auto rank = make_rank(nodes, between_nodes(), exchange);
    Comm& world = *rank->world();
    std::mt19937_64 same(7);
    constexpr int kCalls = 12;
    std::vector<Open> made;
    for (int number = 0; number < kCalls; ++number) {
      made.push_back({std::make_unique<Trial>(number, me, exchange.size, same)});
      bool served = false;
      CollectiveCall copy = made.back().trial->call();
      REQUIRE(rank->collective_init(std::move(copy), world, &made.back().request, &served) == 0);
      REQUIRE(served);
    }
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < kCalls; ++i) {
        const int which = (i * 5 + me * 3 + round) % kCalls;
        REQUIRE(rank->start(*made[static_cast<std::size_t>(which)].request) == 0);
      }
      Open between{std::make_unique<Trial>(1000 + round, me, exchange.size, same)};
      REQUIRE(start(*rank, world, between) && complete(*rank, between));
      for (int i = 0; i < kCalls; ++i) {
        Open& each = made[static_cast<std::size_t>((i * 7 + me) % kCalls)];
        REQUIRE(complete(*rank, each));
        each.trial->restore();
      }
    }
    REQUIRE(world.collectives->persistent_left == kCalls);
    for (Open& each : made) rank->free_request(*each.request);
    REQUIRE(world.collectives->persistent_left == 0);
    rank->finalize();
    return 0;
  });
}

// A rank that sits in a call of the host goes on starting messages, on which others wait.
TEST(BetweenNodes, PendingOnesGoOnWhileARankIsInTheHost) {
  const std::string nodes = "0011";
  run(nodes, [&](int me, const Exchange& exchange) {
    auto rank = make_rank(nodes, between_nodes(), exchange);
    std::mt19937_64 same(31);
    for (int number = 0; number < 60; ++number) {
      Open one{std::make_unique<Trial>(number, me, exchange.size, same)};
      REQUIRE(start(*rank, *rank->world(), one));
      const bool inside = me == number % 4;
      const bool open = inside && !one.request->complete && rank->entering_host_call();
      if (!inside) REQUIRE(complete(*rank, one));
      exchange.barrier();  // the host's
      if (open) rank->left_host_call();
      if (inside) REQUIRE(complete(*rank, one));
    }
    rank->finalize();
    return 0;
  });
}

// MPI_Comm_free comes before the requests are waited for.
TEST(BetweenNodes, CommunicatorsAreFreedWhileCallsAreUnderWay) {
  const std::string nodes = "0011";
  run(nodes, [&](int me, const Exchange& exchange) {
    auto rank = make_rank(nodes, between_nodes(), exchange);
    std::mt19937_64 same(43);
    for (int round = 0; round < 20; ++round) {
      const auto handle = static_cast<host::Handle>(1000 + round);
      Comm* const comm = rank->comm_created(*rank->world(), handle, Rank::Origin::collective);
      REQUIRE(comm != nullptr && comm->collectives->serves_later);
      std::vector<Open> open;
      for (int i = 0; i < 6; ++i) {
        open.push_back({std::make_unique<Trial>(round * 6 + i, me, exchange.size, same)});
        REQUIRE(start(*rank, *comm, open.back()));
      }
      rank->comm_freed(*comm);
      for (Open& each : open) REQUIRE(complete(*rank, each));
    }
    rank->finalize();
    return 0;
  });
}

// Without threads in the host nobody could start messages while the program is inside it.
TEST(BetweenNodes, TheHostServesThemWhereItHasNoThreads) {
  const std::string nodes = "0011";
  run(nodes, [&](int me, const Exchange& exchange) {
    auto rank = make_rank(nodes, between_nodes(), exchange, me != 2);
    std::mt19937_64 same(5);
    Trial trial(1, me, exchange.size, same);
    Request* request = nullptr;
    bool served = true;
    CollectiveCall copy = trial.call();
    REQUIRE(rank->icollective(std::move(copy), *rank->world(), &request, &served) == 0);
    REQUIRE(!served);
    rank->finalize();
    return 0;
  });
}

// With the fewest tags that MPI permits there are some for one of them.
TEST(BetweenNodes, PersistentOnesWithoutTagsAreTheHosts) {
  const std::string nodes = "0011";
  run(nodes, [&](int me, const Exchange& exchange) {
    auto rank = make_rank(nodes, between_nodes(), exchange);
    std::mt19937_64 same(9);
    for (const bool expected : {true, true, false}) {
      Trial trial(1, me, exchange.size, same);
      Request* request = nullptr;
      bool served = false;
      CollectiveCall copy = trial.call();
      REQUIRE(rank->collective_init(std::move(copy), *rank->world(), &request, &served) == 0);
      REQUIRE(served == expected);
      if (served) rank->free_request(*request);
    }
    rank->finalize();
    return 0;
  });
}

TEST(BetweenNodes, ShortOnesAreTheHosts) {
  const std::string nodes = "0011";
  run(nodes, [&](int me, const Exchange& exchange) {
    config::Settings settings = between_nodes();
    settings.nonblocking_min_bytes = 1000;
    settings.nonblocking_reduce_min_bytes = 2000;
    auto rank = make_rank(nodes, settings, exchange);
    const auto serves = [&](coll::Collective collective, std::int64_t bytes) {
      std::vector<char> from(4 * 4096, 'a'), to(4 * 4096);
      CollectiveCall call;
      call.collective = collective;
      call.send = from.data();
      call.recv = to.data();
      call.send_count = call.recv_count = bytes;
      call.send_type = call.recv_type = byte_layout();
      call.reduction.kernel = coll::ops::find_kernel(coll::ops::Op::max, coll::ops::Kind::int8);
      Request* request = nullptr;
      bool served = false;
      REQUIRE(rank->icollective(std::move(call), *rank->world(), &request, &served) == 0);
      if (served) {
        rank->wait(*request);
        rank->release(*request);
      }
      return served;
    };
    REQUIRE(!serves(coll::Collective::kAlltoall, 999));
    REQUIRE(serves(coll::Collective::kAlltoall, 1000));
    REQUIRE(!serves(coll::Collective::kAllreduce, 1999));
    REQUIRE(serves(coll::Collective::kAllreduce, 2000));
    (void)me;
    rank->finalize();
    return 0;
  });
}

// No two orders of calls share a tag, whatever the host's highest one is.
TEST(HostTags, RangesAreDisjoint) {
  for (const std::int32_t mask : {0x7fff, 0xffff, 0xfffffff, 0x7fffffff}) {
    const HostTags tags(mask);
    std::vector<std::int64_t> first;
    for (std::uint32_t i = 0; i < HostTags::kChannels; ++i) first.push_back(tags.channel(i));
    std::int32_t persistent = -1;
    std::uint64_t number = 0;
    while (number < 100 && tags.persistent(number, &persistent)) {
      first.push_back(persistent);
      ++number;
    }
    EXPECT_GT(number, 0u);
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i], static_cast<std::int64_t>(i) * coll::kMostOrdinals);
    }
    std::uint64_t all = number;
    while (all < (1u << 20) && tags.persistent(all, &persistent)) ++all;
    for (std::uint64_t sequence = 0; sequence < 3000; ++sequence) {
      const std::int64_t blocking = tags.blocking(sequence);
      EXPECT_GT(blocking, persistent);
      EXPECT_LE(blocking + coll::kMostOrdinals - 1, mask);
    }
  }
}

}  // namespace
}  // namespace od
