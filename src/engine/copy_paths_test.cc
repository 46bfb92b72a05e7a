// Every way between two buffers carries every message: each one forced, chosen at random moments by
// memory that is reachable or not, withdrawn, cancelled, probed, truncated.
//
// Starts threads: the helper of ranks that sit in a call of the host.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/engine.h"
#include "engine/test_traffic.h"
#include "memory/bump_arena.h"

namespace od {
namespace {

using config::CopyPath;
using node::Exchange;
using node::run_forked_job;

// Where the messages lie: in reachable memory, or sometimes not.
struct TestHeap {
  static constexpr std::uint64_t kBytes = 512u << 20;
  static inline unsigned turn = 0;

  // In a child, before it becomes a rank.
  static void prepare() {
    if (!memory::BumpArena::begin(kBytes)) std::_Exit(97);
  }
  static std::span<unsigned char> allocate(std::size_t bytes) {
    const auto block = memory::BumpArena::allocate(bytes);
    if (block.size() != bytes) std::_Exit(96);
    return block;
  }
  // Now from here, now from memory that nobody else can see.
  static std::span<unsigned char> allocate_mixed(std::size_t bytes) {
    return ++turn % 3 == 0 ? TrafficMemory{}.allocate(bytes) : allocate(bytes);
  }
};

const TrafficMemory kReachable = {TestHeap::prepare, TestHeap::allocate};
const TrafficMemory kMixed = {TestHeap::prepare, TestHeap::allocate_mixed};

config::Settings forced(CopyPath path) {
  config::Settings settings;
  settings.copy_path = path;
  // The traffic is to take this path, however late its receivers are; withdrawing has its own
  // tests.
  settings.pull_wait_ns = 10'000'000'000;
  return settings;
}

// Cells only, with frames of this size, however slow stores may look on a busy machine.
config::Settings with_frames(std::uint64_t frame_bytes) {
  config::Settings settings;
  settings.copy_path = CopyPath::kCells;
  settings.copy = config::CopyMode::kOrdinary;
  settings.frame_bytes = frame_bytes;
  return settings;
}

TEST(CopyPaths, DialoguesGoToAndFroInAFrame) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, with_frames(64 << 10));
    host::Status status;
    constexpr int kRounds = 20;
    for (const std::int64_t size : {1000, 16 << 10, 64 << 10, 64 << 10 | 1, 400 << 10}) {
      std::vector<unsigned char> data(static_cast<std::size_t>(size));
      const std::uint64_t frames_before = rank->state().counters.sends_frame;
      for (int i = 0; i < kRounds; ++i) {
        if (me == i % 2) {
          fill(data, static_cast<std::uint64_t>(i));
          REQUIRE(rank->send(data.data(), size, byte_layout(), 1 - me, 0, *rank->world(),
                             SendMode::standard) == 0);
        } else {
          REQUIRE(rank->recv(data.data(), size, byte_layout(), 1 - me, 0, *rank->world(),
                             &status) == 0);
          REQUIRE(check(data, static_cast<std::uint64_t>(i), data.size()));
        }
      }
      if (size <= 16 << 10) {
        REQUIRE(rank->state().counters.sends_frame == frames_before + kRounds / 2);
      }
    }
    rank->finalize();
    return 0;
  }));
}
TEST(CopyPaths, OneWayTrafficLeavesTheFramesWithTheReceiver) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, with_frames(64 << 10));
    host::Status status;
    std::vector<unsigned char> data(10000);
    for (int i = 0; i < 300; ++i) {
      if (me == 0) {
        fill(data, static_cast<std::uint64_t>(i));
        REQUIRE(rank->send(data.data(), 10000, byte_layout(), 1, 0, *rank->world(),
                           SendMode::standard) == 0);
      } else {
        REQUIRE(rank->recv(data.data(), 10000, byte_layout(), 0, 0, *rank->world(), &status) == 0);
        REQUIRE(check(data, static_cast<std::uint64_t>(i), data.size()));
      }
    }
    REQUIRE(me != 0 || rank->state().counters.sends_frame == 1);
    rank->finalize();
    return 0;
  }));
}
TEST(CopyPaths, RandomTrafficInFramesOfEverySize) {
  constexpr int kMany = node::rounds_of_processes(1200);
  constexpr int kFewer = node::rounds_of_processes(800);
  random_traffic(2, 31, with_frames(4096), kMany);
  random_traffic(3, 32, with_frames(256 << 10), kMany, kMixed);
  config::Settings verified = with_frames(16 << 10);
  verified.verify = true;
  random_traffic(3, 33, verified, kFewer, kMixed);
  config::Settings small = with_frames(64 << 10);
  small.pool_bytes = 64 << 10;
  small.cell_bytes = 1024;
  small.frame_peers = 1;
  random_traffic(5, 34, small, kFewer, kMixed);
  config::Settings pushed = with_frames(64 << 10);
  pushed.copy_path = CopyPath::kPush;
  random_traffic(3, 35, pushed, kFewer, kMixed);
  random_traffic(2, 36, with_frames(0), kFewer, {},
                 [](RankState& s) { return s.counters.sends_frame == 0; });
}
TEST(CopyPaths, ACancelledMessageGivesItsFrameToTheReceiver) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, with_frames(64 << 10));
    constexpr std::int64_t kBytes = 40000;
    std::vector<unsigned char> data(kBytes);
    host::Status status;
    // Many rounds: a frame that got lost, or came back twice, would show.
    for (int round = 0; round < 10; ++round) {
      if (me == 0) {
        Request* request = nullptr;
        fill(data, 1);
        REQUIRE(rank->isend(data.data(), kBytes, byte_layout(), 1, 0, *rank->world(),
                            SendMode::synchronous, &request) == 0);
        rank->cancel(*request);
        rank->wait(*request);
        REQUIRE(request->status.cancelled);
        rank->release(*request);
        exchange.barrier();
        fill(data, 2);
        REQUIRE(rank->send(data.data(), 10000, byte_layout(), 1, 0, *rank->world(),
                           SendMode::standard) == 0);
        REQUIRE(rank->recv(data.data(), 10000, byte_layout(), 1, 0, *rank->world(), &status) == 0);
        REQUIRE(check(data, 3, 10000));
      } else {
        exchange.barrier();
        REQUIRE(rank->recv(data.data(), kBytes, byte_layout(), 0, 0, *rank->world(), &status) == 0);
        REQUIRE(status.bytes == 10000 && check(data, 2, 10000));
        fill(data, 3);
        REQUIRE(rank->send(data.data(), 10000, byte_layout(), 0, 0, *rank->world(),
                           SendMode::standard) == 0);
      }
    }
    REQUIRE(me == 0 || rank->state().counters.sends_frame == 10);
    rank->finalize();
    return 0;
  }));
}

