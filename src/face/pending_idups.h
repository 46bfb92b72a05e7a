// Communicators that MPI_Comm_idup has promised and whose request has not completed yet.
//
// The new communicator can be asked for its members only when the host's request is complete, but
// its context depends on the order of constructor calls on the parent, so the sequence number is
// taken at the call and the registration follows when a completion function sees the request become
// null.
#ifndef OVERDRIVE_SRC_FACE_PENDING_IDUPS_H_
#define OVERDRIVE_SRC_FACE_PENDING_IDUPS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "face/face_mpi.h"

namespace od {
class Comm;
class Rank;
}  // namespace od

namespace od::face {

class PendingIdups {
 public:
  // Cheap enough for every completion call. Relaxed: the caller's own request was added by the
  // caller's own program order or handed over with synchronisation by the program.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

  // `location` is where the program wants the handle; hosts may fill it at the call or at
  // completion.
  void add(MPI_Request request, MPI_Comm* location, Comm& parent, std::uint64_t sequence);
  // The entry of a request that the caller is about to complete, 0 for none. From here on the entry
  // is the caller's until completed() or release(): once the host has completed a request it may
  // give the same value to a request of another thread, which must not find this entry.
  std::uint64_t claim(MPI_Request request);
  // The request of this entry has completed: registers its communicator. 0 is ignored.
  void completed(Rank& rank, std::uint64_t id);
  // The request of this entry is still pending. 0 is ignored.
  void release(std::uint64_t id);
  // Either of the two.
  void settle(Rank& rank, std::uint64_t id, bool complete) {
    complete ? completed(rank, id) : release(id);
  }
  // The program frees `parent`; true if that has to wait for an idup, which then does it.
  bool defer_free(Comm& parent);

 private:
  struct Entry {
    std::uint64_t id;
    MPI_Request request;
    MPI_Comm handle;  // null communicator if the host has not told yet
    MPI_Comm* location;
    Comm* parent;
    std::uint64_t sequence;
    bool free_parent;
    bool claimed;
  };
  std::atomic<int> count_{0};
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::uint64_t last_id_ = 0;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_PENDING_IDUPS_H_
