// One collective of the program under way: runs a schedule over point-to-point messages.
//
// Messages between ranks that share memory take our own transport, in a context of their own per
// call, so that nothing can meet; others take the host's point-to-point on a hidden communicator.
// There the tag is the call's first one (host_tags.h) plus the message's ordinal.
//
// prepare(), begin() one way or the other, then advance() until done(). Used under the rank's lock;
// done() may be asked without. An operation of a channel (host_channel.h) begins when it is the
// first there.
#ifndef OVERDRIVE_COLL_RUN_OPERATION_H_
#define OVERDRIVE_COLL_RUN_OPERATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coll/plan/schedule.h"
#include "coll/plan/select/selection.h"
#include "coll/run/arrival_call.h"
#include "coll/run/buffers.h"
#include "coll/run/call.h"
#include "coll/run/first_messages.h"
#include "coll/run/host_channel.h"
#include "coll/run/step_log.h"
#include "coll/run/team.h"
#include "host/host_table.h"
#include "p2p/comm.h"
#include "p2p/request.h"

namespace od {

class Collectives;
class InNetwork;

// Wants to know which steps of an operation are complete.
class StepWatcher {
 public:
  virtual void step_done(std::uint32_t step) = 0;

 protected:
  ~StepWatcher() = default;
};

class CollectiveOp {
 public:
  // Where messages between nodes go.
  struct Way {
    host::Handle host_comm = 0;  // of messages to ranks that are not local; 0: all are
    std::int32_t first_tag = 0;  // of those
  };

  // What the call is; it and the communicator outlive the operation.
  struct Task {
    const CollectiveCall* call = nullptr;
    Comm* comm = nullptr;
    coll::Decision decision;
    std::uint64_t context = 0;
    std::int32_t first_tag = 0;  // of messages through the host
    std::uint64_t bytes = 0;     // message size, for statistics
    bool aside = false;          // CollectiveBuffers::begin()
  };
  // Prepares the buffers. Returns a host error code; then nothing has started.
  int prepare(Collectives& owner, const Task& task);
  // Waits until the team knows its members, which then calls launch().
  void wait_for(CollectiveTeam& team) {
    team_ = &team;
    team.launch_later(*this);
  }
  // Waits until it is the first in its channel, which it has to leave when it is done. Its team is
  // the one that the channel had when it was called, which is the same on all ranks.
  void wait_for(HostChannel& channel, CollectiveTeam* team) {
    channel_ = &channel;
    channel_team_ = team;
  }
  CollectiveTeam* channel_team() const { return channel_team_; }
  HostChannel* channel() const { return channel_; }
  void left_channel() { channel_ = nullptr; }
  // Goes on by Collectives::launch().
  void launch();
  // Could not be begun.
  void fail(int error) {
    note(error);
    done_ = true;
  }
  // Starts with a schedule; `team` does its steps of kind kNode.
  int begin(const Way& way, std::shared_ptr<const coll::Schedule> schedule,
            std::int64_t units_per_unit, CollectiveTeam* team);
  // From prepare() to the end; null: nobody.
  void watch(StepWatcher* watcher) { watcher_ = watcher; }
  // Between prepare() and begin().
  void expect(FirstMessages firsts) { firsts_ = std::move(firsts); }
  // Starts as one operation of the team.
  void begin_whole(CollectiveTeam& team);
  // Starts as a call that whoever comes first begins, or whoever comes last ends.
  void begin_arrival(ArrivalComm& shared);
  // One round; true if anything moved. Never blocks. Where the host may not be called the operation
  // does for the other ranks what there is to do, and is not done before its result is unpacked.
  bool advance(bool without_host = false);
  // The same without the team's part.
  bool settle(bool without_host);
  // The team that does something for it; null: none.
  CollectiveTeam* team() const { return done_ ? nullptr : team_; }
  // The same where the team does all of it and Collectives looks at the oldest of these only.
  CollectiveTeam* whole_team() const { return whole_ ? team_ : nullptr; }
  bool entered = false;  // it is among them
  bool done() const { return done_; }
  int error() const { return error_; }
  // In the owner's log of steps, if that is kept.
  std::uint64_t log_number() const { return log_number_; }
  // Whether its steps call the host.
  bool steps_need_host() const { return way_.host_comm != 0 || buffers_.computes_in_host(); }
  // After done(): forgets everything that belongs to the call.
  void release();

