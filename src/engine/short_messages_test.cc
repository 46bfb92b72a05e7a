// Short messages past MPI's calls are messages like all others, in one order with them.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <new>
#include <random>
#include <vector>

#include "engine/engine.h"
#include "engine/test_rank.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using node::Exchange;
using node::run_forked_job;
using p2p::kPrefixBytes;

constexpr std::uint32_t kMostBytes = 512;
constexpr std::uint32_t kRoom = kPrefixBytes + kMostBytes;

// One rank's end of a way to another one that takes either kind of call.
struct Way {
  Rank& rank;
  const int peer;
  const p2p::LayoutRef bytes = byte_layout();
  std::uint64_t at_once = 0;

  // `data` has at least kPrefixBytes.
  bool send(const std::vector<unsigned char>& data, int tag, bool short_way) {
    const auto rest = static_cast<std::uint32_t>(data.size()) - kPrefixBytes;
    if (short_way &&
        rank.send_short(data.data(), data.data() + kPrefixBytes, rest, peer, tag, *rank.world())) {
      return true;
    }
    return rank.send(data.data(), static_cast<std::int64_t>(data.size()), bytes, peer, tag,
                     *rank.world(), SendMode::standard) == 0;
  }
  // The length, or less than 0.
  std::int64_t receive(std::vector<unsigned char>& data, int tag, bool short_way) {
    if (short_way) {
      const std::int64_t length = rank.recv_short(data.data(), kRoom, peer, tag, *rank.world());
      if (length >= 0) {
        ++at_once;
        return length;
      }
    }
    host::Status status;
    const int error = rank.recv(data.data(), static_cast<std::int64_t>(data.size()), bytes, peer,
                                tag, *rank.world(), &status);
    return error == 0 ? status.bytes : -1;
  }
};

// Which of both ways a message takes at each end: all four.
TEST(ShortMessages, EveryLengthWhicheverWayItTakes) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    REQUIRE(rank && rank->active());
    Way way{*rank, 1 - me};
    for (int repeat = 0; repeat < node::rounds_of_processes(8); ++repeat) {
      for (std::uint32_t size = 0; size <= kMostBytes; size += size < 80 ? 1 : 27) {
        for (int turn = 0; turn < 2; ++turn) {
          std::vector<unsigned char> data(turn == me ? kPrefixBytes + size : kRoom + 1, 0xee);
          const std::uint64_t seed = size * 8 + static_cast<unsigned>(turn * 4 + repeat % 4);
          if (turn == me) {
            fill(data, seed);
            REQUIRE(way.send(data, 7, (repeat & 1) != 0));
          } else {
            REQUIRE(way.receive(data, 7, (repeat & 2) != 0) == kPrefixBytes + size);
            REQUIRE(check(data, seed, kPrefixBytes + size));
            REQUIRE(data[kPrefixBytes + size] == 0xee);
          }
        }
      }
    }
    REQUIRE(rank->state().counters.receives_at_once == way.at_once);
    rank->finalize();
    return 0;
  }));
}

