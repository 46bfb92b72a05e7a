// Turns counters into what users read: one table for the job, or one JSON file per rank.
//
// The caller gathers; nothing here communicates. Typical use inside MPI_Finalize:
//   switch (stats_output(settings.stats)) {
//     case kTable: gather all ranks' Counters on rank 0, which prints stats_table(all, facts);
//     case kFile:  write_rank_file(settings.stats, rank, "statistics", stats_json(counters,
//     facts));
//   }
#ifndef OVERDRIVE_OBSERVE_STATS_H_
#define OVERDRIVE_OBSERVE_STATS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "observe/counters.h"

namespace od::observe {

enum class StatsOutput { kNone, kTable, kFile };

// What the `stats` setting asks for: truth words mean none or the table, anything else is a path.
StatsOutput stats_output(std::string_view setting);

// What is said about a job beside its counters.
struct JobFacts {
  int rank = 0;
  int size = 1;
  std::string version;       // of Overdrive
  std::string host_library;  // first line of the host's library version
  std::string host_name;     // node
  std::uint64_t elapsed_ns = 0;
  std::string collectives;  // more about collectives: lines for the table, or a JSON array
  std::string calls;        // the same about the program's MPI calls
  std::string overlap{};    // and about collectives that may outlast their calls
  std::string arrivals{};   // how far apart ranks came to collectives, likewise
  std::string recording{};  // a JSON object: what is recorded of the run (observe/recording.h)
  std::string cpus{};       // processors of the rank, as of then
  std::uint64_t peak_memory_bytes = 0;  // resident, of the process
  std::string why_not_shared{};         // why ranks of this node share no memory
  std::vector<std::string> crowding{};  // what is wrong with the places of the node's ranks
};

// Sum (largest value for peaks), smallest and largest over all ranks of every counter that is not 0
// everywhere, in groups; several lines, each ending in a line break.
std::string stats_table(std::span<const Counters> ranks, const JobFacts& facts);

// One JSON object with all counters of one rank.
std::string stats_json(const Counters& counters, const JobFacts& facts);

// The first line of what a library says about its version, words separated by one blank.
std::string title_of(std::string_view version);

// The `stats` path for a rank: "%r" becomes the rank, "%%" a percent sign; ".<rank>" is appended
// where the path has no "%r".
std::string stats_path(std::string_view setting, int rank);

// Writes text to standard error in one go (as far as the kernel allows).
void write_to_stderr(std::string_view text);

// Writes the file of a rank, whose path is made as above; an empty string, or why `what` could not
// be written.
std::string write_rank_file(std::string_view setting, int rank, std::string_view what,
                            const std::string& text);

}  // namespace od::observe

#endif  // OVERDRIVE_OBSERVE_STATS_H_
