// What all collectives of a rank share: the rules of selection, where every rank of the job lives,
// and the operations under way.
#ifndef OVERDRIVE_COLL_RUN_COLLECTIVES_H_
#define OVERDRIVE_COLL_RUN_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "coll/plan/select/learnt.h"
#include "coll/plan/select/selection.h"
#include "coll/run/collective_stats.h"
#include "coll/run/communicator.h"
#include "coll/run/in_network.h"
#include "coll/run/operation.h"
#include "coll/run/step_log.h"
#include "coll/shm/slots.h"
#include "coll/shm/tuning.h"
#include "p2p/endpoint.h"
#include "topology/cache_claim.h"

namespace od {

// Used under the rank's lock, like the endpoint.
class Collectives {
 public:
  explicit Collectives(p2p::Endpoint& endpoint_in) : endpoint(endpoint_in) {}

  p2p::Endpoint& endpoint;  // which outlives it
  // The same on all ranks of the job: whether anything can be ours, and whether blocking calls can.
  bool enabled = false;
  bool serves_blocking = false;
  coll::Selection selection;
  // What communicators have learnt, for the next run; only on rank 0, null where it is not kept.
  std::unique_ptr<coll::LearntChoices> learnt;
  bool learnt_refused = false;  // there was nothing to begin with, or somebody has been told why
  // Node of each rank of MPI_COMM_WORLD, by its lowest world rank; empty: all are on one node.
  std::vector<int> node_of_world;
  HostTags tags;  // of messages through the host
  // Whether non-blocking and persistent calls may be served between nodes: asked for, and somebody
  // calls the host for them even while the program is inside it, on every rank of the job.
  bool later_between = false;

  std::unique_ptr<coll::shm::Slots> slots;  // of the own region; null: no shared memory
  coll::shm::Tuning tuning;
  topology::CacheClaim cache;  // where this rank works

  SwitchPlace switch_place;  // the same on all ranks of the job but for own addresses
  int switch_failures = 0;   // to make a group, in a row
  int switch_groups = 0;     // that this rank leads
  bool only_switch = false;  // no node has two ranks: nothing but a switch is of use
  RetiredEndpoints retired;

  bool timed = false;  // statistics are wanted
  CollectiveStats stats;
  std::unique_ptr<StepLog> step_log;  // null: not wanted

  // What is looked at in each round. Operations that a team does as a whole and that cannot move
  // before older ones are over wait there (CollectiveTeam::enters).
  std::vector<CollectiveOp*> active;
  // What goes on after its call has returned.
  void add_active(CollectiveOp& op) {
    active.push_back(&op);
    endpoint.requests.at_rest().disturb();
  }
  // How many of these do not block and have messages in the host.
  int active_between = 0;
  // Called when one of these has been started; null: nobody wants to know.
  void (*started_between)(p2p::Endpoint& endpoint) = nullptr;
  std::vector<std::unique_ptr<CollectiveOp>> idle;

  // Whether an operation would move that stood still.
  bool anything_ready() const {
    const CollectiveTeam* asked = nullptr;
    for (const CollectiveOp* op : active) {
      if (op->arrival_ready()) return true;
      const CollectiveTeam* const team = op->team();
      if (team == nullptr || team == asked) continue;
      if (team->anything_ready()) return true;
      asked = team;
    }
    return false;
  }

