// What the kernel says about processors: cores, packages, NUMA nodes, caches and who shares them.
//
// Read from /sys and not through hwloc: this runs inside other people's MPI processes, which often
// have an hwloc of their own (another version, with the same symbol names), and a full discovery
// takes longer than MPI_Init may grow. The few facts needed here are one small file each.
// Virtual machines may report caches that the hypervisor does not keep to: what two ranks really
// are to each other is measured (p2p/distance.h), this is for sizes, names and `overdrive
// info`.
#ifndef OVERDRIVE_TOPOLOGY_MACHINE_H_
#define OVERDRIVE_TOPOLOGY_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "topology/cpu_set.h"

namespace od::topology {

struct Cache {
  int level = 0;  // 1 = first-level data cache
  std::uint64_t size_bytes = 0;
  int line_bytes = 0;
  CpuSet shared_by;
};

struct Cpu {
  int id = -1;
  int core = -1;  // within the package; -1 = unknown
  int package = -1;
  int numa_node = -1;
  std::vector<Cache> caches;  // data and unified caches, nearest first

  // Size of the data or unified cache of a level, 0 if there is none.
  std::uint64_t cache_bytes(int level) const;
};

// One processor. `root` is empty for the real machine; tests give a directory.
Cpu read_cpu(int id, const std::string& root = {});

// All processors that are online.
std::vector<Cpu> read_online_cpus(const std::string& root = {});

// Set of processors that are online; what sysconf() counts if /sys is not there.
CpuSet online_cpus(const std::string& root = {});

// How near two processors are according to the kernel.
enum class Nearness { kSameCore, kSharedCache, kSamePackage, kSameNumaNode, kApart, kUnknown };
Nearness nearness(const Cpu& a, const Cpu& b);

// "same core", "shared cache", "same package", "same NUMA node", "apart", "unknown".
const char* nearness_name(Nearness nearness);

// Sizes of the caches of the processor the caller runs on, from /sys or else from the C library.
struct CacheSizes {
  std::uint64_t l1_bytes = 0;
  std::uint64_t l2_bytes = 0;
  std::uint64_t l3_bytes = 0;
};
CacheSizes own_cache_sizes();

}  // namespace od::topology

#endif  // OVERDRIVE_TOPOLOGY_MACHINE_H_
