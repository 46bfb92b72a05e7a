// Ranks in forked processes call random collectives, several at once, served by random algorithms;
// every result is compared with the definition.
//
// Starts threads: the helper of ranks that sit in a call of the host, and threads of the program.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "coll/ops/kernels.h"
#include "coll/run/call.h"
#include "engine/engine.h"
#include "engine/test_calls.h"
#include "engine/test_rank.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using node::Exchange;
using node::run_forked_job;
using test_calls::Trial;

int run_trials(int me, const Exchange& exchange, const config::Settings& settings, int trials,
               std::uint64_t seed) {
  auto rank = make_test_rank(exchange, settings);
  REQUIRE(rank && rank->active());
  Comm& world = *rank->world();
  std::mt19937_64 same(seed);  // drawn alike by all ranks
  std::vector<std::unique_ptr<Trial>> open;
  std::vector<Request*> requests;
  int served_calls = 0;
  const auto wait_for = [&](std::size_t i) {
    if (requests[i] != nullptr) {
      rank->wait(*requests[i]);
      REQUIRE(requests[i]->status.error == 0);
      rank->release(*requests[i]);
    }
    const std::int64_t wrong = open[i]->first_wrong();
    if (wrong != -1) {
      std::fprintf(stderr, "rank %d of %d, seed %llu: %s: wrong at %lld\n", me, exchange.size,
                   static_cast<unsigned long long>(seed), open[i]->text().c_str(),
                   static_cast<long long>(wrong));
      return 1;
    }
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
    requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(i));
    return 0;
  };
  for (int number = 0; number < trials; ++number) {
    open.push_back(std::make_unique<Trial>(number, me, exchange.size, same));
    requests.push_back(nullptr);
    bool served = false;
    if (same() % 2 == 0) {
      REQUIRE(rank->collective(open.back()->call(), world, &served) == 0);
      if (served) REQUIRE(wait_for(open.size() - 1) == 0);
    } else {
      CollectiveCall copy = open.back()->call();
      REQUIRE(rank->icollective(std::move(copy), world, &requests.back(), &served) == 0);
    }
    served_calls += served ? 1 : 0;
    if (!served) {
      open.pop_back();
      requests.pop_back();
    }
    // Waited for in any order, which differs between ranks.
    if (open.size() > 4)
      REQUIRE(wait_for(static_cast<std::size_t>(me + number) % open.size()) == 0);
  }
  while (!open.empty()) REQUIRE(wait_for(0) == 0);
  REQUIRE(served_calls > trials / 2);
  rank->finalize();
  return 0;
}

void random_collectives(int ranks, config::Settings settings, int trials) {
  settings.collective_shuffle = 1;
  settings.stall_report_ns = 5'000'000'000;
  trials = node::rounds_of_processes(trials);
  const std::uint64_t seed = 20240713 + static_cast<std::uint64_t>(ranks);
  expect_success(run_forked_job(ranks, [&](int me, const Exchange& exchange) {
    return run_trials(me, exchange, settings, trials, seed);
  }));
}

TEST(Collectives, RandomCallsOfTwoRanks) { random_collectives(2, {}, 4000); }
TEST(Collectives, RandomCallsOfFiveRanks) { random_collectives(5, {}, 1000); }
TEST(Collectives, RandomCallsOfSixRanksVerified) {
  config::Settings settings;
  settings.verify = true;
  random_collectives(6, settings, 200);
}

TEST(Collectives, PersistentOnesMayBeStartedInAnyOrder) {
  expect_success(run_forked_job(3, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    std::mt19937_64 same(7);
    std::vector<std::unique_ptr<Trial>> trials;
    std::vector<Request*> requests;
    for (int number = 0; number < 12; ++number) {
      trials.push_back(std::make_unique<Trial>(number, me, exchange.size, same));
      requests.push_back(nullptr);
      bool served = false;
      CollectiveCall copy = trials.back()->call();
      REQUIRE(rank->collective_init(std::move(copy), *rank->world(), &requests.back(), &served) ==
              0);
      REQUIRE(served);
    }
    const std::size_t count = requests.size();
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(rank->start(*requests[(i * 5 + static_cast<std::size_t>(me) * 3) % count]) == 0);
    }
    for (std::size_t i = 0; i < count; ++i) {
      rank->wait(*requests[i]);
      REQUIRE(requests[i]->status.error == 0);
      REQUIRE(trials[i]->first_wrong() == -1);
      rank->release(*requests[i]);
      rank->free_request(*requests[i]);
    }
    rank->finalize();
    return 0;
  }));
}

// A call that is waited for later: its request and what must come out.
struct Pending {
  std::unique_ptr<Trial> trial;
  Request* request = nullptr;
};

