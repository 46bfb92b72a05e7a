// One of the places in which operations of a communicator that spans nodes are under way, one at a
// time: the next begins when the one before is complete on this rank.
//
// A channel is a range of tags in the host and a team in shared memory, both of which serve
// operations in the order in which they are started. Calls are given to channels in the order of
// the communicator's calls, which MPI makes equal on all ranks. An operation waits for earlier ones
// only, which every rank has started or will start first: so nothing can wait in a circle.
#ifndef OVERDRIVE_COLL_RUN_HOST_CHANNEL_H_
#define OVERDRIVE_COLL_RUN_HOST_CHANNEL_H_

#include <deque>
#include <memory>

#include "coll/run/team.h"

namespace od {

// Of calls that a switch serves.
inline constexpr std::uint32_t kSwitchChannel = 0;

struct HostChannel {
  std::unique_ptr<CollectiveTeam> team;  // made with the first call; null: none
  std::deque<CollectiveOp*> line;        // the first is under way, the others wait
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_HOST_CHANNEL_H_
