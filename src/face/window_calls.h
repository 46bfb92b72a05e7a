// Synchronisation of windows (MPI_Win_flush and its kin), of which programs make millions, and
// which takes the host some ten nanoseconds where there is nothing to wait for.
//
// While the rank is known to have nothing under way (at_rest), the call is the host's own, without
// a mark, as MPI_Put is: the entry looks at that one word, and its last step is a jump. Otherwise
// synchronising_host_call() looks, and goes on as other calls that may block if there is anything.
//
// What a host does inside of these calls does not come back to us, but for files: hosts go on with
// those in whatever call makes progress, by functions of MPI. So once the program has called a
// function of files there is a mark, and the word stays false.
#ifndef OVERDRIVE_SRC_FACE_WINDOW_CALLS_H_
#define OVERDRIVE_SRC_FACE_WINDOW_CALLS_H_

#include <atomic>

#include "face/state.h"

namespace od::face {

// See p2p/at_rest.h; without a rank to serve it says that there is none.
inline std::atomic<bool> at_rest{false};

inline bool is_at_rest() { return at_rest.load(std::memory_order_relaxed); }

// Before every function of files.
inline void note_files() {
  if (Rank* const rank = any_rank()) rank->stays_awake();
}

// Whether nothing is pending; then the next calls need not look.
inline bool come_to_rest() {
  if (Rank* const rank = any_rank()) return rank->comes_to_rest();
  at_rest.store(true, std::memory_order_relaxed);
  return true;
}

// A call from inside the host is handed on. Without a note, because that the window exists says
// more.
template <typename Call>
inline auto synchronising_host_call(Call&& call) {
  if (InHostCall()) [[unlikely]]
    return call();
  if (!come_to_rest()) [[unlikely]] {
    const HostCallScope scope(HostCallKind::kRmaSync);
    return call();
  }
  struct Mark {
    Mark() { host_call_depth = 1; }
    ~Mark() { host_call_depth = 0; }  // see HostCallScope: nothing else can be found here
  };
  const Mark mark;
  return call();
}

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_WINDOW_CALLS_H_
