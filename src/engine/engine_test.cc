// Ranks in forked processes send each other messages of every size and kind, in every order.
//
// Starts threads: the helper of ranks that sit in a call of the host.

#include "engine/engine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/populate.h"
#include "base/test_emulator.h"
#include "engine/rank_state.h"
#include "engine/test_rank.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using node::Exchange;
using node::run_forked_job;

const std::int64_t kSizes[] = {0,     1,     7,     8,      39,     40,     41,      96,
                               97,    512,   1023,  1024,   1025,   4096,   8191,    16384,
                               16385, 40000, 65536, 100001, 262144, 262145, 1048576, 3000001};

TEST(Engine, PingPongOfEverySize) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    REQUIRE(rank && rank->active());
    const p2p::LayoutRef bytes = byte_layout();
    for (const std::int64_t size : kSizes) {
      for (int repeat = 0; repeat < node::rounds_of_processes(20); ++repeat) {
        std::vector<unsigned char> data(static_cast<std::size_t>(size));
        host::Status status;
        for (int turn = 0; turn < 2; ++turn) {
          const auto seed = static_cast<std::uint64_t>(size * 2 + turn + repeat);
          if (turn == me) {
            fill(data, seed);
            REQUIRE(rank->send(data.data(), size, bytes, 1 - me, 5, *rank->world(),
                               SendMode::standard) == 0);
          } else {
            REQUIRE(rank->recv(data.data(), size, bytes, 1 - me, 5, *rank->world(), &status) == 0);
            REQUIRE(status.bytes == size && status.source == 1 - me && status.tag == 5);
            REQUIRE(check(data, seed, data.size()));
          }
        }
      }
    }
    rank->finalize();
    return 0;
  }));
}

// The first messages find the pages of a pool of usual size.
TEST(Engine, PoolExistsFromTheStart) {
  if (under_emulator()) GTEST_SKIP() << "an emulator says yes to every advice";
  expect_success(run_forked_job(2, [](int, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, config::Settings{});
    REQUIRE(rank && rank->active());
    const node::RegionLayout& layout = rank->state().node->layout();
    REQUIRE(layout.pool_bytes % node::kPageBytes == 0);
    std::vector<unsigned char> in_memory(layout.pool_bytes / node::kPageBytes);
    std::byte* const pool =
        rank->state().node->member(rank->state().node->my_index()).base + layout.pool_offset;
    const bool kernel_can = populate_pages(pool, node::kPageBytes, true);
    REQUIRE(mincore(pool, layout.pool_bytes, in_memory.data()) == 0);
    REQUIRE(!kernel_can || std::all_of(in_memory.begin(), in_memory.end(),
                                       [](unsigned char page) { return (page & 1) != 0; }));
    rank->finalize();
    return 0;
  }));
}

// What MPI_Init leaves of a larger one is made ready while a rank waits, and messages do not mind.
TEST(Engine, PoolIsMadeReadyWhileWaiting) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    config::Settings settings;
    settings.wait = config::WaitMode::kSpin;
    settings.copy_path = config::CopyPath::kCells;
    settings.pool_bytes *= 2;
    auto rank = make_test_rank(exchange, settings);
    REQUIRE(rank && rank->active());
    RankState& s = rank->state();
    const auto left_bytes = static_cast<std::uint64_t>(s.warm_end - s.warm_next);
    if (left_bytes == 0) return 0;  // a kernel that cannot, or more ranks than that is good for
    Rank::WaitLoop loop(*rank, "test", false);
    while (s.warm_left()) loop.step();
    // Zero where the kernel has refused.
    REQUIRE(s.counters.warmed_bytes == left_bytes || s.counters.warmed_bytes == 0);
    const std::int64_t size = 16384;
    for (int i = 0; i < 500; ++i) {
      std::vector<unsigned char> data(static_cast<std::size_t>(size));
      if (me == 0) {
        fill(data, static_cast<std::uint64_t>(i));
        REQUIRE(rank->send(data.data(), size, byte_layout(), 1, 5, *rank->world(),
                           SendMode::standard) == 0);
      } else {
        host::Status status;
        REQUIRE(rank->recv(data.data(), size, byte_layout(), 0, 5, *rank->world(), &status) == 0);
        REQUIRE(check(data, static_cast<std::uint64_t>(i), data.size()));
      }
    }
    rank->finalize();
    return 0;
  }));
}

