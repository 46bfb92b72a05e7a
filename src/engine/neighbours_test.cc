// Neighbourhood collectives on random graphs: ranks in forked processes call them in all forms,
// many at once, in one node and between nodes; every result is compared with the definition.
//
// Starts threads: the helper.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coll/run/call.h"
#include "coll/run/neighbourhood.h"
#include "engine/engine.h"
#include "engine/test_calls.h"
#include "engine/test_nodes_host.h"
#include "engine/test_rank.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using coll::Collective;
using config::NeighbourMode;
using config::ProgressMode;
using node::Exchange;
using node::run_forked_job;
using test_calls::irregular;
using test_calls::kGap;
using test_calls::Value;
using test_calls::value;
using test_calls::Vector;

// Edges in an order that all ranks know; a rank lists its own in that order, but groups those from
// others by rank, and has nobody in between.
struct Graph {
  struct Edge {
    int from, to;
  };
  std::vector<Edge> edges;
  std::vector<int> in, out;  // of this rank, as indices of edges; -1: nobody
  std::unique_ptr<Neighbourhood> around;

  Graph(int me, int ranks, std::mt19937_64& same) {
    const auto draw = [&same](int limit) {
      return static_cast<int>(same() % static_cast<std::uint64_t>(limit));
    };
    const int count = draw(3 * ranks + 1);
    for (int i = 0; i < count; ++i) edges.push_back({draw(ranks), draw(ranks)});
    for (int peer = ranks - 1; peer >= 0; --peer) {
      for (int i = 0; i < count; ++i) {
        const Edge& edge = edges[static_cast<std::size_t>(i)];
        if (edge.to == me && edge.from == peer) in.push_back(i);
      }
      if (draw(4) == 0) in.push_back(-1);
    }
    for (int i = 0; i < count; ++i) {
      if (edges[static_cast<std::size_t>(i)].from == me) out.push_back(i);
      if (draw(9) == 0) out.push_back(-1);
    }
    const auto peers = [this](const std::vector<int>& list, bool sources) {
      std::vector<int> found;
      for (const int i : list) {
        const Edge* const edge = i < 0 ? nullptr : &edges[static_cast<std::size_t>(i)];
        found.push_back(edge == nullptr ? -1 : (sources ? edge->from : edge->to));
      }
      return found;
    };
    around = Neighbourhood::graph(me, peers(in, true), peers(out, false));
  }
};

// One call of one rank: its arguments, memory, and what must come out.
class NeighbourTrial {
 public:
  NeighbourTrial(int number, int me, int ranks, std::mt19937_64& same)
      : graph_(me, ranks, same), number_(number), me_(me) {
    const auto draw = [&same](int limit) {
      return static_cast<int>(same() % static_cast<std::uint64_t>(limit));
    };
    constexpr Collective kKinds[] = {Collective::kAllgather, Collective::kAllgatherv,
                                     Collective::kAlltoall, Collective::kAlltoallv,
                                     Collective::kAlltoallw};
    constexpr int kCounts[] = {0, 1, 2, 5, 64, 700, 5000, 40000};
    call_.collective = kKinds[draw(5)];
    most_ = kCounts[draw(8)];
    sparse_ = draw(4) == 0;
    call_.neighbours = graph_.around.get();
    const p2p::LayoutRef layout =
        sparse_ ? test_calls::sparse_layout() : test_calls::value_layout();
    const bool gathers =
        call_.collective == Collective::kAllgather || call_.collective == Collective::kAllgatherv;
    const bool equal =
        call_.collective == Collective::kAllgather || call_.collective == Collective::kAlltoall;
    const auto count_of = [&](int edge) -> std::int64_t {
      if (equal) return most_;
      if (edge < 0) return 0;
      const Graph::Edge& of = graph_.edges[static_cast<std::size_t>(edge)];
      return irregular(number_, of.from, gathers ? 0 : edge, most_);
    };
    const auto fill = [&](Vector& memory, std::int64_t first, std::int64_t count, int from,
                          int edge) {
      for (std::int64_t i = 0; i < count; ++i) {
        memory[first + i] = value(number_, from, gathers ? 0 : edge, i);
      }
    };
    const auto total = [&](const std::vector<int>& list) {
      std::int64_t all = 0;
      for (const int edge : list) all += count_of(edge);
      return all;
    };
    // What goes out.
    if (gathers) {
      call_.send_count = equal ? most_ : irregular(number_, me, 0, most_);
      input_ = Vector(call_.send_count, sparse_);
      fill(input_, 0, call_.send_count, me, 0);
    } else {
      input_ = Vector(total(graph_.out), sparse_);
      std::int64_t at = 0;
      for (const int edge : graph_.out) {
        const std::int64_t count = count_of(edge);
        if (edge >= 0) fill(input_, at, count, me, edge);
        if (!equal) call_.send_blocks.push_back({count, at * input_.step_bytes()});
        at += count;
      }
      call_.send_count = equal ? most_ : 0;
    }
    // What comes in.
    output_ = Vector(total(graph_.in), sparse_);
    expected_ = Vector(total(graph_.in), sparse_);
    std::int64_t at = 0;
    for (const int edge : graph_.in) {
      const std::int64_t count = count_of(edge);
      if (edge >= 0) {
        fill(expected_, at, count, graph_.edges[static_cast<std::size_t>(edge)].from, edge);
      }
      if (!equal) call_.recv_blocks.push_back({count, at * output_.step_bytes()});
      at += count;
    }
    call_.recv_count = equal ? most_ : 0;
    call_.send = input_.data();
    call_.recv = output_.data();
    if (call_.collective == Collective::kAlltoallw) {
      call_.send_types.assign(graph_.out.size(), layout);
      call_.recv_types.assign(graph_.in.size(), layout);
    } else {
      call_.send_type = call_.recv_type = layout;
    }
  }

