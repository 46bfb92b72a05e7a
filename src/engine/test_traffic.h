// Test support: checks inside forked ranks, data patterns, and random traffic between all ranks.
#ifndef OVERDRIVE_ENGINE_TEST_TRAFFIC_H_
#define OVERDRIVE_ENGINE_TEST_TRAFFIC_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "engine/rank_state.h"
#include "engine/test_rank.h"

namespace od {

// In a child: a failed expectation ends it with the line number, which the parent shows.
#define REQUIRE(condition)                                                                         \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, exchange.rank, #condition); \
      std::_Exit(1);                                                                               \
    }                                                                                              \
  } while (false)

inline void expect_success(const std::vector<int>& codes) {
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    EXPECT_EQ(codes[rank], 0) << "rank " << rank;
  }
}

// What messages hold: a random text over and over, from another place of it for each seed. As long
// as a prime, so that no piece can stand in the place of another. It is compared in long runs,
// since sanitizers make a loop over single bytes most of what a test takes.
class PatternText {
 public:
  static constexpr std::size_t kBytes = 65521;

  static std::size_t place(std::uint64_t seed, std::size_t i) { return (seed * 131 + i) % kBytes; }
  static const unsigned char* at(std::size_t place) {
    static const std::unique_ptr<const unsigned char[]> text = make();
    return text.get() + place;
  }
  // Calls `each(offset, text, bytes)` for the runs of what belongs to `seed`; false ends it.
  template <typename Function>
  static bool for_each_run(std::uint64_t seed, std::size_t bytes, Function&& each) {
    for (std::size_t i = 0; i < bytes;) {
      const std::size_t from = place(seed, i);
      const std::size_t run = std::min(kBytes - from, bytes - i);
      if (!each(i, at(from), run)) return false;
      i += run;
    }
    return true;
  }

 private:
  static std::unique_ptr<const unsigned char[]> make() {
    auto text = std::make_unique<unsigned char[]>(kBytes + sizeof(std::uint64_t));
    std::mt19937_64 random(3);
    for (std::size_t i = 0; i < kBytes; i += sizeof(std::uint64_t)) {
      const std::uint64_t value = random();
      std::memcpy(&text[i], &value, sizeof value);
    }
    return text;
  }
};

inline unsigned char pattern(std::uint64_t seed, std::size_t i) {
  return *PatternText::at(PatternText::place(seed, i));
}
inline void fill(std::span<unsigned char> data, std::uint64_t seed) {
  const auto copy = [&](std::size_t i, const unsigned char* text, std::size_t bytes) {
    std::memcpy(data.data() + i, text, bytes);
    return true;
  };
  PatternText::for_each_run(seed, data.size(), copy);
}
inline bool check(std::span<const unsigned char> data, std::uint64_t seed, std::size_t bytes) {
  const auto same = [&](std::size_t i, const unsigned char* text, std::size_t run) {
    return std::memcmp(data.data() + i, text, run) == 0;
  };
  return PatternText::for_each_run(seed, bytes, same);
}

// Where a rank's message buffers come from: called with a size, in the child, after `prepare`.
struct TrafficMemory {
  std::function<void()> prepare = [] {};
  std::function<std::span<unsigned char>(std::size_t)> allocate = [](std::size_t bytes) {
    return std::span<unsigned char>(new unsigned char[bytes + 1], bytes);
  };
};

// Every rank sends a random mix to every other, receives are posted in another order. `at_end` is
// called on each rank before it leaves; it may look at the counters.
inline void random_traffic(
    int ranks, std::uint32_t seed, const config::Settings& settings, int messages,
    const TrafficMemory& memory = {},
    const std::function<bool(RankState&)>& at_end = [](auto&) { return true; }) {
  expect_success(node::run_forked_job(
      ranks,
      [&](int me, const node::Exchange& exchange) {
        memory.prepare();
        auto rank = make_test_rank(exchange, settings);
        REQUIRE(rank);
        const p2p::LayoutRef bytes = byte_layout();
        std::mt19937 random(seed);  // the same plan on every rank
        struct Message {
          int from, to, tag;
          std::int64_t size;
          SendMode mode;
        };
        std::vector<Message> plan;
        for (int i = 0; i < messages; ++i) {
          Message m{};
          m.from = static_cast<int>(random() % static_cast<unsigned>(ranks));
          m.to = static_cast<int>(random() % static_cast<unsigned>(ranks));
          m.tag = static_cast<int>(random() % 4);
          const auto kind = random() % 10;
          m.size = kind < 4   ? random() % 64
                   : kind < 7 ? random() % 4096
                   : kind < 9 ? random() % 100000
                              : random() % 600000;
          const auto mode = random() % 8;
          m.mode = mode == 0   ? SendMode::synchronous
                   : mode == 1 ? SendMode::buffered
                               : SendMode::standard;
          plan.push_back(m);
        }
        std::vector<std::span<unsigned char>> out(plan.size()), in(plan.size());
        std::vector<Request*> sends, receives;
        std::vector<std::size_t> received;
        // Sends first for one half, receives first for the other half of the ranks.
        const auto post_sends = [&] {
          for (std::size_t i = 0; i < plan.size(); ++i) {
            if (plan[i].from != me) continue;
            out[i] = memory.allocate(static_cast<std::size_t>(plan[i].size));
            fill(out[i], i);
            Request* request = nullptr;
            REQUIRE(rank->isend(out[i].data(), plan[i].size, bytes, plan[i].to, plan[i].tag,
                                *rank->world(), plan[i].mode, &request) == 0);
            sends.push_back(request);
          }
        };
        const auto post_receives = [&] {
          for (std::size_t i = 0; i < plan.size(); ++i) {
            if (plan[i].to != me) continue;
            in[i] = memory.allocate(static_cast<std::size_t>(plan[i].size));
            Request* request = nullptr;
            REQUIRE(rank->irecv(in[i].data(), plan[i].size, bytes, plan[i].from, plan[i].tag,
                                *rank->world(), &request) == 0);
            receives.push_back(request);
            received.push_back(i);
          }
        };
        if (me % 2 == 0) {
          post_sends();
          post_receives();
        } else {
          post_receives();
          post_sends();
        }
        for (std::size_t i = 0; i < receives.size(); ++i) {
          rank->wait(*receives[i]);
          const Message& m = plan[received[i]];
          REQUIRE(receives[i]->status.error == 0);
          REQUIRE(receives[i]->status.bytes == m.size);
          REQUIRE(check(in[received[i]], received[i], static_cast<std::size_t>(m.size)));
          rank->release(*receives[i]);
        }
        for (Request* request : sends) {
          rank->wait(*request);
          rank->release(*request);
        }
        REQUIRE(rank->state().matching.unexpected_count() == 0);
        REQUIRE(at_end(rank->state()));
        rank->finalize();
        return 0;
      },
      100));
}

}  // namespace od

#endif  // OVERDRIVE_ENGINE_TEST_TRAFFIC_H_
