// What the network is like, from what calls have been seen to take.
#ifndef OVERDRIVE_COLL_PLAN_MODEL_NETWORK_FIT_H_
#define OVERDRIVE_COLL_PLAN_MODEL_NETWORK_FIT_H_

#include <functional>
#include <span>

#include "coll/plan/model/machine.h"

namespace od::coll {

// The machine with another network between nodes: messages take so many times as long, and bytes.
Machine with_network(const Machine& machine, double messages, double bytes);

struct Seen {
  double ns;                                      // what a call has taken
  std::function<double(const Machine&)> cost_ns;  // what it takes by the model
};

// The machine with another network between nodes: its messages take so many times as long, and its
// bytes so many times, that the model comes nearest to what has been seen. What that does not tell
// stays near what it was. The same on all ranks that have seen the same: no function of the C
// library takes part that could round otherwise on another processor.
Machine fit_network(const Machine& machine, std::span<const Seen> seen);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_MODEL_NETWORK_FIT_H_
