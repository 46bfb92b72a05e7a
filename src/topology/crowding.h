// Whether the ranks of a node stand in each other's way: several on a core while others idle, or
// more threads than cores.
#ifndef OVERDRIVE_TOPOLOGY_CROWDING_H_
#define OVERDRIVE_TOPOLOGY_CROWDING_H_

#include <span>
#include <string>
#include <vector>

#include "topology/cpu_set.h"
#include "topology/pin_plan.h"

namespace od::topology {

// A rank of the node: its number in the job, and where it may run (empty: not known).
struct RankPlace {
  int rank = 0;
  CpuSet cpus;
};

// A sentence for each thing that is wrong, with what to do. `usable`: what the job may use here;
// `threads`: what each rank will compute with, 1 if that is not known.
std::vector<std::string> crowding(const PinTopology& topology, const CpuSet& usable,
                                  std::span<const RankPlace> ranks, int threads);

// The threads that OpenMP will use by OMP_NUM_THREADS (its first number), 1 if it does not say.
int openmp_threads(const char* text);

}  // namespace od::topology

#endif  // OVERDRIVE_TOPOLOGY_CROWDING_H_
