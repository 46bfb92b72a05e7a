// The messages by which clocks are compared.
#include "engine/clock_comparison.h"

#include <sched.h>

#include <cstddef>

#include "base/clock.h"

namespace od {
namespace {

constexpr int kQuestions = 30;
constexpr int kTag = 1;

// Messages between the nodes' lowest ranks, on a communicator of their own.
class Line {
 public:
  Line(const host::HostTable& host, host::Handle comm) : host_(host), comm_(comm) {}

  void send(const void* data, std::size_t bytes, int to) {
    host::Handle request = 0;
    note(host_.isend(data, static_cast<std::int64_t>(bytes), host_.byte_type, to, kTag, comm_,
                     &request));
    settle(request);
  }
  void receive(void* data, std::size_t bytes, int from) {
    host::Handle request = 0;
    note(host_.irecv(data, static_cast<std::int64_t>(bytes), host_.byte_type, from, kTag, comm_,
                     &request));
    settle(request);
  }
  bool failed() const { return failed_; }

 private:
  void note(int error) { failed_ = failed_ || error != host::kSuccess; }
  void settle(host::Handle request) {
    host::Status status;
    bool done = request == 0 || failed_;
    while (!done) {
      note(host_.test(&request, &done, &status));
      if (failed_) return;
      // Ranks may share a core with whom they wait for.
      if (!done) sched_yield();
    }
  }

  const host::HostTable& host_;
  host::Handle comm_;
  bool failed_ = false;
};

struct Found {
  std::int64_t ahead_ns;
  std::uint64_t error_ns;
};

// Asks a rank, whose clock is then known as far as the own one is.
void ask(Line& line, int other, const Found& own) {
  std::uint64_t shortest_ns = ~std::uint64_t{0};
  std::int64_t ahead_ns = 0;
  for (int i = 0; i < kQuestions && !line.failed(); ++i) {
    const std::uint64_t begin_ns = now_ns();
    std::uint64_t theirs = 0;
    line.send(&begin_ns, sizeof begin_ns, other);
    line.receive(&theirs, sizeof theirs, other);
    const std::uint64_t took_ns = now_ns() - begin_ns;
    if (took_ns >= shortest_ns) continue;
    shortest_ns = took_ns;
    ahead_ns = static_cast<std::int64_t>(theirs) - static_cast<std::int64_t>(begin_ns) -
               static_cast<std::int64_t>(took_ns / 2);
  }
  const Found told{own.ahead_ns + ahead_ns, own.error_ns + shortest_ns / 2};
  line.send(&told, sizeof told, other);
}

void answer(Line& line, int other, Found* own) {
  for (int i = 0; i < kQuestions && !line.failed(); ++i) {
    std::uint64_t asked = 0;
    line.receive(&asked, sizeof asked, other);
    const std::uint64_t mine = now_ns();
    line.send(&mine, sizeof mine, other);
  }
  line.receive(own, sizeof *own, other);
}

}  // namespace

bool compare_clocks(const host::HostTable& host, const std::vector<int>& node_of_world,
                    ClockReading* reading) {
  std::vector<int> leaders = node_of_world;
  std::sort(leaders.begin(), leaders.end());
  leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
  host::Handle comm = 0;
  if (host.comm_dup(host.comm_world, &comm) != host::kSuccess) return false;
  Line line(host, comm);
  Found found{};
  const auto place = std::find(leaders.begin(), leaders.end(), host.world_rank);
  if (place != leaders.end()) {
    const auto me = static_cast<std::size_t>(place - leaders.begin());
    for (std::size_t step = 1; step < leaders.size(); step *= 2) {
      if (me < step && me + step < leaders.size()) {
        ask(line, leaders[me + step], found);
      } else if (me >= step && me < 2 * step) {
        answer(line, leaders[me - step], &found);
      }
    }
  }
  const bool failed = line.failed();
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
