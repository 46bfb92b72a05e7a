// Making a group of leaders at a switch, agreeing what it is used for, and letting go of it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "coll/run/in_network.h"
#include "engine/engine.h"
#include "engine/rank_state.h"
#include "observe/log.h"

namespace od {

using host::kSuccess;

namespace {

// That a rank leads at the same time.
constexpr int kMostGroups = 32;
// Who has waited so long has waited in vain; whom a switch refuses knows it much sooner.
constexpr std::uint64_t kVainNs = 500'000'000;

}  // namespace

// What comes before a call of the program.
int Rank::prepare_switch(const CollectiveCall& call, Comm& comm) {
  using Need = Collectives::SwitchNeed;
  RankState& s = *state_;
  const auto need = [&] {
    Guard guard(s);
    return s.collectives.switch_need(call, comm);
  };
  Need found = need();
  if (found == Need::check) {
    const int error = check_switch(comm);
    if (error != kSuccess) return error;
    found = need();
  }
  if (found == Need::sockets) {
    Guard guard(s);
    s.close_switch(comm.collectives->in_network.get());
    comm.collectives->in_network.reset();
    comm.collectives->with_sockets = true;
    found = Need::group;
  }
  if (found == Need::group) {
    const int error = open_switch(comm);
    if (error != kSuccess) return error;
  }
  return settle_switch_trial(call, comm);
}

// The call ends the sample of the one before it of the same kind, and so perhaps a measurement.
int Rank::settle_switch_trial(const CollectiveCall& call, Comm& comm) {
  RankState& s = *state_;
  Contest* trial = nullptr;
  {
    Guard guard(s);
    if (comm.collectives->in_network == nullptr) return kSuccess;
    trial = s.collectives.switch_trial(call, comm);
    if (trial == nullptr) return kSuccess;
    comm.collectives->samples.end(*trial);
  }
  return trial->due() ? judge_together(*trial, comm) : kSuccess;
}

// Whether all leaders still use the switch. If one does not, none does: then a new group may be
// made; not that of calls that do not block, of which some may be under way.
int Rank::check_switch(Comm& comm) {
  RankState& s = *state_;
  CollectiveComm& own = *comm.collectives;
  const bool later = own.in_network_later == nullptr || own.in_network_later->usable();
  std::array<std::int64_t, 3> lowest{own.in_network->usable() ? 1 : 0, later ? 1 : 0,
                                     -static_cast<std::int64_t>(own.calls_later)};
  bool served = false;
  const int error = own_reduce(coll::ops::Op::min, lowest, comm, &served);
  if (error != kSuccess) return error;
  Guard guard(s);
  if (served && lowest[1] == 0 && own.in_network_later != nullptr) {
    own.switched_until = std::min(own.switched_until, static_cast<std::uint64_t>(1 - lowest[2]));
  }
  if (served && lowest[0] != 0) return kSuccess;
  // Nobody is in an operation of the group any more.
  s.close_switch(own.in_network.get());
  own.in_network->settle(false);
  if (own.switch_groups < CollectiveComm::kMostSwitchGroups) own.in_network.reset();
  own.forget_switch_contests();
  return kSuccess;
}

// Of every node, as its ranks see it.
int Rank::count_sockets(Comm& comm, int* sockets) {
  const std::int32_t mine = state_->collectives.cache.group;
  std::vector<std::int32_t> all(static_cast<std::size_t>(comm.size));
  bool served = false;
  const int error = own_gather(&mine, sizeof(mine), all.data(), comm, &served);
  *sockets = served ? InNetwork::common_sockets(all, comm.collectives->nodes()) : 1;
  return error;
}

// All ranks of the communicator call it together; it takes a second at most.
int Rank::open_switch(Comm& comm) {
  CollectiveComm& own = *comm.collectives;
  const coll::Nodes& nodes = own.nodes();
  int leaders = 1;
  if (own.with_sockets) {
    const int error = count_sockets(comm, &leaders);
    if (error != kSuccess) return error;
  }
  own.in_network = std::make_unique<InNetwork>(nodes, comm.rank, leaders);
  const int error = join_switch(comm, *own.in_network);
  if (own.in_network->ready()) ++own.switch_groups;
  if (error != kSuccess || !own.in_network->ready() || !own.serves_later ||
      own.in_network_later != nullptr) {
    return error;
  }
  own.in_network_later = std::make_unique<InNetwork>(nodes, comm.rank, 1);
  const int joined = join_switch(comm, *own.in_network_later);
  if (joined != kSuccess || !own.in_network_later->ready()) return joined;
  return next_call_of_all(comm, &own.first_switched);
}

// The number of the first call that does not block which no rank has made yet.
int Rank::next_call_of_all(Comm& comm, std::uint64_t* number) {
  auto lowest = -static_cast<std::int64_t>(comm.collectives->calls_later);
  bool served = false;
  const int error = own_reduce(coll::ops::Op::min, {&lowest, 1}, comm, &served);
  *number = served ? static_cast<std::uint64_t>(1 - lowest) : 0;
  return error;
}

int Rank::join_switch(Comm& comm, InNetwork& group) {
  RankState& s = *state_;
  CollectiveComm& own = *comm.collectives;
  const coll::Nodes& nodes = own.nodes();
  const SwitchPlace& place = s.collectives.switch_place;
  const bool leads = group.is_leader();
  // Who has waited in vain twice does not let others wait again. A full switch is no reason: it
  // says so at once.
  constexpr int kMostFailures = 2;
  int& failures = s.collectives.switch_failures;
  const bool able = failures < kMostFailures && s.collectives.switch_groups < kMostGroups &&
                    s.collectives.retired.room(now_ns());
  InNetwork::Claim mine = group.claim(place, leads && able);
  if (leads && able && mine.able == 0) ++failures;
  std::vector<InNetwork::Claim> claims(static_cast<std::size_t>(comm.size));
  bool served = false;
  int error = own_gather(&mine, sizeof(mine), claims.data(), comm, &served);
  const bool attempt = error == kSuccess && served && group.all_able(claims, nodes);
  const std::uint64_t began_ns = now_ns();
  if (attempt && leads) {
    group.begin_join(claims, nodes, comm.rank, place, own.context, s.host.world_rank);
    WaitLoop loop(*this, "joining a group at a switch", true);
    while (!group.poll_join()) loop.step();
  }
  std::int64_t all_joined = attempt && (!leads || group.joined()) ? 1 : 0;
  if (attempt) error = own_minimum(all_joined, comm);
  Guard guard(s);
  group.settle(all_joined != 0);
  const bool said = std::exchange(own.switch_missed, own.switch_missed || all_joined == 0);
  if (leads && all_joined != 0) ++s.counters.switch_groups;
  if (leads && all_joined == 0 && !said) ++s.counters.switch_refused;
  if (group.leads()) ++s.collectives.switch_groups;
  if (all_joined != 0) {
    failures = 0;
  } else if (attempt && now_ns() - began_ns >= kVainNs) {
    ++failures;
  }
  if (attempt && comm.rank == nodes.members(0).front()) {
    log(all_joined != 0 || said ? Level::kDebug : Level::kWarning, "leaders of %d nodes %s",
        nodes.count(),
        all_joined != 0 ? "have made a group at a switch"
                        : "have found no switch that adds; collectives go as usual");
  }
  return error;
}

// After a verdict about calls that block: those that do not follow it.
int Rank::agree_on_later_calls(Contest& contest, Comm& comm) {
  RankState& s = *state_;
  CollectiveComm& own = *comm.collectives;
  if (own.first_switched == 0) return kSuccess;
  std::uint64_t first = 0;
  const int error = next_call_of_all(comm, &first);
  if (error != kSuccess || first == 0) return error;
  Guard guard(s);
  contest.later->set(first, contest.winner() == Trial::kRival, own.calls_later);
  return kSuccess;
}

void RankState::close_switch(InNetwork* group) {
  if (group == nullptr || !group->leads()) return;
  --collectives.switch_groups;
  collectives.retired.add(group->retire(counters));
}

void RankState::close_switches(CollectiveComm& own) {
  close_switch(own.in_network.get());
  close_switch(own.in_network_later.get());
}

// Others may still need what this rank has kept until all have come here.
void RankState::leave_switches() {
  if (!collectives.enabled || !collectives.switch_place.on()) return;
  host.world_barrier();
  Guard guard(*this);
  if (world->collectives != nullptr) close_switches(*world->collectives);
  for (const auto& [pointer, comm] : comms) {
    if (comm->collectives != nullptr) close_switches(*comm->collectives);
  }
  collectives.retired.clear();
}

}  // namespace od
