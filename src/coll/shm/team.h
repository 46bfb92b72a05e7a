// The ranks of one communicator on one node, working on each other's buffers.
//
// An Operation is a collective under way; it is a fixed sequence of exchanges (exchange_spec.h).
// All members start the same operations in the same order; exchanges get numbers in that order, so
// that nothing has to be agreed upon. Operations are resumable: nothing here blocks or sleeps, and
// nothing allocates once the largest sizes have been seen. advance() does what can be done; a rank
// that waits may sleep on the armed word of its region (node/wait.h) when anything_ready() is false
// after arming.
//
// Team holds the parts together and drives them: the channel has the words that members share, the
// publisher shows, the reader reads, lines are served at once, and a long reduction follows a plan.
//
// Who waits for whom, what orders what, and why no wake-up is lost:
// docs/design/collectives-in-a-node.md.
#ifndef OVERDRIVE_COLL_SHM_TEAM_H_
#define OVERDRIVE_COLL_SHM_TEAM_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coll/shm/carrier.h"
#include "coll/shm/channel.h"
#include "coll/shm/exchange.h"
#include "coll/shm/groups.h"
#include "coll/shm/line.h"
#include "coll/shm/operation.h"
#include "coll/shm/publisher.h"
#include "coll/shm/reader.h"
#include "coll/shm/slots.h"
#include "coll/shm/team_counters.h"
#include "coll/shm/team_shape.h"
#include "coll/shm/tuning.h"
#include "node/wait.h"

namespace od::coll::shm {

struct TeamMember {
  std::byte* region = nullptr;  // start of its region in this process
  SlotLease lease;              // as the member told
  std::byte* reach = nullptr;   // its reach file in this process, or null
  std::uint64_t reach_bytes = 0;
  bool reaches_us = false;  // it has mapped this process's reach file
  CacheClaim cache;         // as the member told
};

struct TeamSetup {
  std::vector<TeamMember> members;
  int me = 0;
  const od::node::RegionLayout* layout = nullptr;
  od::node::WakeMode wake_mode;
  Tuning tuning;
  Carrier* carrier = nullptr;  // stays as long as the team; null: nothing is sent as a message
  std::uint64_t* in_groups = nullptr;  // counts like TeamCounters::in_groups, for all teams
  // See CorruptHandler.
  void (*corrupt)(void* context, int member) = nullptr;
  // See DistanceHandler.
  void (*distance)(void* context, int member, const void* line) = nullptr;
  void* context = nullptr;  // of both
};

class Team {
 public:
  explicit Team(TeamSetup setup);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return shape_.size; }
  int position() const { return shape_.me; }
  // Elements larger than this cannot be reduced here.
  std::uint64_t largest_element_bytes() const { return shape_.largest_element_bytes; }

  // Each starts a collective. Buffers are contiguous. `send` may equal `recv`, or where the
  // collective has MPI_IN_PLACE be null, which means that the input is where the standard says it
  // is in `recv`.
  void barrier(Operation& op);
  // At the root complete when all others have started it, at the others at once; and the reverse.
  void signal_to(Operation& op, int root);
  void signal_from(Operation& op, int root);
  void bcast(Operation& op, int root, void* data, std::uint64_t bytes);
  void reduce(Operation& op, int root, const void* send, void* recv, std::uint64_t count,
              const Combiner& combiner, ReductionForm form = ReductionForm::automatic);
  void allreduce(Operation& op, const void* send, void* recv, std::uint64_t count,
                 const Combiner& combiner, ReductionForm form = ReductionForm::automatic);
  void scan(Operation& op, const void* send, void* recv, std::uint64_t count,
            const Combiner& combiner);
  void exscan(Operation& op, const void* send, void* recv, std::uint64_t count,
              const Combiner& combiner);
  // `recv` is looked at by the root only; its blocks have the sizes that the members send.
  void gather(Operation& op, int root, const void* send, std::uint64_t send_bytes,
              const Blocks& recv);
  void scatter(Operation& op, int root, const Blocks& send, void* recv, std::uint64_t recv_bytes);
  void allgather(Operation& op, const void* send, std::uint64_t send_bytes, const Blocks& recv);
  // Blocks are of equal size everywhere, or every member brings arrays of its own.
  void alltoall(Operation& op, const Blocks& send, const Blocks& recv);
  // `send` has the same offsets and sizes at all members.
  void reduce_scatter(Operation& op, const Blocks& send, void* recv, const Combiner& combiner);

