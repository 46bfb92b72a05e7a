// Everything that belongs to one rank, below the interface of engine.h.
//
// The lock is taken by every public function of Rank when the program asked for
// MPI_THREAD_MULTIPLE, and while the helper thread may be at work (host_call_helper.h); otherwise
// it is a branch that is not taken. It is never held across a call that may block, inside the host
// or in a wait loop.
#ifndef OVERDRIVE_ENGINE_RANK_STATE_H_
#define OVERDRIVE_ENGINE_RANK_STATE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coll/run/collectives.h"
#include "engine/clock_comparison.h"
#include "engine/host_call_helper.h"
#include "engine/host_drive.h"
#include "engine/job_terms.h"
#include "engine/overlap.h"
#include "engine/yielding_lock.h"
#include "host/host_table.h"
#include "node/wait.h"
#include "p2p/matching.h"
#include "p2p/transport.h"
#include "smpi/service.h"

namespace od {

// Of waits that ended, how many ended right after the core had been given away: then what was
// waited for needed this very core, be it another thread's or another rank's. Where threads of the
// program run is not known beforehand, and changes. Relaxed throughout: a wrong guess costs time
// only.
class SharedCore {
 public:
  // Rounds of waiting after which the core is given away where it seems to be shared: about as long
  // as it takes to switch to somebody else.
  static constexpr std::uint32_t kRounds = 4;

  bool likely() const { return score_.load(std::memory_order_relaxed) >= kLikely; }
  // A wait that had to wait has got something. Under the rank's lock.
  void got_something(bool after_yield) {
    const int score = score_.load(std::memory_order_relaxed);
    score_.store(after_yield ? std::min(score + 1, kMost) : std::max(score - 1, 0),
                 std::memory_order_relaxed);
  }

 private:
  static constexpr int kLikely = 2;
  // By chance one in kRounds comes after a yield, so that it soon falls where nothing is shared.
  static constexpr int kMost = 8;
  std::atomic<int> score_{0};
};

class RankState : public p2p::Endpoint {
 public:
  RankState(const host::HostTable& host_in, const config::Settings& settings_in, bool threads_in,
            JobTerms terms_in)
      : p2p::Endpoint(host_in, settings_in),
        terms(std::move(terms_in)),
        threads(threads_in),
        host_threads(threads_in || host_in.thread_level == host::ThreadLevel::multiple),
        locking(threads_in),
        drive(static_cast<std::uint32_t>(settings_in.host_poll_interval)) {}
  ~RankState() {
    // Communicators give back what they have of everything else.
    comms.clear();
    self.reset();
    world.reset();
  }

  JobTerms terms;
  const bool threads;
  // Whether the host was initialised for MPI_THREAD_MULTIPLE, so that the helper may call it.
  const bool host_threads;
  // Whether calls take the lock: always with threads, else while the helper may be at work. Written
  // by the program's thread only.
  bool locking;
  // Whether the helper works while the program computes as well (`progress=agent`); then all calls
  // take the lock. Written in MPI_Init, with the lock.
  bool agent = false;
  YieldingLock lock;
  HostCallHelper helper{*this};

  // The program's threads that are in a WaitLoop now; counted with threads or an agent only.
  // Relaxed: only how the core is shared depends on it.
  std::atomic<std::uint32_t> waiting_threads{0};

  // Whether threads of this rank seem to share their core with what they wait for.
  SharedCore shared_core;

  node::WaitPlan wait_plan;
  bool tight_looks = false;          // a core of its own
  std::uint32_t short_receives = 0;  // calls of recv_short
  std::uint64_t started_ns = 0;      // when MPI_Init joined the node
  // Whether all ranks compare their nodes' clocks, which they do at the beginning and at the end.
  bool compares_clocks = false;
  ClockReading clock_at_begin;
  std::unique_ptr<smpi::Service> smpi;   // address passing, for programs that ask for it
  node::RegionHeader* header = nullptr;  // own region
  bool sharing = false;                  // the node has another member that we reach

  std::unique_ptr<Comm> world;
  std::unique_ptr<Comm> self;
  std::unordered_map<const Comm*, std::unique_ptr<Comm>> comms;  // all others

  Collectives collectives{*this};
  void prepare_collectives();
  // Lets go of groups at switches (in_network.cc): of one communicator, of all at the end.
  void close_switch(InNetwork* group);
  void close_switches(CollectiveComm& own);
  void leave_switches();
  void let_host_follow();

  std::unique_ptr<Overlap> overlap;                // null: collectives complete before they return
  std::unique_ptr<overlap::CallSites> call_sites;  // null: nobody has asked from where calls come

  // Receives in progress through the host (Imrecv), polled until done. The host receives bytes, so
  // that the program may free its datatype meanwhile; what is not one run of bytes is staged.
  struct HostReceive {
    Request* request;
    std::unique_ptr<char[]> staging;
  };
  std::vector<HostReceive> host_receiving;

