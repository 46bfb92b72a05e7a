// Runs the schedules of all ranks on a LogGP-style machine and tells when the last rank is done.
//
// Every rank has one processor, which sends, receives, copies and adds; every node has one way out
// and one way in to the network, which its ranks share; messages inside a node go from rank to rank
// and occupy the sender. Ranks lie on nodes in blocks and start together. The library's own
// schedules are simulated: what is simulated is what runs.
#ifndef OVERDRIVE_COLL_MODEL_SIMULATE_H_
#define OVERDRIVE_COLL_MODEL_SIMULATE_H_

#include <cstdint>

#include "coll/model/machine.h"
#include "coll/registry.h"

namespace od::coll {

struct Simulated {
  double last_ns = 0;     // when the last rank is done
  double average_ns = 0;  // over the ranks
  std::uint64_t messages = 0;
  std::uint64_t far_bytes = 0;
};

// `bytes` is the message size as the collective defines it; units are single bytes, or elements of
// 8 bytes where there is something to add (a last one that is not whole is not counted). Blocks
// whose sizes only their owners know have that size as well. The root is rank 0.
Simulated simulate(const Algorithm& algorithm, const Parameters& parameters, int ranks,
                   int per_node, std::uint64_t bytes, const Machine& machine);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_MODEL_SIMULATE_H_
