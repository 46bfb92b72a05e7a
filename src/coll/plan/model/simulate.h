// Runs the schedules of all ranks on a LogGP-style machine and tells when the last rank is done.
//
// Every rank has one processor, which sends, receives, copies and adds; every node has one way out
// and one way in to the network, which its ranks share; messages inside a node go from rank to rank
// and occupy the sender. Steps of the node in shared memory occupy those who read: a member of a
// reduction adds its part of the vector when all have come, a receiver copies when the leader has.
// A switch answers all leaders when the last of them has been heard.
// Ranks start together, or when they come. The library's own schedules are simulated: what is
// simulated is what runs.
#ifndef OVERDRIVE_COLL_PLAN_MODEL_SIMULATE_H_
#define OVERDRIVE_COLL_PLAN_MODEL_SIMULATE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "coll/plan/hierarchy/hierarchy.h"
#include "coll/plan/model/machine.h"
#include "coll/plan/registry.h"
#include "coll/plan/select/selection.h"

namespace od::coll {

struct Simulated {
  double last_ns = 0;     // when the last rank is done
  double average_ns = 0;  // over the ranks
  double inside_ns = 0;   // the same, from when each has come
  std::uint64_t messages = 0;
  std::uint64_t far_bytes = 0;
};

// When what happened: a step of a rank, from when it had what it needs to when it was complete. A
// receive begins when its message leaves, or when it is posted, if that is later.
struct TimedStep {
  std::int32_t rank = 0;
  std::uint32_t step = 0;
  double begin_ns = 0;
  double end_ns = 0;
};
struct TimeLine {
  std::vector<Schedule> schedules;  // of all ranks
  std::vector<TimedStep> steps;     // in order of their ends; joins are not among them
};

// `bytes` is the message size as the collective defines it; units are single bytes, or elements of
// 8 bytes where there is something to add (a last one that is not whole is not counted). Blocks
// whose sizes only their owners know have that size as well. The root is rank 0. Ranks lie on nodes
// in blocks.
Simulated simulate(const Algorithm& algorithm, const Parameters& parameters, int ranks,
                   int per_node, std::uint64_t bytes, const Machine& machine);

// The same for ranks anywhere, and for the hierarchical form; all nodes go the same way. With
// `arrivals` each rank comes so many nanoseconds after the beginning.
Simulated simulate(const Decision& decision, const Nodes& nodes, NodeDriver driver,
                   std::uint64_t bytes, const Machine& machine, TimeLine* time_line = nullptr,
                   std::span<const double> arrivals = {});

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_MODEL_SIMULATE_H_
