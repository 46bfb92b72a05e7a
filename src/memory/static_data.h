// Puts the writable static data of the program (.data, .bss, Fortran COMMON) into the reach file,
// in place: same addresses, same contents, other memory behind them.
//
// One range per writable segment, so that an array that begins in .data and ends in .bss is
// reachable as a whole; what the dynamic linker has made read-only is left out. To be called in
// MPI_Init before the installed MPI starts its threads: a write by another thread between copying
// and mapping would be lost, so nothing is converted while there is one. Signals are blocked
// meanwhile.
#ifndef OVERDRIVE_MEMORY_STATIC_DATA_H_
#define OVERDRIVE_MEMORY_STATIC_DATA_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memory/reach_service.h"

namespace od::memory {

// Writable static memory of one object, whole pages.
struct StaticRange {
  std::uintptr_t start = 0;
  std::uint64_t bytes = 0;
  std::uint64_t file_bytes = 0;  // from the start on; the rest is zero until it is written
  std::string object;            // path of the library; empty: the program
};

// Those of the program, and of loaded libraries whose file name begins with one of the words of
// `libraries` (separated by commas). Never the C library, the dynamic linker, an MPI library or
// ourselves.
std::vector<StaticRange> find_static_ranges(std::string_view libraries);

struct StaticResult {
  std::uint64_t bytes = 0;  // now reachable
  std::string why;          // of what is not; empty: nothing was left out
};

StaticResult share_static_data(const ReachService& service, std::string_view libraries);

// One range; false with a reason, and nothing has changed then.
bool share_static_range(const ReachService& service, const StaticRange& range, std::string* why);

// Threads of this process; 0 when that cannot be told.
int thread_count();

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_STATIC_DATA_H_