  // Receives that the host may take while the program is in one of its calls (lent_receives.cc).
  struct LentReceive {
    Request* request = nullptr;
    Comm* comm = nullptr;
    std::uint64_t context = 0;
    host::Handle host_request = 0;
    std::unique_ptr<char[]> staging;
    bool holds = false;     // its context
    bool recalled = false;  // cancelled in the host; the outcome is open
  };
  std::vector<LentReceive> lent_receives;
  void lend_receives();
  bool lend(Request& receive);
  void recall_receives();
  // Before the end: those that nobody waits for any more become the host's for good.
  void hand_over_receives();
  // Takes back those whose outcome is known; true if there were any.
  bool settle_lent();
  bool settle(LentReceive& lent);
  // Matches what has arrived while the context was held.
  void match_held(std::uint64_t context);
  // What the helper does for the senders of held messages.
  bool take_held_aside();
  // Lets the helper look whether ranks of the communicator live that share this node; false: there
  // are none, or no helper. The lock is not held.
  bool watch(const Comm& comm);
  // A single-threaded program's call of the host for which the helper is at work.
  bool helper_at_work = false;
  // Requests freed by the program while active; released when they complete.
  std::vector<Request*> orphans;
  std::size_t orphan_turn = 0;  // where the next look at them begins
  void release_finished_orphans();

  // Own memory that is faulted in bit by bit while this rank waits (lifecycle.cc); under the lock.
  std::byte* warm_next = nullptr;
  std::byte* warm_end = nullptr;
  bool warm_left() const { return warm_next != warm_end; }
  void warm_some();

  // One round of everything; lock held. True if anything moved.
  bool progress();

  // How often the host is asked to progress, and why. Under the lock but for the notes, which any
  // thread sets on its way into the host and the next idle round takes up.
  HostDrive drive;
  HostNotes notes;
  node::EmptyPolls empty_polls;
  // Of a round in which nothing moved: asks the host if it is time to, unless the caller does so
  // itself.
  HostDrive::Need idle_round(bool caller_asks);
  HostDrive::Need host_need() {
    const HostDrive::Need noted = notes.need();
    return noted == HostDrive::Need::quiet &&
                   (host_traffic_pending() || collectives.waits_for_host())
               ? HostDrive::Need::shared
               : noted;
  }
  void ask_host() {
    ++counters.host_polls;
    drive.ask([this] { host.poll(); });
  }

  bool host_traffic_pending() const {
    return !matching.host_candidates().empty() || !host_receiving.empty() ||
           transport->has_deferred();
  }

  // Wildcards and messages through the host (wildcard.cc).
  bool poll_host();
  // One of its questions, to the receive whose turn it is; true if a message has come.
  bool ask_for_next();
  bool take_what_is_shown(Comm& comm);
  std::uint64_t polls_of_host = 0;
  std::size_t candidate_turn = 0;
  bool advance_host_receives();
  // Asks the host for a message; if one comes, it goes to the oldest posted receive that accepts
  // it, else it is stashed as unexpected and returned. *moved tells whether anything came.
  p2p::Unexpected* fetch_from_host(int source, int tag, Comm& comm, bool* moved);
  // With which tag to ask for a message, so that none of an older receive's is passed over: the
  // first `older` of the receives that the host may serve count.
  int tag_to_ask_for(int source, int tag, const Comm& comm, std::size_t older) const;
  // Starts receiving a message that was fetched earlier.
  int receive_from_host(p2p::Unexpected& message, Request& receive);
  // `bytes`: how long the message is.
  int start_host_receive(host::Handle message, std::int64_t bytes, Request& receive);
  void finish_host_receive(Request& receive, const host::Status& status, int error,
                           const char* staging);

  // Points-to-point internals shared by the files of the engine.
  int start_receive(Request& request);
  // A message here that a probe or matched probe may show, pinned so that it cannot be cancelled.
  p2p::Unexpected* probe_here(int source, int tag, Comm& comm);
  // The same, also taken out of the host.
  p2p::Unexpected* probe(int source, int tag, Comm& comm);
  // Whether the host has one that no posted receive wants; it stays there.
  bool probe_host(int source, int tag, Comm& comm, host::Status* status);
  static bool host_may_serve(const Comm& comm, int source) {
    return !comm.all_local && (source == host::kAnySource || !comm.ours(source));
  }
  void finish_orphan(Request& request);
  // Size, ranks and locality of the host's communicator; null when a member is outside
  // MPI_COMM_WORLD. The context is still to be set.
  std::unique_ptr<Comm> describe_comm(host::Handle handle);
  // Forgets a communicator that the program has freed once nothing refers to it.
  void drop_if_unused(Comm& comm);
  Comm* adopt(std::unique_ptr<Comm> comm, std::uint64_t context);
};

// Ends the job if a process that this rank may be waiting for has died (wait_loop.cc).
void check_peers(RankState& s, const Request* waiting_for);
// The member of the node that is in the communicator and has died; kRemote: none.
int dead_member(const RankState& s, const Comm& comm);
[[noreturn]] void end_job(const RankState& s, int dead_member);

// Holds the rank's lock while it exists, if the program is multi-threaded.
class Guard {
 public:
  explicit Guard(RankState& state) : state_(state), locked_(state.locking) {
    if (locked_) [[unlikely]]
      state.lock.lock();
  }
  ~Guard() {
    if (locked_) [[unlikely]]
      state_.lock.unlock();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  RankState& state_;
  const bool locked_;
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_RANK_STATE_H_