// Whether it ended well.
bool complete(Rank& rank, Pending& pending) {
  rank.wait(*pending.request);
  if (pending.request->status.error != 0) return false;
  const std::int64_t wrong = pending.trial->first_wrong();
  if (wrong != -1) {
    std::fprintf(stderr, "%s: wrong at %lld\n", pending.trial->text().c_str(),
                 static_cast<long long>(wrong));
    return false;
  }
  rank.release(*pending.request);
  return true;
}

// Far more than exchanges that can be under way at once; ranks wait in different orders, and call
// blocking ones and send messages meanwhile.
TEST(Collectives, HundredsMayBePending) {
  expect_success(run_forked_job(3, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    Comm& world = *rank->world();
    const p2p::LayoutRef bytes = byte_layout();
    std::mt19937_64 same(23);
    std::mt19937_64 own(static_cast<std::uint64_t>(me));
    std::vector<Pending> pending;
    for (int number = 0; number < 600; ++number) {
      Pending next{std::make_unique<Trial>(number, me, exchange.size, same)};
      bool served = false;
      if (number % 9 == 8) {
        REQUIRE(rank->collective(next.trial->call(), world, &served) == 0 && served);
        REQUIRE(next.trial->first_wrong() == -1);
        continue;
      }
      CollectiveCall copy = next.trial->call();
      REQUIRE(rank->icollective(std::move(copy), world, &next.request, &served) == 0 && served);
      pending.push_back(std::move(next));
      if (number % 50 == 0) {
        int token = number, got = -1;
        Request* receive = nullptr;
        REQUIRE(rank->irecv(&got, sizeof got, bytes, (me + 2) % 3, 1, world, &receive) == 0);
        REQUIRE(rank->send(&token, sizeof token, bytes, (me + 1) % 3, 1, world,
                           SendMode::standard) == 0);
        rank->wait(*receive);
        REQUIRE(got == number);
        rank->release(*receive);
      }
    }
    std::shuffle(pending.begin(), pending.end(), own);
    for (Pending& each : pending) REQUIRE(complete(*rank, each));
    const observe::Counters& counters = rank->state().counters;
    REQUIRE(counters.collectives_later == pending.size());
    REQUIRE(counters.collectives_later_shm > 0);
    REQUIRE(rank->state().collectives.active.empty());
    rank->finalize();
    return 0;
  }));
}

// Each has slots of its own; those for which none are left go by messages, at all ranks alike.
TEST(Collectives, PersistentOnesShareWhatSlotsThereAre) {
  config::Settings settings;
  settings.collective_slots = 8;
  expect_success(run_forked_job(3, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, settings);
    Comm& world = *rank->world();
    constexpr int kCalls = 20;
    for (int round = 0; round < 3; ++round) {
      std::mt19937_64 same(100 + static_cast<std::uint64_t>(round));
      std::vector<Pending> made;
      for (int number = 0; number < kCalls; ++number) {
        made.push_back({std::make_unique<Trial>(number, me, exchange.size, same)});
        bool served = false;
        CollectiveCall copy = made.back().trial->call();
        REQUIRE(rank->collective_init(std::move(copy), world, &made.back().request, &served) == 0);
        REQUIRE(served);
      }
      for (int start = 0; start < 4; ++start) {
        for (int i = 0; i < kCalls; ++i) {
          const int which = (i * 7 + me * 3 + start) % kCalls;
          REQUIRE(rank->start(*made[static_cast<std::size_t>(which)].request) == 0);
        }
        bool served = false;
        Trial between(1000 + start, me, exchange.size, same);
        REQUIRE(rank->collective(between.call(), world, &served) == 0 && served);
        REQUIRE(between.first_wrong() == -1);
        for (int i = 0; i < kCalls; ++i) {
          Pending& each = made[static_cast<std::size_t>((i * 3 + me) % kCalls)];
          REQUIRE(complete(*rank, each));
          each.trial->restore();
        }
      }
      for (Pending& each : made) rank->free_request(*each.request);
      exchange.barrier();
    }
    const RankState& state = rank->state();
    REQUIRE(state.counters.collectives_later_shm > 0);
    REQUIRE(state.counters.teams_refused > 0);
    // Half of the slots are left to others, and all that persistent calls had have come back.
    REQUIRE(state.collectives.slots->in_use() == 1);
    rank->finalize();
    return 0;
  }));
}

