// Waiting for others of the node inside a blocking collective, where ranks share cores.
#ifndef OVERDRIVE_ENGINE_SHARED_CORE_LOOKS_H_
#define OVERDRIVE_ENGINE_SHARED_CORE_LOOKS_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/pause.h"
#include "coll/run/operation.h"
#include "engine/rank_state.h"
#include "node/wait.h"

namespace od {

// How often a rank that shares its core gives it away in a collective before it waits for that
// along with everything else.
inline constexpr int kSharedCoreYields = 16;

// What such a rank does while it waits for others of its node: as in a WaitLoop, it gives its core
// away when whom it waits for has done so, and otherwise after the time of a switch. Nothing else
// waits here, so it holds what is locked.
class SharedCoreLooks {
 public:
  explicit SharedCoreLooks(RankState& state) : state_(state) {}

  bool allowed() const {
    return state_.wait_plan.peer_spin_ns != 0 && !state_.locking && !state_.notes.any() &&
           state_.collectives.active.empty() && !state_.host_traffic_pending();
  }
  // Until the operation is over, waits for something else than a member of the node, or takes long.
  void wait_for(CollectiveOp& op) {
    while (!op.done()) {
      const std::atomic<std::uint32_t>* const away = op.awaited_member();
      if (away == nullptr || !again(*away)) return;
      if (op.advance()) left_ = kSharedCoreYields;
    }
  }
  static bool again_of(void* context, const std::atomic<std::uint32_t>& away) {
    return static_cast<SharedCoreLooks*>(context)->again(away);
  }

 private:
  bool again(const std::atomic<std::uint32_t>& away) {
    // Acquire: pairs with the release in Presence::tell_away. What it showed before it went is seen
    // by the next look.
    if (away.load(std::memory_order_acquire) == 0) {
      looked_again_ = false;
      const std::uint64_t now = now_ns();
      if (runs_since_ns_ == 0) runs_since_ns_ = now;
      if (now - runs_since_ns_ < state_.wait_plan.peer_spin_ns) {
        pause_processor();
        return true;
      }
    } else if (!looked_again_) {
      looked_again_ = true;
      return true;
    } else {
      ++state_.counters.yields_peer_away;
    }
    runs_since_ns_ = 0;
    looked_again_ = false;
    if (--left_ < 0) return false;
    state_.transport->progress();
    ++state_.counters.yields;
    node::yield_once({&state_.header->away, nullptr});
    return true;
  }

  RankState& state_;
  int left_ = kSharedCoreYields;
  std::uint64_t runs_since_ns_ = 0;
  bool looked_again_ = false;
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_SHARED_CORE_LOOKS_H_
