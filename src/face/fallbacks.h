// Counts the messages that go to the host, and why, for the statistics.
//
// Only called on the way to the host, so what it costs is nothing beside the host's own work.
#ifndef OVERDRIVE_SRC_FACE_FALLBACKS_H_
#define OVERDRIVE_SRC_FACE_FALLBACKS_H_

#include <atomic>
#include <cstdint>

#include "observe/counters.h"
#include "p2p/comm.h"

namespace od::face {

class Fallbacks {
 public:
  enum class Direction : unsigned char { send, receive };

  // `comm` is null if it is not served; `local` says whether messages to or from the peer are ours.
  void count(Direction direction, const Comm* comm, bool local) {
    add(direction == Direction::send ? sends_ : receives_);
    if (comm == nullptr) {
      add(comm_);
    } else if (local) {
      add(datatype_);
    } else {
      add(remote_);
    }
  }

  void add_to(observe::Counters& counters) const {
    counters.sends_host += sends_.load(std::memory_order_relaxed);
    counters.receives_host += receives_.load(std::memory_order_relaxed);
    counters.fallback_comm += comm_.load(std::memory_order_relaxed);
    counters.fallback_datatype += datatype_.load(std::memory_order_relaxed);
    counters.fallback_remote += remote_.load(std::memory_order_relaxed);
  }

 private:
  using Counter = std::atomic<std::uint64_t>;
  // Threads may lose a count to each other; a locked addition would cost more than that is worth.
  static void add(Counter& counter) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  Counter sends_{0};
  Counter receives_{0};
  Counter comm_{0};
  Counter datatype_{0};
  Counter remote_{0};
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_FALLBACKS_H_
