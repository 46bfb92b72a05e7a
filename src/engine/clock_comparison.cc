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
  host::Handle comm = 0;
  if (host.comm_dup(host.comm_world, &comm) != host::kSuccess) return false;
  HostMessages messages(host, comm);
  Found found{};
  along_tree(
      lowest_of_nodes(node_of_world), host.world_rank,
      [&](int parent) { answer(messages, parent, &found); },
      [&](int child) { ask(messages, child, found); });
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
