// Sends through the host whose request the program does not have: half of an MPI_Isendrecv, and a
// block of SMPI whose request the program has freed.
//
// Of an MPI_Isendrecv our request stands for the receiving half; the sending half, when it goes
// through the host, works on a packed copy of the data. What is sent must live until the host has
// taken it: all are looked through whenever another one is added, and waited for before the host's
// MPI_Finalize.
#ifndef OVERDRIVE_SRC_FACE_DETACHED_SENDS_H_
#define OVERDRIVE_SRC_FACE_DETACHED_SENDS_H_

#include <memory>
#include <mutex>
#include <vector>

#include "face/face_mpi.h"

namespace od::face {

class DetachedSends {
 public:
  void add(MPI_Request request, std::shared_ptr<void> data);
  // Waits for all of them.
  void finish();

 private:
  struct Entry {
    MPI_Request request;
    std::shared_ptr<void> data;
  };
  void collect();
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_DETACHED_SENDS_H_