TEST(Engine, RandomTrafficTwoRanks) { random_traffic(2, 1, {}, 1500); }
TEST(Engine, RandomTrafficFiveRanks) { random_traffic(5, 2, {}, 1500); }
TEST(Engine, RandomTrafficWithoutBoxes) {
  config::Settings settings;
  settings.fastbox_peers = 0;
  random_traffic(3, 3, settings, 1000);
}
TEST(Engine, RandomTrafficTinyBoxesAndPool) {
  config::Settings settings;
  settings.fastbox_bytes = 1024;
  settings.pool_bytes = 64 << 10;
  settings.cell_bytes = 4096;
  settings.piece_bytes = 512;
  random_traffic(4, 4, settings, 1000);
}
TEST(Engine, RandomTrafficVerifiedNontemporal) {
  config::Settings settings;
  settings.verify = true;
  settings.copy = config::CopyMode::kNontemporal;
  settings.nontemporal_min_bytes = 256;
  random_traffic(3, 5, settings, 800);
}
TEST(Engine, RandomTrafficWithoutBufferMemory) {
  config::Settings settings;
  settings.buffer_limit_bytes = 0;
  settings.pool_bytes = 64 << 10;
  random_traffic(2, 6, settings, 600);
}

TEST(Engine, UnexpectedFloodInBothOrders) {
  for (const std::int64_t size : {std::int64_t{8}, std::int64_t{1024}}) {
    expect_success(run_forked_job(
        2,
        [&](int me, const Exchange& exchange) {
          auto rank = make_test_rank(exchange);
          const p2p::LayoutRef bytes = byte_layout();
          constexpr int kMessages = 20000;
          std::vector<unsigned char> data(static_cast<std::size_t>(size));
          host::Status status;
          if (me == 0) {
            for (int i = 0; i < kMessages; ++i) {
              fill(data, static_cast<std::uint64_t>(i));
              REQUIRE(rank->send(data.data(), size, bytes, 1, i % 1000, *rank->world(),
                                 SendMode::standard) == 0);
            }
          }
          exchange.barrier();
          if (me == 1) {
            for (int block = 0; block < kMessages / 1000; ++block) {
              for (int tag = 999; tag >= 0; --tag) {
                REQUIRE(rank->recv(data.data(), size, bytes, 0, tag, *rank->world(), &status) == 0);
                REQUIRE(check(data, static_cast<std::uint64_t>(block * 1000 + tag), data.size()));
              }
            }
          }
          rank->finalize();
          return 0;
        },
        100));
  }
}

// Everybody sends to everybody, more than fits a box before anything is received, again and again:
// senders wait for room, take what comes meanwhile, list, and come back to their boxes. Messages
// with holes are packed and unpacked at the same time; receivers fall behind by chance.
void flood(int ranks, const config::Settings& settings, int windows) {
  expect_success(run_forked_job(
      ranks,
      [&](int me, const Exchange& exchange) {
        auto rank = make_test_rank(exchange, settings);
        const p2p::LayoutRef bytes = byte_layout();
        const p2p::LayoutRef strided = strided_layout(5, 7, 11);
        constexpr int kWindow = 300;
        constexpr std::size_t kMostBytes = 5 * 11;
        std::vector<unsigned char> data(kMostBytes), sent(kMostBytes);
        for (int window = 0; window < windows; ++window) {
          const auto seed = [&](int from, int to, int i) {
            return static_cast<std::uint64_t>(((window * kWindow + i) * ranks + from) * ranks + to);
          };
          for (int i = 0; i < kWindow; ++i) {
            for (int peer = 0; peer < ranks; ++peer) {
              if (peer == me) continue;
              fill(sent, seed(me, peer, i));
              REQUIRE(i % 3 == 0 ? rank->send(sent.data(), 1, strided, peer, i % 2, *rank->world(),
                                              SendMode::standard) == 0
                                 : rank->send(sent.data(), i % 50, bytes, peer, i % 2,
                                              *rank->world(), SendMode::standard) == 0);
            }
          }
          if ((window + me) % 5 == 0) usleep(200);
          host::Status status;
          for (int i = 0; i < kWindow; ++i) {
            for (int peer = 0; peer < ranks; ++peer) {
              if (peer == me) continue;
              std::fill(data.begin(), data.end(), 0);
              const bool holes = i % 3 == 0;
              REQUIRE(rank->recv(data.data(), holes ? 1 : i % 50, holes ? strided : bytes, peer,
                                 i % 2, *rank->world(), &status) == 0);
              REQUIRE(status.bytes == (holes ? 35 : i % 50));
              for (std::size_t at = 0; at < (holes ? kMostBytes : std::size_t(i % 50)); ++at) {
                REQUIRE(data[at] == (holes && at % 11 >= 7 ? 0 : pattern(seed(peer, me, i), at)));
              }
            }
          }
        }
        rank->finalize();
        return 0;
      },
      60));
}

