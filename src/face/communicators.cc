// Constructors and destructors of communicators: the host makes them, we register them.
//
// A constructor is collective, so all members count it on the parent alike; that count is part of
// the context of what it made. It is counted when the host reports success: then it has succeeded
// on all members. A communicator whose parent is not ours is not ours either. While a wildcard
// receive is pending the engine asks the host about its communicator, so a communicator that the
// program frees meanwhile is kept from the host until the receive is done (deferred_frees.h).
#include <algorithm>
#include <vector>

#include "engine/rank_state.h"
#include "face/state.h"

namespace od::face {
namespace {

// Whether every member of a new inter-communicator belongs to our MPI_COMM_WORLD: the same on all
// members, because a process has only one.
bool within_world(MPI_Comm comm) {
  const host::HostTable& table = state.host;
  const host::Handle handle = abi::to_handle(comm);
  int local = 0, remote = 0;
  if (table.comm_size(handle, &local) != MPI_SUCCESS ||
      table.comm_remote_size(handle, &remote) != MPI_SUCCESS) {
    return false;
  }
  std::vector<int> ranks(static_cast<std::size_t>(std::max(local, remote)));
  for (const bool other : {false, true}) {
    const int count = other ? remote : local;
    if (table.comm_world_ranks(handle, other, ranks.data(), count) != MPI_SUCCESS) return false;
    if (std::find(ranks.begin(), ranks.begin() + count, -1) != ranks.begin() + count) return false;
  }
  return true;
}

// The engine derives an inter-communicator's context from an exchange between the two groups. A
// process that does not serve its side has to take part all the same: 0 says that it does not.
void decline_intercomm(MPI_Comm comm, const host::Leaders& leaders) {
  if (state.owned_rank == nullptr || !within_world(comm)) return;
  std::uint64_t theirs = 0;
  const Rank::HostVisit visit(*state.owned_rank);
  state.host.inter_exchange(leaders, 0, &theirs);
}

// Whether all ranks of the job share memory: all of them find the same (collective_setup.cc).
bool job_on_one_node() {
  Rank* const rank = any_rank();
  return rank != nullptr && rank->settings().test_remote.empty() &&
         rank->state().node->size() == state.host.world_size;
}

// Where a leader meets the other one: on the communicator by which the program introduces them, if
// the host has no messages or receives of the program on any, because the job is on one node; else
// on the new one, which has none yet. Both leaders find the same.
void set_meeting_place(host::Leaders& leaders, MPI_Comm peer_comm, int remote_leader, int tag,
                       MPI_Comm made) {
  HostCallScope scope(HostCallKind::kLocal);
  const Comm* const peers = job_on_one_node() ? find_comm(peer_comm) : nullptr;
  if (peers != nullptr && !peers->inter) {
    leaders.bridge = abi::to_handle(peer_comm);
    leaders.other_leader = remote_leader;
    leaders.tag = tag;
    return;
  }
  leaders.bridge = abi::to_handle(made);
  MPI_Group known, remote;
  OD_HOST(Comm_group)(peer_comm, &known);
  OD_HOST(Comm_remote_group)(made, &remote);
  OD_HOST(Group_translate_ranks)(known, 1, &remote_leader, remote, &leaders.other_leader);
  OD_HOST(Group_free)(&remote);
  OD_HOST(Group_free)(&known);
}

void register_child(MPI_Comm parent, MPI_Comm child, Rank::Origin origin, int tag,
                    const host::Leaders* leaders) {
  Rank* rank = any_rank();
  Comm* served = rank != nullptr ? find_comm(parent) : nullptr;
  if (child == abi::comm_null()) {
    if (served != nullptr && origin == Rank::Origin::collective) rank->comm_not_member(*served);
    return;
  }
  if (served != nullptr) {
    const host::Handle handle = abi::to_handle(child);
    register_comm(handle, rank->comm_created(*served, handle, origin, tag, leaders));
    return;
  }
  if (rank != nullptr) register_comm(abi::to_handle(child), nullptr);
  if (leaders != nullptr) decline_intercomm(child, *leaders);
}

// Calls the host's constructor. Constructors that the host calls for its own purposes stay its own:
// then *ours is false.
// `by_all`: the members of `parent` take part, all of them.
template <typename Construct>
int run_constructor(MPI_Comm parent, bool by_all, Construct&& host_call, bool* ours) {
  const bool nested = InHostCall();
  if (!nested && state.deferred.any()) state.deferred.sweep(false);
  const HostEntry entry(parent, by_all);
  HostCallScope scope(HostCallKind::kCollective);
  const int error = host_call();
  *ours = error == MPI_SUCCESS && !nested;
  return error;
}

template <typename Construct>
int construct(MPI_Comm parent, MPI_Comm* child, Construct&& host_call,
              Rank::Origin origin = Rank::Origin::collective, int tag = 0) {
  bool ours = false;
  const bool by_all = origin == Rank::Origin::collective;
  const int error = run_constructor(parent, by_all, host_call, &ours);
  if (ours) register_child(parent, *child, origin, tag, nullptr);
  return error;
}

template <typename Construct>
int construct_later(MPI_Comm parent, MPI_Comm* child, MPI_Request* request, Construct&& host_call) {
  Rank* rank = serving();
  Comm* served = rank != nullptr ? find_comm(parent) : nullptr;
  if (served != nullptr && child != nullptr) *child = abi::comm_null();
  int error;
  {
    HostCallScope scope(HostCallKind::kCollectiveStart);
    error = host_call();
  }
  if (error == MPI_SUCCESS && served != nullptr) {
    state.idups.add(*request, child, *served, rank->reserve_context_sequence(*served));
  }
  return error;
}

// MPI_Comm_free and MPI_Comm_disconnect. The registration goes first: as soon as the host has freed
// the communicator another thread may be given the same handle.
template <typename Destroy>
int destroy(MPI_Comm* comm, HostCallKind kind, Destroy&& host_call) {
  Rank* rank = any_rank();
  const host::Handle handle = comm != nullptr ? abi::to_handle(*comm) : 0;
  Comm* served = rank != nullptr && handle != 0 ? state.comms.erase(handle) : nullptr;
  if (served != nullptr && kind == HostCallKind::kProcess) {
    // MPI_Comm_disconnect waits for pending communication.
    Rank::WaitLoop loop(*rank, "MPI_Comm_disconnect", true);
    while (served->host_candidates != 0) loop.step();
  }
  if (served != nullptr && served->host_candidates + served->host_persistent != 0) {
    state.deferred.add(*comm, *served);
    state.bsend.detach(handle);
    *comm = abi::comm_null();
    return MPI_SUCCESS;
  }
  int error;
  {
    HostCallScope scope(kind);
    error = host_call();
  }
  if (error != MPI_SUCCESS) {
    if (served != nullptr) state.comms.insert(handle, served);
    return error;
  }
  state.bsend.detach(handle);
  if (served == nullptr) return error;
  if (!state.idups.defer_free(*served)) rank->comm_freed(*served);
  return MPI_SUCCESS;
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Comm_dup(MPI_Comm comm, MPI_Comm* newcomm) {
  return construct(comm, newcomm, [&] { return OD_HOST(Comm_dup)(comm, newcomm); });
}

int od_MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm) {
  return construct(comm, newcomm, [&] { return OD_HOST(Comm_dup_with_info)(comm, info, newcomm); });
}

int od_MPI_Comm_idup(MPI_Comm comm, MPI_Comm* newcomm, MPI_Request* request) {
  return construct_later(comm, newcomm, request,
                         [&] { return OD_HOST(Comm_idup)(comm, newcomm, request); });
}

int od_MPI_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm,
                               MPI_Request* request) {
  return construct_later(comm, newcomm, request, [&] {
    return OD_HOST(Comm_idup_with_info)(comm, info, newcomm, request);
  });
}

int od_MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* newcomm) {
  return construct(comm, newcomm, [&] { return OD_HOST(Comm_create)(comm, group, newcomm); });
}

