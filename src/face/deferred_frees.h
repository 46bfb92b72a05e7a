// Communicators that the program has freed while the engine may still ask the host about them.
//
// A receive from any source on a communicator that spans nodes is answered by probing the host on
// that communicator, and MPI lets a program free a communicator before its receives are complete.
// The host's MPI_Comm_free then follows when the last such receive is done, or in MPI_Finalize.
#ifndef OVERDRIVE_SRC_FACE_DEFERRED_FREES_H_
#define OVERDRIVE_SRC_FACE_DEFERRED_FREES_H_

#include <atomic>
#include <mutex>
#include <vector>

#include "face/face_mpi.h"

namespace od {
class Comm;
}

namespace od::face {

class DeferredFrees {
 public:
  // Relaxed: only decides when to look.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
  void add(MPI_Comm handle, Comm& comm);
  // Frees those that nothing needs any more; with `all` also the others.
  void sweep(bool all);

 private:
  struct Entry {
    MPI_Comm handle;
    Comm* comm;
  };
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_DEFERRED_FREES_H_
