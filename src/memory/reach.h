// Own side of reachable memory: whether a range of this process lies in its reach file, and where.
//
// Peers find the same bytes at node::Member::reach + offset. An offset stays valid as long as the
// memory is the program's: a block that is freed, or static data of a library that is unloaded, may
// become something else.
#ifndef OVERDRIVE_MEMORY_REACH_H_
#define OVERDRIVE_MEMORY_REACH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "memory/reach_map.h"
#include "memory/reach_service.h"

namespace od::memory {

inline constexpr std::uint64_t kUnreachable = ~std::uint64_t{0};

// The reach file as peers get it; fd -1: there is none.
struct ReachOwn {
  int fd = -1;
  std::byte* start = nullptr;
  std::uint64_t bytes = 0;
};

// What became reachable when the process started, and why other things did not.
struct ReachReport {
  std::string heap_why;    // empty: large blocks are reachable
  std::string static_why;  // empty: static data is
  std::uint64_t static_bytes = 0;
};

// Makes this process's memory reachable: in MPI_Init, before the installed MPI's own. `service` is
// the loader's; null, or one of another version: nothing is shared. Never fails.
void begin_reach(const ReachService* service, bool heap, bool static_data,
                 std::string_view libraries);

const ReachReport& reach_report();
ReachOwn reach_own();
// Zero when there is no reach file.
ReachUsage reach_usage();

namespace internal {
// Process-wide by nature, like the address space it describes. Never null.
extern const ReachMap* reach_map;
// The second mapping of the whole file (shadow.h); no bytes: there is none. Set by the program's
// thread while nothing is under way.
extern std::uintptr_t shadow_start;
extern std::uint64_t shadow_bytes;
std::uint64_t static_offset(const ReachMap& map, std::uintptr_t start, std::uint64_t bytes);
// Whether the program has mapped something else over part of the range.
bool is_foreign(const ReachMap& map, std::uintptr_t start, std::uint64_t bytes);
}  // namespace internal

// Makes `map` the one that reach_offset() looks at; null: nothing is shared. While the process has
// no peers yet.
void use_reach_map(const ReachMap* map);

// Offset of the range in this process's reach file, or kUnreachable when any byte of it is not
// shared. A few nanoseconds: two comparisons for the heap, a small table for static data.
inline std::uint64_t reach_offset(const void* address, std::uint64_t bytes) {
  const ReachMap& map = *internal::reach_map;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  // Relaxed: is_foreign() looks again, in order.
  if (__atomic_load_n(&map.foreign_version, __ATOMIC_RELAXED) != 0) [[unlikely]] {
    if (internal::is_foreign(map, start, bytes)) return kUnreachable;
  }
  const std::uint64_t at = start - map.arena_start;
  if (at < map.arena_bytes) return bytes <= map.arena_bytes - at ? at : kUnreachable;
  if ((map.segment_count | internal::shadow_bytes) == 0) return kUnreachable;
  return internal::static_offset(map, start, bytes);
}

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_REACH_H_
