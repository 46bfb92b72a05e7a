// What a message between nodes costs in this job, measured while it begins, for the cost model.
//
// Rank 0 sends short messages to and fro with the lowest rank of another node, and then long ones
// there; of each the quickest counts, because whatever disturbs one only adds to it. Connections
// and buffers are made by messages that are not measured. Everybody hears what was found from
// rank 0, along a tree through the nodes' lowest ranks, and takes the same: choices that follow
// from it have to be alike.
#ifndef OVERDRIVE_ENGINE_NETWORK_COST_H_
#define OVERDRIVE_ENGINE_NETWORK_COST_H_

#include <vector>

#include "coll/plan/model/machine.h"
#include "host/host_table.h"

namespace od {

struct NetworkCost {
  double message_ns = 0;  // of a short message, from call to call; 0: not known
  double byte_ns = 0;     // of each byte of a long one
};

// Collective over the job, blocking; `node_of_world` names each rank's node by its lowest rank.
// With one node there is nothing to find. Takes as long as some forty short messages and 768 KiB
// between two nodes. False when the host failed.
bool measure_network(const host::HostTable& host, const std::vector<int>& node_of_world,
                     NetworkCost* cost);

// The model's parameters for a network of such a cost; `usual` says which parts of a message's time
// are the processors'.
coll::Link link_of(const NetworkCost& cost, const coll::Link& usual);

}  // namespace od

#endif  // OVERDRIVE_ENGINE_NETWORK_COST_H_
