// Thousands of operations under way at once: what each of them costs does not grow with their
// number. Counted in rounds of progress, since time tells little on a busy machine.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
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

constexpr int kMessages = 3000;
constexpr int kLooked = 200;  // received step by step

// Takes one message after the other of the many that wait, in an order that `tag_of` gives, and
// lets the sender have a single round for each; then the rest. `path` and `mode` say how they wait.
int one_round_each(int me, const Exchange& exchange, config::CopyPath path, SendMode mode,
                   std::size_t bytes, const std::function<int(int)>& tag_of) {
  config::Settings settings;
  settings.copy_path = path;
  auto rank = make_test_rank(exchange, settings);
  Comm& world = *rank->world();
  const p2p::LayoutRef layout = byte_layout();
  const auto count = static_cast<std::int64_t>(bytes);
  std::vector<unsigned char> data(me == 0 ? bytes * kMessages : bytes);
  std::vector<Request*> requests(kMessages);
  if (me == 0) {
    for (std::size_t i = 0; i < kMessages; ++i) {
      const std::span<unsigned char> message(data.data() + bytes * i, bytes);
      fill(message, i);
      REQUIRE(rank->isend(message.data(), count, layout, 1, static_cast<int>(i), world, mode,
                          &requests[i]) == 0);
    }
  }
  exchange.barrier();
  if (me == 1) {
    while (rank->progress()) {
    }
  }
  for (int i = 0; i < kLooked; ++i) {
    const int tag = tag_of(i);
    Request* receive = nullptr;
    if (me == 1) REQUIRE(rank->irecv(data.data(), count, layout, 0, tag, world, &receive) == 0);
    exchange.barrier();
    if (me == 0) {
      rank->progress();
      if (mode == SendMode::synchronous) {
        REQUIRE(requests[static_cast<std::size_t>(tag)]->complete);
      }
    }
    exchange.barrier();
    if (me == 1) {
      rank->progress();
      REQUIRE(receive->complete);
      REQUIRE(check(data, static_cast<std::uint64_t>(tag), bytes));
      rank->release(*receive);
    }
  }
  for (int i = kLooked; i < kMessages; ++i) {
    if (me == 0) break;
    host::Status status;
    const int tag = tag_of(i);
    REQUIRE(rank->recv(data.data(), count, layout, 0, tag, world, &status) == 0);
    REQUIRE(check(data, static_cast<std::uint64_t>(tag), bytes));
  }
  if (me == 0) {
    for (Request* const request : requests) {
      rank->wait(*request);
      rank->release(*request);
    }
    REQUIRE(rank->state().counters.sends_called > 0);
  }
  rank->finalize();
  return 0;
}

int in_turned_order(int i) { return kMessages - 1 - i; }
// Every tag once, neighbours far apart.
int in_mixed_order(int i) { return static_cast<int>(i * std::int64_t{1301} % kMessages); }

TEST(ManyPending, StreamsGoOnInAnyOrder) {
  for (const auto order : {in_turned_order, in_mixed_order}) {
    expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
      return one_round_each(me, exchange, config::CopyPath::kCells, SendMode::standard, 20000,
                            order);
    }));
  }
}

// A rank that polls for its sends gets them back, also while nobody receives, as one that waits
// does: the receiver need not come to each of them twice.
TEST(ManyPending, SendsOfAPollingRankAreKeptForTheirReceivers) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    config::Settings settings;
    settings.copy_path = config::CopyPath::kCells;
    auto rank = make_test_rank(exchange, settings);
    constexpr std::size_t kSends = 300;  // several times what the pool holds
    constexpr std::size_t kBytes = 20000;
    constexpr int kMostPolls = 20'000;
    const auto count = static_cast<std::int64_t>(kBytes);
    std::vector<unsigned char> data(me == 0 ? kBytes * kSends : kBytes);
    std::vector<Request*> requests(kSends);
    for (std::size_t i = 0; me == 0 && i < kSends; ++i) {
      const std::span<unsigned char> message(data.data() + kBytes * i, kBytes);
      fill(message, i);
      REQUIRE(rank->isend(message.data(), count, byte_layout(), 1, static_cast<int>(i),
                          *rank->world(), SendMode::standard, &requests[i]) == 0);
    }
    std::size_t complete = 0;
    for (int polls = 0; me == 0 && complete < kSends && polls < kMostPolls; ++polls) {
      if (rank->test(*requests[complete])) {
        ++complete;
      } else {
        rank->nothing_found();
      }
    }
    REQUIRE(me == 1 || complete == kSends);
    exchange.barrier();
    for (std::size_t i = kSends; me == 1 && i-- > 0;) {
      host::Status status;
      REQUIRE(rank->recv(data.data(), count, byte_layout(), 0, static_cast<int>(i), *rank->world(),
                         &status) == 0);
      REQUIRE(check(data, i, kBytes));
    }
    for (Request* const request : requests) {
      if (me == 0) rank->release(*request);
    }
    rank->finalize();
    return 0;
  }));
}

