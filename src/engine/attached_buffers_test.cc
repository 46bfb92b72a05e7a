// Messages between buffers that only XPMEM makes reachable, over the stand-in of
// tests/memory/xpmem: every way, every kind of memory, and every refusal.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "engine/engine.h"
#include "engine/test_traffic.h"
#include "memory/bump_arena.h"
#include "memory/test_stand_in.h"

namespace od {
namespace {

using config::CopyPath;
using node::Exchange;
using node::run_forked_job;

// The allocator keeps its memory: the stand-in does not see it go.
void keep_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

struct MixedMemory {
  static inline unsigned turn = 0;
  static void prepare() {
    keep_memory();
    if (!memory::BumpArena::begin(512u << 20)) std::_Exit(97);
  }
  static std::span<unsigned char> allocate(std::size_t bytes) {
    if (++turn % 3 == 0) return TrafficMemory{}.allocate(bytes);
    const auto block = memory::BumpArena::allocate(bytes);
    if (block.size() != bytes) std::_Exit(96);
    return block;
  }
};

const TrafficMemory kPrivate = {keep_memory};
const TrafficMemory kMixed = {MixedMemory::prepare, MixedMemory::allocate};

config::Settings forced(CopyPath path) {
  config::Settings settings;
  settings.copy_path = path;
  settings.xpmem_min_bytes = 1000;
  settings.pull_wait_ns = 10'000'000'000;
  return settings;
}

class AttachedBuffers : public memory::StandInTest {};

TEST_F(AttachedBuffers, ArePulled) {
  random_traffic(2, 51, forced(CopyPath::kPull), 600, kPrivate, [](RankState& s) {
    return s.counters.xpmem_peers_peak == 1 && s.counters.xpmem_reads > 20 &&
           s.counters.xpmem_reads == s.counters.receives_pull && s.counters.xpmem_refused == 0;
  });
}
TEST_F(AttachedBuffers, ArePulledBesideReachableOnesAmongFourRanks) {
  random_traffic(4, 52, forced(CopyPath::kPull), 600, kMixed, [](RankState& s) {
    return s.counters.xpmem_reads > 5 && s.counters.receives_pull > s.counters.xpmem_reads;
  });
}
TEST_F(AttachedBuffers, ArePushedTo) {
  random_traffic(2, 53, forced(CopyPath::kPush), 600, kPrivate,
                 [](RankState& s) { return s.counters.xpmem_writes == s.counters.sends_push; });
}
TEST_F(AttachedBuffers, ArePushedToWhenTheReceiverIsThere) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    keep_memory();
    auto rank = make_test_rank(exchange, forced(CopyPath::kPush));
    constexpr std::int64_t kBytes = 4 << 20;
    std::vector<unsigned char> data(kBytes);
    host::Status status;
    // A receiver that does not run for a while makes its sender copy a message aside, on a busy
    // machine many in a row: the sender says how long it goes on.
    constexpr std::uint64_t kRounds = 20, kMostRounds = 2000;
    unsigned char more = 1;
    for (std::uint64_t round = 0; more != 0; ++round) {
      exchange.barrier();
      if (me == 0) {
        fill(data, round);
        REQUIRE(rank->send(data.data(), kBytes, byte_layout(), 1, 0, *rank->world(),
                           SendMode::standard) == 0);
        const bool pushed = rank->state().counters.xpmem_writes > 0;
        more = round + 1 < (pushed ? kRounds : kMostRounds) ? 1 : 0;
        REQUIRE(rank->send(&more, 1, byte_layout(), 1, 1, *rank->world(), SendMode::standard) == 0);
      } else {
        REQUIRE(rank->recv(data.data(), kBytes, byte_layout(), 0, 0, *rank->world(), &status) == 0);
        REQUIRE(check(data, round, kBytes));
        REQUIRE(rank->recv(&more, 1, byte_layout(), 0, 1, *rank->world(), &status) == 0);
      }
    }
    const observe::Counters& counters = rank->state().counters;
    REQUIRE(me == 1 || (counters.xpmem_writes > 0 && counters.xpmem_attached == 1));
    rank->finalize();
    return 0;
  }));
}
TEST_F(AttachedBuffers, AreCopiedByBothSides) {
  config::Settings settings = forced(CopyPath::kCooperative);
  settings.verify = true;
  random_traffic(3, 54, settings, 600, kMixed, [](RankState& s) {
    return s.counters.xpmem_reads > 0 && s.counters.receives_cooperative > 0;
  });
}
TEST_F(AttachedBuffers, AsTheLibraryChooses) {
  config::Settings settings;
  settings.xpmem_min_bytes = 1000;
  random_traffic(3, 55, settings, 600, kMixed);
}
TEST_F(AttachedBuffers, OffersAreWithdrawn) {
  config::Settings settings = forced(CopyPath::kPull);
  settings.pull_wait_ns = 0;
  random_traffic(3, 56, settings, 600, kPrivate);
}
TEST_F(AttachedBuffers, SwitchedOff) {
  config::Settings settings = forced(CopyPath::kPull);
  settings.xpmem = config::XpmemMode::kOff;
  random_traffic(2, 57, settings, 300, kPrivate, [](RankState& s) {
    return s.counters.xpmem_peers_peak == 0 && s.counters.xpmem_attached == 0 &&
           s.counters.receives_pull == 0;
  });
}
TEST_F(AttachedBuffers, RefusedTheyTakeCellsAndReachableOnesAreStillPulled) {
  setenv("XPMEM_STAND_IN", "refuse", 1);
  random_traffic(2, 58, forced(CopyPath::kPull), 600, kMixed, [](RankState& s) {
    return s.counters.xpmem_peers_peak == 1 && s.counters.xpmem_reads == 0 &&
           s.counters.xpmem_refused > 0 && s.counters.xpmem_refused <= 3 &&
           s.counters.receives_pull > 20;
  });
}
TEST_F(AttachedBuffers, RefusedTheyAreNotWrittenTo) {
  setenv("XPMEM_STAND_IN", "refuse", 1);
  random_traffic(2, 59, forced(CopyPath::kPush), 300, kPrivate, [](RankState& s) {
    return s.counters.xpmem_writes == 0 && s.counters.sends_push == 0;
  });
  random_traffic(2, 60, forced(CopyPath::kCooperative), 300, kMixed,
                 [](RankState& s) { return s.counters.xpmem_writes == 0; });
}
TEST_F(AttachedBuffers, WithoutTheDevice) {
  setenv("XPMEM_STAND_IN", "missing", 1);
  random_traffic(2, 61, forced(CopyPath::kPull), 300, kMixed, [](RankState& s) {
    return s.counters.xpmem_peers_peak == 0 && s.counters.receives_pull > 10;
  });
}

