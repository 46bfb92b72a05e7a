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
//
// Calls are noted by the place from which they are made: how long they take, and when the program
// touches what it got. A traced call completes before it returns; then its pages are closed, just
// to see when they are touched. A call that is measured only is followed by nothing but a look at
// the clock when the next call of MPI begins.
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
#include "overlap/automatic.h"
#include "overlap/call_site.h"
#include "overlap/pages.h"
#include "overlap/plan.h"
#include "overlap/trace.h"

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
  // What decides about it; null: nothing does, all calls go alike.
  overlap::Automatic* automatic(const CollectiveCall& call, Comm& comm) const;
  overlap::Automatic::Turn fixed_turn() const;
  // Serves it, and returns when the program may go on. An error of the operation before it counts.
  int serve(const CollectiveCall& call, Comm& comm, const coll::Decision& decision,
            overlap::Automatic::Turn turn);
  // Of a call that is served as usual, by whoever it is.
  void call_begins(const CollectiveCall& call, const Comm& comm, overlap::Automatic* automatic);
  bool awaits_return() const { return call_.awaits_return; }
  void call_returned();
  void forget_return() {
    if (call_.awaits_return) call_.awaits_return = false;
  }
  // Completes what is under way. With `abandon` it is left alone, and all memory opened.
  void settle(bool abandon);
  // At the end: no more flights, and counters are up to date.
  void finish();
  const std::vector<overlap::SiteRecord>& records() const { return sites_.records(); }
  // Why calls do not return early here; null: they do.
  const char* why_not() const { return why_not_; }

  void step_done(std::uint32_t step) override;
  bool agent_round(bool* moved) override;
  void agent_starts() override;

 private:
  bool set_up();
  bool fits(const CollectiveCall& call, const Comm& comm) const;
  overlap::Plan plan(const CollectiveCall& call, const Comm& comm,
                     const overlap::Order& order) const;
  const overlap::Order& order_of(const CollectiveCall& call, Comm& comm) const;
  bool place_pages(CollectiveOp& op, const CollectiveCall& call, const Comm& comm, bool watch);
  void wait_for(CollectiveOp& op, bool early_only);
  bool take_off(CollectiveOp& op);
  std::uint64_t waited_at_guards_ns() const;
  void land();
  void watch_touches();
  void watch_clock();
  void call_ends(std::uint64_t now_ns);
  void note_touches();
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
  std::size_t placed_ = 0;          // pieces that have pages
  CollectiveOp* flying_ = nullptr;  // whose call has returned

  // The last call that may overlap, until the next call of MPI.
  struct Call {
    overlap::SiteRecord* record = nullptr;  // null: there is none
    overlap::Automatic* automatic = nullptr;
    std::shared_ptr<void> keeps_automatic;  // its communicator may be freed meanwhile
    std::uint64_t began_ns = 0;
    std::uint64_t returned_ns = 0;
    std::uint64_t landed_ns = 0;
    std::uint64_t log_number = 0;
    int rank = 0;
    bool awaits_return = false;
    bool early = false;
    bool traced = false;
    bool guarded = false;  // the service has to end
  };
  Call call_;
  overlap::CallSites call_sites_;
  overlap::SiteTable sites_;
  overlap::Orders orders_;
  int late_error_ = 0;
  std::uint64_t last_check_ns_ = 0;
  std::uint64_t took_off_ns_ = 0;
  std::uint64_t waited_before_ns_ = 0;  // at guards, until then
  // Since when the program waits for the end of it. Relaxed: what it measures does not need more.
  std::atomic<std::uint64_t> settling_since_ns_{0};
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_OVERLAP_H_
