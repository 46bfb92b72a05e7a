// How far apart the ranks came to the program's collective calls: joins what they have noted
// (arrivals.h), by the place of the call.
#ifndef OVERDRIVE_OBSERVE_ARRIVAL_SUMMARY_H_
#define OVERDRIVE_OBSERVE_ARRIVAL_SUMMARY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "observe/arrivals.h"
#include "observe/call_sites.h"

namespace od::observe {

// A call of one rank, which travels between ranks as plain bytes.
struct ToldArrival {
  std::uint64_t stream = 0;  // of the communicator
  std::uint64_t number = 0;  // of the call there
  std::int64_t ns = 0;       // on a clock that all ranks share
  std::uint32_t ranks = 0;   // of the communicator; 0: nothing
  std::uint32_t site = 0;    // its place in what the rank has told about sites
};

// The ranks of a place of calls: that of their lowest rank.
struct ArrivalSummary {
  // Calls by the time between first and last: below 10 us, 100 us, ... and above 100 ms.
  static constexpr std::size_t kClasses = 6;
  static constexpr const char* kClassNames[kClasses] = {"<10us", "<100us", "<1ms",
                                                        "<10ms", "<100ms", "more"};
  CallSite site;
  std::uint32_t ranks = 0;
  std::uint64_t calls = 0;
  std::uint64_t median_ns = 0;  // between the first and the last of all ranks
  std::uint64_t longest_ns = 0;
  std::uint64_t on_node_ns = 0;  // median of the longest on one node
  std::uint64_t nodes_ns = 0;    // median between the first ranks of nodes
  int last_rank = 0;             // which came last most often, by its number in the job
  std::uint64_t last_calls = 0;  // so often
  std::array<std::uint64_t, kClasses> classes{};
};

// `told` and `sites` have as many of each rank, in the order of ranks; `node_of_rank` names nodes
// by numbers. Calls that not all of their ranks have told are left out. Where most time was lost
// comes first.
std::vector<ArrivalSummary> join_arrivals(std::span<const ToldArrival> told,
                                          std::span<const CallSite> sites,
                                          std::span<const int> node_of_rank);

// Lines for the statistics; empty if there is nothing to tell. `clock_error_ns`: how wrong the
// comparison of nodes' clocks may be.
std::string arrival_table(std::span<const ArrivalSummary> places, std::uint64_t clock_error_ns);

// The places of this process's arrivals, each once, in the order of `sites`.
std::vector<CallSite> arrival_sites(std::span<const ArrivalStream> streams,
                                    const char* const* names);
// Where the call stands in them.
std::uint32_t find_site(std::span<const CallSite> sites, const Arrival& arrival,
                        const char* const* names);

// A rank's clock as far as it was compared.
struct ArrivalClock {
  int node = 0;
  std::uint64_t error_ns = 0;
};
// The file of a rank: `common` takes a time of this process to the clock that all share.
template <typename Common>
std::vector<ToldArrival> tell_arrivals(std::span<const ArrivalStream> streams,
                                       std::span<const CallSite> sites, const char* const* names,
                                       Common common) {
  std::vector<ToldArrival> told;
  for (const ArrivalStream& stream : streams) {
    for (const Arrival& each : stream.kept()) {
      told.push_back({stream.id(), each.number, common(each.ns), stream.ranks(),
                      find_site(sites, each, names)});
    }
  }
  return told;
}

// An object for the file of a rank; overdrive report and overdrive bench arrival join the ranks'.
std::string arrival_json(std::span<const ToldArrival> told, std::span<const CallSite> sites,
                         const ArrivalClock& clock);

}  // namespace od::observe

#endif  // OVERDRIVE_OBSERVE_ARRIVAL_SUMMARY_H_
