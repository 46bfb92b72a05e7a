// The messages by which the network is measured.
#include "engine/network_cost.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/clock.h"
#include "engine/host_messages.h"

namespace od {
namespace {

// The first ones make connections.
constexpr int kShortUnmeasured = 3;
constexpr int kShort = 16;
// Long enough that a link of 100 Gbit/s takes 20 us for it, and that links whose bursts go at once
// (switches with buffers, limits by token buckets) show what they take in the long run.
constexpr std::size_t kLongBytes = 256 << 10;
// A first long message that took so long says enough: making buffers for it took little of that.
constexpr std::uint64_t kLongEnoughNs = 10'000'000;

// One measurement as seen by the rank that asks: `bytes` there, a short answer back.
class Asker {
 public:
  Asker(HostMessages& messages, int other) : messages_(messages), other_(other) {}
  std::uint64_t round_ns(const void* data, std::size_t bytes) {
    const std::uint64_t begin_ns = now_ns();
    messages_.send(data, bytes, other_);
    char answer = 0;
    messages_.receive(&answer, 1, other_);
    return now_ns() - begin_ns;
  }
  // The quickest of several short ones.
  std::uint64_t short_ns() {
    char one = 0;
    for (int i = 0; i < kShortUnmeasured; ++i) round_ns(&one, 1);
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (int i = 0; i < kShort; ++i) least = std::min(least, round_ns(&one, 1));
    return least;
  }
  // The quicker of two long ones after the first. Tells the other rank before each that it comes.
  std::uint64_t long_ns() {
    const std::vector<char> data(kLongBytes);
    const auto once = [&] {
      announce(true);
      return round_ns(data.data(), data.size());
    };
    std::uint64_t took = once();
    if (took < kLongEnoughNs) {
      took = once();
      took = std::min(took, once());
    }
    announce(false);
    return took;
  }

 private:
  void announce(bool comes) {
    const char word = comes ? 1 : 0;
    messages_.send(&word, 1, other_);
  }

  HostMessages& messages_;
  int other_;
};

void answer(HostMessages& messages, int other) {
  char one = 0;
  for (int i = 0; i < kShortUnmeasured + kShort; ++i) {
    messages.receive(&one, 1, other);
    messages.send(&one, 1, other);
  }
  std::vector<char> data(kLongBytes);
  for (;;) {
    messages.receive(&one, 1, other);
    if (one == 0 || messages.failed()) return;
    messages.receive(data.data(), data.size(), other);
    messages.send(&one, 1, other);
  }
}

// From the first of `ranks` to all others.
void pass_on(HostMessages& messages, const std::vector<int>& ranks, int me, NetworkCost* cost) {
  along_tree(
      ranks, me, [&](int parent) { messages.receive(cost, sizeof *cost, parent); },
      [&](int child) { messages.send(cost, sizeof *cost, child); });
}

}  // namespace

bool measure_network(const host::HostTable& host, const std::vector<int>& node_of_world,
                     NetworkCost* cost) {
  const int me = host.world_rank;
  const std::vector<int> leaders = lowest_of_nodes(node_of_world);
  if (leaders.size() < 2) return true;
  const int first = leaders.front();
  // Where nodes hang at several switches, this one is at another most often: what crosses them
  // all decides how long a collective takes.
  const int other = leaders[leaders.size() / 2];
  // MPI_COMM_WORLD itself: while MPI_Init runs nobody else sends anything on it.
  HostMessages messages(host, host.comm_world);
  if (me == first) {
    Asker asker(messages, other);
    const auto round = static_cast<double>(asker.short_ns());
    const auto longer = static_cast<double>(asker.long_ns());
    cost->message_ns = round / 2;
    cost->byte_ns = std::max(longer - round, 0.0) / static_cast<double>(kLongBytes);
  } else if (me == other) {
    answer(messages, first);
  }
  pass_on(messages, leaders, me, cost);
  const int node = node_of_world[static_cast<std::size_t>(me)];
  std::vector<int> members;
  for (std::size_t rank = 0; rank < node_of_world.size(); ++rank) {
    if (node_of_world[rank] == node) members.push_back(static_cast<int>(rank));
  }
  pass_on(messages, members, me, cost);
  return !messages.failed();
}

coll::Link link_of(const NetworkCost& cost, const coll::Link& usual) {
  if (cost.message_ns <= 0) return usual;
  // The fastest networks there are: less is a clock's grain, or ranks of one machine.
  constexpr double kLeastByteNs = 0.005;
  const double times = cost.message_ns / usual.message_ns();
  return {usual.latency_ns * times, usual.overhead_ns * times, usual.gap_ns * times,
          std::max(cost.byte_ns, kLeastByteNs)};
}

}  // namespace od
