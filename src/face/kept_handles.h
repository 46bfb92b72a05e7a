// Operations and datatypes that the program may free while a pending collective still computes with
// them.
//
// The engine asks the host to reduce with the program's own handles (a function of the program is
// given the datatype and may ask what it is), and MPI lets a program free both as soon as the
// collective has been started. The host's free then follows when the last such collective is gone.
// Completion may happen on any thread, also on one that must not call the host: it only notes what
// can be freed, and a later call of the program frees it (sweep).
#ifndef OVERDRIVE_SRC_FACE_KEPT_HANDLES_H_
#define OVERDRIVE_SRC_FACE_KEPT_HANDLES_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "host/host_table.h"

namespace od::face {

class KeptHandles {
 public:
  enum class Kind : unsigned char { op, type };

  // Both live as long as the result.
  std::shared_ptr<const void> keep(host::Handle op, host::Handle type);

  // The program frees a handle. True: it is kept, and the host's free follows later.
  bool defer_free(Kind kind, host::Handle handle);

  // Relaxed: only decides when to look.
  bool any_ready() const { return ready_count_.load(std::memory_order_relaxed) != 0; }
  // Frees what is no longer needed.
  void sweep();

 private:
  class Hold;
  struct Entry {
    int users = 0;
    bool freed = false;  // by the program
  };
  struct Ready {
    Kind kind;
    host::Handle handle;
  };
  using Entries = std::unordered_map<host::Handle, Entry>;

  Entries& entries(Kind kind) { return kind == Kind::op ? ops_ : types_; }
  void release(Kind kind, host::Handle handle);

  // Relaxed; lets frees of handles pass without the lock in programs that never keep any.
  std::atomic<std::size_t> kept_count_{0};
  std::atomic<std::size_t> ready_count_{0};
  std::mutex mutex_;
  Entries ops_;
  Entries types_;
  std::vector<Ready> ready_;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_KEPT_HANDLES_H_
