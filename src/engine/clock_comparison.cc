// The messages by which clocks are compared.
#include "engine/clock_comparison.h"

#include "base/clock.h"
#include "engine/host_messages.h"

namespace od {
namespace {

constexpr int kQuestions = 30;

struct Found {
  std::int64_t ahead_ns;
  std::uint64_t error_ns;
};

// Asks a rank, whose clock is then known as far as the own one is.
void ask(HostMessages& messages, int other, const Found& own) {
  std::uint64_t shortest_ns = ~std::uint64_t{0};
  std::int64_t ahead_ns = 0;
  for (int i = 0; i < kQuestions && !messages.failed(); ++i) {
    const std::uint64_t begin_ns = now_ns();
    std::uint64_t theirs = 0;
    messages.send(&begin_ns, sizeof begin_ns, other);
    messages.receive(&theirs, sizeof theirs, other);
    const std::uint64_t took_ns = now_ns() - begin_ns;
    if (took_ns >= shortest_ns) continue;
    shortest_ns = took_ns;
    ahead_ns = static_cast<std::int64_t>(theirs) - static_cast<std::int64_t>(begin_ns) -
               static_cast<std::int64_t>(took_ns / 2);
  }
  const Found told{own.ahead_ns + ahead_ns, own.error_ns + shortest_ns / 2};
  messages.send(&told, sizeof told, other);
}

void answer(HostMessages& messages, int other, Found* own) {
  for (int i = 0; i < kQuestions && !messages.failed(); ++i) {
    std::uint64_t asked = 0;
    messages.receive(&asked, sizeof asked, other);
    const std::uint64_t mine = now_ns();
    messages.send(&mine, sizeof mine, other);
  }
  messages.receive(own, sizeof *own, other);
}

}  // namespace

bool compare_clocks(const host::HostTable& host, const std::vector<int>& node_of_world,
                    ClockReading* reading) {
  std::vector<int> leaders = node_of_world;
  std::sort(leaders.begin(), leaders.end());
  leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
  host::Handle comm = 0;
  if (host.comm_dup(host.comm_world, &comm) != host::kSuccess) return false;
  HostMessages messages(host, comm);
  Found found{};
  const auto place = std::find(leaders.begin(), leaders.end(), host.world_rank);
  if (place != leaders.end()) {
    const auto me = static_cast<std::size_t>(place - leaders.begin());
    for (std::size_t step = 1; step < leaders.size(); step *= 2) {
      if (me < step && me + step < leaders.size()) {
        ask(messages, leaders[me + step], found);
      } else if (me >= step && me < 2 * step) {
        answer(messages, leaders[me - step], &found);
      }
    }
  }
  const bool failed = messages.failed();
  host.comm_free(&comm);
  std::vector<Found> all(node_of_world.size());
  if (host.world_allgather(&found, all.data(), sizeof found) != host::kSuccess || failed) {
    return false;
  }
  const Found& of_node =
      all[static_cast<std::size_t>(node_of_world[static_cast<std::size_t>(host.world_rank)])];
  *reading = {of_node.ahead_ns, of_node.error_ns, now_ns()};
  return true;
}

}  // namespace od