TEST(CopyPaths, PullTakesOverReachableMessages) {
  random_traffic(2, 11, forced(CopyPath::kPull), 1200, kReachable, [](RankState& s) {
    return s.counters.receives_pull > 50 && s.counters.sends_direct > 50;
  });
}
TEST(CopyPaths, PullAmongFiveRanks) {
  random_traffic(5, 12, forced(CopyPath::kPull), 1200, kMixed, [](RankState& s) {
    return s.counters.receives_pull > 20 && s.counters.sends_stream + s.counters.sends_cell > 20;
  });
}
TEST(CopyPaths, PullVerified) {
  config::Settings settings = forced(CopyPath::kPull);
  settings.verify = true;
  random_traffic(3, 13, settings, 800, kMixed);
}
TEST(CopyPaths, PullWithdrawnAtOnce) {
  config::Settings settings = forced(CopyPath::kPull);
  settings.pull_wait_ns = 0;
  random_traffic(3, 14, settings, 1200, kMixed);
}
TEST(CopyPaths, PullWithoutBoxesAndBufferMemory) {
  config::Settings settings = forced(CopyPath::kPull);
  settings.fastbox_peers = 0;
  settings.buffer_limit_bytes = 0;
  settings.pull_wait_ns = 100;
  random_traffic(3, 15, settings, 800, kMixed);
}
TEST(CopyPaths, Cooperative) {
  random_traffic(2, 16, forced(CopyPath::kCooperative), 1200, kMixed,
                 [](RankState& s) { return s.counters.receives_cooperative > 20; });
}
TEST(CopyPaths, CooperativeVerifiedAmongFourRanks) {
  config::Settings settings = forced(CopyPath::kCooperative);
  settings.verify = true;
  random_traffic(4, 17, settings, 800, kMixed);
}
TEST(CopyPaths, Push) {
  random_traffic(2, 18, forced(CopyPath::kPush), 1200, kMixed);
  // More than all cells hold, with its receive posted: the rest has to be pushed.
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    TestHeap::prepare();
    config::Settings settings = forced(CopyPath::kPush);
    settings.unmatched_wait_ns = 10'000'000'000;
    auto rank = make_test_rank(exchange, settings);
    const auto data = TestHeap::allocate(8 << 20);
    host::Status status;
    if (me == 0) {
      fill(data, 5);
      REQUIRE(rank->send(data.data(), 8 << 20, byte_layout(), 1, 0, *rank->world(),
                         SendMode::standard) == 0);
      REQUIRE(rank->state().counters.sends_push == 1);
      REQUIRE(rank->state().counters.bytes_push > 4 << 20);
    } else {
      REQUIRE(rank->recv(data.data(), 8 << 20, byte_layout(), 0, 0, *rank->world(), &status) == 0);
      REQUIRE(check(data, 5, data.size()));
      REQUIRE(rank->state().counters.receives_push == 1);
    }
    rank->finalize();
    return 0;
  }));
}
TEST(CopyPaths, PushVerifiedNontemporal) {
  config::Settings settings = forced(CopyPath::kPush);
  settings.verify = true;
  settings.copy = config::CopyMode::kNontemporal;
  random_traffic(3, 19, settings, 800, kMixed);
}
TEST(CopyPaths, Kernel) {
  // Where it is not permitted, everything has to arrive all the same.
  random_traffic(3, 20, forced(CopyPath::kKernel), 800, {}, [](RankState& s) {
    return s.counters.receives_kernel > 0 || s.counters.offers_declined > 0;
  });
}
TEST(CopyPaths, Automatic) {
  config::Settings settings = forced(CopyPath::kAuto);
  settings.near_pull_min_bytes = settings.far_pull_min_bytes = 1024;
  settings.near_pull_rewritten_min_bytes = settings.far_pull_rewritten_min_bytes = 50000;
  settings.near_cooperative_min_bytes = settings.far_cooperative_min_bytes = 200000;
  random_traffic(4, 21, settings, 1200, kMixed,
                 [](RankState& s) { return s.counters.receives_pull > 2; });
}

