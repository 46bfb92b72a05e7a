// Collective calls of a rank: what serves them, and how they make progress.
//
// Decisions must be alike on all ranks of a communicator, so they follow from settings, the
// placement of its ranks, and what MPI makes equal in the call.

#include "coll/run/collectives.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/quiet_floats.h"
#include "coll/run/arrival_blocks.h"
#include "coll/run/first_scatter.h"
#include "coll/run/last_arrival.h"
#include "coll/run/line.h"
#include "coll/run/neighbourhood.h"
#include "coll/run/relay_gather.h"
#include "p2p/context.h"

namespace od {

using host::kSuccess;

namespace {

constexpr std::uint64_t kTeamContext = 0x5465616d;
constexpr std::uint64_t kNonBlocking = 0x49636f6c;
constexpr std::uint64_t kPersistent = 0x50657273;
constexpr std::uint64_t kChannel = 0x4368616e;

// The share of the slots, one in so many, that stays free for other communicators' blocking calls
// (and, of what persistent calls leave, for non-blocking ones); 0: none.
constexpr std::uint32_t kSpareOfNonBlocking = 4;
constexpr std::uint32_t kSpareOfPersistent = 2;

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
        comm, node_of_world, endpoint.node != nullptr && endpoint.node->oversubscribed(),
        static_cast<std::size_t>(endpoint.settings.collective_memory));
  }
  return *comm.collectives;
}

bool Collectives::switch_competes(const CollectiveComm& own, const CollectiveCall& call,
                                  std::uint64_t bytes) const {
  return own.in_network != nullptr && own.in_network->ready() && fits_switch(call) &&
         may_be_switched(bytes) && !own.ruled(call.collective, call.reduction.commutative, bytes);
}

bool Collectives::switched_later(const CollectiveCall& call, Comm& comm) {
  CollectiveComm& own = *comm.collectives;
  const std::uint64_t number = ++own.calls_later;
  if (own.first_switched == 0 || number < own.first_switched || number >= own.switched_until ||
      call.neighbours != nullptr || !fits_switch(call)) {
    return false;
  }
  const std::uint64_t bytes = message_bytes(call, comm.size, comm.rank);
  const bool commutative = call.reduction.commutative;
  const coll::Decision& found = own.choose(selection, call.collective, commutative, bytes);
  if (own.ruled(call.collective, commutative, bytes)) {
    return found.algorithm->works_elsewhere() && !found.algorithm->leads_by_socket();
  }
  return may_be_switched(bytes) &&
         own.switched_later(call.collective, commutative, bytes).at(number);
}

Collectives::SwitchNeed Collectives::switch_need(const CollectiveCall& call, Comm& comm) {
  // Programs with few calls pay nothing.
  constexpr std::uint32_t kQuiet = 8;
  CollectiveComm& own = *comm.collectives;
  if (!own.spans_nodes() || !fits_switch(call)) return SwitchNeed::nothing;
  const std::uint64_t bytes = message_bytes(call, comm.size, comm.rank);
  const bool commutative = call.reduction.commutative;
  const coll::Decision& found = own.choose(selection, call.collective, commutative, bytes);
  const bool ruled = own.ruled(call.collective, commutative, bytes);
  const bool demanded =
      ruled ? found.algorithm->works_elsewhere() : endpoint.settings.collective_shuffle != 0;
  if (!demanded && (ruled || !may_be_switched(bytes))) {
    return SwitchNeed::nothing;
  }
  if (own.in_network == nullptr) {
    return demanded || ++own.switch_calls > kQuiet ? SwitchNeed::group : SwitchNeed::nothing;
  }
  if (!own.in_network->ready()) {
    return own.switch_groups < CollectiveComm::kMostSwitchGroups && own.in_network->due_for_check()
               ? SwitchNeed::group
               : SwitchNeed::nothing;
  }
  if (ruled && found.algorithm->leads_by_socket() && !own.with_sockets) return SwitchNeed::sockets;
  return own.in_network->due_for_check() ? SwitchNeed::check : SwitchNeed::nothing;
}

Contest* Collectives::switch_trial(const CollectiveCall& call, Comm& comm) {
  CollectiveComm& own = *comm.collectives;
  if (endpoint.settings.collective_shuffle != 0) return nullptr;
  const std::uint64_t bytes = message_bytes(call, comm.size, comm.rank);
  const bool commutative = call.reduction.commutative;
  own.choose(selection, call.collective, commutative, bytes);
  if (!switch_competes(own, call, bytes)) return nullptr;
  return own.switch_contest(selection, call.collective, commutative, bytes, only_switch);
}

