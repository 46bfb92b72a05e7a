// The engine's interface to a face: everything a rank can be asked to do.
//
// One Rank object holds all state of a rank; a process has one (a later form may have several).
// Calls return host error codes (host::kSuccess or a code of HostTable). None of them calls the
// program's error handlers: the face does. Thread safety: with MPI_THREAD_MULTIPLE every public
// function takes the rank's lock itself; below that level the caller serialises, as MPI demands.
// A face validates arguments before it calls: ranks in range and local (Comm::ours), tags in range,
// counts not negative, layouts not null.
#ifndef OVERDRIVE_ENGINE_ENGINE_H_
#define OVERDRIVE_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "config/settings.h"
#include "engine/host_drive.h"
#include "host/host_table.h"
#include "node/wait.h"
#include "overlap/automatic.h"
#include "p2p/comm.h"
#include "p2p/layout.h"
#include "p2p/request.h"

namespace od::coll {
enum class Collective : std::uint8_t;
struct Decision;
}  // namespace od::coll
namespace od::coll::ops {
enum class Op : std::uint8_t;
}  // namespace od::coll::ops

namespace od {

class ArrivalComm;
class InNetwork;
struct ArrivalChoice;
struct Contest;

struct CollectiveCall;  // coll/run/call.h
class RankState;        // engine/rank_state.h: everything below the interface
struct JobTerms;        // engine/job_terms.h

class Rank {
 public:
  // Joins the node (collective over MPI_COMM_WORLD, called inside MPI_Init right after the host's).
  // Never fails: where sharing is impossible, active() is false and everything goes to the host.
  // Settings and terms are those of the whole job, as far as they are agreed on; no terms: those of
  // this process.
  static std::unique_ptr<Rank> create(const host::HostTable& host, const config::Settings& settings,
                                      bool threads_multiple, const JobTerms* terms = nullptr);
  ~Rank();

  // Whether there is anything to serve: a peer other than this process itself, or collectives of a
  // job in which other ranks have such peers.
  bool active() const;
  const host::HostTable& host() const;
  const config::Settings& settings() const;

  // --- communicators -------------------------------------------------------------------------
  Comm* world();
  Comm* self();
  // How a new communicator came about: chooses the context rule.
  enum class Origin { collective, create_group, intercomm_create };
  // Registers the host's new communicator `handle` made from `parent` (collective over the new
  // group). Returns null when we do not serve it (a member outside MPI_COMM_WORLD, no local peer);
  // the sequence count of the parent advances all the same. `tag` is that of create_group,
  // `leaders` those of intercomm_create.
  Comm* comm_created(Comm& parent, host::Handle handle, Origin origin, int tag = 0,
                     const host::Leaders* leaders = nullptr);
  // The constructor was called on `parent` but this rank got MPI_COMM_NULL.
  void comm_not_member(Comm& parent);
  // For idup: takes the sequence number at call time, registers when the handle is known.
  std::uint64_t reserve_context_sequence(Comm& parent);
  Comm* comm_created_at(Comm& parent, host::Handle handle, std::uint64_t sequence);
  void comm_freed(Comm& comm);

  // --- sending -------------------------------------------------------------------------------
  int send(const void* buf, std::int64_t count, const p2p::LayoutRef& layout, int dest, int tag,
           Comm& comm, SendMode mode);
  // Of SMPI: p2p::kPrefixBytes at `prefix` and `bytes` behind them, as one message. False: it
  // cannot leave at once, and nothing has happened.
  bool send_short(const void* prefix, const void* data, std::uint32_t bytes, int dest, int tag,
                  Comm& comm);
  // Returns null in *request never; small messages may come back complete already.
  int isend(const void* buf, std::int64_t count, const p2p::LayoutRef& layout, int dest, int tag,
            Comm& comm, SendMode mode, Request** request);
  int send_init(const void* buf, std::int64_t count, const p2p::LayoutRef& layout, int dest,
                int tag, Comm& comm, SendMode mode, Request** request);

  // --- receiving -----------------------------------------------------------------------------
  // `source` may be host::kAnySource, also on communicators that span nodes; a given source is
  // local. A given remote source is accepted while Comm::host_ordered(): then the engine decides
  // between older wildcard receives and this one.
  int recv(void* buf, std::int64_t count, const p2p::LayoutRef& layout, int source, int tag,
           Comm& comm, host::Status* status);
  // Of SMPI: receives a short message of a given source without a request, if it comes at once; its
  // length, or less than 0: nothing has happened, and recv() is the way.
  std::int64_t recv_short(void* to, std::uint32_t room, int source, int tag, Comm& comm);
  int irecv(void* buf, std::int64_t count, const p2p::LayoutRef& layout, int source, int tag,
            Comm& comm, Request** request);
  int recv_init(void* buf, std::int64_t count, const p2p::LayoutRef& layout, int source, int tag,
                Comm& comm, Request** request);
  // A persistent request to or from MPI_PROC_NULL: completes at every start.
  int null_init(RequestKind kind, Request** request);