TEST(Engine, FloodsBothWays) { flood(2, {}, 100); }
TEST(Engine, FloodsBothWaysTinyBoxes) {
  config::Settings settings;
  settings.fastbox_bytes = 1024;
  flood(2, settings, 60);
}
TEST(Engine, FloodsBothWaysVerifiedOfFourRanks) {
  config::Settings settings;
  settings.verify = true;
  flood(4, settings, 20);
}

// Messages that wait together have come through frames and box by turns: answers bring frames back
// to a sender whose earlier messages are still in its box.
TEST(Engine, BatchesThroughFramesAndBoxComeInOrder) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    const p2p::LayoutRef bytes = byte_layout();
    std::mt19937 random(11);  // the same plan on both ranks
    std::vector<unsigned char> data(300);
    host::Status status;
    std::uint64_t seed = 0;
    for (int round = 0; round < 3000; ++round) {
      // Both send, as much as fits a box, before either receives.
      const int counts[2] = {static_cast<int>(random() % 40), static_cast<int>(random() % 4)};
      const int size = static_cast<int>(random() % 300);
      for (int i = 0; i < counts[me]; ++i) {
        const int length = i % 5 == 0 ? size : 8;
        fill(data, seed + static_cast<std::uint64_t>(me * 100 + i));
        REQUIRE(rank->send(data.data(), length, bytes, 1 - me, 3, *rank->world(),
                           SendMode::standard) == 0);
      }
      if (round % 64 == me) usleep(100);
      for (int i = 0; i < counts[1 - me]; ++i) {
        const int length = i % 5 == 0 ? size : 8;
        REQUIRE(rank->recv(data.data(), length, bytes, 1 - me, 3, *rank->world(), &status) == 0);
        REQUIRE(status.bytes == length);
        REQUIRE(check(data, seed + static_cast<std::uint64_t>((1 - me) * 100 + i),
                      static_cast<std::size_t>(length)));
      }
      seed += 1000;
    }
    REQUIRE(rank->state().matching.unexpected_count() == 0);
    rank->finalize();
    return 0;
  }));
}

// A sender is free although its receiver is elsewhere, and a receiver gets everything although its
// sender has gone into a blocking call of the host.
TEST(Engine, NobodyHasToComeBack) {
  expect_success(run_forked_job(
      2,
      [](int me, const Exchange& exchange) {
        auto rank = make_test_rank(exchange);
        const p2p::LayoutRef bytes = byte_layout();
        for (const std::int64_t size :
             {std::int64_t{10}, std::int64_t{50000}, std::int64_t{5000000}}) {
          std::vector<unsigned char> data(static_cast<std::size_t>(size));
          host::Status status;
          Request* request = nullptr;
          // Blocking send while the receiver sits in the host, its receive posted or not.
          for (const bool posted : {false, true}) {
            if (me == 0) {
              fill(data, 3);
              REQUIRE(rank->send(data.data(), size, bytes, 1, 0, *rank->world(),
                                 SendMode::standard) == 0);
              const bool open = rank->entering_host_call();
              exchange.barrier();
              if (open) rank->left_host_call();
            } else {
              if (posted) {
                REQUIRE(rank->irecv(data.data(), size, bytes, 0, 0, *rank->world(), &request) == 0);
              }
              const bool open = rank->entering_host_call();
              exchange.barrier();
              if (open) rank->left_host_call();
              if (!posted) {
                REQUIRE(rank->recv(data.data(), size, bytes, 0, 0, *rank->world(), &status) == 0);
              } else {
                rank->wait(*request);
                rank->release(*request);
              }
              REQUIRE(check(data, 3, data.size()));
              std::fill(data.begin(), data.end(), static_cast<unsigned char>(0));
            }
          }
          // Isend, then a blocking host call; the receiver completes before it ends.
          if (me == 0) {
            fill(data, 4);
            REQUIRE(rank->isend(data.data(), size, bytes, 1, 0, *rank->world(), SendMode::standard,
                                &request) == 0);
            const bool open = rank->entering_host_call();
            exchange.barrier();
            if (open) rank->left_host_call();
            rank->wait(*request);
            rank->release(*request);
          } else {
            REQUIRE(rank->recv(data.data(), size, bytes, 0, 0, *rank->world(), &status) == 0);
            REQUIRE(check(data, 4, data.size()));
            exchange.barrier();
          }
        }
        rank->finalize();
        return 0;
      },
      100));
}