int od_MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* newcomm) {
  return construct(
      comm, newcomm, [&] { return OD_HOST(Comm_create_group)(comm, group, tag, newcomm); },
      od::Rank::Origin::create_group, tag);
}

int od_MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* newcomm) {
  return construct(comm, newcomm, [&] { return OD_HOST(Comm_split)(comm, color, key, newcomm); });
}

int od_MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info,
                           MPI_Comm* newcomm) {
  return construct(comm, newcomm,
                   [&] { return OD_HOST(Comm_split_type)(comm, split_type, key, info, newcomm); });
}

int od_MPI_Cart_create(MPI_Comm comm_old, int ndims, const int* dims, const int* periods,
                       int reorder, MPI_Comm* comm_cart) {
  return construct(comm_old, comm_cart, [&] {
    return OD_HOST(Cart_create)(comm_old, ndims, dims, periods, reorder, comm_cart);
  });
}

int od_MPI_Cart_sub(MPI_Comm comm, const int* remain_dims, MPI_Comm* newcomm) {
  return construct(comm, newcomm, [&] { return OD_HOST(Cart_sub)(comm, remain_dims, newcomm); });
}

int od_MPI_Graph_create(MPI_Comm comm_old, int nnodes, const int* index, const int* edges,
                        int reorder, MPI_Comm* comm_graph) {
  return construct(comm_old, comm_graph, [&] {
    return OD_HOST(Graph_create)(comm_old, nnodes, index, edges, reorder, comm_graph);
  });
}

