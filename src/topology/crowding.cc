// Counts ranks, cores and threads by the sets of cores that ranks have.
#include "topology/crowding.h"

#include <cstdlib>

namespace od::topology {
namespace {

CpuSet cores_of(const PinTopology& topology, const CpuSet& cpus) {
  CpuSet cores;
  for (int cpu = cpus.first(); cpu >= 0; cpu = cpus.next(cpu)) {
    const PinTopology::Cpu& entry = topology.cpus[static_cast<std::size_t>(cpu)];
    if (entry.online) cores.add(entry.core);
  }
  return cores;
}

// Ranks that have the same cores.
struct Group {
  CpuSet cores;
  CpuSet ranks;  // by their place in the list
  int count = 0;
};

std::string count_text(int count, const char* noun) {
  return std::to_string(count) + ' ' + noun + (count == 1 ? "" : "s");
}

}  // namespace

std::vector<std::string> crowding(const PinTopology& topology, const CpuSet& usable,
                                  std::span<const RankPlace> ranks, int threads) {
  std::vector<Group> groups;
  CpuSet taken;
  for (const RankPlace& rank : ranks) {
    const CpuSet cores = cores_of(topology, rank.cpus);
    if (cores.empty()) continue;
    taken |= cores;
    std::size_t at = 0;
    while (at < groups.size() && !(groups[at].cores == cores)) ++at;
    if (at == groups.size()) groups.push_back({cores, {}, 0});
    groups[at].ranks.add(rank.rank);
    ++groups[at].count;
  }
  int idle = 0;
  const CpuSet all = cores_of(topology, usable);
  for (int core = all.first(); core >= 0; core = all.next(core)) idle += !taken.contains(core);

  std::vector<std::string> found;
  for (const Group& group : groups) {
    const int cores = group.cores.count();
    if (group.count > cores && idle > 0) {
      found.push_back("ranks " + format_cpu_list(group.ranks) + " share " +
                      count_text(cores, "core") + " while " + count_text(idle, "core") +
                      (idle == 1 ? " is" : " are") +
                      " idle: --pin=core gives each rank one, as far as there are enough");
      break;
    }
  }
  for (const Group& group : groups) {
    const int cores = group.cores.count();
    if (threads <= 1 || group.count * threads <= cores) continue;
    found.push_back(count_text(group.count * threads, "OpenMP thread") + " of " +
                    (group.count == 1 ? "rank " : "ranks ") + format_cpu_list(group.ranks) +
                    " share " + count_text(cores, "core") +
                    (idle > 0 ? std::string(": --pin=core gives each rank a core for each thread, "
                                            "as far as there are enough")
                              : ": set OMP_NUM_THREADS to " +
                                    std::to_string(cores > group.count ? cores / group.count : 1)));
    break;
  }
  return found;
}

int openmp_threads(const char* text) {
  const int threads = text == nullptr ? 1 : std::atoi(text);
  return threads < 1 || threads > kMaxCpus ? 1 : threads;
}

}  // namespace od::topology
