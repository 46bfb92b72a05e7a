// Collects what a rank knows at its end. Nothing here communicates.
#include "engine/run_record.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "observe/call_sites.h"
#include "observe/log.h"
#include "observe/recording.h"
#include "topology/cpu_set.h"

namespace od {
namespace {

// Places of calls that are described in words; those beyond take next to no time.
constexpr std::size_t kMostPlaces = 64;

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  constexpr std::uint64_t kUnit = 1024;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * kUnit
                                             : 0;
}

// In the notation of paths of ranks' files.
std::string file_in(const std::string& folder) {
  std::string path;
  for (const char c : folder) path += c == '%' ? "%%" : std::string(1, c);
  return path + "/rank-%r.json";
}

}  // namespace

observe::JobFacts job_facts(const RankState& s) {
  observe::JobFacts facts;
  facts.rank = s.host.world_rank;
  facts.size = s.host.world_size;
  facts.version = OVERDRIVE_VERSION;
  facts.host_library = observe::title_of(s.host.version_text);
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  facts.host_name = name;
  facts.elapsed_ns = now_ns() - s.started_ns;
  return facts;
}

void write_record(const RankState& s, observe::JobFacts facts) {
  const char* const* names = observe::timed_call_names();
  if (names == nullptr) return;
  // Every rank tries: on nodes with file systems of their own each has to.
  const std::string& folder = s.settings.record;
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    log(Level::kError, "cannot make the folder %s of the setting `record`: %s", folder.c_str(),
        std::strerror(errno));
    return;
  }
  facts.collectives = CollectiveStats::json(s.collectives.stats.rows());
  const std::vector<observe::CallSite> sites =
      observe::call_sites(observe::all_call_times(), names);
  std::vector<std::string> places;
  // The ranks' programs are mostly the same: one describes them.
  if (facts.rank == 0) {
    places = observe::describe_sites(std::span(sites).first(std::min(kMostPlaces, sites.size())));
  }
  facts.calls = observe::call_json(sites, places);
  facts.recording = observe::recording_json(names);
  facts.cpus = topology::format_cpu_list(topology::own_affinity());
  facts.peak_memory_bytes = peak_memory_bytes();
  facts.why_not_shared = s.node->why();
  facts.crowding = s.node->crowding();
  const std::string error = observe::write_rank_file(file_in(folder), facts.rank, "the record",
                                                     observe::stats_json(s.counters, facts));
  if (!error.empty()) log(Level::kError, "%s", error.c_str());
}

}  // namespace od
