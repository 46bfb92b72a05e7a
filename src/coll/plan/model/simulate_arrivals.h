// The simulator's ranks come at different times, and what the calls do then that start with whoever
// comes first, or end with whoever comes last (coll/run/first_arrival.h, first_scatter.h,
// last_arrival.h).
//
// Those have no schedules: who does what follows from who comes when. What is simulated is the same
// protocol on the same machine: segments, links that nodes share, and a root that hears of nodes.
#ifndef OVERDRIVE_COLL_PLAN_MODEL_SIMULATE_ARRIVALS_H_
#define OVERDRIVE_COLL_PLAN_MODEL_SIMULATE_ARRIVALS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "coll/plan/hierarchy/nodes.h"
#include "coll/plan/model/machine.h"
#include "coll/plan/model/simulate.h"

namespace od::coll {

// As `overdrive bench arrival` has them, with root 0.
inline constexpr std::string_view kArrivalPatterns[] = {"together", "one-late",    "linear",
                                                        "random",   "late-leader", "late-root"};
// When each rank comes, in nanoseconds after the first one; empty if there is no such pattern.
std::vector<double> arrival_pattern(std::string_view name, const Nodes& nodes, double delay_ns);

// Bcast, Reduce, Gather or Scatter by `first_arrival`, from or to rank 0; `bytes` of the message,
// or of each rank's block.
Simulated simulate_first_arrival(Collective collective, const Nodes& nodes, std::uint64_t bytes,
                                 const Machine& machine, std::span<const double> arrivals);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_MODEL_SIMULATE_ARRIVALS_H_