TEST(ManyPending, SynchronousSendsCompleteInAnyOrder) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{20000}}) {
    expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
      return one_round_each(me, exchange, config::CopyPath::kCells, SendMode::synchronous, bytes,
                            in_turned_order);
    }));
  }
}

TEST(ManyPending, OfferedBuffersAreReadInAnyOrder) {
  expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
    return one_round_each(me, exchange, config::CopyPath::kKernel, SendMode::synchronous, 20000,
                          in_turned_order);
  }));
}

// A message that nobody asks for does not keep what lies behind it: neither envelopes of messages
// on the list nor own memory.
TEST(ManyPending, MemoryComesBackBehindOneThatStays) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    config::Settings settings;
    settings.buffer_limit_bytes = 8 << 20;
    settings.fastbox_peers = 0;  // everything goes by the list
    settings.copy_path = config::CopyPath::kCells;
    auto rank = make_test_rank(exchange, settings);
    Comm& world = *rank->world();
    const p2p::LayoutRef layout = byte_layout();
    // Of each kind as much as fits the limit several times over.
    for (const std::size_t bytes : {std::size_t{40}, std::size_t{3000}, std::size_t{20000}}) {
      const auto count = static_cast<std::int64_t>(bytes);
      std::vector<unsigned char> data(bytes);
      constexpr int kTogether = 100;
      const int turns = bytes == 20000 ? 20 : 1000;
      host::Status status;
      Request* stays = nullptr;
      if (me == 0) {
        REQUIRE(rank->isend(data.data(), count, layout, 1, 1, world, SendMode::standard, &stays) ==
                0);
        rank->wait(*stays);
      }
      for (int turn = 0; turn < turns; ++turn) {
        for (int i = 0; me == 0 && i < kTogether; ++i) {
          REQUIRE(rank->send(data.data(), count, layout, 1, 2, world, SendMode::standard) == 0);
        }
        exchange.barrier();
        for (int i = 0; me == 1 && i < kTogether; ++i) {
          REQUIRE(rank->recv(data.data(), count, layout, 0, 2, world, &status) == 0);
        }
        exchange.barrier();
      }
      if (me == 0) {
        REQUIRE(rank->state().counters.buffer_limit_waits == 0);
      } else {
        REQUIRE(rank->recv(data.data(), count, layout, 0, 1, world, &status) == 0);
      }
    }
    rank->finalize();
    return 0;
  }));
}

// Requests that the program has freed while they were under way are let go when they are complete,
// whichever comes first, and a round does not look at all of them.
TEST(ManyPending, FreedRequestsAreLetGo) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    Comm& world = *rank->world();
    const p2p::LayoutRef layout = byte_layout();
    unsigned char byte = 0;
    const std::uint32_t before = rank->state().requests.in_use();
    for (int i = 0; me == 1 && i < kMessages; ++i) {
      Request* receive = nullptr;
      REQUIRE(rank->irecv(&byte, 1, layout, 0, i, world, &receive) == 0);
      rank->free_request(*receive);
    }
    exchange.barrier();
    for (int i = kMessages - 1; me == 0 && i >= 0; --i) {
      REQUIRE(rank->send(&byte, 1, layout, 1, i, world, SendMode::standard) == 0);
    }
    exchange.barrier();
    if (me == 1) {
      // As many rounds as take everything in and then look at all of them once.
      for (int round = 0; round < 3 * kMessages / 16; ++round) rank->progress();
      REQUIRE(rank->state().orphans.empty());
      REQUIRE(rank->state().requests.in_use() == before);
    }
    exchange.barrier();
    rank->finalize();
    return 0;
  }));
}

// Of thousands of collectives on one communicator those that cannot move before others are over are
// not looked at in each round.
TEST(ManyPending, CollectivesBehindOthersAreLeftAlone) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    constexpr int kCalls = 2000;
    constexpr std::size_t kMostLookedAt = 32;
    std::vector<std::int64_t> values(kCalls, me + 1);
    std::vector<std::int64_t> sums(kCalls, 0);
    // Rank 1 comes late, and half of what it calls comes later still.
    if (me == 1) exchange.barrier();
    std::vector<Request*> requests(kCalls);
    for (std::size_t i = 0; i < kCalls; ++i) {
      if (me == 1 && i == kCalls / 2) {
        rank->wait(*requests[i - 1]);
        exchange.barrier();
      }
      CollectiveCall call;
      call.collective = coll::Collective::kAllreduce;
      call.send = &values[i];
      call.recv = &sums[i];
      call.send_count = call.recv_count = 1;
      call.send_type = call.recv_type = test_calls::value_layout();
      call.reduction.kernel = coll::ops::find_kernel(coll::ops::Op::sum, coll::ops::Kind::int64);
      bool served = false;
      REQUIRE(rank->icollective(std::move(call), *rank->world(), &requests[i], &served) == 0);
      REQUIRE(served);
    }
    if (me == 0) {
      exchange.barrier();
      const RankState& s = rank->state();
      while (!requests[kCalls / 2 - 1]->complete) rank->progress();
      REQUIRE(!requests[kCalls - 1]->complete);
      REQUIRE(!s.collectives.active.empty() && s.collectives.active.size() <= kMostLookedAt);
      exchange.barrier();
    }
    for (std::size_t i = 0; i < kCalls; ++i) {
      rank->wait(*requests[i]);
      REQUIRE(requests[i]->status.error == 0 && sums[i] == 3);
      rank->release(*requests[i]);
    }
    REQUIRE(rank->state().collectives.active.empty());
    rank->finalize();
    return 0;
  }));
}