bool Collectives::decide(const CollectiveCall& call, Comm& comm, coll::Decision* decision,
                         Contest** trial) {
  if (call.neighbours != nullptr) return decide_neighbours(call, comm, decision, trial);
  CollectiveComm& own = comm_state(comm);
  const std::uint64_t bytes = message_bytes(call, comm.size, comm.rank);
  const bool commutative = call.reduction.commutative;
  if (endpoint.settings.collective_shuffle != 0) [[unlikely]] {
    *decision = own.choose_any(selection, call.collective, commutative, bytes,
                               static_cast<std::uint64_t>(endpoint.settings.collective_shuffle));
  } else {
    *decision = own.choose(selection, call.collective, commutative, bytes);
    if (switch_place.on() && trial != nullptr) [[unlikely]] {
      if (only_switch && !own.ruled(call.collective, commutative, bytes)) {
        *decision = coll::host_decision(call.collective);
      }
      *trial = switch_trial(call, comm);
      own.passes(call.collective, bytes);
      if (only_switch && *trial == nullptr) trial = nullptr;
    }
    if (trial != nullptr && *trial == nullptr && learns(own)) {
      const bool all = endpoint.settings.learn == config::LearnMode::kOn;
      const Others others =
          switch_place.on() ? Others::kNone : (all ? Others::kMany : Others::kFew);
      *trial = own.contest(selection, call.collective, commutative, bytes, *decision, others);
      endpoint.counters.trials_learnt += own.take_choices_learnt();
      if (own.watched != nullptr) *trial = own.watched->decide(*trial, decision);
    }
    if (trial != nullptr && *trial != nullptr) {
      if ((*trial)->rival() != Trial::Rival::first_arrival) own.samples.shift_aside(**trial);
      (*trial)->obey_turn(decision);
    }
  }
  if (decision->algorithm->leads_by_socket()) {
    decision->parameters.leaders = own.in_network != nullptr ? own.in_network->leaders() : 1;
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

ArrivalChoice* Collectives::arrivals_of(const CollectiveCall& call, Comm& comm) {
  // Below, hosts send without a handshake, and nothing is gained by knowing who is there.
  constexpr std::uint64_t kLeastBytes = 64 << 10;
  CollectiveComm& own = *comm.collectives;
  if (!own.spans_nodes() || !learns(own) || call.neighbours != nullptr ||
      endpoint.settings.collective_shuffle != 0) {
    return nullptr;
  }
  const std::uint64_t bytes = message_bytes(call, comm.size, comm.rank);
  if (bytes < kLeastBytes) return nullptr;
  own.choose(selection, call.collective, call.reduction.commutative, bytes);
  if (switch_place.on() && switch_competes(own, call, bytes)) return nullptr;
  return own.arrival_choice(selection, call.collective, call.reduction.commutative, bytes);
}

int Collectives::start(CollectiveOp& op, const CollectiveCall& call, Comm& comm,
                       const coll::Decision& decision, const Lane& lane) {
  const bool sized = timed && call.neighbours == nullptr;
  const int error = op.prepare(*this, {&call, &comm, decision, lane.context, lane.first_tag,
                                       sized ? message_bytes(call, comm.size, comm.rank) : 0});
  if (error != kSuccess) return error;
  if (!call.internal) ++endpoint.counters.collectives_served;
  if (lane.channel != nullptr) {
    lane.channel->line.push_back(&op);
    op.wait_for(*lane.channel, lane.team);
    if (lane.channel->line.size() > 1) return kSuccess;
  }
  const int begun = begin(op, lane.team);
  if (begun != kSuccess) leave_channel(op);
  return begun;
}

void Collectives::leave_channel(CollectiveOp& op) {
  HostChannel* const channel = op.channel();
  if (channel == nullptr) return;
  op.left_channel();
  channel->line.pop_front();
  if (channel->line.empty()) return;
  // Where it fails at once it is complete when advance() comes to it.
  CollectiveOp& next = *channel->line.front();
  const int error = begin(next, next.channel_team());
  if (error != kSuccess) next.fail(error);
}

int Collectives::begin(CollectiveOp& op, CollectiveTeam* team) {
  if (team != nullptr && team->phase() == CollectiveTeam::Phase::leased) [[unlikely]]
    team->tell_members();
  if (team != nullptr && team->phase() == CollectiveTeam::Phase::joining) [[unlikely]] {
    op.wait_for(*team);
    op.advance();
    return kSuccess;
  }
  const int launched = launch(op, team);
  if (launched == kSuccess) op.advance();
  return launched;
}

CollectiveTeam* Collectives::make_team(std::unique_ptr<CollectiveTeam>& team, Comm& comm,
                                       const coll::Decision& decision, std::uint64_t context,
                                       std::uint32_t spare_share) {
  if (decision.mode != coll::Mode::kHierarchical || slots == nullptr) return nullptr;
  const QuietFloats quiet;
  CollectiveComm& own = *comm.collectives;
  const std::span<const int> members = own.nodes().members(own.nodes().node_of(comm.rank));
  if (members.size() < 2) return nullptr;
  team = std::make_unique<CollectiveTeam>(
      *this, comm, std::vector<int>(members.begin(), members.end()), combine(context, kTeamContext),
      spare_share == 0 ? 0 : slots->count() / spare_share);
  return team.get();
}

CollectiveTeam* Collectives::blocking_team(Comm& comm, const coll::Decision& decision) {
  CollectiveComm& own = *comm.collectives;
  if (own.team != nullptr) [[likely]]
    return own.team.get();
  return make_team(own.team, comm, decision, own.context, 0);
}

namespace {

// Whether the call fits what the ranks' nodes have for it; the same on all ranks.
bool fits_arrival(const CollectiveCall& call, const Comm& comm, const ArrivalComm& arrival) {
  const CollectiveComm& own = *comm.collectives;
  const auto bytes = static_cast<std::int64_t>(message_bytes(call, comm.size, comm.rank));
  if (call.collective == coll::Collective::kBcast) {
    return bytes <= static_cast<std::int64_t>(arrival.largest());
  }
  if (call.collective == coll::Collective::kScatter) {
    return FirstScatter::fits(arrival, bytes);
  }
  if (call.collective == coll::Collective::kGather) return RelayGather::fits(arrival, bytes);
  if (coll::info(call.collective).counts_are_local()) return ArrivalBlocks::fits(arrival);
  return LastArrival::fits(arrival, own.nodes().count(), bytes, call.recv_type->size);
}

}  // namespace

Collectives::Lane Collectives::next_channel(const CollectiveCall& call, Comm& comm,
                                            const coll::Decision& decision) {
  CollectiveComm& own = *comm.collectives;
  if (own.arrival_later != nullptr && call.collective == coll::Collective::kBcast &&
      starts_with_first(call, comm, decision) && fits_arrival(call, comm, *own.arrival_later)) {
    return {next_context_without_blocking(comm), nullptr, 0, &own.arrival_channel};
  }
  auto number = static_cast<std::uint32_t>(own.sequence_between++ % HostTags::kChannels);
  // What a switch does has one order at all leaders: that of a channel.
  if (decision.algorithm->works_elsewhere()) number = kSwitchChannel;
  HostChannel& channel = own.channels[number];
  if (channel.team == nullptr) {
    make_team(channel.team, comm, decision, combine(own.context, kChannel + number),
              kSpareOfNonBlocking);
  }
  return {next_context_without_blocking(comm), channel.team.get(), tags.channel(number), &channel};
}

bool Collectives::serves_later(const CollectiveCall& call, const Comm& comm) const {
  if (!comm.collectives->serves_later) return false;
  // These have no size that all ranks know; decide() says more.
  if (call.neighbours != nullptr) return true;
  const coll::CollectiveInfo& info = coll::info(call.collective);
  const config::Settings& settings = endpoint.settings;
  return message_bytes(call, comm.size, comm.rank) >=
         static_cast<std::uint64_t>(info.reduces ? settings.nonblocking_reduce_min_bytes
                                                 : settings.nonblocking_min_bytes);
}

bool Collectives::any_between(const Comm& comm) const {
  return std::any_of(active.begin(), active.end(), [&](const CollectiveOp* op) {
    return op->request != nullptr && op->task().comm == &comm;
  });
}

CollectiveTeam* Collectives::team_without_blocking(Comm& comm, const coll::Decision& decision) {
  CollectiveComm& own = *comm.collectives;
  if (own.team_without_blocking != nullptr) [[likely]]
    return own.team_without_blocking.get();
  return make_team(own.team_without_blocking, comm, decision, combine(own.context, kNonBlocking),
                   kSpareOfNonBlocking);
}

namespace {

// Whether the team serves the call; else it goes by messages, or the team is not ready yet.
bool serves(const CollectiveTeam* team, const CollectiveCall& call,
            const coll::Decision& decision) {
  return team != nullptr && decision.mode == coll::Mode::kHierarchical &&
         team->phase() == CollectiveTeam::Phase::ready && team->serves(call);
}

}  // namespace

int Collectives::launch(CollectiveOp& op, CollectiveTeam* team) {
  const CollectiveOp::Task& task = op.task();
  CollectiveComm& own = *task.comm->collectives;
  if (task.call->neighbours != nullptr) {
    ++endpoint.counters.collectives_neighbour;
    return op.begin(way_of(task), task.call->neighbours->schedule(task.call->collective), 1,
                    nullptr);
  }
  if (op.channel() == &own.arrival_channel) {
    ++endpoint.counters.collectives_shared;
    op.begin_arrival(*own.arrival_later);
    return kSuccess;
  }
  if (op.request == nullptr && starts_with_first(*task.call, *task.comm, task.decision) &&
      fits_arrival(*task.call, *task.comm, *own.arrival)) {
    ++endpoint.counters.collectives_shared;
    op.begin_arrival(*own.arrival);
    return kSuccess;
  }
  if (!serves(team, *task.call, task.decision)) team = nullptr;
  if (team != nullptr) {
    team->look_at_distance();
    ++endpoint.counters.collectives_shared;
    if (!own.spans_nodes()) {
      if (op.request != nullptr) ++endpoint.counters.collectives_later_shm;
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

  return op.begin(way_of(task), std::move(found.schedule), found.units_per_unit, team);
}

CollectiveOp::Way Collectives::way_of(const CollectiveOp::Task& task) const {
  const CollectiveComm& own = *task.comm->collectives;
  CollectiveOp::Way way;
  way.host_comm = own.hidden;
  way.first_tag = task.first_tag;
  return way;
}

int Collectives::start_with(CollectiveOp& op, std::shared_ptr<const coll::Schedule> schedule) {
  ++endpoint.counters.collectives_served;
  const int error = op.begin(way_of(op.task()), std::move(schedule), 1, nullptr);
  if (error == kSuccess) op.advance();
  return error;
}

bool Collectives::serve_at_once(const CollectiveCall& call, const Comm& comm, CollectiveTeam* team,
                                const coll::Decision& decision, coll::shm::Patience patience) {
  if (timed || comm.collectives->spans_nodes()) return false;
  if (!serves(team, call, decision)) return false;
  const coll::shm::ReductionForm form = reduction_form(*decision.algorithm);
  if (!serve_as_line(team->team(), call, form, patience)) return false;
  ++endpoint.counters.collectives_served;
  ++endpoint.counters.collectives_shared;
  ++endpoint.counters.collectives_lines;
  return true;
}

bool Collectives::advance(bool without_host) {
  bool moved = false;
  const CollectiveTeam* advanced = nullptr;  // hundreds may be under way in one
  // Those before `i` that go on have moved together.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < active.size(); ++i) {
    CollectiveOp* const op = active[i];
    if (without_host && op->steps_need_host()) {
      active[kept++] = op;
      continue;
    }
    CollectiveTeam* const whole = op->whole_team();
    if (whole != nullptr && !op->entered) {
      if (!whole->enters(*op)) continue;
      op->entered = true;
    }
    CollectiveTeam* const team = op->team();
    if (team != nullptr && team != advanced) {
      moved |= team->advance();
      advanced = team;
    }
    moved |= op->settle(without_host);
    if (!op->done()) {
      active[kept++] = op;
      continue;
    }
    CollectiveOp* const next = whole != nullptr ? whole->next_to_enter() : nullptr;
    if (next != nullptr) {
      next->entered = true;
      active.push_back(next);
    }
    leave_channel(*op);
    if (op->request == nullptr) continue;
    if (op->task().comm->collectives->spans_nodes()) --active_between;
    complete(*op);
  }
  active.resize(kept);
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

bool Collectives::prepare_persistent(CollectiveOp& op, Comm& comm) {
  // Ranks may start several in different orders: each has a line of contexts of its own, and tags.
  CollectiveComm& own = *comm.collectives;
  if (own.spans_nodes()) {
    if (!tags.persistent(own.persistent_between, &op.first_tag)) return false;
    ++own.persistent_between;
    ++own.persistent_left;
  }
  op.last_context = combine(next_context_without_blocking(comm), kPersistent);
  make_team(op.own_team, comm, op.decision, op.last_context, kSpareOfPersistent);
  return true;
}

int Collectives::restart(Request& request) {
  CollectiveOp& op = *request.collective;
  Comm& comm = *request.comm;
  CollectiveTeam* const team = op.own_team.get();
  ++op.last_context;
  if (serve_at_once(*op.kept, comm, team, op.decision, {})) {
    ++endpoint.counters.collectives_later_shm;
    request.status = host::Status{};
    request.complete = true;
    return kSuccess;
  }
  return start_without_blocking(op, comm, {op.last_context, team, op.first_tag});
}

int Collectives::start_without_blocking(CollectiveOp& op, Comm& comm, const Lane& lane) {
  const bool spans_nodes = comm.collectives->spans_nodes();
  if (spans_nodes) ++endpoint.counters.collectives_between;
  const int error = start(op, *op.kept, comm, op.decision, lane);
  if (error != kSuccess) return error;
  if (op.done()) {
    leave_channel(op);
    complete(op);
  } else {
    add_active(op);
    if (spans_nodes) {
      ++active_between;
      if (started_between != nullptr) started_between(endpoint);
    }
  }
  return kSuccess;
}

}  // namespace od
