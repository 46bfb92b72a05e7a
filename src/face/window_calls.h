// Synchronisation of windows (MPI_Win_flush and its kin), of which programs make millions, and
// which takes the host some ten nanoseconds where there is nothing to wait for.
//
// Where nothing of ours is pending and one thread at a time is inside MPI, the call is the host's
// own, without a mark, as MPI_Put is: nothing_to_look_after() is a few loads in the entry itself,
// whose last step is then a jump. Otherwise synchronising_host_call() follows (host_call_scope.h).
//
// What a host does inside of these calls does not come back to us, but for files: hosts go on with
// those in whatever call makes progress, by functions of MPI. So once the program has called a
// function of files (host_has_files) there is a mark.
#ifndef OVERDRIVE_SRC_FACE_WINDOW_CALLS_H_
#define OVERDRIVE_SRC_FACE_WINDOW_CALLS_H_

#include <atomic>

#include "engine/pending_work.h"
#include "face/state.h"

namespace od::face {

// Relaxed: who depends on it has returned from the call that set it.
inline std::atomic<bool> host_has_files{false};

// No lock: what is looked at changes in calls of the one thread that makes this one, unless
// `locking` is set.
inline bool nothing_to_look_after() {
  if (InHostCall()) return true;
  if (host_has_files.load(std::memory_order_relaxed)) return false;
  Rank* const rank = any_rank();
  if (rank == nullptr) return true;
  const RankState& s = rank->state();
  return !s.locking && !work_pending(s);
}

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_WINDOW_CALLS_H_
