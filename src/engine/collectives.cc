// Collective calls: whether they are ours, what serves them, and how they make progress.
//
// Decisions must be alike on all ranks of a communicator, so they follow from settings, the
// placement of its ranks, and what MPI makes equal in the call. Calls that do not block, on
// communicators that span nodes, belong to the host: while the program is inside a blocking host
// call nobody could start the next step of ours, on which other ranks may wait.

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "config/settings.h"
#include "engine/collective_call.h"
#include "engine/context.h"
#include "engine/engine.h"
#include "engine/rank_state.h"
#include "observe/log.h"

namespace od {

using host::kSuccess;

CollectiveComm& RankState::collective_comm(Comm& comm) {
  if (comm.collectives == nullptr) {
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
    return false;
  }
  return true;
}

int RankState::start_collective(CollectiveOp& op, const CollectiveCall& call, Comm& comm,
                                const coll::Decision& decision) {
  CollectiveComm& own = *comm.collectives;
  const std::uint64_t number = ++own.sequence;
  int error = op.buffers().begin(host, call, comm.size, comm.rank);
  if (error != kSuccess) return error;
  std::vector<std::int64_t> counts;
  coll::Shape shape = shape_of(call, comm.size, comm.rank, op.buffers().copied_input(), &counts);
  shape.parameters = decision.parameters;
  coll::ScheduleCache::Found found =
      own.schedules().get(decision, shape, own.nodes(), coll::NodeDriver::kMessages);

  CollectiveOp::Way way;
  way.comm = &comm;
  way.context = own.context + number;
  way.host_comm = own.hidden;
  way.tag_mask = collectives.tag_mask;
  way.first_tag = static_cast<std::int32_t>(number * CollectiveOp::kTagsPerCall) & way.tag_mask;
  error = op.begin(*this, way, std::move(found.schedule), found.units_per_unit);
  if (error != kSuccess) return error;
  ++counters.collectives_served;
  op.advance();
  if (!op.done()) collectives.active.push_back(&op);
  return kSuccess;
}

bool RankState::advance_collectives(bool without_host) {
  bool moved = false;
  for (std::size_t i = 0; i < collectives.active.size();) {
    CollectiveOp* const op = collectives.active[i];
    if (without_host && op->needs_host()) {
      ++i;
      continue;
    }
    moved |= op->advance();
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

// Whether collectives of this communicator can be ours at all.
bool served_here(const RankState& s, const Comm& comm) {
  return s.collectives.enabled && !comm.inter && comm.size > 1;
}

}  // namespace

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
    op = s.collectives.take();
    const int error = s.start_collective(*op, call, comm, decision);
    if (error != kSuccess || op->done()) {
      const int result = error != kSuccess ? error : op->error();
      s.collectives.give_back(op);
      return result;
    }
  }
  WaitLoop loop(*this, coll::info(call.collective).name, comm.collectives->spans_nodes());
  while (!op->done()) loop.step();
  // Whoever completed it has let go of it with the lock.
  Guard guard(s);
  const int error = op->error();
  s.collectives.give_back(op);
  return error;
}

// The host's communicator for messages between nodes: made when the first blocking collective is
// called, which all ranks do together.
int Rank::open_hidden(Comm& comm) {
  const bool looked_after = has_pending_work() && entering_host_call();
  host::Handle hidden = 0;
  const int error = state_->host.comm_dup(comm.handle, &hidden);
  if (looked_after) left_host_call();
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
  if (s.collective_comm(comm).spans_nodes()) {
    ++s.counters.collectives_host;
    return kSuccess;
  }
  coll::Decision decision;
  if (!s.decide_collective(call, comm, &decision)) return kSuccess;
  *served = true;
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
  if (persistent) return kSuccess;
  const int error = s.start_collective(*op, *op->kept, comm, decision);
  if (error == kSuccess) {
    if (op->done()) s.complete_collective(*op);
    return kSuccess;
  }
  s.finish_orphan(*request);
  return error;
}

int RankState::restart_collective(Request& request) {
  CollectiveOp& op = *request.collective;
  const int error = start_collective(op, *op.kept, *request.comm, op.decision);
  if (error == kSuccess && op.done()) complete_collective(op);
  return error;
}

}  // namespace od