  // All at once, while nothing else is under way; false: to be started as an Operation, which then
  // has to be the team's next one.
  bool serve_line(const Line& line, Patience patience) {
    if (first_open_ != nullptr || !channel_.quiet() || reader_.broken()) return false;
    if (!lines_.serve(line, patience)) return false;
    ++counters_.operations;
    ++counters_.lines;
    ++reserved_;
    return true;
  }

  // How long a line may be.
  std::uint64_t line_bytes() const { return channel_.lanes().cell_bytes(); }
  bool reduces_whole(std::uint64_t bytes, ReductionForm form) const {
    return shape_.reduces_whole(bytes, form);
  }
  bool allreduces_whole(std::uint64_t bytes, ReductionForm form) const {
    return shape_.allreduces_whole(bytes, form);
  }

  // For statistics: when this member was called for an operation that it has just started, and how
  // far apart all members were, once the operation is done. False: not known of all of them.
  void note_arrival(const Operation& op, std::uint64_t ns) {
    channel_.note_arrival(op.state_.first_number, ns);
  }
  bool arrivals_apart(const Operation& op, std::uint64_t* ns) const {
    return channel_.arrivals_apart(op.state_.first_number, ns);
  }

  // Does what can be done without waiting; true if anything has moved.
  bool advance();
  // Whether advance() would move something that stood still when it was last called.
  bool anything_ready() const;
  // Where ranks share cores: the word `away` (node/region_layout.h) of a member that has not shown
  // what is needed next, of one that is away if there is one; null: nothing of the kind is missing.
  const std::atomic<std::uint32_t>* awaited_member() const;
  bool idle() const { return channel_.quiet() && first_open_ == nullptr; }

  // For Slots::release, when idle: after which the team must not be used.
  std::uint64_t exchanges() const { return channel_.next(); }
  std::vector<Slots::Acknowledgement> acknowledgements() const {
    return channel_.acknowledgements();
  }

  // What stands still and what it waits for, for reports.
  std::string describe() const;

  void set_far(bool far) { shape_.tuning.far = far; }
  const Tuning& tuning() const { return shape_.tuning; }
  const TeamCounters& counters() const { return counters_; }
  const Groups& groups() const { return shape_.groups; }
  // How much each member combines per segment of a long reduction, unless slots are smaller.
  std::uint64_t segment_slice_bytes() const { return shape_.segment_slice_bytes; }

 private:
  // operations.cc
  void start(Operation& op, std::uint32_t exchanges);
  void start_single(Operation& op, bool needed = true);
  void start_long(Operation& op, const ReducedVector& vector);

  // team.cc
  Exchange& lane_exchange(std::uint64_t number) { return exchanges_[number % kLanes]; }
  const Exchange& lane_exchange(std::uint64_t number) const { return exchanges_[number % kLanes]; }
  bool begin_next();
  bool describe_next(Operation& op, Exchange& x);
  bool step(Exchange& x);
  bool message_moves(const Exchange& x) const;
  void retire(Exchange& x);
  void tell_sleepers();

  TeamShape shape_;
  std::uint64_t* in_groups_;
  Carrier* carrier_;
  TeamCounters counters_;
  Channel channel_;
  Publisher publisher_;
  Reader reader_;
  LineServer lines_;

  std::array<Exchange, kLanes> exchanges_;
  Operation* first_open_ = nullptr;  // with exchanges that have not begun
  Operation* last_open_ = nullptr;
  std::uint64_t reserved_ = 0;  // numbers given to operations
  int last_root_ = -1;
  bool any_news_ = false;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_TEAM_H_