TEST_F(AttachedBuffers, OnTheStackAndInStaticData) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    keep_memory();
    auto rank = make_test_rank(exchange, forced(CopyPath::kPull));
    constexpr std::int64_t kBytes = 300000;
    static unsigned char static_data[kBytes];
    unsigned char on_stack[kBytes];
    host::Status status;
    for (std::uint64_t round = 0; round < 10; ++round) {
      const std::span<unsigned char> data =
          round % 2 == 0 ? std::span<unsigned char>(on_stack) : static_data;
      if (me == static_cast<int>(round / 2 % 2)) {
        fill(data, round);
        REQUIRE(rank->send(data.data(), kBytes, byte_layout(), 1 - me, 0, *rank->world(),
                           SendMode::standard) == 0);
      } else {
        REQUIRE(rank->recv(data.data(), kBytes, byte_layout(), 1 - me, 0, *rank->world(),
                           &status) == 0);
        REQUIRE(check(data, round, kBytes));
      }
    }
    // Several messages, but not more windows than kinds of memory.
    const observe::Counters& counters = rank->state().counters;
    REQUIRE(counters.xpmem_reads >= 4);
    REQUIRE(counters.xpmem_attached >= 2 && counters.xpmem_attached <= 3);
    rank->finalize();
    REQUIRE(counters.xpmem_detached == counters.xpmem_attached);
    return 0;
  }));
}

TEST_F(AttachedBuffers, ReadOnlyMemoryIsNotOffered) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    keep_memory();
    auto rank = make_test_rank(exchange, forced(CopyPath::kPull));
    constexpr std::int64_t kBytes = 1 << 20;
    auto* const memory = static_cast<unsigned char*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory != MAP_FAILED);
    const std::span<unsigned char> data(memory, kBytes);
    host::Status status;
    if (me == 0) {
      fill(data, 1);
      REQUIRE(mprotect(memory, kBytes, PROT_READ) == 0);
      REQUIRE(rank->send(memory, kBytes, byte_layout(), 1, 0, *rank->world(), SendMode::standard) ==
              0);
      REQUIRE(rank->state().counters.xpmem_unfit == 1);
    } else {
      REQUIRE(rank->recv(memory, kBytes, byte_layout(), 0, 0, *rank->world(), &status) == 0);
      REQUIRE(check(data, 1, kBytes) && rank->state().counters.xpmem_reads == 0);
    }
    rank->finalize();
    return 0;
  }));
}

TEST_F(AttachedBuffers, ShortMessagesAreLeftAlone) {
  config::Settings settings = forced(CopyPath::kPull);
  settings.xpmem_min_bytes = 1 << 30;
  random_traffic(2, 62, settings, 300, kPrivate,
                 [](RankState& s) { return s.counters.xpmem_attached == 0; });
}

}  // namespace
}  // namespace od
