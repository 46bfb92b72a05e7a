// Collectives among the neighbours of a topology: which of them are Overdrive's, and which are
// measured against the host's in the running program.
//
// There is nothing else to choose: each message goes straight to its neighbour.

#include <cstdint>

#include "coll/run/collectives.h"
#include "coll/run/neighbourhood.h"

namespace od {
namespace {

// Of calls among neighbours: whether all blocks of all ranks are equal.
bool has_equal_blocks(const CollectiveCall& call) {
  return call.collective == coll::Collective::kAllgather ||
         call.collective == coll::Collective::kAlltoall;
}

}  // namespace

// Between ranks of other nodes such a call is messages through the host, as it is there. Short ones
// are faster there than messages of ours are. How long they are all ranks know only where blocks
// are equal, and each has some: in grids; of these only such about which hosts agree, so that it
// does not depend on the length where a block goes. A rank whose two sides differ, which the
// standard does not permit, has neighbours like it, so that all leave such a call to the host.
bool Collectives::serves_neighbours(const CollectiveCall& call, Comm& comm) {
  constexpr std::int64_t kLeastBytes = 2 << 10;
  const config::NeighbourMode mode = endpoint.settings.neighbour_collectives;
  if (mode == config::NeighbourMode::kOff) return false;
  const CollectiveComm& own = comm_state(comm);
  if (mode == config::NeighbourMode::kAll) {
    return !own.spans_nodes() || own.layout().most_per_node > 1;
  }
  if (own.spans_nodes() || !has_equal_blocks(call) || !call.neighbours->is_plain_grid()) {
    return false;
  }
  const std::int64_t bytes = call.send_count * call.send_type->size;
  return bytes >= kLeastBytes && bytes == call.recv_count * call.recv_type->size;
}

bool Collectives::measures_neighbours(const CollectiveCall& call, Comm& comm) {
  if (endpoint.settings.neighbour_collectives != config::NeighbourMode::kNode) return false;
  const CollectiveComm& own = comm_state(comm);
  if (!own.spans_nodes() || own.layout().most_per_node < 2 || !learns(own)) return false;
  if (!call.neighbours->is_plain_grid()) return false;
  return !has_equal_blocks(call) ||
         call.send_count * call.send_type->size == call.recv_count * call.recv_type->size;
}

bool Collectives::decide_neighbours(const CollectiveCall& call, Comm& comm,
                                    coll::Decision* decision, Contest** trial) {
  // Each message goes straight to its neighbour; there is nothing to choose.
  static const coll::Algorithm& straight =
      *coll::find_algorithm(coll::Collective::kAlltoallw, "linear");
  *decision = {&straight, coll::Mode::kFlat, {}};
  if (serves_neighbours(call, comm)) return true;
  if (trial != nullptr && measures_neighbours(call, comm)) {
    const std::uint64_t bytes =
        has_equal_blocks(call) ? static_cast<std::uint64_t>(call.send_count * call.send_type->size)
                               : 0;
    Contest* const contest = comm.collectives->neighbour_contest(selection, call.collective,
                                                                 name_of(call), *decision, bytes);
    *trial = contest;
    if (contest != nullptr && contest->turn() == Trial::kOwn) return true;
  }
  ++endpoint.counters.collectives_host;
  return false;
}

}  // namespace od
