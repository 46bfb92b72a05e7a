// How the engine, in a face, reaches the heap of the preloaded loader: plain functions and data.
#ifndef OVERDRIVE_MEMORY_REACH_SERVICE_H_
#define OVERDRIVE_MEMORY_REACH_SERVICE_H_

#include <stdint.h>

#include "memory/reach_map.h"

namespace od::memory {

inline constexpr uint32_t kReachServiceVersion = 2;

struct ReachUsage {
  uint64_t used_bytes;     // in blocks of the program, rounded to their size classes
  uint64_t kept_bytes;     // freed and kept for reuse
  uint64_t top_bytes;      // of the arena that were ever in use
  uint64_t private_count;  // large blocks that had to come from the C library
  uint64_t fork_count;     // children that got copies of what is shared
};

struct ReachService {
  uint32_t version;
  uint32_t size_bytes;
  // Makes the reach file if the settings and limits allow it; null with a reason in why().
  const ReachMap* (*prepare)();
  // Descriptor of the reach file, -1 if there is none or the program has closed it.
  int (*descriptor)();
  // A range of the reach file, zero, mapped in the arena, for static data; null when it is full.
  void* (*reserve)(uint64_t bytes);
  void (*give_back)(void* reserved);
  uint64_t (*offset)(const void* in_arena);
  // Tells that [start, start + bytes) is going to be what `alias`, in a reserved range, maps; false
  // when the table is full. `kept_bytes`: initialised, at its beginning.
  bool (*add_segment)(void* start, uint64_t bytes, void* alias, uint64_t kept_bytes);
  void (*drop_segment)(void* start);
  // What a shared range of this size needs to be as fast as private memory: 0 nothing, 1 collapse()
  // after it was mapped, -1 better leave it private.
  int (*huge_plan)(uint64_t bytes);
  void (*collapse)(void* start, uint64_t bytes);
  void (*usage)(ReachUsage* usage);
  // Why the heap is not reachable; "" if it is, or nothing was asked of it yet.
  const char* (*why)();
};

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_REACH_SERVICE_H_
