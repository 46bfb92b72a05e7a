// Registers communicators made by MPI_Comm_idup once their request is complete.
#include "face/pending_idups.h"

#include <algorithm>

#include "face/state.h"

namespace od::face {

namespace {
// Open MPI leaves a null pointer, which is not its null communicator, until the request completes.
bool is_known(MPI_Comm comm) { return comm != abi::comm_null() && abi::to_handle(comm) != 0; }
}  // namespace

void PendingIdups::add(MPI_Request request, MPI_Comm* location, Comm& parent,
                       std::uint64_t sequence) {
  std::uint64_t id;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    id = ++last_id_;
    entries_.push_back({id, *location, location, &parent, sequence, false});
  }
  state.watched.add(request, [this, id](Rank& rank) { completed(rank, id); });
}

void PendingIdups::completed(Rank& rank, std::uint64_t id) {
  Entry entry;
  bool free_parent = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.id == id; });
    if (found == entries_.end()) return;
    entry = *found;
    entries_.erase(found);
    if (entry.free_parent) {
      // The last one that needs the parent lets it go.
      const auto next = std::find_if(entries_.begin(), entries_.end(),
                                     [&](const Entry& e) { return e.parent == entry.parent; });
      free_parent = next == entries_.end();
    }
  }
  // Fortran bindings hand over a local variable: look there only if the host has not told at the
  // call.
  const MPI_Comm comm = is_known(entry.handle) ? entry.handle : *entry.location;
  if (is_known(comm)) {
    const host::Handle handle = abi::to_handle(comm);
    Comm* served = rank.comm_created_at(*entry.parent, handle, entry.sequence);
    register_comm(handle, served);
  }
  if (free_parent) rank.comm_freed(*entry.parent);
}

bool PendingIdups::defer_free(Comm& parent) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool deferred = false;
  for (Entry& entry : entries_) {
    if (entry.parent == &parent) {
      entry.free_parent = true;
      deferred = true;
    }
  }
  return deferred;
}

}  // namespace od::face
