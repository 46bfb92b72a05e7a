// Blocking messages through the host while a job begins or ends, when the engine does not run.
//
// A rank that waits gives its core away between two looks: it may be needed by whom it waits for.
// Used on communicators, or at times, on which the program sends nothing.
#ifndef OVERDRIVE_ENGINE_HOST_MESSAGES_H_
#define OVERDRIVE_ENGINE_HOST_MESSAGES_H_

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "host/host_table.h"

namespace od {

class HostMessages {
 public:
  HostMessages(const host::HostTable& host, host::Handle comm) : host_(host), comm_(comm) {}

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
  // After the first failure nothing waits any more.
  bool failed() const { return failed_; }

 private:
  static constexpr int kTag = 1;

  void note(int error) { failed_ = failed_ || error != host::kSuccess; }
  void settle(host::Handle request) {
    host::Status status;
    bool done = request == 0 || failed_;
    while (!done) {
      note(host_.test(&request, &done, &status));
      if (failed_) return;
      if (!done) sched_yield();
    }
  }

  const host::HostTable& host_;
  host::Handle comm_;
  bool failed_ = false;
};

// The lowest rank of each node, ascending; `node_of_world` names each rank's node by it.
inline std::vector<int> lowest_of_nodes(std::vector<int> node_of_world) {
  std::sort(node_of_world.begin(), node_of_world.end());
  node_of_world.erase(std::unique(node_of_world.begin(), node_of_world.end()), node_of_world.end());
  return node_of_world;
}

// Along a binomial tree from the first of `ranks` to all others: rank `me`, if it is one of them,
// calls `from` with its parent, unless it is the first, and then `to` with each of its children.
template <class From, class To>
void along_tree(const std::vector<int>& ranks, int me, const From& from, const To& to) {
  const auto place = std::find(ranks.begin(), ranks.end(), me);
  if (place == ranks.end()) return;
  const auto mine = static_cast<std::size_t>(place - ranks.begin());
  for (std::size_t step = 1; step < ranks.size(); step *= 2) {
    if (mine < step && mine + step < ranks.size()) {
      to(ranks[mine + step]);
    } else if (mine >= step && mine < 2 * step) {
      from(ranks[mine - step]);
    }
  }
}

}  // namespace od

#endif  // OVERDRIVE_ENGINE_HOST_MESSAGES_H_
