// Brings the ranks' arrivals together, at the end of the job.
#include "engine/arrival_report.h"

#include <algorithm>
#include <array>
#include <vector>

#include "observe/arrival_summary.h"
#include "observe/arrivals.h"

namespace od {
namespace {

// Of all ranks, which travel to all of them: 8 MB at most, and room for a thousand calls in jobs of
// up to 256 ranks.
constexpr std::size_t kMostTold = 262144;
constexpr std::size_t kMostSites = 16;

std::vector<int> nodes_of(const RankState& s) {
  const std::vector<int>& known = s.collectives.node_of_world;
  return known.empty() ? std::vector<int>(static_cast<std::size_t>(s.host.world_size), 0) : known;
}

std::size_t kept(const std::vector<observe::ArrivalStream>& streams) {
  std::size_t count = 0;
  for (const observe::ArrivalStream& stream : streams) count += stream.kept().size();
  return count;
}

}  // namespace

bool keeps_arrivals(const config::Settings& settings) {
  return config::OutputType::names_output(settings.record) ||
         (settings.call_times &&
          observe::stats_output(settings.stats) != observe::StatsOutput::kNone);
}

CommonClock common_clock(const RankState& s) {
  ClockReading end;
  if (!s.compares_clocks || !compare_clocks(s.host, s.collectives.node_of_world, &end)) return {};
  return {s.clock_at_begin, end};
}

bool gather_arrivals(const RankState& s, const CommonClock& clock, observe::JobFacts& facts) {
  const auto ranks = static_cast<std::size_t>(facts.size);
  const char* const* const names = observe::timed_call_names();
  std::vector<observe::ArrivalStream> streams;
  if (names != nullptr) streams = observe::all_arrivals();
  // All ranks drop the same calls: as many as the rank with most of them has to.
  const std::size_t room = std::max<std::size_t>(kMostTold / ranks, 64);
  std::uint64_t halvings = 0;
  while (kept(streams) > room) {
    ++halvings;
    for (observe::ArrivalStream& stream : streams) stream.thin(static_cast<unsigned>(halvings));
  }
  std::vector<std::uint64_t> numbers(ranks);
  if (s.host.world_allgather(&halvings, numbers.data(), sizeof halvings) != host::kSuccess) {
    return false;
  }
  const std::uint64_t most_halvings = *std::max_element(numbers.begin(), numbers.end());
  for (observe::ArrivalStream& stream : streams) {
    stream.thin(static_cast<unsigned>(most_halvings));
  }
  std::vector<observe::CallSite> sites;
  if (names != nullptr) sites = observe::arrival_sites(streams, names);
  sites.resize(kMostSites);
  std::vector<observe::ToldArrival> told = observe::tell_arrivals(streams, sites, names, clock);
  std::array<std::uint64_t, 2> mine{told.size(), clock.error_ns()};
  std::vector<std::array<std::uint64_t, 2>> counts(ranks);
  if (s.host.world_allgather(mine.data(), counts.data(), sizeof mine) != host::kSuccess) {
    return false;
  }
  std::uint64_t most = 0;
  std::uint64_t error_ns = 0;
  for (const auto& [count, error] : counts) {
    most = std::max(most, count);
    error_ns = std::max(error_ns, error);
  }
  if (most == 0) return true;
  told.resize(most);
  std::vector<observe::ToldArrival> all(ranks * most);
  std::vector<observe::CallSite> all_sites(ranks * kMostSites);
  if (s.host.world_allgather(told.data(), all.data(), most * sizeof told[0]) != host::kSuccess ||
      s.host.world_allgather(sites.data(), all_sites.data(), kMostSites * sizeof sites[0]) !=
          host::kSuccess) {
    return false;
  }
  if (facts.rank == 0) {
    facts.arrivals =
        observe::arrival_table(observe::join_arrivals(all, all_sites, nodes_of(s)), error_ns);
  }
  return true;
}

std::string own_arrivals(const RankState& s, const CommonClock& clock) {
  const char* const* const names = observe::timed_call_names();
  if (names == nullptr) return {};
  const std::vector<observe::ArrivalStream> streams = observe::all_arrivals();
  if (streams.empty()) return {};
  const std::vector<observe::CallSite> sites = observe::arrival_sites(streams, names);
  const int node = nodes_of(s)[static_cast<std::size_t>(s.host.world_rank)];
  return observe::arrival_json(observe::tell_arrivals(streams, sites, names, clock), sites,
                               {node, clock.error_ns()});
}

}  // namespace od