// Trials change the path in the middle of a dialogue; what arrives is what was sent.
TEST(CopyPaths, EveryMessageArrivesWhilePathsAreTried) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    TestHeap::prepare();
    config::Settings settings;
    settings.learn = config::LearnMode::kOn;
    auto rank = make_test_rank(exchange, settings);
    host::Status status;
    const auto mine = TestHeap::allocate(1 << 20);
    const auto other = TestHeap::allocate(1 << 20);
    // A first trial comes after some twenty messages of one size and one use of the buffer.
    const int rounds = std::max(80, node::rounds_of_processes(120));
    std::uint64_t seed = 0;
    for (const std::size_t size : {4096u, 20000u, 65536u, 300000u, 1u << 20}) {
      const auto bytes = static_cast<std::int64_t>(size);
      for (int round = 0; round < rounds; ++round, seed += 2) {
        // Sent from the place that is written, or back from where the last one came.
        const auto out = round % 20 < 10 ? mine : other;
        if (me == 0) {
          fill(out.first(size), seed);
          rank->send(out.data(), bytes, byte_layout(), 1, 0, *rank->world(), SendMode::standard);
          rank->recv(other.data(), bytes, byte_layout(), 1, 0, *rank->world(), &status);
          REQUIRE(check(other, seed, size));
        } else {
          rank->recv(other.data(), bytes, byte_layout(), 0, 0, *rank->world(), &status);
          REQUIRE(check(other, seed, size));
          rank->send(other.data(), bytes, byte_layout(), 0, 0, *rank->world(), SendMode::standard);
        }
      }
    }
    const RankState& state = rank->state();
    REQUIRE(state.node->oversubscribed() || state.counters.path_trials > 0);
    rank->finalize();
    return 0;
  }));
}

