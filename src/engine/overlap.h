// Blocking collectives that go on after their call has returned (setting `overlap`).
//
// One operation of a rank at a time. The call returns when all that lies on pages which cannot be
// guarded has arrived; what is sent has been copied aside. The rest is written behind guarded pages
// (memory/guard, memory/shadow.h), moved by the agent. The next call of MPI that may touch memory
// or messages takes the rank back from the agent and completes the operation before it begins: so
// nothing can meet, and neither the engine nor the host sees two things at once that the program
// has ordered.
//
// Whether a call takes this way at all follows from what is equal on all ranks. Whether it returns
// early is each rank's own business.
#ifndef OVERDRIVE_ENGINE_OVERLAP_H_
#define OVERDRIVE_ENGINE_OVERLAP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "coll/run/call.h"
#include "coll/run/operation.h"
#include "engine/overlap_agent.h"
#include "memory/guard/guard_service.h"
#include "overlap/pages.h"
#include "overlap/plan.h"

namespace od {

class Rank;
class RankState;

class Overlap final : public StepWatcher, public AgentWork {
 public:
  // `may_fly`: the program's calls come from one thread at a time, and the host knows that it may
  // not be the same thread always.
  Overlap(Rank& rank, bool may_fly);
  ~Overlap();

  // Whether a call takes this way, which all ranks answer alike.
  bool suits(const CollectiveCall& call, const Comm& comm) const;
  // Serves it, and returns when the program may go on. An error of the operation before it counts.
  int serve(const CollectiveCall& call, Comm& comm, const coll::Decision& decision);
  // Completes what is under way. With `abandon` it is left alone, and all memory opened.
  void settle(bool abandon);
  // At the end: no more flights, and counters are up to date.
  void finish();
  // Why calls do not return early here; null: they do.
  const char* why_not() const { return why_not_; }

  void step_done(std::uint32_t step) override;
  bool agent_round(bool* moved) override;
  void agent_starts() override;

 private:
  bool set_up();
  bool fits(const CollectiveCall& call, const Comm& comm) const;
  overlap::Plan plan(const CollectiveCall& call, const Comm& comm) const;
  bool place_pages(CollectiveOp& op, const CollectiveCall& call, const Comm& comm);
  void wait_for(CollectiveOp& op, bool early_only);
  bool take_off(CollectiveOp& op);
  std::uint64_t waited_at_guards_ns() const;
  void land();
  void at_exit();

  Rank& rank_;
  RankState& state_;
  const char* why_not_ = nullptr;
  const memory::GuardService* service_ = nullptr;
  memory::GuardClient client_;
  OverlapAgent agent_{*this};
  bool is_set_up_ = false;
  int process_ = 0;  // a forked child is not a rank

  overlap::Plan plan_;
  overlap::Pages pages_;
  bool watched_ = false;            // steps touch guarded pages
  CollectiveOp* flying_ = nullptr;  // whose call has returned
  int late_error_ = 0;
  std::uint64_t last_check_ns_ = 0;
  std::uint64_t took_off_ns_ = 0;
  std::uint64_t waited_before_ns_ = 0;  // at guards, until then
  // Since when the program waits for the end of it. Relaxed: what it measures does not need more.
  std::atomic<std::uint64_t> settling_since_ns_{0};
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_OVERLAP_H_
