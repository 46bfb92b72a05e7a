// A communicator that Overdrive serves: its context and where each of its ranks lives.
//
// A (communicator, peer) pair belongs to Overdrive or to the host for its whole life: `local_index`
// is fixed at creation. The context is computed, never communicated: every member derives the same
// 64-bit value from the parent's context, the number of constructors called on the parent before,
// and the lowest world rank of the new group (see context.h).
#ifndef OVERDRIVE_P2P_COMM_H_
#define OVERDRIVE_P2P_COMM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "host/host_table.h"

namespace od {

// Not on this node (or not ours): the host serves it.
inline constexpr int kRemote = -1;

class CollectiveComm;
class Neighbourhood;

class Comm {
 public:
  host::Handle handle = 0;
  std::uint64_t context = 0;
  int rank = 0;        // this process in the local group
  int size = 0;        // local group
  int peer_count = 0;  // ranks that can be addressed: remote group of an inter-communicator
  bool inter = false;
  bool all_local = false;  // every addressable peer is served by us
  bool any_local = false;  // at least one addressable peer is served by us (set by the face)
  bool self_only = false;  // the only peer is this process
  std::vector<std::int16_t> local_index;  // per addressable rank: node index or kRemote
  std::vector<int> world_rank;            // per addressable rank
  int lowest_world_rank = 0;              // of all groups; part of children's contexts

  // Constructors called on this communicator so far; collective, hence equal on all members.
  std::uint64_t children = 0;
  // Calls of the host to which the members come together (engine/host_entry.cc), equal likewise;
  // and whether the others are waited for, until they once did not come.
  std::uint64_t host_entries = 0;
  bool awaits_entries = true;
  // MPI_Comm_create_group is collective over the subgroup only: counts per (group hash, tag).
  std::map<std::pair<std::uint64_t, int>, std::uint64_t> group_children;

  // Posted receives that the host may serve, and messages taken from the host by probes.
  int host_candidates = 0;
  int host_stashed = 0;
  // Of many candidates: the last time that the host was asked whether it has any message, and
  // whether it has one that none of them takes (wildcard.cc).
  std::uint64_t asked_in_poll = 0;
  bool host_has_others = false;
  int host_persistent = 0;  // persistent receives that may become such
  int lent = 0;             // of those receives, how many the host has (lent_receives.cc)
  std::shared_ptr<CollectiveComm> collectives;  // made at the first collective (coll/run)
  // Who exchanges in neighbourhood collectives, once that has been asked; null: no topology.
  std::shared_ptr<const Neighbourhood> neighbourhood;
  bool neighbourhood_known = false;
  std::int64_t references = 1;  // pending operations keep a freed communicator alive
  bool freed = false;

  // While true, receives and probes for a remote source must come to the engine too: handing them
  // to the host could overtake an older wildcard receive or miss a message that a probe has taken.
  bool host_ordered() const { return host_candidates + host_stashed > 0; }

  // Whether messages to or from `peer` (a valid rank) are ours.
  bool ours(int peer) const { return local_index[static_cast<std::size_t>(peer)] != kRemote; }
};

}  // namespace od

#endif  // OVERDRIVE_P2P_COMM_H_