// The sender returns although its receiver does not come for long, and the data is that of the
// call.
TEST(CopyPaths, ALateReceiverGetsWhatWasSent) {
  for (const CopyPath path : {CopyPath::kPull, CopyPath::kCooperative, CopyPath::kKernel}) {
    expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
      TestHeap::prepare();
      config::Settings settings = forced(path);
      settings.pull_wait_ns = 5000;
      auto rank = make_test_rank(exchange, settings);
      const p2p::LayoutRef bytes = byte_layout();
      const auto data = TestHeap::allocate(1 << 20);
      for (std::uint64_t round = 0; round < 20; ++round) {
        if (me == 0) {
          fill(data, round);
          REQUIRE(rank->send(data.data(), 1 << 20, bytes, 1, 0, *rank->world(),
                             SendMode::standard) == 0);
          std::memset(data.data(), 0xff, data.size());
          exchange.barrier();
        } else {
          exchange.barrier();
          host::Status status;
          REQUIRE(rank->recv(data.data(), 1 << 20, bytes, 0, 0, *rank->world(), &status) == 0);
          REQUIRE(check(data, round, data.size()));
        }
      }
      if (me == 0) REQUIRE(rank->state().counters.offers_withdrawn > 0);
      rank->finalize();
      return 0;
    }));
  }
}

// A receiver that has no receive yet but probes: the offer is pinned, withdrawn, and received.
TEST(CopyPaths, AProbedMessageCanStillBeWithdrawn) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    TestHeap::prepare();
    config::Settings settings = forced(CopyPath::kPull);
    settings.pull_wait_ns = 5000;
    auto rank = make_test_rank(exchange, settings);
    const p2p::LayoutRef bytes = byte_layout();
    const auto data = TestHeap::allocate(1 << 20);
    for (std::uint64_t round = 0; round < 20; ++round) {
      if (me == 0) {
        fill(data, round);
        Request* request = nullptr;
        REQUIRE(rank->isend(data.data(), 1 << 20, bytes, 1, 7, *rank->world(), SendMode::standard,
                            &request) == 0);
        exchange.barrier();  // the receiver has probed
        rank->wait(*request);
        rank->release(*request);
        std::memset(data.data(), 0xff, data.size());
        exchange.barrier();
      } else {
        host::Status status;
        rank->probe(0, 7, *rank->world(), &status);
        REQUIRE(status.bytes == 1 << 20);
        exchange.barrier();
        exchange.barrier();
        REQUIRE(rank->recv(data.data(), 1 << 20, bytes, 0, 7, *rank->world(), &status) == 0);
        REQUIRE(check(data, round, data.size()));
      }
    }
    rank->finalize();
    return 0;
  }));
}

