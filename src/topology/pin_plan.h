// Which processors a rank gets when ranks are pinned (setting `pin`).
//
// Every rank computes its own place from the same facts: the node's topology, the processors that
// the job may use here, its number among the ranks of the node and how many these are. Used by the
// preloaded library before the program starts, so nothing here allocates or needs the C++ library.
#ifndef OVERDRIVE_TOPOLOGY_PIN_PLAN_H_
#define OVERDRIVE_TOPOLOGY_PIN_PLAN_H_

#include <array>
#include <cstdint>

#include "config/pin_request.h"
#include "topology/cpu_set.h"

namespace od::topology {

// What each processor belongs to; a group is named by its lowest processor.
struct PinTopology {
  struct Cpu {
    bool online = false;
    std::int16_t core = -1;
    std::int16_t cache = -1;  // the last-level cache
    std::int16_t numa = -1;
    std::int16_t socket = -1;
  };
  std::array<Cpu, kMaxCpus> cpus{};

  // Completes what the system does not tell: a core of its own, otherwise the next larger group.
  void complete();
};

struct PinPlace {
  CpuSet cpus;
  const char* problem = nullptr;  // why there is no place, for a message
};

// `threads`: how many threads the rank will compute with (1 if that is not known): `compact`,
// `scatter` and `core` give it as many cores where there are enough. Ranks share cores only if
// there are more ranks than cores, and then evenly.
PinPlace place_rank(const PinTopology& topology, const CpuSet& allowed,
                    const config::PinRequest& request, int local_rank, int local_size, int threads);

// Cores in a set of processors, whole or in part.
int count_cores(const PinTopology& topology, const CpuSet& cpus);

// Reads the topology from /sys below `root` ("" is the real one): one file for each core, cache,
// NUMA node and socket. False if there is nothing to read.
bool read_pin_topology(const char* root, PinTopology* topology);

}  // namespace od::topology

#endif  // OVERDRIVE_TOPOLOGY_PIN_PLAN_H_
