// Collective calls: whether they are ours, what serves them, and how they make progress.
//
// Decisions must be alike on all ranks of a communicator, so they follow from settings, the
// placement of its ranks, and what MPI makes equal in the call. Calls that do not block belong to
// the host where it has to compute, and on communicators that span nodes unless `progress` is on.

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/pause.h"
#include "base/quiet_floats.h"
#include "coll/run/call.h"
#include "coll/run/line.h"
#include "coll/run/trial.h"
#include "engine/engine.h"
#include "engine/rank_state.h"
#include "engine/shared_core_looks.h"
#include "p2p/context.h"

namespace od {

using host::kSuccess;

namespace {

// How often a blocking call looks by itself before it waits like all others, where the rank has a
// core of its own: about as long as the other ranks of a short collective take.
constexpr int kLooks = 2000;

// Whether collectives of this communicator can be ours at all. The host answers for those that have
// been revoked.
bool served_here(const RankState& s, const Comm& comm) {
  if (!s.collectives.enabled || comm.inter || comm.size == 1) return false;
  return s.host.comm_is_revoked == nullptr || !s.host.comm_is_revoked(comm.handle);
}

// Whether there is nothing to serve but calls that outlast themselves. The first rank that shares
// a node settles it.
bool nobody_shares(const std::vector<int>& node_of_world) {
  for (std::size_t rank = 0; rank < node_of_world.size(); ++rank) {
    if (node_of_world[rank] != static_cast<int>(rank)) return false;
  }
  return !node_of_world.empty();
}

// Starts a blocking call, and looks whether it is over soon; *op is null if it is. Lock held.
int start_blocking(RankState& s, const CollectiveCall& call, Comm& comm,
                   const coll::Decision& decision, CollectiveOp** out) {
  const std::uint64_t context = Collectives::next_context(comm);
  // Who is late may be waiting for this very core, or for what only our host does.
  const int looks = s.tight_looks && !s.notes.any() ? kLineLooks : 0;
  CollectiveTeam* const team =
      call.neighbours == nullptr ? s.collectives.blocking_team(comm, decision) : nullptr;
  coll::shm::Patience patience{looks, &s.lock.waiters()};
  SharedCoreLooks shared(s);
  if (shared.allowed()) {
    patience.meanwhile = &SharedCoreLooks::again_of;
    patience.context = &shared;
  }
  if (s.collectives.serve_at_once(call, comm, team, decision, patience)) {
    s.let_host_follow();
    return kSuccess;
  }
  CollectiveOp* const op = s.collectives.take();
  const std::int32_t first_tag = s.collectives.tags.blocking(comm.collectives->sequence);
  int error = s.collectives.start(*op, call, comm, decision, {context, team, first_tag});
  if (error == kSuccess && s.tight_looks && !s.notes.any()) {
    for (int i = 0; i < kLooks && !op->done() && !s.lock.wanted(); ++i) {
      const bool moved = s.transport->progress();
      if (!op->advance() && !moved) pause_processor();
    }
  } else if (error == kSuccess && !comm.collectives->spans_nodes() && shared.allowed()) {
    SharedCoreLooks(s).wait_for(*op);
  }
  if (error != kSuccess || op->done()) {
    if (error == kSuccess) error = op->error();
    s.collectives.give_back(op);
    s.let_host_follow();
    return error;
  }
  s.collectives.add_active(*op);
  *out = op;
  return kSuccess;
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
  Contest* trial = nullptr;
  std::uint64_t follow_began_ns = 0;
  if (comm.collectives != nullptr) {
    comm.collectives->watched = nullptr;
    const int left = count_left_call(comm);
    if (left != kSuccess) [[unlikely]] {
      *served = true;
      return left;
    }
    if (comm.collectives->samples.open()) [[unlikely]]
      follow_began_ns = now_ns();
  }
  const int error = serve_collective(call, comm, served, &trial, nullptr);
  // The next call of the same kind has ended the sample.
  if (follow_began_ns != 0 && comm.collectives->samples.open()) [[unlikely]] {
    if (*served) {
      comm.collectives->samples.add(now_ns() - follow_began_ns);
    } else {
      comm.collectives->follow_began_ns = follow_began_ns;
    }
  }
  if (*served && comm.collectives != nullptr && comm.collectives->watched != nullptr) {
    std::exchange(comm.collectives->watched, nullptr)->left();
  }
  if (trial == nullptr) [[likely]] {
    if (*served && state_->overlap != nullptr) [[unlikely]]
      state_->overlap->call_returned();
    return error;
  }
  CollectiveComm& own = *comm.collectives;
  const std::uint64_t began_ns = std::exchange(own.turn_began_ns, 0);
  if (!*served && trial->measuring()) {
    own.host_turn = trial;
    own.turn_began_ns = now_ns();
    return error;
  }
  const int added = turn_ended(*trial, began_ns, comm);
  if (*served && state_->overlap != nullptr) state_->overlap->call_returned();
  return error != kSuccess ? error : added;
}

// A host's call from which an error handler of the program has jumped away, perhaps on this rank
// only, counts like others; who waits there for its times gets them now.
int Rank::count_left_call(Comm& comm) {
  CollectiveComm& own = *comm.collectives;
  if (std::exchange(own.follow_began_ns, 0) != 0) [[unlikely]]
    own.samples.add(0);
  Contest* const turn = std::exchange(own.host_turn, nullptr);
  return turn == nullptr ? kSuccess : turn_ended(*turn, 0, comm);
}

bool Rank::in_host_turn(const Comm& comm) const {
  return comm.collectives != nullptr &&
         (comm.collectives->host_turn != nullptr || comm.collectives->watched != nullptr ||
          comm.collectives->follow_began_ns != 0 ||
          (state_->overlap != nullptr && state_->overlap->awaits_return()));
}

int Rank::host_turn_ended(Comm& comm) {
  CollectiveComm& own = *comm.collectives;
  ArrivalChoice* const watched = std::exchange(own.watched, nullptr);
  if (watched != nullptr) watched->left();
  const std::uint64_t follow_began_ns = std::exchange(own.follow_began_ns, 0);
  if (follow_began_ns != 0) own.samples.add(now_ns() - follow_began_ns);
  Contest* const trial = std::exchange(own.host_turn, nullptr);
  const int error = trial == nullptr ? kSuccess : turn_ended(*trial, own.turn_began_ns, comm);
  if (state_->overlap != nullptr) state_->overlap->call_returned();
  return error;
}

int Rank::turn_ended(Contest& trial, std::uint64_t began_ns, Comm& comm) {
  const bool measured = trial.measuring();
  const bool switched = trial.turn() == Trial::kRival;
  const bool due = trial.took(began_ns == 0 ? 0 : now_ns() - began_ns);
  if (measured && trial.follows()) comm.collectives->samples.begin(trial, switched);
  if (trial.awaits()) [[unlikely]] {
    const std::uint64_t waits_ns = now_ns();
    std::int64_t nothing = 0;
    const int error = own_minimum(nothing, comm);
    if (error != kSuccess) {
      trial.give_up();
      return error;
    }
    trial.awaited(now_ns() - waits_ns);
  }
  return due ? judge_together(trial, comm) : kSuccess;
}

// With `decided` the call is served that way.
int Rank::serve_collective(const CollectiveCall& call, Comm& comm, bool* served, Contest** trial,
                           const coll::Decision* decided) {
  RankState& s = *state_;
  *served = false;
  if (!served_here(s, comm) || !s.collectives.serves_blocking) return kSuccess;
  // Only collective calls on the communicator change this, which the program makes one by one.
  if (comm.collectives == nullptr) [[unlikely]] {
    Guard guard(s);
    s.collectives.comm_state(comm);
  }
  const bool among_neighbours = call.neighbours != nullptr;
  const bool may_be_ours = !among_neighbours || s.collectives.serves_neighbours(call, comm) ||
                           (trial != nullptr && s.collectives.measures_neighbours(call, comm));
  if (!may_be_ours) {
    Guard guard(s);
    ++s.counters.collectives_host;
    return kSuccess;
  }
  overlap::Automatic::Turn turn = overlap::Automatic::Turn::kOff;
  // From the host's part of such a call an error handler may have jumped away.
  if (s.overlap != nullptr && decided == nullptr) s.overlap->forget_return();
  if (s.overlap != nullptr && decided == nullptr && !among_neighbours &&
      s.overlap->suits(call, comm)) {
    const int error = choose_overlap(call, comm, &turn);
    if (error != kSuccess) {
      *served = true;
      return error;
    }
  }
  const bool overlaps = turn != overlap::Automatic::Turn::kOff;
  if (s.overlap != nullptr && !overlaps && decided == nullptr && !s.collectives.only_switch &&
      nobody_shares(s.collectives.node_of_world)) {
    return kSuccess;
  }
  const auto needs_hidden = [&] {
    return comm.collectives->spans_nodes() && comm.collectives->hidden == 0;
  };
  if (overlaps) [[unlikely]] {
    const int error = needs_hidden() ? open_hidden(comm) : kSuccess;
    return error != kSuccess ? error : overlapped(call, comm, turn, served);
  }
  if (decided == nullptr && !among_neighbours && s.collectives.switch_place.on()) [[unlikely]] {
    const int error = prepare_switch(call, comm);
    if (error != kSuccess) return error;
  }
  if (decided == nullptr && trial != nullptr && s.settings.first_arrival) {
    const int error = watch_arrivals(call, comm);
    if (error != kSuccess) {
      *served = true;
      return error;
    }
  }
  CollectiveOp* op = nullptr;
  coll::Decision decision;
  {
    Guard guard(s);
    if (decided != nullptr) {
      decision = *decided;
    } else if (!s.collectives.decide(call, comm, &decision, trial)) {
      return kSuccess;
    }
    if (trial != nullptr && *trial != nullptr && (*trial)->measuring()) {
      comm.collectives->turn_began_ns = now_ns();
    }
    *served = true;
    if (!needs_hidden() && !Collectives::unprepared(call, comm, decision)) [[likely]] {
      const int error = start_blocking(s, call, comm, decision, &op);
      if (op == nullptr) return error;
    }
  }
  if (op == nullptr) [[unlikely]] {
    // Before the first call that needs them, which all ranks make together.
    int error = needs_hidden() ? open_hidden(comm) : kSuccess;
    if (error != kSuccess) {
      *served = false;
      return error;
    }
    if (Collectives::unprepared(call, comm, decision)) {
      error = prepare_arrival(comm, comm.collectives->arrival);
    }
    return error != kSuccess ? error : serve_collective(call, comm, served, nullptr, &decision);
  }
  WaitLoop loop(*this, name_of(call), comm.collectives->spans_nodes(), *op);
  while (!op->done()) loop.step();
  // Whoever completed it has let go of it with the lock.
  Guard guard(s);
  const int error = op->error();
  s.collectives.give_back(op);
  s.let_host_follow();
  return error;
}

// Notes when this rank comes to a call for which that may decide how it is served, and now and then
// tells the others about the last ones.
int Rank::watch_arrivals(const CollectiveCall& call, Comm& comm) {
  RankState& s = *state_;
  CollectiveComm& own = *comm.collectives;
  if (!own.spans_nodes()) return kSuccess;
  ArrivalChoice* choice = nullptr;
  bool told = false;
  {
    Guard guard(s);
    choice = s.collectives.arrivals_of(call, comm);
    if (choice == nullptr) return kSuccess;
    told = choice->next_is_told();
    if (told && s.call_sites == nullptr) {
      s.call_sites = std::make_unique<overlap::CallSites>();
    }
  }
  ArrivalHabit& habit = choice->habit;
  // To agree takes time that says nothing of when the rank came.
  const std::uint64_t came_ns = told ? now_ns() : 0;
  if (habit.agreement_due()) {
    const int error = agree_on_arrivals(*choice, comm);
    if (error != kSuccess) return error;
  }
  own.watched = choice;
  if (!told) {
    habit.passes();
    return kSuccess;
  }
  std::uint64_t place = 0;
  for (const std::uintptr_t address : s.call_sites->here().addresses) {
    place = combine(place, address);
  }
  habit.begins(place, came_ns, call.root);
  return kSuccess;
}

// The ranks tell each other how they came to the last calls, and prepare what it needs to try what
// starts with whoever comes first; that takes some milliseconds, which no sample shall hold.
int Rank::agree_on_arrivals(ArrivalChoice& choice, Comm& comm) {
  RankState& s = *state_;
  CollectiveComm& own = *comm.collectives;
  ArrivalHabit& habit = choice.habit;
  const ArrivalHabit::Told mine = habit.offer();
  std::vector<ArrivalHabit::Told> all(static_cast<std::size_t>(comm.size));
  bool served = false;
  const int error = own_gather(&mine, sizeof(mine), all.data(), comm, &served, "bruck");
  if (error != kSuccess) return error;
  habit.start();
  habit.judge(all, own.nodes(), s.collectives.selection.machine().far.message_ns());
  {
    Guard guard(s);
    ++s.counters.arrival_agreements;
  }
  if (!habit.any_worth_measuring() || own.arrival != nullptr) return kSuccess;
  return prepare_arrival(comm, own.arrival);
}

// How a call goes that may overlap, alike on all ranks. In automatic mode they agree about that now
// and then, before the call.
int Rank::choose_overlap(const CollectiveCall& call, Comm& comm, overlap::Automatic::Turn* turn) {
  RankState& s = *state_;
  overlap::Automatic* const automatic = s.overlap->automatic(call, comm);
  if (automatic == nullptr) {
    *turn = s.overlap->fixed_turn();
    return kSuccess;
  }
  if (automatic->agreement_due()) {
    bool served = false;
    const int error = own_reduce(coll::ops::Op::sum, automatic->offer(), comm, &served);
    if (error != kSuccess) return error;
    // Where ranks cannot agree nothing overlaps.
    if (!served) return kSuccess;
    using Verdict = overlap::Automatic::Verdict;
    const Verdict verdict = automatic->judge(comm.size);
    Guard guard(s);
    if (verdict != Verdict::kNone) ++s.counters.overlap_trials;
    if (verdict == Verdict::kTurnedOn) ++s.counters.overlap_turned_on;
    if (verdict == Verdict::kTurnedOff) ++s.counters.overlap_turned_off;
  }
  *turn = automatic->next();
  if (*turn == overlap::Automatic::Turn::kOff) s.overlap->call_begins(call, comm, automatic);
  return kSuccess;
}

// A rule may still leave the call to the host.
int Rank::overlapped(const CollectiveCall& call, Comm& comm, overlap::Automatic::Turn turn,
                     bool* served) {
  RankState& s = *state_;
  coll::Decision decision;
  {
    Guard guard(s);
    if (!s.collectives.decide(call, comm, &decision)) return kSuccess;
  }
  *served = true;
  return s.overlap->serve(call, comm, decision, turn);
}

// The host's communicator for messages between nodes: made with the program's, or when the first
// blocking collective is called, which all ranks do together.
int Rank::open_hidden(Comm& comm) {
  const HostEntry entry(this, &comm);
  const HostVisit visit(*this, &comm);
  host::Handle hidden = 0;
  const int error = state_->host.comm_dup(comm.handle, &hidden);
  if (error == kSuccess) comm.collectives->hidden = hidden;
  return error;
}

// What calls that start with whoever comes first need: memory on the nodes, which all ranks
// have to know of, and a communicator of the host.
int Rank::prepare_arrival(Comm& comm, std::unique_ptr<ArrivalComm>& into) {
  RankState& s = *state_;
  host::Handle host_comm = 0;
  {
    const HostEntry entry(this, &comm);
    const HostVisit visit(*this, &comm);
    const int error = s.host.comm_dup(comm.handle, &host_comm);
    if (error != kSuccess) return error;
  }
  std::unique_ptr<ArrivalComm> made;
  ArrivalComm::Told mine;
  {
    Guard guard(s);
    made = std::make_unique<ArrivalComm>(s.collectives, comm, host_comm);
    mine = made->offer();
  }
  std::vector<ArrivalComm::Told> all(static_cast<std::size_t>(comm.size));
  bool served = false;
  const int error = own_gather(&mine, sizeof(mine), all.data(), comm, &served, "bruck");
  if (error != kSuccess) return error;
  Guard guard(s);
  made->join(all);
  into = std::move(made);
  return kSuccess;
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
  const bool spans_nodes = s.collectives.comm_state(comm).spans_nodes();
  const bool switched = spans_nodes && !persistent && s.collectives.switched_later(call, comm);
  if (computes_in_host || (spans_nodes && !switched && !s.collectives.serves_later(call, comm))) {
    ++s.counters.collectives_host;
    return kSuccess;
  }
  coll::Decision decision;
  if (switched) {
    decision = s.collectives.switch_decision(call.collective, *comm.collectives);
  } else if (!s.collectives.decide(call, comm, &decision)) {
    return kSuccess;
  }
  if (s.requests.full()) {
    *served = true;
    return s.host.err_no_mem;
  }
  Collectives::Lane lane;
  if (!persistent && spans_nodes) {
    lane = s.collectives.next_channel(call, comm, decision);
  } else if (!persistent) {
    lane.context = Collectives::next_context_without_blocking(comm);
    if (call.neighbours == nullptr) {
      lane.team = s.collectives.team_without_blocking(comm, decision);
    }
    if (s.collectives.serve_at_once(call, comm, lane.team, decision, {})) {
      *served = true;
      ++s.counters.collectives_later;
      ++s.counters.collectives_later_shm;
      *out = s.requests.completed_collective();
      return kSuccess;
    }
  }
  CollectiveOp* const op = s.collectives.take();
  op->decision = decision;
  op->switched_later = switched;
  if (persistent && !s.collectives.prepare_persistent(*op, comm)) {
    s.collectives.give_back(op);
    ++s.counters.collectives_host;
    return kSuccess;
  }
  *served = true;
  ++s.counters.collectives_later;
  Request* const request = s.requests.allocate();
  op->kept = std::make_unique<CollectiveCall>(std::move(call));
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
  const int error = s.collectives.start_without_blocking(*op, comm, lane);
  if (error != kSuccess) s.finish_orphan(*request);
  return error;
}

}  // namespace od
