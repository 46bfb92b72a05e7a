// A leader with its sockets: joins a group and computes with it, by unprivileged UDP.
//
// Two sockets: one talks with switches and is read by the thread that waits for a result; the other
// is where leaders settle what the switch has lost, and a thread of its own sleeps on it, because a
// leader that has its result may be computing, or wait somewhere else, while another one still
// needs to be told. All calls are for one thread at a time; the own thread is kept apart by a lock.
//
// A wait polls for `spin_ns`, giving the processor away, then sleeps until a packet comes or the
// next packet has to be repeated.
#ifndef OVERDRIVE_INNETWORK_ENDPOINT_H_
#define OVERDRIVE_INNETWORK_ENDPOINT_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "innetwork/leader.h"

namespace od::innetwork {

class Endpoint {
 public:
  // Binds both sockets to an address of this host (in this machine's byte order); `port` 0: any
  // two, else this one and the next. Null if that fails; `error` says why.
  static std::unique_ptr<Endpoint> open(std::uint32_t ip, std::uint16_t port, std::string& error);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  const Peer& peer() const { return peer_; }

  // Joins; all leaders of the group call it at about the same time. Returns within
  // settings.join_ns, true if this leader can compute in the network. The leaders have to agree by
  // other means (the host MPI) that all can, before the first allreduce(); if not all can, all call
  // leave().
  bool join(LeaderSettings settings);
  // True: `out` holds the result. False: the host MPI has to compute it, at all leaders.
  bool allreduce(Operation operation, Type type, std::size_t count, const void* in, void* out);
  // The same for callers that have other things to do meanwhile: begin, then poll() until it says
  // that nothing is under way any more, then ask joined() or served(). start() says false where
  // the host MPI has to compute, which is so at all leaders.
  void begin_join(LeaderSettings settings);
  bool joined();
  bool start(Operation operation, Type type, std::size_t count, const void* in, void* out);
  bool served() const;
  // Whether the next operation has a chance: the group has not been given up.
  bool usable() const;
  // One look at what has come, without waiting; true if nothing is under way.
  bool poll();
  // Ends the membership; all operations of all leaders must have ended.
  void leave();

  void set_spin_ns(std::uint64_t spin_ns) { spin_ns_ = spin_ns; }
  // Of the present group.
  LeaderCounters counters() const;
  Cause cause() const;

 private:
  Endpoint(int data, int service, int wake, Peer peer);

  void send(Address to, const Packet& packet, bool service);
  // Takes what has come to a socket; true if that was something. Needs the lock.
  bool drain(int socket, Address own, std::uint64_t now_ns);
  void serve();
  void wake();
  bool waiting() const;
  void wait();

  int data_;
  int service_;
  int wake_;                // an eventfd that makes the thread look at the next two
  bool ending_ = false;     // guarded by the lock
  bool answering_ = false;  // likewise: nobody waits, and others may still ask to join
  Peer peer_;
  std::uint64_t spin_ns_ = 50'000;
  mutable std::mutex lock_;
  std::unique_ptr<Leader> leader_;
  std::thread thread_;
  int process_;  // whose the thread is: one that is forked has none
};

}  // namespace od::innetwork

#endif  // OVERDRIVE_INNETWORK_ENDPOINT_H_
