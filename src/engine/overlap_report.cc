// Gathers and writes: see overlap_report.h.
#include "engine/overlap_report.h"

#include <algorithm>
#include <string>

#include "base/quiet_floats.h"
#include "observe/log.h"

namespace od {
namespace {

// The places of a rank that take part; they travel to all ranks, so there are fewer of them in
// large jobs: 7 MB at most.
std::size_t most_places(std::size_t ranks) {
  constexpr std::size_t kMostOfAll = 4096;
  return std::clamp<std::size_t>(kMostOfAll / ranks, 2, 64);
}

}  // namespace

std::vector<overlap::SiteRecord> gather_overlap(RankState& s) {
  if (s.overlap == nullptr) return {};
  const auto ranks = static_cast<std::size_t>(s.host.world_size);
  const std::size_t count = most_places(ranks);
  std::vector<overlap::SiteRecord> own = s.overlap->records();
  std::stable_sort(own.begin(), own.end(),
                   [](const overlap::SiteRecord& a, const overlap::SiteRecord& b) {
                     return a.comm_ns > b.comm_ns;
                   });
  own.resize(count);
  std::vector<overlap::SiteRecord> all(ranks * count);
  if (s.host.world_allgather(own.data(), all.data(), count * sizeof(overlap::SiteRecord)) !=
      host::kSuccess) {
    return {};
  }
  return overlap::join_records(all);
}

void write_overlap_trace(const RankState& s, const std::vector<overlap::SiteRecord>& records) {
  const bool traces = s.settings.overlap == config::OverlapMode::kTrace ||
                      s.settings.overlap == config::OverlapMode::kAuto;
  const bool any = std::any_of(records.begin(), records.end(),
                               [](const auto& record) { return record.accesses.any(); });
  if (s.host.world_rank != 0 || !traces || !any ||
      !config::OutputType::names_output(s.settings.overlap_trace)) {
    return;
  }
  const QuietFloats quiet;
  const std::string error = overlap::write_trace(s.settings.overlap_trace, records);
  if (!error.empty()) log(Level::kError, "%s", error.c_str());
}

}  // namespace od
