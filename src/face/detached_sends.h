// Sends through the host whose request the program never sees: half of an MPI_Isendrecv.
//
// Our request stands for the receiving half; the sending half, when it goes through the host, works
// on a packed copy of the data which must live until the host has taken it. The copies are looked
// through whenever another one is added, and waited for before the host's MPI_Finalize.
#ifndef OVERDRIVE_SRC_FACE_DETACHED_SENDS_H_
#define OVERDRIVE_SRC_FACE_DETACHED_SENDS_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "face/face_mpi.h"

namespace od::face {

class DetachedSends {
 public:
  void add(MPI_Request request, std::unique_ptr<std::byte[]> data);
  // Waits for all of them.
  void finish();

 private:
  struct Entry {
    MPI_Request request;
    std::unique_ptr<std::byte[]> data;
  };
  void collect();
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_DETACHED_SENDS_H_
