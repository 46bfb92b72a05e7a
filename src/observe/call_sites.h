// Where MPI calls stand in the program, in words: module and offset, function and line.
//
// Addresses differ from rank to rank, offsets in a module do not: by them the sites of all ranks
// are joined. Function and line come from addr2line, where it is installed and the program has what
// it needs, asked once for each module on one rank.
#ifndef OVERDRIVE_OBSERVE_CALL_SITES_H_
#define OVERDRIVE_OBSERVE_CALL_SITES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "observe/call_times.h"

namespace od::observe {

// A call site of one rank, or of several, which travels between ranks as plain bytes.
struct CallSite {
  char function[40] = "";    // "MPI_Send"
  char module[56] = "";      // file name without its folder; empty: places without room in a table
  std::uint64_t offset = 0;  // of the return address, as the file counts
  std::uint64_t calls = 0;   // 0: no site
  std::uint64_t ns = 0;
  std::uint64_t longest_ns = 0;
  std::uintptr_t address = 0;  // in the process that has called
};

// The place of a call of this process.
CallSite site_of(const char* function, std::uintptr_t address);

// The calls of this process; those that took longest come first. `names` are the functions' by
// their number.
std::vector<CallSite> call_sites(std::span<const CallTime> times, const char* const* names);

// Adds sites of several ranks; those that took longest come first.
std::vector<CallSite> join_sites(std::span<const CallSite> all);

// "solve at solver.c:42 (app+0x1234)" for each site, as far as that can be found out within a few
// seconds.
std::vector<std::string> describe_sites(std::span<const CallSite> sites);

// What a rank spends in MPI.
struct RankTime {
  std::uint64_t mpi_ns = 0;
  std::uint64_t elapsed_ns = 0;
};

// Lines for the statistics; empty if nothing was timed.
std::string call_table(std::span<const RankTime> ranks, std::span<const CallSite> sites);

// The sites as a JSON array, for the file of a rank; `places` describe the first ones in words.
std::string call_json(std::span<const CallSite> sites, std::span<const std::string> places = {});

}  // namespace od::observe

#endif  // OVERDRIVE_OBSERVE_CALL_SITES_H_
