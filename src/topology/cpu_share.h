// How many processors a process may really use, and whether the ranks of a node have one each.
//
// Two things limit a process: its affinity mask and the quota of its control group (a container
// that may use 1.5 of 64 processors shows 64 in its mask). Every rank publishes its CpuShare; from
// the shares of all ranks of a node, each rank computes the same NodeLoad.
#ifndef OVERDRIVE_TOPOLOGY_CPU_SHARE_H_
#define OVERDRIVE_TOPOLOGY_CPU_SHARE_H_

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "topology/cpu_set.h"

namespace od::topology {

// Tightest processor quota on the way from the process's control group to the root.
struct CpuQuota {
  std::uint64_t milli_cpus = 0;  // thousandths of a processor; 0 = not limited
  std::uint64_t group = 0;       // tells apart groups that have a quota each; 0 = not limited
};

// Reads version 1 and 2 hierarchies below `root` (empty: the real one; tests give a directory).
CpuQuota read_cpu_quota(const std::string& root = {});

// What one rank may use; exchanged between ranks as bytes.
struct CpuShare {
  CpuSet affinity;
  CpuQuota quota;
};
static_assert(std::is_trivially_copyable_v<CpuShare>);

CpuShare own_cpu_share();

struct NodeLoad {
  int usable_cpus = 1;          // processors all ranks together may use, at least 1
  bool oversubscribed = false;  // more ranks than usable processors, on the whole or somewhere
};

// Ranks whose masks are unknown (empty) count as free to use any processor of `online_cpus`.
NodeLoad node_load(std::span<const CpuShare> ranks, int online_cpus);

}  // namespace od::topology

#endif  // OVERDRIVE_TOPOLOGY_CPU_SHARE_H_
