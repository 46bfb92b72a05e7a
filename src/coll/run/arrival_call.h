// What calls that depend on who comes first, or last, to each node share: what a communicator needs
// for them, and their messages.
//
// Messages are the host's, on a communicator of their own, so that nothing else can meet them. All
// of them are received within the call that they belong to, in the order in which they were sent,
// except `ready`: a rank that is the root of several calls may be told of a later one first. Used
// under the rank's lock; nothing blocks.
#ifndef OVERDRIVE_COLL_RUN_ARRIVAL_CALL_H_
#define OVERDRIVE_COLL_RUN_ARRIVAL_CALL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coll/plan/select/selection.h"
#include "coll/shm/arrival_area.h"
#include "coll/shm/slots.h"
#include "host/host_table.h"
#include "p2p/comm.h"
#include "p2p/endpoint.h"

namespace od {

class Collectives;

// What such calls of a communicator share.
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
  // With what all ranks have told; then the limits are known, equal on all of them.
  void join(const std::vector<Told>& all);
  // The largest broadcast that it can serve; 0: none.
  std::uint64_t largest() const { return largest_; }
  // The largest one in segments of kLongMessageBytes.
  std::uint64_t largest_long() const { return largest_long_; }
  // The most cells that each rank of a node may fill in one call.
  std::uint64_t cells_per_rank() const { return cells_per_rank_; }
  host::Handle host_comm() const { return host_comm_; }
  // The communicator has been freed in the host.
  void forget_host_comm() { host_comm_ = 0; }

 private:
  friend class ArrivalCall;
  // Who speaks for its node, and what it is about to send.
  struct Ready {
    std::uint64_t number;
    std::int64_t bytes;
    std::int32_t segment_bytes;
    std::int32_t rank;
  };

  Collectives& owner_;
  const Comm& comm_;
  host::Handle host_comm_;
  std::vector<int> members_;                      // of this rank's node
  std::size_t my_place_ = 0;                      // among these
  std::vector<coll::shm::SlotLease> leased_;      // by this rank, for its node
  std::unique_ptr<coll::shm::ArrivalArea> area_;  // null: alone on the node
  std::vector<int> neighbours_;                   // node indices of the others on the node
  std::uint64_t largest_ = 0;
  std::uint64_t largest_long_ = 0;
  std::uint64_t cells_per_rank_ = 0;
  std::uint64_t numbers_ = 0;                          // calls so far
  std::map<std::uint64_t, std::vector<Ready>> early_;  // those that are ready for later ones
};

// One call, at this rank.
class ArrivalCall {
 public:
  // The longest message. Hosts send up to 64 KiB, with what they add, without a handshake.
  static constexpr std::int64_t kMessageBytes = 63 << 10;
  // The longest where each needs a handshake anyway, so that few are better: eight cells of an
  // area.
  static constexpr std::int64_t kLongMessageBytes = 512 << 10;

  virtual ~ArrivalCall() = default;
  ArrivalCall(const ArrivalCall&) = delete;
  ArrivalCall& operator=(const ArrivalCall&) = delete;

  // True if anything moved.
  bool step() {
    if (area_ != nullptr) seen_changes_ = area_->changes(number_);
    return advance();
  }
  // Whether ranks of this node have done something since; what other nodes do is not seen.
  bool anything_ready() const {
    return area_ != nullptr && !done_ && area_->changes(number_) != seen_changes_;
  }
  virtual std::string describe() const = 0;
  bool done() const { return done_; }
  int error() const { return error_; }
  // Whether this rank's node has several ranks.
  bool shares_memory() const { return area_ != nullptr; }

 protected:
  // The length of equal segments of whole units that are no longer than `most`, if a unit is not.
  static std::int64_t segment_for(std::int64_t bytes, std::int64_t unit_bytes,
                                  std::int64_t most = kMessageBytes);

  virtual bool advance() = 0;
  using Ready = ArrivalComm::Ready;
  enum Tag : int { kReady = 1, kPart, kNext, kData, kLong };
  static constexpr int kNobody = -1;
  static constexpr std::size_t kWindow = 16;  // segments under way to or from one rank

