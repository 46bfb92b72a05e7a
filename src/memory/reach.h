// Own side of reachable memory: whether a range of this process lies in its reach file, and where.
//
// Peers find the same bytes at node::Member::reach + offset. An offset stays valid as long as the
// memory is the program's: a block that is freed, or static data of a library that is unloaded, may
// become something else.
#ifndef OVERDRIVE_MEMORY_REACH_H_
#define OVERDRIVE_MEMORY_REACH_H_

#include <cstdint>

#include "memory/reach_map.h"

namespace od::memory {

inline constexpr std::uint64_t kUnreachable = ~std::uint64_t{0};

namespace internal {
// Process-wide by nature, like the address space it describes. Never null.
extern const ReachMap* reach_map;
std::uint64_t static_offset(const ReachMap& map, std::uintptr_t start, std::uint64_t bytes);
}  // namespace internal

// Makes `map` the one that reach_offset() looks at; null: nothing is shared. While the process has
// no peers yet.
void use_reach_map(const ReachMap* map);

// Offset of the range in this process's reach file, or kUnreachable when any byte of it is not
// shared. A few nanoseconds: one comparison for the heap, a small table for static data.
inline std::uint64_t reach_offset(const void* address, std::uint64_t bytes) {
  const ReachMap& map = *internal::reach_map;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const std::uint64_t at = start - map.arena_start;
  if (at < map.arena_bytes) return bytes <= map.arena_bytes - at ? at : kUnreachable;
  if (map.segment_count == 0) return kUnreachable;
  return internal::static_offset(map, start, bytes);
}

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_REACH_H_
