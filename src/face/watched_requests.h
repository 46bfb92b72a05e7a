// What has to be done when the program completes a request of the host's.
//
// A communicator of MPI_Comm_idup is registered then, and a block of SMPI whose data was on its way
// to another node is given back. The request itself is the host's and the program's: completion
// functions ask here before they hand it to the host, and say afterwards how it went.
#ifndef OVERDRIVE_SRC_FACE_WATCHED_REQUESTS_H_
#define OVERDRIVE_SRC_FACE_WATCHED_REQUESTS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "face/face_mpi.h"
#include "host/host_table.h"

namespace od {
class Rank;
}  // namespace od

namespace od::face {

class WatchedRequests {
 public:
  struct Entry {
    MPI_Request request{};
    std::function<void(Rank&)> then;
    std::shared_ptr<void> kept;
    bool claimed = false;
  };

  // Cheap enough for every completion call. Relaxed: the caller's own request was added by the
  // caller's own program order or handed over with synchronisation by the program.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

  // `then` is called when the program has completed the request.
  void add(MPI_Request request, std::function<void(Rank&)> then);
  // `kept` is let go when the host needs it no more: the program has completed the request, or has
  // freed it and the host is done.
  void keep(MPI_Request request, std::shared_ptr<void> kept);

  // The entry of a request that the caller is about to complete, null for none. From here on the
  // entry is the caller's until completed() or release(): once the host has completed a request it
  // may give the same value to a request of another thread, which must not find this entry.
  Entry* claim(MPI_Request request);
  // The request of this entry has completed. Null is ignored.
  void completed(Rank& rank, Entry* entry);
  // The request of this entry is still pending. Null is ignored.
  void release(Entry* entry);
  // Either of the two.
  void settle(Rank& rank, Entry* entry, bool complete) {
    complete ? completed(rank, entry) : release(entry);
  }
  // The program wants to free the request before it is complete; true if it is looked after from
  // here on, without the program.
  bool adopt(MPI_Request request);

 private:
  void insert(MPI_Request request, std::function<void(Rank&)> then, std::shared_ptr<void> kept);
  std::unique_ptr<Entry> take(Entry* entry);

  std::atomic<int> count_{0};
  std::mutex mutex_;
  // Hosts give several sends that are complete from the start one and the same request.
  std::unordered_multimap<host::Handle, std::unique_ptr<Entry>> entries_;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_WATCHED_REQUESTS_H_