  // What the communicator's collectives need; made at the first of them.
  CollectiveComm& comm_state(Comm& comm);
  // How a call runs, alike on all ranks; false: the host serves it. With `trial`, which only
  // blocking calls have, it may be the turn of the host or of another algorithm; the caller tells
  // the trial how long it took.
  bool decide(const CollectiveCall& call, Comm& comm, coll::Decision* decision,
              Contest** trial = nullptr);
  // The measurement of a call that a switch may serve; null: there is none.
  Contest* switch_trial(const CollectiveCall& call, Comm& comm);
  // What is to be done about the switch before a call; the same on all ranks.
  enum class SwitchNeed : std::uint8_t { nothing, group, sockets, check };
  SwitchNeed switch_need(const CollectiveCall& call, Comm& comm);
  // Whether the switch is to do the communicator's next call that does not block; counts it.
  bool switched_later(const CollectiveCall& call, Comm& comm);
  // Whether a neighbourhood collective is served, alike on all ranks.
  bool serves_neighbours(const CollectiveCall& call, Comm& comm);
  // Whether one that blocks is, where that is faster than what the host does.
  bool measures_neighbours(const CollectiveCall& call, Comm& comm);
  // By the switch, whatever the rules say.
  coll::Decision switch_decision(coll::Collective collective, const CollectiveComm& own) const {
    return selection.complete(*coll::find_algorithm(collective, "in_network_node"),
                              coll::Mode::kAuto, {}, own.layout(), true);
  }
  // The context of the messages of the next call on a communicator. Blocking calls and others have
  // their own, as they do not match each other: hosts accept that ranks call them in different
  // orders, and there are programs that do.
  static std::uint64_t next_context(Comm& comm);
  static std::uint64_t next_context_without_blocking(Comm& comm);
  // The team of a communicator's blocking calls, and that of its non-blocking ones, which are made
  // when the first of them needs it; null: they go without.
  CollectiveTeam* blocking_team(Comm& comm, const coll::Decision& decision);
  CollectiveTeam* team_without_blocking(Comm& comm, const coll::Decision& decision);
  // Whether the call was so short that it is done. Not where calls are timed: statistics want to
  // know when all ranks were called.
  bool serve_at_once(const CollectiveCall& call, const Comm& comm, CollectiveTeam* team,
                     const coll::Decision& decision, coll::shm::Patience patience);
  // Whether calls on the communicator are measured against the host's.
  bool learns(const CollectiveComm& own) const {
    const config::LearnMode learn = endpoint.settings.learn;
    return learn == config::LearnMode::kOn ||
           (learn == config::LearnMode::kNodes && own.spans_nodes());
  }
  // Where it is looked when ranks come to calls like this; null: nowhere.
  ArrivalChoice* arrivals_of(const CollectiveCall& call, Comm& comm);
  // Whether whoever comes first begins the call, or whoever comes last ends it, as far as the
  // decision goes; then the communicator's `arrival` has to be made before it starts.
  static bool starts_with_first(const CollectiveCall& call, const Comm& comm,
                                const coll::Decision& decision) {
    return comm.collectives->spans_nodes() && od::starts_with_first(decision) &&
           (coll::info(call.collective).counts_are_local() ||
            message_bytes(call, comm.size, comm.rank) > 0);
  }
  static bool unprepared(const CollectiveCall& call, const Comm& comm,
                         const coll::Decision& decision) {
    return starts_with_first(call, comm, decision) && comm.collectives->arrival == nullptr;
  }
  // By what a call's messages and exchanges are told from those of others.
  struct Lane {
    std::uint64_t context = 0;
    CollectiveTeam* team = nullptr;
    std::int32_t first_tag = 0;      // of messages between nodes
    HostChannel* channel = nullptr;  // in which it waits for its turn; null: it begins at once
  };
  // The lane of the next non-blocking call on a communicator that spans nodes.
  Lane next_channel(const CollectiveCall& call, Comm& comm, const coll::Decision& decision);
  // Starts a call; `call` outlives it. Whoever asked advances it until it is done, and then calls
  // leave_channel().
  int start(CollectiveOp& op, const CollectiveCall& call, Comm& comm,
            const coll::Decision& decision, const Lane& lane);
  // The second half, when the ranks of the node are ready.
  int launch(CollectiveOp& op, CollectiveTeam* team);
  // What is done makes room for the next one in its channel, which begins now.
  void leave_channel(CollectiveOp& op);
  // Whether a non-blocking or persistent call on a communicator that spans nodes can be ours, alike
  // on all ranks: long ones, for which the host's operation is not faster.
  bool serves_later(const CollectiveCall& call, const Comm& comm) const;
  // Of a call that has been prepared: starts it with a schedule of messages between all ranks.
  int start_with(CollectiveOp& op, std::shared_ptr<const coll::Schedule> schedule);
  // Of a call that does not block (op.kept): it is complete, or advance() completes it.
  int start_without_blocking(CollectiveOp& op, Comm& comm, const Lane& lane);
  // A persistent one is made, and started. False: the host serves it, on all ranks.
  bool prepare_persistent(CollectiveOp& op, Comm& comm);
  int restart(Request& request);
  // Whether operations that do not block are under way on a communicator that spans nodes.
  bool any_between(const Comm& comm) const;
  // Moves what is under way; without_host leaves out what may call the host.
  bool advance(bool without_host);
  // Whether the host has to be asked for what is under way and does not block.
  bool waits_for_host() const { return active_between != 0; }

  // An operation, owned by whoever asked until it is given back.
  CollectiveOp* take() {
    if (idle.empty()) return new CollectiveOp;
    CollectiveOp* const op = idle.back().release();
    idle.pop_back();
    return op;
  }
  void give_back(CollectiveOp* op) {
    op->release();
    // Enough for programs that keep several under way; each may hold a megabyte.
    constexpr std::size_t kKeep = 8;
    std::unique_ptr<CollectiveOp> owned(op);
    if (idle.size() < kKeep) idle.push_back(std::move(owned));
  }

 private:
  bool decide_neighbours(const CollectiveCall& call, Comm& comm, coll::Decision* decision,
                         Contest** trial);
  int begin(CollectiveOp& op, CollectiveTeam* team);
  bool may_be_switched(std::uint64_t bytes) const {
    const std::uint64_t most = endpoint.settings.switch_max_bytes;
    return most != 0 && bytes <= most;
  }
  // Whether the switch competes for a call, about which no rule says anything.
  bool switch_competes(const CollectiveComm& own, const CollectiveCall& call,
                       std::uint64_t bytes) const;
  CollectiveTeam* make_team(std::unique_ptr<CollectiveTeam>& team, Comm& comm,
                            const coll::Decision& decision, std::uint64_t context,
                            std::uint32_t spare_share);
  CollectiveOp::Way way_of(const CollectiveOp::Task& task) const;
  void complete(CollectiveOp& op);
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_COLLECTIVES_H_