// Rank 0 sends a random sequence; rank 1 asks for one tag or any, now with a receive before it that
// is still posted, and what it gets is what MPI's order says. The first word of a message is its
// number.
void keep_order(const config::Settings& settings, bool threads) {
  expect_success(run_forked_job(2, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange, settings, threads);
    REQUIRE(rank && rank->active());
    Way way{*rank, 1 - me};
    constexpr int kTags = 3;
    constexpr int kWindow = 40;  // more than one round of progress takes in
    const int messages = node::rounds_of_processes(2000);
    std::mt19937 plan(11);  // the same on both ranks
    std::mt19937 own(static_cast<unsigned>(me));
    std::vector<std::pair<int, std::uint32_t>> sent;  // tag and length
    for (int i = 0; i < messages; ++i) {
      const auto kind = plan() % 8;
      const auto most = kind == 0 ? 9000u : kind < 4 ? 24u : kMostBytes;
      const auto size = static_cast<std::uint32_t>(plan() % (most + 1));
      sent.emplace_back(static_cast<int>(plan() % kTags), kPrefixBytes + size);
    }
    if (me == 0) {
      for (int i = 0; i < messages; ++i) {
        const auto [tag, length] = sent[static_cast<std::size_t>(i)];
        std::vector<unsigned char> data(length);
        fill(data, static_cast<std::uint64_t>(i));
        std::memcpy(data.data(), &i, sizeof i);
        REQUIRE(way.send(data, tag, own() % 2 == 0));
        // Now and then the receiver is waited for, so that messages come while it looks.
        std::vector<unsigned char> answer(kRoom);
        if (i % kWindow == kWindow - 1)
          REQUIRE(way.receive(answer, 9, own() % 2 == 0) == kPrefixBytes);
      }
      rank->finalize();
      return 0;
    }
    // Of the messages that are allowed to have been sent, per tag, the next one to be received.
    std::vector<bool> taken(static_cast<std::size_t>(messages), false);
    int begin = 0;  // all before have been received
    const auto first_of = [&](int tag, int end) {
      while (begin < end && taken[static_cast<std::size_t>(begin)]) ++begin;
      for (int i = begin; i < end; ++i) {
        if (!taken[static_cast<std::size_t>(i)] &&
            (tag == host::kAnyTag || sent[static_cast<std::size_t>(i)].first == tag)) {
          return i;
        }
      }
      return -1;
    };
    const auto right = [&](const std::vector<unsigned char>& data, std::int64_t length,
                           int number) {
      int found = -1;
      std::memcpy(&found, data.data(), sizeof found);
      std::vector<unsigned char> expected(static_cast<std::size_t>(length));
      fill(expected, static_cast<std::uint64_t>(number));
      std::memcpy(expected.data(), &number, sizeof number);
      taken[static_cast<std::size_t>(number)] = true;
      return found == number && length == sent[static_cast<std::size_t>(number)].second &&
             std::memcmp(expected.data(), data.data(), expected.size()) == 0;
    };
    for (int end = kWindow; end - kWindow < messages; end += kWindow) {
      const int upto = std::min(end, messages);
      while (first_of(host::kAnyTag, upto) >= 0) {
        int tag = static_cast<int>(own() % (kTags + 1));
        if (tag == kTags) tag = host::kAnyTag;
        const int number = first_of(tag, upto);
        if (number < 0) continue;
        std::vector<unsigned char> data(10000), earlier(10000);
        Request* before = nullptr;
        if (own() % 4 == 0) {
          // A receive of the same kind that came first gets the first message.
          REQUIRE(rank->irecv(earlier.data(), 10000, way.bytes, 0, tag, *rank->world(), &before) ==
                  0);
          taken[static_cast<std::size_t>(number)] = true;
          const int second = first_of(tag, upto);
          if (second >= 0) {
            REQUIRE(right(data, way.receive(data, tag, true), second));
          }
          rank->wait(*before);
          REQUIRE(right(earlier, before->status.bytes, number));
          rank->release(*before);
          continue;
        }
        REQUIRE(right(data, way.receive(data, tag, own() % 4 != 0), number));
      }
      if (upto == end) REQUIRE(way.send(std::vector<unsigned char>(kPrefixBytes), 9, true));
    }
    REQUIRE(rank->state().counters.receives_at_once == way.at_once);
    rank->finalize();
    return 0;
  }));
}

TEST(ShortMessages, KeepTheirOrderWithAllOthers) { keep_order({}, false); }
TEST(ShortMessages, KeepItWithALock) { keep_order({}, true); }
TEST(ShortMessages, KeepItWithoutFrames) {
  config::Settings settings;
  settings.frame_peers = 0;
  keep_order(settings, false);
}
TEST(ShortMessages, KeepItWithASmallBox) {
  config::Settings settings;
  settings.fastbox_bytes = 1024;
  settings.frame_peers = 0;
  keep_order(settings, false);
}

// Who keeps finding what it asks for at once looks at the others' messages all the same.
TEST(ShortMessages, OthersGetTheirTurn) {
  constexpr int kMessages = 100;  // fewer than a box holds
  void* const memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  // 1: rank 0 asks nobody any more, so what is sent stays in its boxes. 2, 3: each has sent.
  auto* const ready = new (memory) std::atomic<int>(0);
  expect_success(run_forked_job(3, [&](int me, const Exchange& exchange) {
    auto rank = make_test_rank(exchange);
    REQUIRE(rank && rank->active());
    RankState& s = rank->state();
    const std::vector<unsigned char> data(kPrefixBytes);
    std::vector<unsigned char> in(kRoom);
    if (me != 0) {
      Way way{*rank, 0};
      REQUIRE(way.send(data, 0, false));  // opens the box
      REQUIRE(way.receive(in, 0, false) == kPrefixBytes);
      while (ready->load(std::memory_order_acquire) < 1) sched_yield();  // pairs with the additions
      for (int i = 0; i < (me == 1 ? kMessages : 1); ++i) REQUIRE(way.send(data, 1, true));
      ready->fetch_add(1, std::memory_order_release);  // pairs with the loads
      rank->finalize();
      return 0;
    }
    for (int peer = 1; peer <= 2; ++peer) {
      Way way{*rank, peer};
      REQUIRE(way.receive(in, 0, false) == kPrefixBytes && way.send(data, 0, false));
    }
    ready->fetch_add(1, std::memory_order_release);                    // pairs with the loads
    while (ready->load(std::memory_order_acquire) < 3) sched_yield();  // pairs with the additions
    Way way{*rank, 1};
    for (int i = 0; i < kMessages; ++i) REQUIRE(way.receive(in, 1, true) == kPrefixBytes);
    REQUIRE(way.at_once > 10);
    REQUIRE(s.matching.unexpected_count() == 1);
    REQUIRE((Way{*rank, 2}.receive(in, 1, false) == kPrefixBytes));
    rank->finalize();
    return 0;
  }));
  munmap(memory, sizeof(std::atomic<int>));
}

}  // namespace
}  // namespace od