// A rank that sits in a call of the host takes part all the same.
TEST(Collectives, PendingOnesGoOnWhileARankIsInTheHost) {
  expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    std::mt19937_64 same(31);
    for (int number = 0; number < 60; ++number) {
      Pending one{std::make_unique<Trial>(number, me, exchange.size, same)};
      bool served = false;
      CollectiveCall copy = one.trial->call();
      REQUIRE(rank->icollective(std::move(copy), *rank->world(), &one.request, &served) == 0);
      REQUIRE(served);
      const bool inside = me == number % 2;
      const bool open = inside && !one.request->complete && rank->entering_host_call();
      if (!inside) REQUIRE(complete(*rank, one));
      exchange.barrier();  // the host's
      if (open) rank->left_host_call();
      if (inside) REQUIRE(complete(*rank, one));
    }
    rank->finalize();
    return 0;
  }));
}

// One thread calls collectives, others exchange messages: each lets the others have the lock.
TEST(Collectives, OtherThreadsSendMessages) {
  expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, {}, true);
    Comm& world = *rank->world();
    const p2p::LayoutRef bytes = byte_layout();
    std::atomic<int> wrong{0};
    const auto exchange_messages = [&](int tag) {
      for (int i = 0; i < 300; ++i) {
        int out = i * 10 + tag, in = -1;
        Request* receive = nullptr;
        if (rank->irecv(&in, sizeof in, bytes, 1 - me, tag, world, &receive) != 0) ++wrong;
        if (rank->send(&out, sizeof out, bytes, 1 - me, tag, world, SendMode::standard) != 0)
          ++wrong;
        rank->wait(*receive);
        if (in != out) ++wrong;
        rank->release(*receive);
      }
    };
    std::thread first([&] { exchange_messages(1); });
    std::thread second([&] { exchange_messages(2); });
    std::mt19937_64 same(41);
    for (int number = 0; number < 300; ++number) {
      Pending one{std::make_unique<Trial>(number, me, exchange.size, same)};
      bool served = false;
      if (number % 2 == 0) {
        REQUIRE(rank->collective(one.trial->call(), world, &served) == 0 && served);
        REQUIRE(one.trial->first_wrong() == -1);
      } else {
        CollectiveCall copy = one.trial->call();
        REQUIRE(rank->icollective(std::move(copy), world, &one.request, &served) == 0 && served);
        REQUIRE(complete(*rank, one));
      }
    }
    first.join();
    second.join();
    REQUIRE(wrong == 0);
    // Short ones are as short as without threads.
    REQUIRE(rank->state().counters.collectives_lines > 0);
    rank->finalize();
    return 0;
  }));
}

// An odd number of elements scattered over two ranks: as short as one of equal blocks.
TEST(Collectives, ShortSumsScatteredInUnequalBlocksAreLines) {
  expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    std::vector<std::int64_t> in(41), out(21);
    CollectiveCall call;
    call.collective = coll::Collective::kReduceScatter;
    call.reduction.kernel = coll::ops::find_kernel(coll::ops::Op::sum, coll::ops::Kind::int64);
    call.send_type = call.recv_type = test_calls::value_layout();
    call.send = in.data();
    call.recv = out.data();
    for (std::int64_t count = 1; count <= 41; count += 2) {
      const std::int64_t first = count / 2 + 1;
      call.recv_blocks = {{first, 0}, {count - first, 0}};
      call.send_count = count;
      call.recv_count = me == 0 ? first : count - first;
      for (std::int64_t i = 0; i < count; ++i) in[static_cast<std::size_t>(i)] = i + count * me;
      out.assign(out.size(), -1);
      bool served = false;
      REQUIRE(rank->collective(call, *rank->world(), &served) == 0 && served);
      for (std::int64_t i = 0; i < call.recv_count; ++i) {
        REQUIRE(out[static_cast<std::size_t>(i)] == 2 * (i + me * first) + count);
      }
      for (std::size_t i = static_cast<std::size_t>(call.recv_count); i < out.size(); ++i) {
        REQUIRE(out[i] == -1);
      }
    }
    REQUIRE(rank->state().counters.collectives_lines > 0);
    rank->finalize();
    return 0;
  }));
}

