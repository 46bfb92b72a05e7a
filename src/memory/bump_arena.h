// Reachable memory for processes without the preloaded loader: a memfd from which blocks are cut
// off one after the other and never given back. For tests and overdrive-measure.
//
// begin() is called once per process, before it becomes a rank; the process has one arena, like the
// heap for which this stands.
#ifndef OVERDRIVE_MEMORY_BUMP_ARENA_H_
#define OVERDRIVE_MEMORY_BUMP_ARENA_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/reach.h"
#include "memory/reach_service.h"

namespace od::memory {

class BumpArena {
 public:
  // Makes `bytes` of address space reachable; false if the system refuses.
  static bool begin(std::uint64_t bytes) {
    descriptor_ = memfd_create("overdrive", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0 ||
        fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
      return false;
    }
    void* start =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
    if (start == MAP_FAILED) return false;
    map_.arena_start = reinterpret_cast<std::uintptr_t>(start);
    map_.arena_bytes = map_.file_bytes = bytes;
    // The first page holds the header that peers check (node/reach_file.h).
    used_ = kPageBytes;
    static const ReachService service = [] {
      ReachService s = {};
      s.version = kReachServiceVersion;
      s.size_bytes = sizeof s;
      s.prepare = [] { return static_cast<const ReachMap*>(&map_); };
      s.descriptor = [] { return descriptor_; };
      s.why = [] { return ""; };
      s.usage = [](ReachUsage* usage) { *usage = {}; };
      return s;
    }();
    begin_reach(&service, true, false, "");
    return true;
  }

  // A block that starts at a multiple of `alignment`; empty when the arena is full.
  static std::span<unsigned char> allocate(std::size_t bytes, std::size_t alignment = 64) {
    const std::uint64_t at = (used_ + alignment - 1) / alignment * alignment;
    if (at > map_.arena_bytes || bytes > map_.arena_bytes - at) return {};
    // A line between two blocks, so that reading past an end is not hidden.
    used_ = at + bytes + 64;
    return {reinterpret_cast<unsigned char*>(map_.arena_start + at), bytes};
  }

 private:
  static constexpr std::uint64_t kPageBytes = 4096;
  static inline ReachMap map_;
  static inline int descriptor_ = -1;
  static inline std::uint64_t used_ = 0;
};

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_BUMP_ARENA_H_