int od_MPI_Dist_graph_create(MPI_Comm comm_old, int n, const int* sources, const int* degrees,
                             const int* destinations, const int* weights, MPI_Info info,
                             int reorder, MPI_Comm* comm_dist_graph) {
  return construct(comm_old, comm_dist_graph, [&] {
    return OD_HOST(Dist_graph_create)(comm_old, n, sources, degrees, destinations, weights, info,
                                      reorder, comm_dist_graph);
  });
}

int od_MPI_Dist_graph_create_adjacent(MPI_Comm comm_old, int indegree, const int* sources,
                                      const int* sourceweights, int outdegree,
                                      const int* destinations, const int* destweights,
                                      MPI_Info info, int reorder, MPI_Comm* comm_dist_graph) {
  return construct(comm_old, comm_dist_graph, [&] {
    return OD_HOST(Dist_graph_create_adjacent)(comm_old, indegree, sources, sourceweights,
                                               outdegree, destinations, destweights, info, reorder,
                                               comm_dist_graph);
  });
}

int od_MPI_Intercomm_create(MPI_Comm local_comm, int local_leader, MPI_Comm peer_comm,
                            int remote_leader, int tag, MPI_Comm* newintercomm) {
  bool ours = false;
  const int error = run_constructor(
      local_comm, true,
      [&] {
        return OD_HOST(Intercomm_create)(local_comm, local_leader, peer_comm, remote_leader, tag,
                                         newintercomm);
      },
      &ours);
  if (!ours) return error;
  od::host::Leaders leaders{.local = abi::to_handle(local_comm), .leader = local_leader};
  int rank = 0;
  if (state.host.comm_rank != nullptr &&
      state.host.comm_rank(leaders.local, &rank) == MPI_SUCCESS && rank == local_leader) {
    set_meeting_place(leaders, peer_comm, remote_leader, tag, *newintercomm);
  }
  register_child(local_comm, *newintercomm, od::Rank::Origin::intercomm_create, tag, &leaders);
  return error;
}

int od_MPI_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm* newintracomm) {
  return construct(intercomm, newintracomm,
                   [&] { return OD_HOST(Intercomm_merge)(intercomm, high, newintracomm); });
}

// Made without a parent, hence with nothing to derive a context from: the host's.
int od_MPI_Comm_create_from_group(MPI_Group group, const char* stringtag, MPI_Info info,
                                  MPI_Errhandler errhandler, MPI_Comm* newcomm) {
  HostCallScope scope(HostCallKind::kProcess);
  return OD_HOST(Comm_create_from_group)(group, stringtag, info, errhandler, newcomm);
}

int od_MPI_Intercomm_create_from_groups(MPI_Group local_group, int local_leader,
                                        MPI_Group remote_group, int remote_leader,
                                        const char* stringtag, MPI_Info info,
                                        MPI_Errhandler errhandler, MPI_Comm* newintercomm) {
  HostCallScope scope(HostCallKind::kProcess);
  return OD_HOST(Intercomm_create_from_groups)(local_group, local_leader, remote_group,
                                               remote_leader, stringtag, info, errhandler,
                                               newintercomm);
}

int od_MPI_Comm_free(MPI_Comm* comm) {
  return destroy(comm, HostCallKind::kCollective, [&] { return OD_HOST(Comm_free)(comm); });
}

int od_MPI_Comm_disconnect(MPI_Comm* comm) {
  return destroy(comm, HostCallKind::kProcess, [&] { return OD_HOST(Comm_disconnect)(comm); });
}
