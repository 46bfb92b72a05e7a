// What all collectives of a rank share: the rules of selection, where every rank of the job lives,
// and the operations under way.
#ifndef OVERDRIVE_COLL_RUN_COLLECTIVES_H_
#define OVERDRIVE_COLL_RUN_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "coll/plan/select/selection.h"
#include "coll/run/collective_stats.h"
#include "coll/run/communicator.h"
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
  bool enabled = false;     // the same on all ranks of the job
  coll::Selection selection;
  // Node of each rank of MPI_COMM_WORLD, by its lowest world rank; empty: all are on one node.
  std::vector<int> node_of_world;
  std::int32_t tag_mask = 0x7fff;  // of messages through the host

  std::unique_ptr<coll::shm::Slots> slots;  // of the own region; null: no shared memory
  coll::shm::Tuning tuning;
  topology::CacheClaim cache;  // where this rank works

  bool timed = false;  // statistics are wanted
  CollectiveStats stats;
  std::unique_ptr<StepLog> step_log;  // null: not wanted

  std::vector<CollectiveOp*> active;
  std::vector<std::unique_ptr<CollectiveOp>> idle;

  // Whether an operation would move that stood still.
  bool anything_ready() const {
    const CollectiveTeam* asked = nullptr;
    for (const CollectiveOp* op : active) {
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
  // blocking calls have, it may be the host's turn; the caller tells the trial how long it took.
  bool decide(const CollectiveCall& call, Comm& comm, coll::Decision* decision,
              Trial** trial = nullptr);
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
  // Whether whoever comes first begins the call, as far as the decision goes; then the
  // communicator's `arrival` has to be made before it starts.
  static bool starts_with_first(const CollectiveCall& call, const Comm& comm,
                                const coll::Decision& decision) {
    return od::starts_with_first(decision) && comm.collectives->spans_nodes() &&
           call.recv_count > 0 && call.recv_type->size > 0;
  }
  static bool unprepared(const CollectiveCall& call, const Comm& comm,
                         const coll::Decision& decision) {
    return starts_with_first(call, comm, decision) && comm.collectives->arrival == nullptr;
  }
  // Starts a call; `call` outlives it. Whoever asked advances it until it is done.
  int start(CollectiveOp& op, const CollectiveCall& call, Comm& comm,
            const coll::Decision& decision, std::uint64_t context, CollectiveTeam* team);
  // The second half, when the ranks of the node are ready.
  int launch(CollectiveOp& op, CollectiveTeam* team);
  // Of a call that does not block (op.kept): it is complete, or advance() completes it.
  int start_without_blocking(CollectiveOp& op, Comm& comm, std::uint64_t context,
                             CollectiveTeam* team);
  // A persistent one is made, and started.
  void prepare_persistent(CollectiveOp& op, Comm& comm);
  int restart(Request& request);
  // Moves what is under way; without_host leaves out what may call the host.
  bool advance(bool without_host);

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
  void try_first_arrival(CollectiveComm& own, coll::Collective collective, std::uint64_t bytes,
                         coll::Decision* decision, Trial** trial);
  CollectiveTeam* make_team(std::unique_ptr<CollectiveTeam>& team, Comm& comm,
                            const coll::Decision& decision, std::uint64_t context,
                            std::uint32_t spare_share);
  void complete(CollectiveOp& op);
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_COLLECTIVES_H_
