// Communicators: what the engine has to know about each, and the contexts that tell them apart.

#include <algorithm>
#include <utility>

#include "base/quiet_floats.h"
#include "engine/engine.h"
#include "engine/rank_state.h"
#include "observe/log.h"
#include "p2p/context.h"

namespace od {

namespace {

// Sequences of the different constructors must not meet: create_group is numbered per group and
// tag.
constexpr std::uint64_t kGroupSequences = std::uint64_t{1} << 62;

}  // namespace

std::unique_ptr<Comm> RankState::describe_comm(host::Handle handle) {
  auto comm = std::make_unique<Comm>();
  comm->handle = handle;
  if (host.comm_size(handle, &comm->size) != host::kSuccess ||
      host.comm_rank(handle, &comm->rank) != host::kSuccess ||
      host.comm_test_inter(handle, &comm->inter) != host::kSuccess) {
    return nullptr;
  }
  comm->peer_count = comm->size;
  std::vector<int> members(static_cast<std::size_t>(comm->size));
  if (host.comm_world_ranks(handle, false, members.data(), comm->size) != host::kSuccess) {
    return nullptr;
  }
  int lowest = *std::min_element(members.begin(), members.end());
  if (comm->inter) {
    if (host.comm_remote_size(handle, &comm->peer_count) != host::kSuccess) return nullptr;
    members.resize(static_cast<std::size_t>(comm->peer_count));
    if (host.comm_world_ranks(handle, true, members.data(), comm->peer_count) != host::kSuccess) {
      return nullptr;
    }
    lowest = std::min(lowest, *std::min_element(members.begin(), members.end()));
  }
  if (lowest < 0) return nullptr;  // a member that MPI_COMM_WORLD does not have
  // A fast-box header has 24 bits for the sender's rank.
  if (comm->size > static_cast<int>(p2p::kMaxBoxSource)) return nullptr;
  comm->lowest_world_rank = lowest;
  comm->local_index.reserve(members.size());
  comm->all_local = true;
  for (const int world_rank : members) {
    const int index = node->local(world_rank) ? node->index_of(world_rank) : kRemote;
    comm->local_index.push_back(static_cast<std::int16_t>(index));
    if (index == kRemote) comm->all_local = false;
  }
  comm->self_only = members.size() == 1 && members.front() == host.world_rank;
  comm->world_rank = std::move(members);
  return comm;
}

Comm* RankState::adopt(std::unique_ptr<Comm> comm, std::uint64_t context) {
  const QuietFloats quiet;
  comm->context = context;
  Comm* adopted = comm.get();
  comms.emplace(adopted, std::move(comm));
  ++counters.comms_served;
  log(Level::kDebug, "communicator of %d ranks served, context %016llx, %s", adopted->size,
      static_cast<unsigned long long>(context),
      adopted->all_local ? "all of them local" : "not all of them local");
  return adopted;
}

Comm* Rank::world() { return state_->world.get(); }
Comm* Rank::self() { return state_->self.get(); }

Comm* Rank::comm_created(Comm& parent, host::Handle handle, Origin origin, int tag,
                         const host::Leaders* leaders) {
  RankState& s = *state_;
  std::uint64_t sequence = 0;
  std::unique_ptr<Comm> comm;
  {
    Guard guard(s);
    if (origin != Origin::create_group) sequence = parent.children++;
    comm = s.describe_comm(handle);
    if (comm == nullptr) {
      ++s.counters.comms_passed;
      return nullptr;
    }
  }
  std::uint64_t theirs = 0;
  if (origin == Origin::intercomm_create) {
    // The two groups know different parents; each tells the other its own value. Blocks.
    const HostVisit visit(*this, &parent);
    if (s.host.inter_exchange(*leaders, combine(parent.context, sequence), &theirs) !=
        host::kSuccess) {
      return nullptr;
    }
  }
  Comm* adopted = nullptr;
  {
    Guard guard(s);
    if (origin == Origin::create_group) {
      std::uint64_t group = 0;
      for (const int world_rank : comm->world_rank) {
        group = combine(group, static_cast<std::uint64_t>(world_rank));
      }
      const std::uint64_t count = parent.group_children[{group, tag}]++;
      sequence =
          kGroupSequences | (combine(combine(group, static_cast<std::uint64_t>(tag)), count) >> 2);
    }
    std::uint64_t context = child_context(parent.context, sequence, comm->lowest_world_rank);
    if (origin == Origin::intercomm_create) {
      const std::uint64_t mine = combine(parent.context, sequence);
      context = child_context(mine + theirs, 0, comm->lowest_world_rank);
    }
    adopted = s.adopt(std::move(comm), context);
  }
  prepare_for_later(*adopted);
  return adopted;
}

// Non-blocking collectives between nodes need a communicator of the host's, which is made while all
// ranks are in the call that makes the program's.
void Rank::prepare_for_later(Comm& comm) {
  RankState& s = *state_;
  if (!s.collectives.later_between || comm.inter || comm.size == 1) return;
  {
    Guard guard(s);
    if (!s.collectives.comm_state(comm).spans_nodes()) return;
  }
  comm.collectives->serves_later = open_hidden(comm) == host::kSuccess;
  bool starts_with_first = false;
  {
    Guard guard(s);
    starts_with_first = comm.collectives->any_first_bcast(s.collectives.selection);
  }
  if (!comm.collectives->serves_later || !starts_with_first) return;
  if (prepare_arrival(comm, comm.collectives->arrival_later) != host::kSuccess) {
    comm.collectives->arrival_later.reset();
  }
}

void Rank::comm_not_member(Comm& parent) { ++parent.children; }

std::uint64_t Rank::reserve_context_sequence(Comm& parent) { return parent.children++; }

Comm* Rank::comm_created_at(Comm& parent, host::Handle handle, std::uint64_t sequence) {
  RankState& s = *state_;
  Guard guard(s);
  std::unique_ptr<Comm> comm = s.describe_comm(handle);
  if (comm == nullptr) {
    ++s.counters.comms_passed;
    return nullptr;
  }
  const std::uint64_t context = child_context(parent.context, sequence, comm->lowest_world_rank);
  return s.adopt(std::move(comm), context);
}

// All ranks have called what is under way on the communicator, or will without waiting for this
// one: they are about to free it as well.
void Rank::finish_between(const Comm& comm) {
  RankState& s = *state_;
  const auto any = [&] {
    Guard guard(s);
    return s.collectives.any_between(comm);
  };
  if (!any()) return;
  WaitLoop loop(*this, "MPI_Comm_free", true);
  while (any()) loop.step();
}

void Rank::comm_freed(Comm& comm) {
  RankState& s = *state_;
  if (comm.collectives != nullptr && comm.collectives->hidden != 0) {
    CollectiveComm& own = *comm.collectives;
    // What is under way needs it, and so does a persistent call that may be started again: then the
    // host keeps it until the end.
    if (s.collectives.later_between) finish_between(comm);
    if (own.persistent_left == 0) {
      const HostVisit visit(*this, &comm);
      s.host.comm_free(&own.hidden);  // collective, like the call that we are in
      own.hidden = 0;
    }
  }
  if (comm.collectives != nullptr) {
    for (ArrivalComm* const arrival :
         {comm.collectives->arrival.get(), comm.collectives->arrival_later.get()}) {
      if (arrival == nullptr) continue;
      const HostVisit visit(*this, &comm);
      host::Handle handle = arrival->host_comm();
      s.host.comm_free(&handle);
      arrival->forget_host_comm();
    }
  }
  Guard guard(s);
  if (comm.collectives != nullptr) {
    s.close_switches(*comm.collectives);
    if (s.collectives.learnt != nullptr) comm.collectives->tell_learnt(*s.collectives.learnt);
  }
  comm.freed = true;
  --comm.references;
  s.drop_if_unused(comm);
}

void RankState::drop_if_unused(Comm& comm) {
  if (comm.freed && comm.references == 0) comms.erase(&comm);
}

}  // namespace od