TEST(CopyPaths, ACancelledOfferIsNeverRead) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    TestHeap::prepare();
    auto rank = make_test_rank(exchange, forced(CopyPath::kPull));
    const p2p::LayoutRef bytes = byte_layout();
    const auto data = TestHeap::allocate(1 << 20);
    host::Status status;
    for (std::uint64_t round = 0; round < 10; ++round) {
      if (me == 0) {
        Request* request = nullptr;
        fill(data, 1000 + round);
        REQUIRE(rank->isend(data.data(), 1 << 20, bytes, 1, 0, *rank->world(), SendMode::standard,
                            &request) == 0);
        rank->cancel(*request);
        REQUIRE(request->complete && request->status.cancelled);
        rank->release(*request);
        fill(data, round);
        exchange.barrier();
        REQUIRE(rank->send(data.data(), 1 << 20, bytes, 1, 0, *rank->world(), SendMode::standard) ==
                0);
      } else {
        exchange.barrier();
        REQUIRE(rank->recv(data.data(), 1 << 20, bytes, 0, host::kAnyTag, *rank->world(),
                           &status) == 0);
        REQUIRE(check(data, round, data.size()));
      }
      exchange.barrier();
    }
    rank->finalize();
    return 0;
  }));
}

TEST(CopyPaths, ShortReceivesAndStridedReceives) {
  for (const CopyPath path :
       {CopyPath::kPull, CopyPath::kCooperative, CopyPath::kPush, CopyPath::kKernel}) {
    expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
      TestHeap::prepare();
      auto rank = make_test_rank(exchange, forced(path));
      const p2p::LayoutRef bytes = byte_layout();
      const p2p::LayoutRef strided = strided_layout(1000, 24, 40);
      const auto data = TestHeap::allocate(300000);
      host::Status status;
      if (me == 0) {
        fill(data, 3);
        rank->send(data.data(), 300000, bytes, 1, 0, *rank->world(), SendMode::standard);
        rank->send(data.data(), 240000, bytes, 1, 1, *rank->world(), SendMode::synchronous);
      } else {
        REQUIRE(rank->recv(data.data(), 150000, bytes, 0, 0, *rank->world(), &status) == 15);
        REQUIRE(check(data, 3, 150000));
        for (std::size_t i = 150000; i < data.size(); ++i) REQUIRE(data[i] == 0);
        const auto wide = TestHeap::allocate(static_cast<std::size_t>(strided->extent * 10));
        REQUIRE(rank->recv(wide.data(), 10, strided, 0, 1, *rank->world(), &status) == 0);
        std::size_t position = 0;
        for (std::size_t element = 0; element < 10; ++element) {
          for (std::size_t block = 0; block < 1000; ++block) {
            for (std::size_t i = 0; i < 24; ++i, ++position) {
              const std::size_t at =
                  element * static_cast<std::size_t>(strided->extent) + block * 40 + i;
              REQUIRE(wide[at] == pattern(3, position));
            }
          }
        }
      }
      rank->finalize();
      return 0;
    }));
  }
}

// The sender goes into a call of the host that the receiver joins only after its receive.
TEST(CopyPaths, ASenderInTheHostNeedNotComeBack) {
  for (const CopyPath path :
       {CopyPath::kPull, CopyPath::kCooperative, CopyPath::kPush, CopyPath::kKernel}) {
    expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
      TestHeap::prepare();
      auto rank = make_test_rank(exchange, forced(path));
      const p2p::LayoutRef bytes = byte_layout();
      const auto data = TestHeap::allocate(3 << 20);
      host::Status status;
      if (me == 0) {
        fill(data, 4);
        Request* request = nullptr;
        REQUIRE(rank->isend(data.data(), 3 << 20, bytes, 1, 0, *rank->world(), SendMode::standard,
                            &request) == 0);
        const bool open = rank->entering_host_call();
        exchange.barrier();
        if (open) rank->left_host_call();
        rank->wait(*request);
        rank->release(*request);
      } else {
        REQUIRE(rank->recv(data.data(), 3 << 20, bytes, 0, 0, *rank->world(), &status) == 0);
        REQUIRE(check(data, 4, data.size()));
        exchange.barrier();
      }
      rank->finalize();
      return 0;
    }));
  }
}

}  // namespace
}  // namespace od
