// Waiting for others of the node inside a blocking collective, where ranks share cores.
#ifndef OVERDRIVE_ENGINE_SHARED_CORE_LOOKS_H_
#define OVERDRIVE_ENGINE_SHARED_CORE_LOOKS_H_

#include <atomic>
#include <cstdint>

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
    const node::PeerWatch::Seen seen = peer_.look(away, state_.wait_plan.peer_spin_ns);
    if (seen == node::PeerWatch::Seen::look_again) return true;
    if (seen == node::PeerWatch::Seen::away) ++state_.counters.yields_peer_away;
    if (--left_ < 0) return false;
    state_.transport->progress();
    ++state_.counters.yields;
    node::yield_once({&state_.header->away, nullptr});
    return true;
  }

  RankState& state_;
  int left_ = kSharedCoreYields;
  node::PeerWatch peer_;
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_SHARED_CORE_LOOKS_H_