  CollectiveCall call() const { return call_; }
  // What came before is gone, for a persistent one that is started again.
  void forget() { output_.values().assign(output_.values().size(), kGap); }
  bool right() {
    if (output_.values() == expected_.values()) return true;
    std::fprintf(stderr, "call %d, rank %d: %s, at most %d elements%s, is wrong\n", number_, me_,
                 name_of(call_), most_, sparse_ ? " with gaps" : "");
    return false;
  }

 private:
  Graph graph_;
  int number_;
  int me_;
  int most_ = 0;
  bool sparse_ = false;
  CollectiveCall call_;
  Vector input_, output_, expected_;
};

struct Open {
  std::unique_ptr<NeighbourTrial> trial;
  Request* request = nullptr;
};

bool complete(Rank& rank, Open& open) {
  rank.wait(*open.request);
  const bool right = open.request->status.error == 0 && open.trial->right();
  rank.release(*open.request);
  return right;
}

int random_calls(Rank& rank, const Exchange& exchange, int calls) {
  const int me = exchange.rank;
  const int ranks = exchange.size;
  Comm& world = *rank.world();
  std::mt19937_64 same(2024);  // drawn alike by all ranks
  std::vector<Open> open;
  for (int number = 0; number < calls; ++number) {
    Open next{std::make_unique<NeighbourTrial>(number, me, ranks, same)};
    bool served = false;
    const auto form = same() % 3;
    if (form == 0) {
      REQUIRE(rank.collective(next.trial->call(), world, &served) == 0);
      REQUIRE(served);
      REQUIRE(next.trial->right());
      continue;
    }
    if (form == 1) {
      REQUIRE(rank.icollective(next.trial->call(), world, &next.request, &served) == 0);
      REQUIRE(served);
      open.push_back(std::move(next));
    } else {
      REQUIRE(rank.collective_init(next.trial->call(), world, &next.request, &served) == 0);
      REQUIRE(served);
      for (int i = 0; i < 2; ++i) {
        next.trial->forget();
        REQUIRE(rank.start(*next.request) == 0);
        rank.wait(*next.request);
        REQUIRE(next.trial->right());
      }
      rank.free_request(*next.request);
    }
    if (open.size() < 10) continue;
    const auto i = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(me + number) % open.size());
    REQUIRE(complete(rank, open[static_cast<std::size_t>(i)]));
    open.erase(open.begin() + i);
  }
  for (Open& each : open) REQUIRE(complete(rank, each));
  REQUIRE(rank.state().counters.collectives_neighbour >= static_cast<std::uint64_t>(calls));
  REQUIRE(rank.state().collectives.active.empty());
  rank.finalize();
  return 0;
}

TEST(Neighbours, RandomCallsInANode) {
  for (const int ranks : {2, 5}) {
    expect_success(run_forked_job(ranks, [&](int, const Exchange& exchange) {
      config::Settings settings;
      settings.neighbour_collectives = NeighbourMode::kAll;
      settings.stall_report_ns = 5'000'000'000;
      auto rank = make_test_rank(exchange, settings);
      REQUIRE(rank && rank->active());
      return random_calls(*rank, exchange, node::rounds_of_processes(600));
    }));
  }
}

config::Settings between(const std::string& nodes, ProgressMode progress, NeighbourMode mode) {
  config::Settings settings;
  settings.progress = progress;
  settings.neighbour_collectives = mode;
  settings.stall_report_ns = 5'000'000'000;
  for (std::size_t a = 0; a < nodes.size(); ++a) {
    for (std::size_t b = a + 1; b < nodes.size(); ++b) {
      if (nodes[a] == nodes[b]) continue;
      settings.test_remote.pairs.emplace_back(static_cast<int>(a), static_cast<int>(b));
    }
  }
  return settings;
}