TEST(Engine, SynchronousSendWaitsForItsReceive) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    const p2p::LayoutRef bytes = byte_layout();
    char data[16] = "synchronous";
    host::Status status;
    if (me == 0) {
      Request* request = nullptr;
      REQUIRE(rank->isend(data, 16, bytes, 1, 0, *rank->world(), SendMode::synchronous, &request) ==
              0);
      for (int i = 0; i < 1000; ++i) REQUIRE(!rank->test(*request));
      exchange.barrier();
      rank->wait(*request);
      rank->release(*request);
    } else {
      exchange.barrier();
      REQUIRE(rank->recv(data, 16, bytes, 0, 0, *rank->world(), &status) == 0);
    }
    rank->finalize();
    return 0;
  }));
}

// The receiver has posted its receive and sits in the host; nothing but its helper can match.
TEST(Engine, SynchronousSendCompletesWhileItsReceiverIsInTheHost) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    const p2p::LayoutRef bytes = byte_layout();
    for (const std::int64_t size : {std::int64_t{4}, std::int64_t{3000000}}) {
      for (int repeat = 0; repeat < node::rounds_of_processes(20); ++repeat) {
        std::vector<unsigned char> data(static_cast<std::size_t>(size));
        if (me == 0) {
          fill(data, 5);
          REQUIRE(rank->send(data.data(), size, bytes, 1, 0, *rank->world(),
                             SendMode::synchronous) == 0);
          exchange.barrier();
        } else {
          Request* request = nullptr;
          REQUIRE(rank->irecv(data.data(), size, bytes, 0, 0, *rank->world(), &request) == 0);
          const bool open = rank->entering_host_call();
          exchange.barrier();
          if (open) rank->left_host_call();
          rank->wait(*request);
          REQUIRE(check(data, 5, data.size()));
          rank->release(*request);
        }
      }
    }
    rank->finalize();
    return 0;
  }));
}

// Threads of the program whose first calls of the host coincide share one helper.
TEST(Engine, ThreadsStartOneHelper) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, {}, true);
    const p2p::LayoutRef bytes = byte_layout();
    char data[4] = "abc";
    if (me == 0) {
      Request* request = nullptr;
      REQUIRE(rank->irecv(data, 4, bytes, 1, 0, *rank->world(), &request) == 0);
      constexpr int kThreads = 8;
      std::barrier together(kThreads);
      std::vector<std::thread> threads;
      for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
          together.arrive_and_wait();
          const bool open = rank->entering_host_call();
          together.arrive_and_wait();
          if (open) rank->left_host_call();
        });
      }
      for (std::thread& thread : threads) thread.join();
      usleep(20'000);  // a thread gives itself its name
      int helpers = 0;
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        if (name == "overdrive") ++helpers;
      }
      REQUIRE(helpers <= 1);
      exchange.barrier();
      rank->wait(*request);
      rank->release(*request);
    } else {
      exchange.barrier();
      REQUIRE(rank->send(data, 4, bytes, 0, 0, *rank->world(), SendMode::standard) == 0);
    }
    rank->finalize();
    return 0;
  }));
}

// Messages that nobody has asked for fill the pool and the buffer; the one that is asked for moves.
TEST(Engine, MatchedMessagesMoveWhenMemoryIsFull) {
  config::Settings settings;
  settings.buffer_limit_bytes = 1 << 20;
  expect_success(run_forked_job(
      2,
      [&](int me, const Exchange& exchange) {
        auto rank = make_test_rank(exchange, settings);
        const p2p::LayoutRef bytes = byte_layout();
        constexpr int kMessages = 64;
        for (const std::size_t size : {std::size_t{1000}, std::size_t{1} << 20}) {
          std::vector<std::vector<unsigned char>> data(kMessages, std::vector<unsigned char>(size));
          const auto count = static_cast<std::int64_t>(size);
          std::vector<Request*> requests(kMessages);
          if (me == 0) {
            for (int tag = 0; tag < kMessages; ++tag) {
              auto& message = data[static_cast<std::size_t>(tag)];
              fill(message, static_cast<std::uint64_t>(tag));
              REQUIRE(rank->isend(message.data(), count, bytes, 1, tag, *rank->world(),
                                  SendMode::standard,
                                  &requests[static_cast<std::size_t>(tag)]) == 0);
            }
            exchange.barrier();
            for (Request* request : requests) {
              rank->wait(*request);
              rank->release(*request);
            }
          } else {
            exchange.barrier();
            host::Status status;
            for (int tag = kMessages; tag-- > 0;) {
              REQUIRE(rank->recv(data[0].data(), count, bytes, 0, tag, *rank->world(), &status) ==
                      0);
              REQUIRE(check(data[0], static_cast<std::uint64_t>(tag), size));
            }
          }
        }
        rank->finalize();
        return 0;
      },
      100));
}

