// Which last-level cache a rank works at, and how large its caches are: what the ranks of a node
// tell each other, so that all see the same groups.
//
// HWLOC_SYNTHETIC describes a machine that is not there (programs that use hwloc believe in it, the
// virtual cluster sets it): ranks are then spread over its processors in their order, as binding to
// them is not possible. Sizes of caches are always those of the real machine.
#ifndef OVERDRIVE_TOPOLOGY_CACHE_CLAIM_H_
#define OVERDRIVE_TOPOLOGY_CACHE_CLAIM_H_

#include <cstdint>
#include <string>
#include <type_traits>

#include "topology/cpu_set.h"

namespace od::topology {

struct CacheClaim {
  static constexpr std::int32_t kUnknown = -1;
  std::int32_t group = kUnknown;    // the same number on one node: the same last-level cache
  std::uint64_t private_bytes = 0;  // of the largest cache that one core has for itself; 0: unknown
  std::uint64_t shared_bytes = 0;   // of the last-level cache; 0: unknown
};
static_assert(std::is_trivially_copyable_v<CacheClaim>);

// Of a rank that may run on these processors. The group is unknown if they do not share one cache.
CacheClaim read_cache_claim(const CpuSet& affinity, const std::string& root = {});

// Group of a rank, the `index`-th of `ranks` on its node, on a machine in hwloc's synthetic
// notation, such as "pack:2 l3:2 core:4 pu:1": by third-level caches, else by packages.
std::int32_t synthetic_group(const std::string& description, int index, int ranks);

// Of the calling process.
CacheClaim own_cache_claim(int index, int ranks);

}  // namespace od::topology

#endif  // OVERDRIVE_TOPOLOGY_CACHE_CLAIM_H_