void between_nodes(const std::string& nodes, ProgressMode progress) {
  NodesHost::tag_ub = (1 << 22) - 1;  // for many persistent calls
  NodesHost::prepare();
  const auto ranks = static_cast<int>(nodes.size());
  expect_success(run_forked_job(
      ranks,
      [&](int, const Exchange& exchange) {
        auto rank = Rank::create(NodesHost::table(exchange, true),
                                 between(nodes, progress, NeighbourMode::kAll), false);
        REQUIRE(rank && rank->active());
        return random_calls(*rank, exchange, node::rounds_of_processes(200));
      },
      100));
  NodesHost::finish();
}

TEST(Neighbours, RandomCallsBetweenNodes) { between_nodes("0011", ProgressMode::kCalls); }
TEST(Neighbours, RandomCallsBetweenNodesWithAnAgent) {
  between_nodes("01012", ProgressMode::kAgent);
}

// What decides is the same on all ranks: the setting and how they lie.
TEST(Neighbours, SomeAreLeftToTheHost) {
  struct Case {
    const char* nodes;
    NeighbourMode mode;
    ProgressMode progress;
    bool blocking, later;
  };
  const Case cases[] = {
      {"000", NeighbourMode::kAll, ProgressMode::kOff, true, true},
      {"000", NeighbourMode::kNode, ProgressMode::kOff, false, false},  // a graph
      {"000", NeighbourMode::kOff, ProgressMode::kOff, false, false},
      {"001", NeighbourMode::kNode, ProgressMode::kCalls, false, false},
      {"001", NeighbourMode::kAll, ProgressMode::kOff, true, false},
      {"001", NeighbourMode::kAll, ProgressMode::kCalls, true, true},
      {"012", NeighbourMode::kAll, ProgressMode::kCalls, false, false},
  };
  for (const Case& each : cases) {
    NodesHost::prepare();
    expect_success(run_forked_job(
        3,
        [&](int me, const Exchange& exchange) {
          auto rank = Rank::create(NodesHost::table(exchange, true),
                                   between(each.nodes, each.progress, each.mode), false);
          REQUIRE(rank);
          std::mt19937_64 same(3);
          NeighbourTrial first(0, me, 3, same);
          NeighbourTrial second(1, me, 3, same);
          bool served = false;
          REQUIRE(rank->collective(first.call(), *rank->world(), &served) == 0);
          REQUIRE(served == each.blocking);
          REQUIRE(!served || first.right());
          Open open;
          REQUIRE(rank->icollective(second.call(), *rank->world(), &open.request, &served) == 0);
          REQUIRE(served == each.later);
          if (served) {
            rank->wait(*open.request);
            REQUIRE(second.right());
            rank->release(*open.request);
          }
          rank->finalize();
          return 0;
        },
        100));
    NodesHost::finish();
  }
}

// By default those are served of whose length all ranks know that it is worth it.
TEST(Neighbours, EqualBlocksOnGridsAreServedFromSomeLengthOn) {
  expect_success(run_forked_job(3, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    REQUIRE(rank && rank->active());
    const auto around = Neighbourhood::grid(me, {me - 1, me == 2 ? -1 : me + 1});
    struct Case {
      Collective collective;
      std::int64_t sent, received;
      bool served;
    };
    for (const Case& each :
         {Case{Collective::kAlltoall, 256, 256, true}, Case{Collective::kAllgather, 256, 256, true},
          Case{Collective::kAlltoall, 255, 255, false},
          Case{Collective::kAlltoall, 256, 257, false},
          Case{Collective::kAlltoallv, 256, 256, false}}) {
      std::vector<Value> send(static_cast<std::size_t>(2 * each.sent), me);
      std::vector<Value> receive(static_cast<std::size_t>(2 * each.received), kGap);
      CollectiveCall call;
      call.collective = each.collective;
      call.neighbours = around.get();
      call.send = send.data();
      call.recv = receive.data();
      call.send_count = each.sent;
      call.recv_count = each.received;
      call.send_type = call.recv_type = test_calls::value_layout();
      if (each.collective == Collective::kAlltoallv) {
        call.send_blocks.assign(2, {0, 0});
        call.recv_blocks.assign(2, {0, 0});
      }
      bool served = false;
      REQUIRE(rank->collective(call, *rank->world(), &served) == 0);
      REQUIRE(served == each.served);
      for (int side = 0; side < 2 && served; ++side) {
        const int peer = side == 0 ? me - 1 : me + 1;
        const Value expected = peer < 0 || peer > 2 ? kGap : peer;
        REQUIRE(receive[static_cast<std::size_t>(side * each.received)] == expected);
        REQUIRE(receive[static_cast<std::size_t>((side + 1) * each.received - 1)] == expected);
      }
    }
    rank->finalize();
    return 0;
  }));
}

}  // namespace
}  // namespace od