// What a host has for rank 0 from rank 2, on another node, and how often it was asked about it.
struct Waiting {
  static inline std::vector<int> tags;
  static inline int questions = 0;

  static bool find(int tag, std::size_t* at) {
    ++questions;
    for (*at = 0; *at < tags.size(); ++*at) {
      if (tag == host::kAnyTag || tags[*at] == tag) return true;
    }
    return false;
  }
  static host::HostTable table(const Exchange& exchange) {
    host::HostTable host = forked_host(exchange);
    host.iprobe = [](int, int tag, host::Handle, bool* flag, host::Status* status) {
      std::size_t at = 0;
      *flag = find(tag, &at);
      if (*flag) {
        status->source = 2;
        status->tag = tags[at];
      }
      return host::kSuccess;
    };
    host.improbe = [](int, int tag, host::Handle, bool* flag, host::Handle* message,
                      host::Status* status) {
      std::size_t at = 0;
      *flag = find(tag, &at);
      if (*flag) {
        status->source = 2;
        status->tag = tags[at];
        status->bytes = sizeof(int);
        *message = static_cast<host::Handle>(tags[at]) + 1;
        tags.erase(tags.begin() + static_cast<std::ptrdiff_t>(at));
      }
      return host::kSuccess;
    };
    host.imrecv = [](void* buffer, std::int64_t, host::Handle, host::Handle* message,
                     host::Handle* request) {
      *request = *message;
      *static_cast<int*>(buffer) = static_cast<int>(*message) - 1;
      return host::kSuccess;
    };
    host.test = [](host::Handle* request, bool* flag, host::Status* status) {
      *flag = true;
      status->source = 2;
      status->tag = static_cast<int>(*request) - 1;
      status->bytes = sizeof(int);
      *request = 0;
      return host::kSuccess;
    };
    return host;
  }
};

// Receives for which the host has to be asked: a question or two for each message, and one in vain,
// however many receives wait. Also behind a message that is for none of them.
TEST(ManyPending, TheHostIsNotAskedForEachReceive) {
  expect_success(run_forked_job(3, [](int me, const Exchange& exchange) {
    config::Settings settings;
    settings.test_remote.pairs = {{0, 2}, {1, 2}};
    auto rank = Rank::create(Waiting::table(exchange), settings, false);
    REQUIRE(rank);
    if (me == 0) {
      RankState& s = rank->state();
      constexpr int kReceives = 1000;
      std::vector<int> values(kReceives, -1);
      std::vector<Request*> receives(kReceives);
      for (std::size_t i = 0; i < kReceives; ++i) {
        const int source = i % 3 == 0 ? 2 : host::kAnySource;
        REQUIRE(rank->irecv(&values[i], sizeof(int), byte_layout(), source, static_cast<int>(i),
                            *rank->world(), &receives[i]) == 0);
      }
      // The first wildcard and everything after it.
      REQUIRE(s.matching.host_candidates().size() == kReceives);
      Waiting::questions = 0;
      for (int i = 0; i < 10; ++i) REQUIRE(!s.poll_host());
      REQUIRE(Waiting::questions == 10);

      for (int i = kReceives - 1; i >= kReceives / 2; --i) Waiting::tags.push_back(i);
      Waiting::questions = 0;
      s.poll_host();
      REQUIRE(Waiting::tags.empty());
      REQUIRE(Waiting::questions <= 2 * (kReceives / 2) + 1);

      // One that nobody wants comes first, so that every pattern has to be asked for.
      Waiting::tags.push_back(kReceives + 7);
      for (int i = 0; i < kReceives / 2; ++i) Waiting::tags.push_back(i);
      for (int i = 0; i < kReceives && Waiting::tags.size() != 1; ++i) {
        Waiting::questions = 0;
        s.poll_host();
        REQUIRE(Waiting::questions <= 65);
      }
      REQUIRE(Waiting::tags.size() == 1);
      s.poll_host();
      for (std::size_t i = 0; i < kReceives; ++i) {
        REQUIRE(receives[i]->complete && receives[i]->status.error == 0);
        REQUIRE(values[i] == static_cast<int>(i));
        rank->release(*receives[i]);
      }
    }
    exchange.barrier();
    rank->finalize();
    return 0;
  }));
}

}  // namespace
}  // namespace od
