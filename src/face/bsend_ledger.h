// Remembers which buffers the program has attached for buffered sends.
//
// Our buffered sends keep the message in memory of our own, so the program's buffer is not needed;
// but a program must get the error that any MPI would give when it has attached none, or one that
// cannot possibly hold the message. Whether several messages fit together is not counted: hosts
// differ in what they put around a message, and an error they would not give would break a program
// that works.
#ifndef OVERDRIVE_SRC_FACE_BSEND_LEDGER_H_
#define OVERDRIVE_SRC_FACE_BSEND_LEDGER_H_

#include <cstdint>
#include <limits>
#include <map>
#include <mutex>

#include "host/host_table.h"

namespace od::face {

class BsendLedger {
 public:
  // MPI_BUFFER_AUTOMATIC: as much as is needed.
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

  // `comm` = 0 means the buffer of the process. A buffer attached to a communicator replaces it
  // there.
  void attach(host::Handle comm, std::int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    attached_[comm] = bytes;
  }
  void detach(host::Handle comm) {
    std::lock_guard<std::mutex> lock(mutex_);
    attached_.erase(comm);
  }
  // Whether a buffered send of `bytes` on `comm` may go ahead.
  bool has_room(host::Handle comm, std::int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = attached_.find(comm);
    if (found == attached_.end()) found = attached_.find(0);
    return found != attached_.end() && bytes <= found->second;
  }

 private:
  std::mutex mutex_;
  std::map<host::Handle, std::int64_t> attached_;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_BSEND_LEDGER_H_
