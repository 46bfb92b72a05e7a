// The probe that bounces a cache line between two ranks at start.

#include "p2p/distance.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "base/clock.h"

namespace od::p2p {

namespace {

using Clock = std::chrono::steady_clock;

// Five batches of 32 round trips: under 100 us even when far, and the median ignores one hiccup.
constexpr int kBatches = 5;
constexpr std::uint32_t kRoundTrips = 32;
// A peer that has not even started by then is not running on a core of its own.
constexpr auto kPatience = std::chrono::milliseconds(3);

bool await(const std::atomic<std::uint32_t>& word, std::uint32_t value,
           Clock::time_point deadline) {
  for (std::uint32_t spins = 1;; ++spins) {
    // Pairs with the release stores below, only so that sanitizers see the order; no data is
    // passed.
    if (word.load(std::memory_order_acquire) == value) return true;
    if (spins % 256 == 0 && Clock::now() > deadline) return false;
  }
}

}  // namespace

std::uint64_t time_line(const void* address) {
  // A reading of the clock costs as much as a near line: it is measured and left out. The first one
  // after a long copy finds what it reads gone from the caches and takes several times as long: it
  // would make a far line look like none at all (of lines that took 110 ns, after copies of 256 KiB
  // one in 20 came out below 30).
  (void)now_ns();
  const std::uint64_t before = now_ns();
  const std::uint64_t start = now_ns();
  // Relaxed: only the time matters; the contents have been published long since.
  auto* const byte = const_cast<std::uint8_t*>(static_cast<const std::uint8_t*>(address));
  (void)std::atomic_ref<std::uint8_t>(*byte).load(std::memory_order_relaxed);
#if defined(__x86_64__)
  __builtin_ia32_lfence();  // the load has to be over before the clock is read
#endif
  const std::uint64_t end = now_ns();
  const std::uint64_t clock_ns = start - before;
  const std::uint64_t taken = end - start;
  return taken > clock_ns ? taken - clock_ns : 0;
}

double probe_line_ns(const node::Node& node, int peer_index) {
  const bool first = node.my_index() < peer_index;
  node::RegionHeader* shared = node.member(std::min(node.my_index(), peer_index)).header;
  std::array<double, kBatches> ns{};
  const auto deadline = Clock::now() + kPatience;
  std::uint32_t turn = 0;
  for (double& batch : ns) {
    const auto start = Clock::now();
    for (std::uint32_t i = 0; i < kRoundTrips; ++i) {
      ++turn;
      if (first) {
        shared->probe_ping.store(turn, std::memory_order_release);
        if (!await(shared->probe_pong, turn, deadline)) return 0;
      } else {
        if (!await(shared->probe_ping, turn, deadline)) return 0;
        shared->probe_pong.store(turn, std::memory_order_release);
      }
    }
    batch = std::chrono::duration<double, std::nano>(Clock::now() - start).count() /
            (2.0 * kRoundTrips);
  }
  std::sort(ns.begin(), ns.end());
  return ns[kBatches / 2];
}

}  // namespace od::p2p
