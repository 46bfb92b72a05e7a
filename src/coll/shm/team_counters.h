// How often which way was taken; one team's, for tests and statistics.
#ifndef OVERDRIVE_COLL_SHM_TEAM_COUNTERS_H_
#define OVERDRIVE_COLL_SHM_TEAM_COUNTERS_H_

#include <cstdint>

namespace od::coll::shm {

struct TeamCounters {
  std::uint64_t operations = 0;
  std::uint64_t exchanges = 0;
  std::uint64_t lines = 0;          // operations of a line, served without an exchange's state
  std::uint64_t shown_payload = 0;  // in the post itself
  std::uint64_t shown_cells = 0;
  std::uint64_t shown_direct = 0;
  std::uint64_t shown_message = 0;  // announced, and sent as a message
  std::uint64_t cell_bytes = 0;     // copied into cells
  std::uint64_t direct_bytes = 0;   // read in the buffers of others
  std::uint64_t in_groups = 0;      // reductions that groups made first, each for itself
  std::uint64_t full_waits = 0;     // an exchange had to wait for room in lanes or ring
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_TEAM_COUNTERS_H_