  // Whether a call that starts with whoever comes first, or ends with the last, would move.
  bool arrival_ready() const { return arrival_ != nullptr && arrival_->anything_ready(); }

  // As Team::awaited_member().
  const std::atomic<std::uint32_t>* awaited_member() const {
    return team_ != nullptr && !waits_for_team() ? team_->team().awaited_member() : nullptr;
  }

  // What it is and what it waits for, for reports.
  std::string describe() const;

  const Task& task() const { return task_; }
  CollectiveBuffers& buffers() { return buffers_; }

  // Of a call that does not block: its request, arguments, and what was chosen for it.
  Request* request = nullptr;
  bool switched_later = false;  // all ranks have decided that the switch serves it
  std::unique_ptr<CollectiveCall> kept;
  std::unique_ptr<CollectiveTeam> own_team;  // of a persistent one
  coll::Decision decision;
  std::uint64_t last_context = 0;  // of a persistent one: that of its last start
  std::int32_t first_tag = 0;      // likewise

 private:
  // Of a message that no step has expected.
  static constexpr std::uint32_t kNoStep = ~0u;

  // A message on its way.
  struct Pending {
    Request* request;  // local; null: the host's, or the team's
    host::Handle host_request;
    TeamWork* work;
    std::uint32_t step;
    bool over = false;  // of the host's: it said so in `status`
    host::Status status{};

    bool is_hosts() const { return request == nullptr && work == nullptr && host_request != 0; }
  };

  bool waits_for_channel() const { return channel_ != nullptr && channel_->line.front() != this; }
  bool waits_for_team() const {
    return team_ != nullptr && team_->phase() == CollectiveTeam::Phase::joining;
  }
  void start(std::uint32_t step);
  void start_elsewhere(std::uint32_t step);
  void start_message(std::uint32_t step);
  // Its three ways, once it is known what there is to send or receive.
  void start_in_host(std::uint32_t step, char* address, std::int64_t units);
  std::int32_t tag_of(std::uint32_t ordinal) const {
    return way_.first_tag + static_cast<std::int32_t>(ordinal & (coll::kMostOrdinals - 1));
  }
  void send(std::uint32_t step, char* address, std::int64_t units);
  void receive(std::uint32_t step, char* address, std::int64_t units);
  // Null if there is no memory; then the step is done with that error.
  Request* new_message(RequestKind kind, std::uint32_t step, char* address, std::int64_t units);
  TeamWork* take_work();
  void test_in_host();
  bool finished(Pending& pending);
  // How long a message may be that the step receives.
  std::int64_t room_bytes(std::uint32_t step, std::int64_t bytes) const;
  // A block comes in another number of messages than was expected.
  void follow_sender(std::uint32_t step, std::uint32_t told);
  void recall(Pending& pending);
  // A step is done; the schedule goes on.
  void complete(std::uint32_t step);
  void note(int error);
  void finish();
  void begin_log(StepLog& log);
  void count();

  Collectives* owner_ = nullptr;
  Task task_;
  Way way_;
  StepWatcher* watcher_ = nullptr;
  CollectiveTeam* team_ = nullptr;
  HostChannel* channel_ = nullptr;
  CollectiveTeam* channel_team_ = nullptr;
  bool whole_ = false;                    // one operation of the team, no schedule
  std::unique_ptr<ArrivalCall> arrival_;  // instead of a schedule; null: none
  InNetwork* outside_ = nullptr;          // what does steps of kind kElsewhere; null: nothing
  bool served_elsewhere_ = false;
  std::vector<std::unique_ptr<TeamWork>> works_;
  std::size_t works_used_ = 0;
  CollectiveBuffers buffers_;
  std::shared_ptr<const coll::Schedule> schedule_;
  FirstMessages firsts_;
  MessageBin bin_;
  coll::Run run_;
  std::vector<Pending> pending_;
  std::uint64_t started_ns_ = 0;  // 0: not timed
  StepLog* log_ = nullptr;        // null: steps are not recorded
  std::uint64_t log_number_ = 0;
  std::vector<std::uint64_t> begun_ns_;  // of each step, for the log
  int error_ = host::kSuccess;
  Completion done_;
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_OPERATION_H_
