// The reach map in use, and the search in the static segments.
#include "memory/reach.h"

#include "memory/static_data.h"

namespace od::memory {
namespace {

constexpr ReachMap kNothing = {};

// Process-wide by nature. The service has been checked.
const ReachService* service_in_use = nullptr;

ReachReport& report() {
  // Never destroyed: MPI_Finalize may be called by a destructor.
  static ReachReport* const the_report = new ReachReport;
  return *the_report;
}

}  // namespace

namespace internal {

constinit const ReachMap* reach_map = &kNothing;
constinit std::uintptr_t shadow_start = 0;
constinit std::uint64_t shadow_bytes = 0;

std::uint64_t static_offset(const ReachMap& map, std::uintptr_t start, std::uint64_t bytes) {
  // A handful of entries: the first one or two are those of the program itself.
  for (std::uint32_t i = 0; i < map.segment_count; ++i) {
    const ReachSegment& segment = map.segments[i];
    const std::uint64_t at = start - segment.start;
    if (at < segment.bytes) return bytes <= segment.bytes - at ? segment.offset + at : kUnreachable;
  }
  const std::uint64_t at = start - shadow_start;
  return at < shadow_bytes && bytes <= shadow_bytes - at ? at : kUnreachable;
}

bool is_foreign(const ReachMap& map, std::uintptr_t start, std::uint64_t bytes) {
  // Acquires pair with the release stores in OwnPages::publish(), and keep the last load after all
  // others.
  const std::uint32_t version = __atomic_load_n(&map.foreign_version, __ATOMIC_ACQUIRE);
  const std::uint32_t count = __atomic_load_n(&map.foreign_count, __ATOMIC_ACQUIRE);
  bool found = version % 2 != 0 || count > ReachMap::kMostForeign;
  for (std::uint32_t i = 0; i < count && !found; ++i) {
    found = __atomic_load_n(&map.foreign[i].start, __ATOMIC_ACQUIRE) < start + bytes &&
            __atomic_load_n(&map.foreign[i].end, __ATOMIC_ACQUIRE) > start;
  }
  return found || __atomic_load_n(&map.foreign_version, __ATOMIC_RELAXED) != version;
}

}  // namespace internal

void begin_reach(const ReachService* service, bool heap, bool static_data,
                 std::string_view libraries) {
  ReachReport& result = report();
  if (!heap && !static_data) {
    result.heap_why = result.static_why = "switched off";
    return;
  }
  if (service == nullptr || service->version != kReachServiceVersion ||
      service->size_bytes != sizeof(ReachService)) {
    result.heap_why = result.static_why = "the preloaded library does not offer it";
    return;
  }
  const ReachMap* map = service->prepare();
  if (map == nullptr) {
    result.heap_why = result.static_why = service->why();
    return;
  }
  service_in_use = service;
  result.heap_why = service->why();
  if (!static_data) {
    result.static_why = "switched off";
  } else {
    const StaticResult shared = share_static_data(*service, libraries);
    result.static_bytes = shared.bytes;
    result.static_why = shared.why;
  }
  use_reach_map(map);
}

const ReachReport& reach_report() { return report(); }

ReachOwn reach_own() {
  if (service_in_use == nullptr) return {};
  const ReachMap& map = *internal::reach_map;
  return {service_in_use->descriptor(), reinterpret_cast<std::byte*>(map.arena_start),
          map.file_bytes};
}

ReachUsage reach_usage() {
  ReachUsage usage = {};
  if (service_in_use != nullptr) service_in_use->usage(&usage);
  return usage;
}

void use_reach_map(const ReachMap* map) { internal::reach_map = map != nullptr ? map : &kNothing; }

}  // namespace od::memory