  int start(Request& request);

  // --- completion ----------------------------------------------------------------------------
  // Runs progress once; true if anything moved.
  bool progress();
  // progress() until request.complete; then request.status is valid.
  void wait(Request& request);
  // One round of progress at most; returns request.complete.
  bool test(Request& request);
  // After a completed request has been reported: frees it, or makes a persistent one inactive.
  void release(Request& request);
  // MPI_Request_free: released now or on completion.
  void free_request(Request& request);
  // MPI_Cancel; the outcome appears in status.cancelled on completion.
  void cancel(Request& request);
  Request* request_at(std::uint32_t index);  // null when the slot is free or out of range
  std::uint32_t request_capacity() const;    // slots that may ever exist

  // --- probing -------------------------------------------------------------------------------
  bool iprobe(int source, int tag, Comm& comm, host::Status* status);
  void probe(int source, int tag, Comm& comm, host::Status* status);
  // Matched probe: *message is a Request of kind message; on a communicator that spans nodes the
  // message may have come through the host and is ours all the same.
  bool improbe(int source, int tag, Comm& comm, Request** message, host::Status* status);
  void mprobe(int source, int tag, Comm& comm, Request** message, host::Status* status);
  int mrecv(void* buf, std::int64_t count, const p2p::LayoutRef& layout, Request& message,
            host::Status* status);
  int imrecv(void* buf, std::int64_t count, const p2p::LayoutRef& layout, Request& message,
             Request** request);

  // --- collectives ---------------------------------------------------------------------------
  // Serves a collective call of all ranks of an intra-communicator. Which of them are served
  // follows from what is equal on all ranks, so all decide alike: *served tells whether the call is
  // done (or started); if not, nothing has happened and it belongs to the host. Non-blocking and
  // persistent ones take over the call's contents; their requests complete like others, with an
  // empty status.
  int collective(const CollectiveCall& call, Comm& comm, bool* served);
  // Whether the call that was just not served is measured in the host: its end has to be told.
  bool in_host_turn(const Comm& comm) const;
  // The host has served it. Collective; returns an error of the host or of Overdrive.
  int host_turn_ended(Comm& comm);
  int icollective(CollectiveCall&& call, Comm& comm, Request** request, bool* served);
  int collective_init(CollectiveCall&& call, Comm& comm, Request** request, bool* served);

  // --- around the host -----------------------------------------------------------------------
  // Before a call that may block inside the host and does not run our progress: sends whose payload
  // is not fully available yet are completed into our own memory, and if receives are pending a
  // helper thread is asked to look after them. True: left_host_call() must follow the call.
  // Receives that the host may have to serve are lent to it for the time.
  bool entering_host_call();
  void left_host_call();
  // The same for calls that the engine makes itself. Where such a call ends only when all ranks of
  // `waits_for` have come to it, the helper looks whether those of this node live: the host may
  // wait for a dead one for ever, and nobody else looks meanwhile.
  class HostVisit {
   public:
    explicit HostVisit(Rank& rank, const Comm* waits_for = nullptr);
    ~HostVisit();
    HostVisit(const HostVisit&) = delete;
    HostVisit& operator=(const HostVisit&) = delete;

   private:
    Rank& rank_;
    const bool looked_after_;
    const Comm* const watched_;  // null: the helper looks after nobody for this call
  };
  // Around a collective call of the host on `comm` (a constructor) from which nobody returns before
  // all have come to it: tells the ranks of this node, and waits for them first where receives
  // would be lent, so that what they have sent before is matched here (host_entry.cc). Null:
  // nothing happens.
  class HostEntry {
   public:
    HostEntry(Rank* rank, Comm* comm) {
      if (rank != nullptr && comm != nullptr) enter(*rank, *comm);
    }
    ~HostEntry() {
      if (rank_ != nullptr) leave();
    }
    HostEntry(const HostEntry&) = delete;
    HostEntry& operator=(const HostEntry&) = delete;

   private:
    void enter(Rank& rank, Comm& comm);
    void leave();

    Rank* rank_ = nullptr;  // null: nothing has been told
  };
  // The program has started something in the host (a non-blocking collective, one-sided
  // communication) that may need this rank's progress, on which other ranks may wait: for a while
  // waits look after the host as if it were what they wait for.
  void note_host_start();
  // The program has started a message in the host, or a window exists until it is freed.
  void note_host_message();
  void window_opened();
  void window_freed();
  // After a call that looked once, found nothing and is about to say so (MPI_Test, MPI_Iprobe): the
  // host gets its turn as in a wait, and after several such calls in a row others get the core.
  // `peer`: the rank of `comm` that was waited for, where it is one.
  void nothing_found(const Comm* comm = nullptr, int peer = host::kAnySource);
  // Whether a loop that waits for host requests has to run our progress as well.
  bool has_pending_work() const;
  // The same for calls that cannot afford to ask each time: where it has nothing to do it says so
  // in a word (p2p/at_rest.h), which is false again as soon as it may have.
  bool comes_to_rest();
  // From now on the word stays false: the program has something that cannot be seen from here.
  void stays_awake();
  void rest_in(std::atomic<bool>& word);

