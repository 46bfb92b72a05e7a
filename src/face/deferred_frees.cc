// Frees communicators in the host once the engine has no more questions about them.
#include "face/deferred_frees.h"

#include <utility>

#include "face/state.h"

namespace od::face {

void DeferredFrees::add(MPI_Comm handle, Comm& comm) {
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.push_back({handle, &comm});
  count_.store(entries_.size(), std::memory_order_relaxed);
}

void DeferredFrees::sweep(bool all) {
  std::vector<Entry> ready;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Entry> waiting;
    for (const Entry& entry : entries_) {
      (all || entry.comm->host_candidates + entry.comm->host_persistent == 0 ? ready : waiting)
          .push_back(entry);
    }
    entries_ = std::move(waiting);
    count_.store(entries_.size(), std::memory_order_relaxed);
  }
  Rank* rank = any_rank();
  for (Entry& entry : ready) {
    {
      HostCallScope scope(HostCallKind::kCollective);
      OD_HOST(Comm_free)(&entry.handle);
    }
    if (rank != nullptr && !state.idups.defer_free(*entry.comm)) rank->comm_freed(*entry.comm);
  }
}

}  // namespace od::face
