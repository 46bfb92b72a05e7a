// Collective calls of a rank: what serves them, and how they make progress.
//
// Decisions must be alike on all ranks of a communicator, so they follow from settings, the
// placement of its ranks, and what MPI makes equal in the call.

#include "coll/run/collectives.h"

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/quiet_floats.h"
#include "coll/run/line.h"
#include "p2p/context.h"

namespace od {

using host::kSuccess;

namespace {

constexpr std::uint64_t kTeamContext = 0x5465616d;
constexpr std::uint64_t kNonBlocking = 0x49636f6c;

}  // namespace

std::uint64_t Collectives::next_context(Comm& comm) {
  CollectiveComm& own = *comm.collectives;
  return own.context + ++own.sequence;
}

std::uint64_t Collectives::next_context_without_blocking(Comm& comm) {
  CollectiveComm& own = *comm.collectives;
  return combine(own.context, kNonBlocking) + ++own.sequence_without_blocking;
}

CollectiveComm& Collectives::comm_state(Comm& comm) {
  if (comm.collectives == nullptr) {
    const QuietFloats quiet;
    comm.collectives = std::make_shared<CollectiveComm>(
        comm, node_of_world, static_cast<std::size_t>(endpoint.settings.collective_memory));
  }
  return *comm.collectives;
}

bool Collectives::decide(const CollectiveCall& call, Comm& comm, coll::Decision* decision) {
  CollectiveComm& own = comm_state(comm);
  const std::uint64_t bytes = message_bytes(call, comm.size, comm.rank);
  const bool commutative = call.reduction.commutative;
  if (endpoint.settings.collective_shuffle != 0) [[unlikely]] {
    *decision = own.choose_any(selection, call.collective, commutative, bytes,
                               static_cast<std::uint64_t>(endpoint.settings.collective_shuffle));
  } else {
    *decision = own.choose(selection, call.collective, commutative, bytes);
  }
  if (decision->algorithm->is_host()) {
    ++endpoint.counters.collectives_host;
    if (timed) {
      CollectiveStats::Call made;
      made.collective = call.collective;
      made.way = CollectiveStats::Way::host;
      made.algorithm = decision->algorithm->number;
      made.bytes = bytes;
      stats.add(made);
    }
    return false;
  }
  return true;
}

int Collectives::start(CollectiveOp& op, const CollectiveCall& call, Comm& comm,
                       const coll::Decision& decision, std::uint64_t context) {
  CollectiveComm& own = *comm.collectives;
  const int error = op.prepare(*this, {&call, &comm, decision, context,
                                       timed ? message_bytes(call, comm.size, comm.rank) : 0});
  if (error != kSuccess) return error;
  ++endpoint.counters.collectives_served;
  if (decision.mode == coll::Mode::kHierarchical && slots != nullptr) {
    if (own.team == nullptr) [[unlikely]]
      make_team(comm);
    if (own.team != nullptr && own.team->phase() == CollectiveTeam::Phase::joining) [[unlikely]] {
      op.wait_for(*own.team);
      op.advance();
      return kSuccess;
    }
  }
  const int launched = launch(op);
  if (launched == kSuccess) op.advance();
  return launched;
}

void Collectives::make_team(Comm& comm) {
  const QuietFloats quiet;
  CollectiveComm& own = *comm.collectives;
  const std::span<const int> members = own.nodes().members(own.nodes().node_of(comm.rank));
  if (members.size() < 2) return;
  own.team = std::make_unique<CollectiveTeam>(*this, comm,
                                              std::vector<int>(members.begin(), members.end()),
                                              combine(own.context, kTeamContext));
}

namespace {

// The team that serves the call; null: it goes by messages, or the team is not ready yet.
CollectiveTeam* team_for(const CollectiveCall& call, const CollectiveComm& own,
                         const coll::Decision& decision) {
  CollectiveTeam* const team = own.team.get();
  if (decision.mode != coll::Mode::kHierarchical || team == nullptr) return nullptr;
  return team->phase() == CollectiveTeam::Phase::ready && team->serves(call) ? team : nullptr;
}

}  // namespace

int Collectives::launch(CollectiveOp& op) {
  const CollectiveOp::Task& task = op.task();
  CollectiveComm& own = *task.comm->collectives;
  CollectiveTeam* const team = team_for(*task.call, own, task.decision);
  if (team != nullptr) {
    team->look_at_distance();
    ++endpoint.counters.collectives_shared;
    if (!own.spans_nodes()) {
      op.begin_whole(*team);
      return kSuccess;
    }
  }
  std::vector<std::int64_t> counts;
  const coll::Shape shape =
      shape_of(*task.call, task.comm->size, task.comm->rank, op.buffers().copied_input(), &counts);
  coll::ScheduleCache::Found found = own.schedules().get(
      task.decision, shape, own.nodes(),
      team != nullptr ? coll::NodeDriver::kShared : coll::NodeDriver::kMessages);

  CollectiveOp::Way way;
  way.host_comm = own.hidden;
  way.tag_mask = tag_mask;
  way.first_tag =
      static_cast<std::int32_t>((task.context - own.context) * CollectiveOp::kTagsPerCall) &
      way.tag_mask;
  return op.begin(way, std::move(found.schedule), found.units_per_unit, team);
}

bool Collectives::serve_at_once(const CollectiveCall& call, const Comm& comm,
                                const coll::Decision& decision, int patience) {
  const CollectiveComm& own = *comm.collectives;
  if (timed || own.spans_nodes()) return false;
  CollectiveTeam* const team = team_for(call, own, decision);
  if (team == nullptr || !serve_as_line(team->team(), call, patience)) return false;
  ++endpoint.counters.collectives_served;
  ++endpoint.counters.collectives_shared;
  ++endpoint.counters.collectives_lines;
  return true;
}

bool Collectives::advance(bool without_host) {
  bool moved = false;
  for (std::size_t i = 0; i < active.size();) {
    CollectiveOp* const op = active[i];
    if (without_host && op->steps_need_host()) {
      ++i;
      continue;
    }
    moved |= op->advance(without_host);
    if (!op->done()) {
      ++i;
      continue;
    }
    active.erase(active.begin() + static_cast<std::ptrdiff_t>(i));
    if (op->request != nullptr) complete(*op);
  }
  return moved;
}

// Tells the program that its request is complete; that of a blocking call has none.
void Collectives::complete(CollectiveOp& op) {
  Request& request = *op.request;
  request.status = host::Status{};
  request.status.error = op.error();
  if (!request.persistent) {
    request.collective = nullptr;
    give_back(&op);
  }
  request.complete = true;
}

int Collectives::restart(Request& request) {
  CollectiveOp& op = *request.collective;
  const int error = start(op, *op.kept, *request.comm, op.decision, ++op.last_context);
  if (error == kSuccess) keep_going(op);
  return error;
}

void Collectives::keep_going(CollectiveOp& op) {
  if (op.done()) {
    complete(op);
  } else {
    active.push_back(&op);
  }
}

}  // namespace od
