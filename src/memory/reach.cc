// The reach map in use, and the search in the static segments.
#include "memory/reach.h"

namespace od::memory {
namespace {

constexpr ReachMap kNothing = {};

}  // namespace

namespace internal {

constinit const ReachMap* reach_map = &kNothing;

std::uint64_t static_offset(const ReachMap& map, std::uintptr_t start, std::uint64_t bytes) {
  // A handful of entries: the first one or two are those of the program itself.
  for (std::uint32_t i = 0; i < map.segment_count; ++i) {
    const ReachSegment& segment = map.segments[i];
    const std::uint64_t at = start - segment.start;
    if (at < segment.bytes) return bytes <= segment.bytes - at ? segment.offset + at : kUnreachable;
  }
  return kUnreachable;
}

}  // namespace internal

void use_reach_map(const ReachMap* map) { internal::reach_map = map != nullptr ? map : &kNothing; }

}  // namespace od::memory
