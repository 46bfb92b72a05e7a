// Collective calls: whether they are ours, what serves them, and how they make progress.
//
// Decisions must be alike on all ranks of a communicator, so they follow from settings, the
// placement of its ranks, and what MPI makes equal in the call. Calls that do not block belong to
// the host on communicators that span nodes, and where the host has to compute.

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/quiet_floats.h"
#include "coll/run/call.h"
#include "coll/run/line.h"
#include "engine/engine.h"
#include "engine/rank_state.h"
#include "observe/log.h"
#include "p2p/context.h"

namespace od {

using host::kSuccess;

namespace {

constexpr std::uint64_t kPersistent = 0x50657273;
constexpr std::uint64_t kTeamContext = 0x5465616d;
constexpr std::uint64_t kNonBlocking = 0x49636f6c;

// How often a blocking call looks by itself before it waits like all others, where the rank has a
// core of its own: about as long as the other ranks of a short collective take.
constexpr int kLooks = 2000;

}  // namespace

// The contexts of the messages of the next call on a communicator. Blocking calls and others have
// their own, as they do not match each other: hosts accept that ranks call them in different
// orders, and there are programs that do.
std::uint64_t RankState::next_context(Comm& comm) {
  CollectiveComm& own = *comm.collectives;
  return own.context + ++own.sequence;
}
std::uint64_t RankState::next_context_without_blocking(Comm& comm) {
  CollectiveComm& own = *comm.collectives;
  return combine(own.context, kNonBlocking) + ++own.sequence_without_blocking;
}

CollectiveComm& RankState::collective_comm(Comm& comm) {
  if (comm.collectives == nullptr) {
    const QuietFloats quiet;
    comm.collectives = std::make_shared<CollectiveComm>(
        comm, collectives.node_of_world, static_cast<std::size_t>(settings.collective_memory));
  }
  return *comm.collectives;
}

bool RankState::decide_collective(const CollectiveCall& call, Comm& comm,
                                  coll::Decision* decision) {
  CollectiveComm& own = collective_comm(comm);
  const std::uint64_t bytes = message_bytes(call, comm.size, comm.rank);
  const bool commutative = call.reduction.commutative;
  if (settings.collective_shuffle != 0) [[unlikely]] {
    *decision = own.choose_any(collectives.selection, call.collective, commutative, bytes,
                               static_cast<std::uint64_t>(settings.collective_shuffle));
  } else {
    *decision = own.choose(collectives.selection, call.collective, commutative, bytes);
  }
  if (decision->algorithm->is_host()) {
    ++counters.collectives_host;
    if (collectives.timed) {
      CollectiveStats::Call made;
      made.collective = call.collective;
      made.way = CollectiveStats::Way::host;
      made.algorithm = decision->algorithm->number;
      made.bytes = bytes;
      collectives.stats.add(made);
    }
    return false;
  }
  return true;
}

int RankState::start_collective(CollectiveOp& op, const CollectiveCall& call, Comm& comm,
                                const coll::Decision& decision, std::uint64_t context) {
  CollectiveComm& own = *comm.collectives;
  const int error =
      op.prepare(*this, {&call, &comm, decision, context,
                         collectives.timed ? message_bytes(call, comm.size, comm.rank) : 0});
  if (error != kSuccess) return error;
  ++counters.collectives_served;
  if (decision.mode == coll::Mode::kHierarchical && collectives.slots != nullptr) {
    if (own.team == nullptr) [[unlikely]]
      make_team(comm);
    if (own.team != nullptr && own.team->phase() == CollectiveTeam::Phase::joining) [[unlikely]] {
      op.wait_for(*own.team);
      op.advance();
      return kSuccess;
    }
  }
  const int launched = launch_collective(op);
  if (launched == kSuccess) op.advance();
  return launched;
}

void RankState::make_team(Comm& comm) {
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

int RankState::launch_collective(CollectiveOp& op) {
  const CollectiveOp::Task& task = op.task();
  CollectiveComm& own = *task.comm->collectives;
  CollectiveTeam* const team = team_for(*task.call, own, task.decision);
  if (team != nullptr) {
    team->look_at_distance();
    ++counters.collectives_shared;
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
  way.tag_mask = collectives.tag_mask;
  way.first_tag =
      static_cast<std::int32_t>((task.context - own.context) * CollectiveOp::kTagsPerCall) &
      way.tag_mask;
  return op.begin(way, std::move(found.schedule), found.units_per_unit, team);
}

// Whether the call was so short that it is done. Not where calls are timed: statistics want to know
// when all ranks were called.
bool RankState::serve_at_once(const CollectiveCall& call, const Comm& comm,
                              const coll::Decision& decision) {
  const CollectiveComm& own = *comm.collectives;
  if (threads || collectives.timed || own.spans_nodes()) return false;
  CollectiveTeam* const team = team_for(call, own, decision);
  // Who is late may be waiting for this very core, or for what only our host does.
  const int patience = tight_looks && !notes.any() ? kLineLooks : 0;
  if (team == nullptr || !serve_as_line(team->team(), call, patience)) return false;
  ++counters.collectives_served;
  ++counters.collectives_shared;
  ++counters.collectives_lines;
  return true;
}

bool RankState::advance_collectives(bool without_host) {
  bool moved = false;
  for (std::size_t i = 0; i < collectives.active.size();) {
    CollectiveOp* const op = collectives.active[i];
    if (without_host && op->steps_need_host()) {
      ++i;
      continue;
    }
    moved |= op->advance(without_host);
    if (!op->done()) {
      ++i;
      continue;
    }
    collectives.active.erase(collectives.active.begin() + static_cast<std::ptrdiff_t>(i));
    if (op->request != nullptr) complete_collective(*op);
  }
  return moved;
}

// Tells the program that its request is complete; that of a blocking call has none.
void RankState::complete_collective(CollectiveOp& op) {
  Request& request = *op.request;
  request.status = host::Status{};
  request.status.error = op.error();
  if (!request.persistent) {
    request.collective = nullptr;
    collectives.give_back(&op);
  }
  request.complete = true;
}

namespace {

// Whether collectives of this communicator can be ours at all. The host answers for those that have
// been revoked.
bool served_here(const RankState& s, const Comm& comm) {
  if (!s.collectives.enabled || comm.inter || comm.size == 1) return false;
  return s.host.comm_is_revoked == nullptr || !s.host.comm_is_revoked(comm.handle);
}

}  // namespace

// Programs take it that a blocking collective makes the host progress as well: what other ranks
// have done to a window before a barrier is there after it. Where something of the kind is under
// way it is asked before the call returns; twice, because what it finds first may bring up more.
void RankState::let_host_follow() {
  if (!notes.started()) [[likely]]
    return;
  for (int i = 0; i < 2; ++i) ask_host();
}

int Rank::collective(const CollectiveCall& call, Comm& comm, bool* served) {
  RankState& s = *state_;
  *served = false;
  if (!served_here(s, comm)) return kSuccess;
  bool needs_hidden;
  {
    Guard guard(s);
    CollectiveComm& own = s.collective_comm(comm);
    needs_hidden = own.spans_nodes() && own.hidden == 0;
  }
  if (needs_hidden) [[unlikely]] {
    const int error = open_hidden(comm);
    if (error != kSuccess) return error;
  }
  CollectiveOp* op;
  {
    Guard guard(s);
    coll::Decision decision;
    if (!s.decide_collective(call, comm, &decision)) return kSuccess;
    *served = true;
    const std::uint64_t context = s.next_context(comm);
    if (s.serve_at_once(call, comm, decision)) {
      s.let_host_follow();
      return kSuccess;
    }
    op = s.collectives.take();
    int error = s.start_collective(*op, call, comm, decision, context);
    if (error == kSuccess && s.tight_looks && !s.notes.any()) {
      for (int i = 0; i < kLooks && !op->done(); ++i) {
        const bool moved = s.transport->progress();
        if (!op->advance() && !moved) node::pause_processor();
      }
    }
    if (error != kSuccess || op->done()) {
      if (error == kSuccess) error = op->error();
      s.collectives.give_back(op);
      s.let_host_follow();
      return error;
    }
    s.collectives.active.push_back(op);
  }
  WaitLoop loop(*this, coll::info(call.collective).name, comm.collectives->spans_nodes(), *op);
  while (!op->done()) loop.step();
  // Whoever completed it has let go of it with the lock.
  Guard guard(s);
  const int error = op->error();
  s.collectives.give_back(op);
  s.let_host_follow();
  return error;
}

// The host's communicator for messages between nodes: made when the first blocking collective is
// called, which all ranks do together.
int Rank::open_hidden(Comm& comm) {
  const HostVisit visit(*this);
  host::Handle hidden = 0;
  const int error = state_->host.comm_dup(comm.handle, &hidden);
  if (error == kSuccess) comm.collectives->hidden = hidden;
  return error;
}

int Rank::icollective(CollectiveCall&& call, Comm& comm, Request** out, bool* served) {
  return make_collective(std::move(call), comm, false, out, served);
}

int Rank::collective_init(CollectiveCall&& call, Comm& comm, Request** out, bool* served) {
  return make_collective(std::move(call), comm, true, out, served);
}

int Rank::make_collective(CollectiveCall&& call, Comm& comm, bool persistent, Request** out,
                          bool* served) {
  RankState& s = *state_;
  *served = false;
  if (!served_here(s, comm)) return kSuccess;
  Guard guard(s);
  // While the program is inside a blocking host call nobody could compute what only the host can,
  // or start the next message between nodes, on which other ranks may wait.
  const bool computes_in_host =
      coll::info(call.collective).reduces && call.reduction.kernel == nullptr;
  if (s.collective_comm(comm).spans_nodes() || computes_in_host) {
    ++s.counters.collectives_host;
    return kSuccess;
  }
  coll::Decision decision;
  if (!s.decide_collective(call, comm, &decision)) return kSuccess;
  *served = true;
  // What a team does has one order; see next_context(), and persistent collectives may be started
  // in any.
  decision.mode = coll::Mode::kFlat;
  Request* const request = s.requests.allocate();
  if (request == nullptr) return s.host.err_no_mem;
  CollectiveOp* const op = s.collectives.take();
  op->kept = std::make_unique<CollectiveCall>(std::move(call));
  op->decision = decision;
  op->request = request;
  request->kind = RequestKind::collective;
  request->complete = false;
  request->persistent = persistent;
  request->active = !persistent;
  request->comm = &comm;
  request->peer = host::kAnySource;
  request->status = host::Status{};
  request->collective = op;
  ++comm.references;
  *out = request;
  if (persistent) {
    // Ranks may start several in different orders: each has a line of contexts of its own.
    op->last_context = combine(s.next_context_without_blocking(comm), kPersistent);
    return kSuccess;
  }
  const int error =
      s.start_collective(*op, *op->kept, comm, decision, s.next_context_without_blocking(comm));
  if (error == kSuccess) {
    s.keep_going(*op);
    return kSuccess;
  }
  s.finish_orphan(*request);
  return error;
}

int RankState::restart_collective(Request& request) {
  CollectiveOp& op = *request.collective;
  const int error = start_collective(op, *op.kept, *request.comm, op.decision, ++op.last_context);
  if (error == kSuccess) keep_going(op);
  return error;
}

// Of a call that does not block: it is complete, or progress completes it.
void RankState::keep_going(CollectiveOp& op) {
  if (op.done()) {
    complete_collective(op);
  } else {
    collectives.active.push_back(&op);
  }
}

}  // namespace od
