// A thread that runs progress while the program is inside a blocking call of the host.
//
// A host call does not run our progress. Sends never need it (they buffer themselves), but a
// synchronous send to a rank that has posted its receive and sits in, say, a host barrier may not
// complete before that receive has matched, and nobody else can match it. So when a rank goes into
// a host call with receives pending it opens a *window*, and this thread looks at the queues now
// and then for as long as the window is open.
//
// While the rank waits in the host for all ranks of a communicator, the thread also looks whether
// those of this node live, as ranks do that wait outside of the host.
//
// As an agent (`progress=agent`) it works as well while collectives between nodes are under way and
// the program computes: then operations that have something to do in the host are what a window is
// otherwise.
//
// The thread starts with the first window, ticks while windows keep coming and parks on a futex
// otherwise; it calls the host only where that was initialised for threads. Protocol: `windows`
// changes and progress runs under the rank's lock; RankState::locking makes the rank's own calls
// take it while a window is open. Parking: the helper sets `parked`, then looks at `windows` once
// more under the lock; whoever opens a window does so under the lock and looks at `parked`
// afterwards, so one of them sees the other.
#ifndef OVERDRIVE_ENGINE_HOST_CALL_HELPER_H_
#define OVERDRIVE_ENGINE_HOST_CALL_HELPER_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace od {

class Comm;
class RankState;

class HostCallHelper {
 public:
  explicit HostCallHelper(RankState& state) : state_(state) {}
  ~HostCallHelper() { stop(); }
  HostCallHelper(const HostCallHelper&) = delete;
  HostCallHelper& operator=(const HostCallHelper&) = delete;

  // The lock is held by neither caller. open() is false when there is no thread to be had.
  // `watched` is a communicator whose ranks of this node are to be looked at until close().
  bool open(const Comm* watched = nullptr);
  void close(const Comm* watched = nullptr);
  // For an agent; the lock is held. Something has been started that it has to look after.
  void notice();
  // Makes the thread now; false when there is none to be had.
  bool start();
  // Ends the thread; before the host is finalized.
  void stop();

 private:
  enum class Thread : std::uint8_t { none, running, refused };
  static void* entry(void* self);
  void run();
  // With the lock held: one round.
  enum class Round : std::uint8_t {
    nothing,  // there is nothing to look after
    still,    // nothing moved
    moved,
  };
  Round tick();
  bool wanted() const;
  void wake();
  // With the lock held: the dead member of the node that a watched communicator has; kRemote: none.
  // Looks as often as the setting `peer_check` says.
  int look_for_deaths();

  RankState& state_;
  // Guarded by the rank's lock.
  int windows_ = 0;
  std::vector<const Comm*> watched_;  // of those windows that have one
  std::uint64_t last_check_ns_ = 0;
  // Futex word. Setting it pairs with open() and stop(), which look at it once they have changed
  // what the helper looks at after setting it.
  std::atomic<std::uint32_t> parked_{0};
  std::atomic<bool> stopping_{false};  // set before parked_ is read: pairs with run()
  std::atomic<Thread> state_of_thread_{Thread::none};
  std::mutex starting_;  // of the program's threads that open the first windows
  pthread_t thread_{};
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_HOST_CALL_HELPER_H_
