// Whether anything of this rank's is under way that needs its progress: its own requests, or other
// ranks.
#ifndef OVERDRIVE_ENGINE_PENDING_WORK_H_
#define OVERDRIVE_ENGINE_PENDING_WORK_H_

#include "engine/rank_state.h"

namespace od {

// Under the rank's lock, where there is one (RankState::locking).
inline bool work_pending(const RankState& s) {
  return s.transport != nullptr &&
         (s.transport->streams_active() || s.matching.posted_count() != 0 ||
          !s.collectives.active.empty() || s.host_traffic_pending());
}

}  // namespace od

#endif  // OVERDRIVE_ENGINE_PENDING_WORK_H_