  ArrivalCall(ArrivalComm& shared, int root);

  // Of calls that start with whoever comes first to each node: the root has the data; a winner is
  // the first of another node, and takes them there for its node; readers are all others.
  enum class Role : std::uint8_t { unknown, root, winner, reader };
  // What this rank is in a call of so many bytes; a winner has told the root. Unknown: the node's
  // entry is not free yet.
  Role claim_role(std::int64_t bytes, std::int64_t segment_bytes);
  // Room in the node's area, where there is one, if this rank owns the call's entry or is the first
  // to claim it. False: not yet, or it is another one's.
  bool open_area(std::uint64_t bytes, std::uint64_t segment_bytes);
  // Between the two: there is room, which others do not see yet.
  virtual void prepare_area() {}

  const Comm& comm() const { return shared_.comm_; }
  int me() const { return comm().rank; }
  const std::vector<int>& members() const { return shared_.members_; }
  std::size_t my_place() const { return shared_.my_place_; }
  bool on_root_node() const;
  // The members of this node but for the root, which leaves nothing in the area of its node.
  std::uint64_t givers() const { return members().size() - (on_root_node() ? 1 : 0); }
  std::uint64_t cells() const;  // the most that a node has for one call
  std::uint64_t largest_long() const { return shared_.largest_long_; }
  const coll::Machine& machine() const;

  // Root: hears of those who speak for their nodes, as long as it awaits any.
  bool hear_ready();
  virtual void take_in(const Ready& ready) = 0;

  template <typename Message>
  void tell(int rank, Tag tag, const Message& message) {
    Sent& sent = sent_.emplace_back(std::make_unique<std::byte[]>(sizeof(message)), 0);
    std::memcpy(sent.content.get(), &message, sizeof(message));
    note(host_.isend(sent.content.get(), sizeof(message), host_.byte_type, rank, tag,
                     shared_.host_comm_, &sent.request));
  }
  // Whether all that was told has left; settles what has.
  bool told_all() const { return sent_.empty(); }
  bool settle_sent();
  host::Handle send(const void* data, std::int64_t bytes, int to, Tag tag = kData);
  host::Handle receive(void* into, std::int64_t bytes, int from, Tag tag);
  // Whether it is over; then the request is gone.
  bool test(host::Handle& request);
  void note(int error) {
    if (error_ == host::kSuccess) error_ = error;
  }
  void wake_neighbours() const;

  observe::Counters& counters() const;

  const host::HostTable& host_;
  coll::shm::ArrivalArea* const area_;  // null: alone on the node
  const std::uint64_t number_;
  const int root_;
  bool done_ = false;
  int error_ = host::kSuccess;
  int awaited_ = 0;          // root: nodes of which nobody has spoken yet
  bool placed_ = false;      // there is room in the area, or no area
  bool owns_entry_ = false;  // of the area

 private:
  // A short message that this rank sends.
  struct Sent {
    std::unique_ptr<std::byte[]> content;
    host::Handle request;
  };

  ArrivalComm& shared_;
  std::vector<Sent> sent_;
  std::uint64_t seen_changes_ = 0;
  Ready ready_{};
  host::Handle ready_request_ = 0;
  bool hearing_ = false;
};

// What those calls share that start with whoever comes first to each node: who does what.
template <typename Base>
class FirstComers : public Base {
 protected:
  using Role = typename Base::Role;
  using Base::Base;

  bool advance() final {
    if (this->done_) return false;
    if (role_ == Role::unknown) find_role();
    switch (role_) {
      case Role::unknown:
        return false;
      case Role::root:
        return advance_root();
      case Role::winner:
        return advance_winner();
      case Role::reader:
        return advance_reader();
    }
    return false;
  }

  // Sets `role_` by claim_role(), and begins.
  virtual void find_role() = 0;
  // True if anything moved.
  virtual bool advance_root() = 0;
  virtual bool advance_winner() = 0;
  virtual bool advance_reader() = 0;

  Role role_ = Role::unknown;
};

// Whether the decision asks for one.
bool starts_with_first(const coll::Decision& decision);

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_ARRIVAL_CALL_H_
