// Communicators that MPI_Comm_idup has promised and whose request has not completed yet.
//
// The new communicator can be asked for its members only when the host's request is complete, but
// its context depends on the order of constructor calls on the parent, so the sequence number is
// taken at the call and the registration follows when the request completes
// (watched_requests.h).
#ifndef OVERDRIVE_SRC_FACE_PENDING_IDUPS_H_
#define OVERDRIVE_SRC_FACE_PENDING_IDUPS_H_

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
  // `location` is where the program wants the handle; hosts may fill it at the call or at
  // completion.
  void add(MPI_Request request, MPI_Comm* location, Comm& parent, std::uint64_t sequence);
  // The program frees `parent`; true if that has to wait for an idup, which then does it.
  bool defer_free(Comm& parent);

 private:
  struct Entry {
    std::uint64_t id;
    MPI_Comm handle;  // null communicator if the host has not told yet
    MPI_Comm* location;
    Comm* parent;
    std::uint64_t sequence;
    bool free_parent;
  };
  // The request of this entry has completed: registers its communicator.
  void completed(Rank& rank, std::uint64_t id);

  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::uint64_t last_id_ = 0;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_PENDING_IDUPS_H_