TEST(Engine, CancelledSendIsNeverReceived) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    const p2p::LayoutRef bytes = byte_layout();
    std::vector<unsigned char> data(1 << 20);
    host::Status status;
    if (me == 0) {
      Request* request = nullptr;
      fill(data, 1);
      REQUIRE(rank->isend(data.data(), 1 << 20, bytes, 1, 0, *rank->world(), SendMode::standard,
                          &request) == 0);
      REQUIRE(!request->complete);
      rank->cancel(*request);
      REQUIRE(request->complete && request->status.cancelled);
      rank->release(*request);
      fill(data, 2);
      exchange.barrier();
      REQUIRE(rank->send(data.data(), 1 << 20, bytes, 1, 0, *rank->world(), SendMode::standard) ==
              0);
    } else {
      exchange.barrier();
      REQUIRE(rank->recv(data.data(), 1 << 20, bytes, 0, host::kAnyTag, *rank->world(), &status) ==
              0);
      REQUIRE(check(data, 2, data.size()));
    }
    rank->finalize();
    return 0;
  }));
}

// MPI promises that the wait for a cancelled operation ends, whatever others do.
TEST(Engine, SynchronousSendToOneselfIsTakenBack) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    const p2p::LayoutRef bytes = byte_layout();
    host::Status status;
    for (Comm* const comm : {rank->world(), rank->self()}) {
      const int self = comm == rank->self() ? 0 : me;
      std::vector<unsigned char> data(1000), other(1000), third(1000), in(1000);
      std::vector<Request*> sends(3);
      const auto send = [&](std::vector<unsigned char>& from, Request** request) {
        return rank->isend(from.data(), 1000, bytes, self, 5, *comm, SendMode::synchronous,
                           request);
      };
      fill(data, 1);
      fill(other, 2);
      fill(third, 3);
      REQUIRE(send(data, &sends[0]) == 0 && send(other, &sends[1]) == 0 &&
              send(third, &sends[2]) == 0);
      rank->cancel(*sends[1]);
      REQUIRE(sends[1]->complete && sends[1]->status.cancelled);
      rank->release(*sends[1]);
      // The others come, in their order; what has been matched is not cancelled.
      Request* message = nullptr;
      REQUIRE(rank->improbe(self, 5, *comm, &message, &status));
      rank->cancel(*sends[0]);
      REQUIRE(!sends[0]->complete);
      REQUIRE(rank->mrecv(in.data(), 1000, bytes, *message, &status) == 0 && check(in, 1, 1000));
      REQUIRE(rank->recv(in.data(), 1000, bytes, self, 5, *comm, &status) == 0);
      REQUIRE(check(in, 3, 1000));
      REQUIRE(!rank->iprobe(self, 5, *comm, &status));
      for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {
        REQUIRE(sends[i]->complete && !sends[i]->status.cancelled);
        rank->release(*sends[i]);
      }
    }
    rank->finalize();
    return 0;
  }));
}

