// Compares the ranks' affinities with the machine.
#include "node/crowding.h"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "topology/crowding.h"

namespace od::node {
namespace {

// What the process that has started this one may use: what the job may, if a launcher has bound its
// ranks to less.
topology::CpuSet of_parent() {
  topology::CpuSet set;
  cpu_set_t mask;
  if (sched_getaffinity(getppid(), sizeof mask, &mask) != 0) return set;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) set.add(cpu);
  }
  return set;
}

}  // namespace

std::vector<std::string> crowding_on_node(const std::vector<Identity>& all, int rank) {
  std::vector<topology::RankPlace> places;
  const Identity& own = all[static_cast<std::size_t>(rank)];
  topology::CpuSet usable = of_parent();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].host_key != own.host_key) continue;
    if (places.empty() && static_cast<int>(i) != rank) return {};
    topology::RankPlace place{static_cast<int>(i), {}};
    for (int cpu = 0; cpu < kMaskWords * 64; ++cpu) {
      if ((all[i].cpus[cpu / 64] >> (cpu % 64) & 1) != 0) place.cpus.add(cpu);
    }
    usable |= place.cpus;
    places.push_back(place);
  }
  const auto machine = std::make_unique<topology::PinTopology>();
  if (!topology::read_pin_topology("", machine.get())) return {};
  return topology::crowding(*machine, usable, places,
                            topology::openmp_threads(std::getenv("OMP_NUM_THREADS")));
}

}  // namespace od::node