// Short blocks that differ, and some that are empty or too long for that: as short as equal ones.
TEST(Collectives, ShortOnesOfUnequalBlocksAreLines) {
  constexpr coll::Collective kKinds[] = {coll::Collective::kAllgatherv, coll::Collective::kGatherv,
                                         coll::Collective::kAlltoallv, coll::Collective::kScatterv};
  for (const int ranks : {2, 3}) {
    expect_success(run_forked_job(ranks, [&](int me, const Exchange& exchange) {
      auto rank = make_test_rank(exchange);
      const std::int64_t sizes[] = {0, 1, 5, 40, 300, 2000};
      for (int number = 0; number < 200; ++number) {
        const auto bytes = [&](int from, int to) {
          return sizes[static_cast<std::size_t>(number * 7 + from * 3 + to) % std::size(sizes)] * 8;
        };
        const auto value = [&](int from, int to) { return number + 100 * from + 10'000 * to; };
        CollectiveCall call;
        call.collective = kKinds[number % 4];
        call.root = number / 4 % ranks;
        const coll::CollectiveInfo& info = coll::info(call.collective);
        const bool each = info.input == coll::Part::kEach;
        const bool gives = info.has_input(me == call.root);
        const bool gets = info.has_output(me == call.root);
        const bool one = info.scatters();
        const auto to_of = [&](int to) { return each ? to : 0; };
        std::vector<std::int64_t> in(static_cast<std::size_t>(2001 * ranks)), out(in.size(), -1);
        call.send_type = gives ? test_calls::value_layout() : p2p::LayoutRef{};
        call.recv_type = gets ? test_calls::value_layout() : p2p::LayoutRef{};
        for (int i = 0; i < ranks; ++i) {
          const std::int64_t place = i * std::int64_t{2001} * 8;
          if (each && gives) call.send_blocks.push_back({bytes(me, i) / 8, place});
          if (!one && gets) call.recv_blocks.push_back({bytes(i, to_of(me)) / 8, place});
          std::fill_n(in.begin() + i * 2001, 2001, value(me, to_of(i)));
        }
        if (!each) call.send_count = bytes(me, 0) / 8;
        if (one) call.recv_count = bytes(call.root, me) / 8;
        if (gives) call.send = in.data();
        if (gets) call.recv = out.data();
        bool served = false;
        REQUIRE(rank->collective(call, *rank->world(), &served) == 0 && served);
        for (int i = 0; i < (one ? 1 : ranks) && gets; ++i) {
          const int from = one ? call.root : i;
          const std::int64_t count = bytes(from, to_of(me)) / 8;
          for (std::int64_t k = 0; k < 2001; ++k) {
            const std::int64_t expected = k < count ? value(from, to_of(me)) : -1;
            REQUIRE(out[static_cast<std::size_t>(i * 2001 + k)] == expected);
          }
        }
      }
      REQUIRE(rank->state().counters.collectives_lines > 20);
      rank->finalize();
      return 0;
    }));
  }
}

// Programs that only make collective calls learn as well that their ranks have moved.
TEST(Collectives, LongOnesNoticeADistance) {
  expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
    config::Settings settings;
    settings.far_threshold_ns = 0;  // whatever a line takes, it is far
    auto rank = make_test_rank(exchange, settings);
    const auto peer = static_cast<std::uint32_t>(1 - me);
    rank->state().transport->set_distance(peer, false);
    std::vector<std::int64_t> in(4096), out(2 * in.size());
    CollectiveCall call;
    call.collective = coll::Collective::kAllgather;
    call.send_type = call.recv_type = test_calls::value_layout();
    call.send = in.data();
    call.recv = out.data();
    call.send_count = call.recv_count = static_cast<std::int64_t>(in.size());
    for (int i = 0; i < 200; ++i) {
      in.assign(in.size(), i);
      bool served = false;
      REQUIRE(rank->collective(call, *rank->world(), &served) == 0 && served);
      REQUIRE(out.front() == i && out.back() == i);
    }
    // With more ranks than cores there is no such thing as a distance.
    REQUIRE(rank->state().transport->far(peer) || rank->state().node->oversubscribed());
    rank->finalize();
    return 0;
  }));
}

TEST(Collectives, BlockingOnesDoNotMatchOthers) {
  expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    std::mt19937_64 same(11);
    for (int number = 0; number < 200; number += 2) {
      Trial first(number, me, exchange.size, same);
      Trial second(number + 1, me, exchange.size, same);
      // One rank starts the one that does not block before, the other one after the blocking one.
      Request* request = nullptr;
      bool served = false;
      CollectiveCall copy = first.call();
      if (me == 0)
        REQUIRE(rank->icollective(std::move(copy), *rank->world(), &request, &served) == 0);
      bool blocking_served = false;
      // A root that is done at once, or both.
      REQUIRE(rank->collective(second.call(), *rank->world(), &blocking_served) == 0);
      if (me == 1)
        REQUIRE(rank->icollective(std::move(copy), *rank->world(), &request, &served) == 0);
      REQUIRE(served && blocking_served);
      rank->wait(*request);
      rank->release(*request);
      REQUIRE(first.first_wrong() == -1 && second.first_wrong() == -1);
    }
    rank->finalize();
    return 0;
  }));
}

TEST(Collectives, OffMeansNotServed) {
  config::Settings settings;
  settings.collectives = false;
  expect_success(run_forked_job(2, [&](int, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, settings);
    CollectiveCall call;
    bool served = true;
    REQUIRE(rank->collective(call, *rank->world(), &served) == 0 && !served);
    rank->finalize();
    return 0;
  }));
}

}  // namespace
}  // namespace od