// Two ranks that buffer for each other more than there is memory for, and then receive.
TEST(Engine, BufferedSendsDoNotWaitWhenMemoryIsFull) {
  config::Settings settings;
  settings.buffer_limit_bytes = 1 << 20;
  expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, settings);
    const p2p::LayoutRef layouts[] = {byte_layout(), strided_layout(1 << 10, 1 << 10, 1 << 11)};
    constexpr int kMessages = 24;
    constexpr std::size_t kBytes = 1 << 20;
    host::Status status;
    for (const p2p::LayoutRef& layout : layouts) {
      const bool plain = layout->size == 1;
      const std::int64_t count = plain ? kBytes : 1;
      std::vector<unsigned char> data(static_cast<std::size_t>(count * layout->extent));
      for (int tag = 0; tag < kMessages; ++tag) {
        fill(data, static_cast<std::uint64_t>(100 * me + tag));
        if (tag % 2 == 0) {
          REQUIRE(rank->send(data.data(), count, layout, 1 - me, tag, *rank->world(),
                             SendMode::buffered) == 0);
        } else {
          Request* request = nullptr;
          REQUIRE(rank->isend(data.data(), count, layout, 1 - me, tag, *rank->world(),
                              SendMode::buffered, &request) == 0);
          REQUIRE(request->complete);
          rank->release(*request);
        }
      }
      REQUIRE(rank->state().counters.buffer_limit_waits > 0);
      std::vector<unsigned char> expected(data.size());
      for (int tag = kMessages; tag-- > 0;) {
        std::fill(data.begin(), data.end(), 0);
        REQUIRE(rank->recv(data.data(), count, layout, 1 - me, tag, *rank->world(), &status) == 0);
        fill(expected, static_cast<std::uint64_t>(100 * (1 - me) + tag));
        for (std::size_t i = 0; i < data.size(); ++i) {
          if (!plain && i / 1024 % 2 == 1) expected[i] = 0;  // a gap
        }
        REQUIRE(data == expected);
      }
    }
    rank->finalize();
    return 0;
  }));
}

TEST(Engine, TruncationReportsTheErrorAndKeepsTheRest) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    const p2p::LayoutRef bytes = byte_layout();
    for (const std::int64_t size : {std::int64_t{100}, std::int64_t{9000}, std::int64_t{300000}}) {
      std::vector<unsigned char> data(static_cast<std::size_t>(size));
      host::Status status;
      if (me == 0) {
        fill(data, 9);
        rank->send(data.data(), size, bytes, 1, 0, *rank->world(), SendMode::standard);
      } else {
        REQUIRE(rank->recv(data.data(), size / 2, bytes, 0, 0, *rank->world(), &status) == 15);
        REQUIRE(check(data, 9, data.size() / 2));
        for (std::size_t i = data.size() / 2; i < data.size(); ++i) REQUIRE(data[i] == 0);
      }
    }
    rank->finalize();
    return 0;
  }));
}

TEST(Engine, StridedBuffersOnBothSides) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    const p2p::LayoutRef strided = strided_layout(1000, 24, 40);
    const p2p::LayoutRef bytes = byte_layout();
    for (const int count : {1, 7, 60}) {
      const auto span = static_cast<std::size_t>(strided->extent * count);
      std::vector<unsigned char> data(span);
      host::Status status;
      if (me == 0) {
        fill(data, 11);
        rank->send(data.data(), count, strided, 1, 0, *rank->world(), SendMode::standard);
      } else {
        REQUIRE(rank->recv(data.data(), count, strided, 0, 0, *rank->world(), &status) == 0);
        for (int element = 0; element < count; ++element) {
          for (int block = 0; block < 1000; ++block) {
            for (int i = 0; i < 40; ++i) {
              const auto at =
                  static_cast<std::size_t>(element) * static_cast<std::size_t>(strided->extent) +
                  static_cast<std::size_t>(block * 40 + i);
              if (at >= span || (block == 999 && i >= 24)) continue;
              REQUIRE(data[at] == (i < 24 ? pattern(11, at) : 0));
            }
          }
        }
      }
    }
    rank->finalize();
    return 0;
  }));
}

TEST(Engine, WildcardsTakeTheOldest) {
  expect_success(run_forked_job(3, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    const p2p::LayoutRef bytes = byte_layout();
    constexpr int kMessages = 2000;
    host::Status status;
    if (me != 0) {
      for (int i = 0; i < kMessages; ++i) {
        rank->send(&i, sizeof(i), bytes, 0, i % 3, *rank->world(), SendMode::standard);
      }
    } else {
      int next[3] = {0, 0, 0};
      for (int i = 0; i < 2 * kMessages; ++i) {
        int value = -1;
        if (i % 3 == 0) {
          rank->probe(host::kAnySource, host::kAnyTag, *rank->world(), &status);
          const host::Status probed = status;
          rank->recv(&value, sizeof(value), bytes, probed.source, probed.tag, *rank->world(),
                     &status);
        } else {
          rank->recv(&value, sizeof(value), bytes, host::kAnySource, host::kAnyTag, *rank->world(),
                     &status);
        }
        REQUIRE(value == next[status.source]++ && status.tag == value % 3);
      }
    }
    rank->finalize();
    return 0;
  }));
}

}  // namespace
}  // namespace od
