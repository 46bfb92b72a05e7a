// What all collectives of a rank share: the rules of selection, where every rank of the job lives,
// and the operations under way.
#ifndef OVERDRIVE_COLL_RUN_COLLECTIVES_H_
#define OVERDRIVE_COLL_RUN_COLLECTIVES_H_

#include <algorithm>
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
#include "topology/cache_claim.h"

namespace od {

struct Collectives {
  bool enabled = false;  // the same on all ranks of the job
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
    return std::any_of(active.begin(), active.end(),
                       [](const CollectiveOp* op) { return op->anything_ready(); });
  }

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
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_COLLECTIVES_H_
