// Broadcasts between nodes that start with whoever comes first on each node.
//
// Who comes first is not known before, but the root must come in any case, and so it arranges
// everything:
//
//   winner   The first rank of a node that comes (coll/shm/arrival_area.h) tells the root that it
//   is
//            there: *ready*. It is told where its data come from: *part*; then, once, to whom it
//            has to pass them on, if to anybody: *next*. It takes the segments, leaves them in the
//            node's area for the other ranks, and passes them on.
//   root     It makes a chain of the winners in the order in which they are ready. As long as its
//            own part of the chain is under way, winners are added to its end, which sends them
//            everything from the start. Those that come later begin another chain. No winner waits
//            for one that is not there yet.
//   others   They take the segments from the area whenever they come, also when the winner has
//            left.
//
// Messages are the host's, on a communicator of their own, so that nothing else can meet them. All
// of them are received within the call that they belong to, in the order in which they were sent,
// except `ready`: a rank that is the root of several broadcasts may be told of a later one first.
// Used under the rank's lock; nothing blocks.
#ifndef OVERDRIVE_COLL_RUN_FIRST_ARRIVAL_H_
#define OVERDRIVE_COLL_RUN_FIRST_ARRIVAL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coll/plan/select/selection.h"
#include "coll/run/call.h"
#include "coll/shm/arrival_area.h"
#include "coll/shm/slots.h"
#include "host/host_table.h"
#include "p2p/comm.h"
#include "p2p/endpoint.h"

namespace od {

class Collectives;

// What the broadcasts of a communicator share.
class ArrivalComm {
 public:
  // What each rank tells the others before the first: the slots that it has leased for its node,
  // which the node's lowest rank does.
  struct Told {
    coll::shm::ArrivalArea::Lease lease;
    std::uint64_t cells;
  };

  ArrivalComm(Collectives& owner, const Comm& comm, host::Handle host_comm);
  ~ArrivalComm();
  ArrivalComm(const ArrivalComm&) = delete;
  ArrivalComm& operator=(const ArrivalComm&) = delete;

  // Leases the slots where that is this rank's business.
  Told offer();
  // With what all ranks have told; then `largest()` is known, equal on all of them.
  void join(const std::vector<Told>& all);
  // The largest broadcast that it can serve; 0: none.
  std::uint64_t largest() const { return largest_; }
  host::Handle host_comm() const { return host_comm_; }
  // The communicator has been freed in the host.
  void forget_host_comm() { host_comm_ = 0; }

 private:
  friend class FirstArrival;
  struct Ready {
    std::uint64_t number;
    std::int32_t rank;
    std::int32_t unused;
  };

  Collectives& owner_;
  const Comm& comm_;
  host::Handle host_comm_;
  std::vector<int> members_;                      // of this rank's node
  std::vector<coll::shm::SlotLease> leased_;      // by this rank, for its node
  std::unique_ptr<coll::shm::ArrivalArea> area_;  // null: alone on the node
  std::vector<int> neighbours_;                   // node indices of the others on the node
  std::uint64_t largest_ = 0;
  std::uint64_t numbers_ = 0;                        // broadcasts so far
  std::map<std::uint64_t, std::vector<int>> early_;  // winners that are ready for later ones
};

// One broadcast, at this rank.
class FirstArrival {
 public:
  // `buffer` has the packed data of the root, or takes them.
  FirstArrival(ArrivalComm& shared, int root, char* buffer, std::int64_t bytes,
               std::int64_t segment_bytes);
  ~FirstArrival();
  FirstArrival(const FirstArrival&) = delete;
  FirstArrival& operator=(const FirstArrival&) = delete;

  // True if anything moved.
  bool advance();
  bool done() const { return done_; }
  int error() const { return error_; }
  // Whether this rank's node has several ranks.
  bool shares_memory() const { return shared_.area_ != nullptr; }
  std::string describe() const;

 private:
  enum class Role : std::uint8_t { unknown, root, winner, reader };
  struct Part {
    std::uint64_t number;
    std::int64_t bytes;
    std::int64_t segment_bytes;
    std::int32_t parent;
    std::int32_t unused;
  };
  struct Next {
    std::uint64_t number;
    std::int32_t child;  // kNobody: none
    std::int32_t unused;
  };
  static constexpr int kNobody = -1;
  static constexpr std::size_t kWindow = 16;  // segments under way to or from one rank
  enum Tag : int { kReady = 1, kPart, kNext, kData };

  // A short message that this rank sends.
  struct Sent {
    std::unique_ptr<std::byte[]> content;
    host::Handle request;
  };
  // Segments on their way to one winner.
  struct Stream {
    int to = kNobody;
    std::uint64_t sent = 0;
    std::vector<host::Handle> open;
    bool done(std::uint64_t segments) const { return sent == segments && open.empty(); }
  };

  void find_role();
  bool advance_root();
  bool advance_winner();
  bool advance_reader();

  bool open_area();
  bool publish_own();
  bool hear_ready();
  void take_in(int winner);
  bool receive_segments();
  void segment_is_there(std::uint64_t index);
  bool advance_stream(Stream& stream, std::uint64_t there);
  bool settle_sent();
  void finish();
  void give_up();

  template <typename Message>
  void tell(int rank, Tag tag, const Message& message);
  bool test(host::Handle& request, host::Status* status = nullptr);
  host::Handle receive(void* into, std::int64_t bytes, int from, Tag tag);
  void note(int error);
  void wake_neighbours() const;
  // Where a segment is sent from, or received into.
  char* place_of(std::uint64_t index) const;
  std::int64_t length_of(std::uint64_t index) const;
  void set_shape(std::int64_t bytes, std::int64_t segment_bytes);

  ArrivalComm& shared_;
  const host::HostTable& host_;
  const std::uint64_t number_;
  const int root_;
  char* const buffer_;
  const std::int64_t own_bytes_;  // as this rank was called
  std::int64_t bytes_ = 0;        // as the root was
  std::int64_t segment_bytes_ = 0;
  std::uint64_t segments_ = 0;
  Role role_ = Role::unknown;
  bool done_ = false;
  int error_ = host::kSuccess;

  // Root and winner.
  bool owns_entry_ = false;
  bool placed_ = false;      // or there is no area
  std::vector<char> aside_;  // of a winner whose own buffer cannot take what comes
  std::vector<Sent> sent_;
  std::vector<Stream> streams_;
  std::uint64_t there_ = 0;  // segments that this rank has; reader: that it has taken

  // Root.
  int awaited_ = 0;     // winners that are not ready yet
  int tail_ = kNobody;  // end of the chain that is under way
  ArrivalComm::Ready ready_{};
  host::Handle ready_request_ = 0;
  bool hearing_ = false;
  std::uint64_t published_ = 0;

  // Winner.
  Part part_{};
  Next next_{};
  host::Handle part_request_ = 0;
  host::Handle next_request_ = 0;
  bool part_known_ = false;
  bool next_known_ = false;
  std::vector<host::Handle> receiving_;  // of each segment
  std::uint64_t asked_ = 0;              // segments for which a receive has been started
};

// Whether the decision asks for it.
bool starts_with_first(const coll::Decision& decision);

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_FIRST_ARRIVAL_H_