  // A wait loop made of `progress()` and of the caller's own polling of host requests:
  //   WaitLoop loop(rank, "MPI_Waitall"); while (!done()) loop.step();
  // step() runs progress once, spins, yields or sleeps as the node's wait policy says, checks that
  // peers are alive and reports stalls. With `host_pending` the caller waits for requests of the
  // host and asks for them itself, in every round or when host_turn() says so.
  class WaitLoop {
   public:
    WaitLoop(Rank& rank, const char* where, bool host_pending, Request* waiting_for = nullptr);
    // For a collective, which the caller holds until the loop is gone.
    WaitLoop(Rank& rank, const char* where, bool host_pending, const CollectiveOp& collective);
    ~WaitLoop() {
      if (idler_.yields() != 0) [[unlikely]]
        count_yields();
      if (counted_) [[unlikely]]
        leave();
    }
    WaitLoop(const WaitLoop&) = delete;
    WaitLoop& operator=(const WaitLoop&) = delete;
    void step();
    // Whether the caller should ask for its host requests in this round, which is then to be done
    // through ask_host().
    bool host_turn() { return drive_.due(HostDrive::Need::shared); }
    template <typename Question>
    auto ask_host(Question&& question) {
      return drive_.ask(question);
    }

   private:
    void look_at_queues();
    void take_precedence();
    void occasionally();
    void count_yields();
    void leave();
    bool other_threads_wait() const;
    bool has_just_yielded() const;

    Rank& rank_;
    const char* where_;
    bool host_pending_;
    bool caller_asks_;
    HostDrive drive_;  // of the caller's questions
    Request* waiting_for_;
    const CollectiveOp* collective_ = nullptr;
    node::Idler idler_;
    bool counted_;  // among the rank's waiting threads
    std::uint32_t rounds_ = 0;
    std::uint64_t started_ns_ = 0;
    std::uint64_t last_check_ns_ = 0;
    bool reported_ = false;
    std::uint64_t last_host_poll_ns_ = 0;
  };

  // --- end -----------------------------------------------------------------------------------
  // Called first in MPI_Finalize: receives of other nodes' messages that the program has freed are
  // the host's from here on.
  void hand_over_receives();
  // Called inside MPI_Finalize before the host's: completes outgoing messages into memory that
  // outlives this call, tells peers that we leave, prints statistics. Collective.
  void finalize();

  RankState& state() { return *state_; }

 private:
  explicit Rank(std::unique_ptr<RankState> state);
  int open_hidden(Comm& comm);
  void await_entries(Comm& comm, std::uint64_t entry);
  int prepare_arrival(Comm& comm, std::unique_ptr<ArrivalComm>& into);
  void prepare_for_later(Comm& comm);
  void finish_between(const Comm& comm);
  int own_collective(const CollectiveCall& call, std::uint64_t bytes, Comm& comm, bool* served,
                     const char* otherwise = nullptr);
  static p2p::LayoutRef layout_of_number();
  int own_reduce(coll::ops::Op op, std::span<std::int64_t> values, Comm& comm, bool* served);
  int own_minimum(std::int64_t& value, Comm& comm);
  int own_gather(const void* mine, std::uint64_t bytes, void* all, Comm& comm, bool* served,
                 const char* otherwise = nullptr);
  int prepare_switch(const CollectiveCall& call, Comm& comm);
  int open_switch(Comm& comm);
  int join_switch(Comm& comm, InNetwork& group);
  int next_call_of_all(Comm& comm, std::uint64_t* number);
  int count_sockets(Comm& comm, int* sockets);
  int check_switch(Comm& comm);
  int settle_switch_trial(const CollectiveCall& call, Comm& comm);
  int agree_on_later_calls(Contest& contest, Comm& comm);
  int serve_collective(const CollectiveCall& call, Comm& comm, bool* served, Contest** trial,
                       const coll::Decision* decided);
  int choose_overlap(const CollectiveCall& call, Comm& comm, overlap::Automatic::Turn* turn);
  int watch_arrivals(const CollectiveCall& call, Comm& comm);
  int agree_on_arrivals(ArrivalChoice& choice, Comm& comm);
  int overlapped(const CollectiveCall& call, Comm& comm, overlap::Automatic::Turn turn,
                 bool* served);
  int turn_ended(Contest& trial, std::uint64_t began_ns, Comm& comm);
  int count_left_call(Comm& comm);
  int judge_together(Contest& trial, Comm& comm);
  int make_collective(CollectiveCall&& call, Comm& comm, bool persistent, Request** request,
                      bool* served);
  std::unique_ptr<RankState> state_;
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_ENGINE_H_
