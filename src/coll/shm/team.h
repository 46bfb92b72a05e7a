// The ranks of one communicator on one node, working on each other's buffers.
//
// An Operation is a collective under way; it is a fixed sequence of exchanges (exchange.h). All
// members start the same operations in the same order; exchanges get numbers in that order, so that
// nothing has to be agreed upon. Operations are resumable: nothing here blocks or sleeps, and
// nothing allocates once the largest sizes have been seen. advance() does what can be done; a rank
// that waits may sleep on the armed word of its region (node/wait.h) when anything_ready() is false
// after arming.
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

#include "coll/shm/exchange.h"
#include "coll/shm/groups.h"
#include "coll/shm/line.h"
#include "coll/shm/reduction_pipeline.h"
#include "coll/shm/slot_layout.h"
#include "coll/shm/slot_ring.h"
#include "coll/shm/slots.h"
#include "coll/shm/tuning.h"
#include "memory/send_history.h"
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
  std::uint64_t* in_groups = nullptr;  // counts like TeamCounters::in_groups, for all teams
  // A member's slot contains nonsense: ends the job, or returns, after which nothing moves any
  // more.
  void (*corrupt)(void* context, int member) = nullptr;
  void* context = nullptr;
};

// How often which way was taken.
struct TeamCounters {
  std::uint64_t operations = 0;
  std::uint64_t exchanges = 0;
  std::uint64_t lines = 0;          // operations of a line, served without an exchange's state
  std::uint64_t shown_payload = 0;  // in the post itself
  std::uint64_t shown_cells = 0;
  std::uint64_t shown_direct = 0;
  std::uint64_t cell_bytes = 0;    // copied into cells
  std::uint64_t direct_bytes = 0;  // read in the buffers of others
  std::uint64_t in_groups = 0;     // reductions that groups made first, each for itself
  std::uint64_t full_waits = 0;    // an exchange had to wait for room in lanes or ring
  std::uint64_t wakes = 0;
};

// A collective under way; belongs to the caller and must stay where it is until it is done, like
// the buffers and arrays that it was given.
class Operation {
 public:
  bool done() const { return finished_ == exchanges_; }
  // Whether what this member was shown was as long as it expected; once it is done.
  bool lengths_agree() const { return lengths_agree_; }

 private:
  friend class Team;
  enum class Plan : std::uint8_t {
    single,            // one exchange
    reduce_slices,     // combine a slice each, then the root collects them (in groups: combine
                       // one of the group's contributions, then one of the groups' results)
    allreduce_slices,  // the same, but everyone collects them
  };
  Plan plan_ = Plan::single;
  std::uint32_t exchanges_ = 0;
  std::uint32_t begun_ = 0;
  std::uint32_t finished_ = 0;
  std::uint64_t first_number_ = 0;
  bool lengths_agree_ = true;
  Operation* next_ = nullptr;

  Exchange single_;
  Combiner combiner_;
  const std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t segment_bytes_ = 0;
  int root_ = 0;
  ReductionPipeline pipeline_;
  // Where results of the own slot lie that others are going to read, by segment.
  static constexpr std::uint32_t kSegmentsUnderWay = 4;
  std::array<std::array<std::uint64_t, kSegmentsUnderWay>, 2> result_at_{};  // and by phase
};

class Team {
 public:
  explicit Team(TeamSetup setup);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }
  int position() const { return me_; }
  // Elements larger than this cannot be reduced here.
  std::uint64_t largest_element_bytes() const { return largest_element_bytes_; }

  // Each starts a collective. Buffers are contiguous. `send` may equal `recv`, or where the
  // collective has MPI_IN_PLACE be null, which means that the input is where the standard says it
  // is in `recv`.
  void barrier(Operation& op);
  // At the root complete when all others have started it, at the others at once; and the reverse.
  void signal_to(Operation& op, int root);
  void signal_from(Operation& op, int root);
  void bcast(Operation& op, int root, void* data, std::uint64_t bytes);
  void reduce(Operation& op, int root, const void* send, void* recv, std::uint64_t count,
              const Combiner& combiner);
  void allreduce(Operation& op, const void* send, void* recv, std::uint64_t count,
                 const Combiner& combiner);
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
  bool serve_line(const Line& line, Patience patience);

  bool reduces_whole(std::uint64_t bytes) const;
  bool allreduces_whole(std::uint64_t bytes) const;

  // For statistics: when this member was called for an operation that it has just started, and how
  // far apart all members were, once the operation is done. False: not known of all of them.
  void note_arrival(const Operation& op, std::uint64_t ns);
  bool arrivals_apart(const Operation& op, std::uint64_t* ns) const;

  // Does what can be done without waiting; true if anything has moved.
  bool advance();
  // Whether advance() would move something that stood still when it was last called.
  bool anything_ready() const;
  // Where ranks share cores: the word `away` (node/region_layout.h) of a member that has not shown
  // what is needed next, of one that is away if there is one; null: nothing of the kind is missing.
  const std::atomic<std::uint32_t>* awaited_member() const;
  bool idle() const { return next_number_ == completed_ && first_open_ == nullptr; }

  // For Slots::release, when idle: after which the team must not be used.
  std::uint64_t exchanges() const { return next_number_; }
  std::vector<Slots::Acknowledgement> acknowledgements() const;

  // What stands still and what it waits for, for reports.
  std::string describe() const;

  void set_far(bool far);
  const Tuning& tuning() const { return tuning_; }
  const TeamCounters& counters() const { return counters_; }
  const Groups& groups() const { return groups_; }
  // How much each member combines per segment of a long reduction, unless slots are smaller.
  std::uint64_t segment_slice_bytes() const { return segment_slice_bytes_; }

 private:
  struct Peer {
    SlotControl* control = nullptr;
    std::byte* slot = nullptr;
    std::atomic<std::uint32_t>* armed = nullptr;
    const std::atomic<std::uint32_t>* away = nullptr;
    std::uint64_t base = 0;
    std::uint64_t known_completed = 0;  // at least so many exchanges are over for it
    std::byte* reach = nullptr;
    std::uint64_t reach_bytes = 0;
    bool reaches_us = false;
    bool wake = false;
  };

  Peer& peer(int i) { return peers_[static_cast<std::size_t>(i)]; }
  const Peer& peer(int i) const { return peers_[static_cast<std::size_t>(i)]; }
  std::uint64_t ticket(int i, std::uint64_t number) const { return peer(i).base + number + 1; }
  std::uint64_t ticket(int i, const Exchange& x) const { return ticket(i, x.number); }
  Lane& lane(int i, std::uint64_t number) const { return peer(i).control->lanes[number % kLanes]; }
  Lane& lane(int i, const Exchange& x) const { return lane(i, x.number); }

  // operations.cc, long_reductions.cc
  void start(Operation& op, Operation::Plan plan, std::uint32_t exchanges);
  Exchange& combine_whole(Operation& op, const void* send, std::uint64_t bytes);
  void start_slices(Operation& op, Operation::Plan plan, const void* send, void* recv,
                    std::uint64_t bytes, std::uint64_t slice_limit_bytes);
  std::uint64_t slice_in_groups(const Combiner& combiner, std::uint64_t bytes,
                                std::uint64_t most) const;
  bool prepare(Operation& op, std::uint32_t index, Exchange& x);
  Blocks final_slices(const Operation& op, std::uint32_t segment) const;
  void place_final_slice(Operation& op, ReductionPipeline::Stage stage, const Blocks& slices,
                         Exchange& x);
  static void keep_result(Operation& op, ReductionPipeline::Stage stage, Exchange& x);
  static void show_result(const Operation& op, ReductionPipeline::Stage stage, Exchange& x);
  void prepare_slices(Operation& op, std::uint32_t segment, Exchange& x);
  void prepare_across(Operation& op, std::uint32_t segment, Exchange& x);
  void prepare_collect(Operation& op, std::uint32_t segment, Exchange& x);
  // `members` take part.
  std::uint64_t piece_bytes(Content content, int members, std::uint64_t unit_bytes) const;

  // team.cc
  bool begin_next();
  bool acknowledged(std::uint64_t exchange);
  void note_completed(Peer& from, std::uint32_t completed_low);
  void retire(Exchange& x);
  void publish_completed();
  void tell_sleepers();
  void tell_sleepers_of(Exchange& x);
  // To be followed by an acquire (look()) before anything of the post is read.
  bool has_posted(int i, const Exchange& x) const {
    return lane(i, x).post.ticket.load(std::memory_order_relaxed) >= ticket(i, x);
  }
  int first_missing_post(const Exchange& x) const;
  int late_readers(const Exchange& x, int& late) const;
  void wake(int i) { peer(i).wake = true; }
  void order_for_sleepers() const;
  void wake_if_asleep(const Peer& p);

  // line.cc
  static Way way_of_lines(std::uint64_t bytes);
  static std::uint64_t lines_offset(std::uint64_t number);
  void show_line(const Line& line);
  void tell_of_line(const Line& line, Span readers);
  void take_next_lines(std::uint64_t bytes);
  bool lines_here(const Line& line, Span sources, Patience patience);
  bool as_expected(const Line& line, const Post& post) const;
  void take_lines(const Line& line, Span sources);
  void complete_line();
  void tell_others(bool ends);

  // exchange_source.cc: what this member shows.
  bool prepare_source(Exchange& x);
  Way choose_way(const Exchange& x);
  bool direct_pays(const Exchange& x, std::uint64_t bytes);
  bool reachable_blocks(const Exchange& x) const;
  std::uint64_t shown_bytes(const Exchange& x) const;
  std::uint64_t table_bytes() const;
  void plan_cells(Exchange& x);
  bool fill(Exchange& x);
  void fill_piece(Exchange& x);
  void post(Exchange& x);
  bool readers_at(Exchange& x, std::uint64_t steps, int& cursor, Awaited& awaited);

  // exchange_reader.cc: what it is shown.
  void prepare_reader(Exchange& x);
  bool look(Exchange& x, int source);
  bool available(Exchange& x, int source, std::uint32_t round);
  static void note_length(const Exchange& x, std::uint64_t expected, std::uint64_t shown);
  bool resolve(Exchange& x, int source, const Post& post);
  bool read_round(Exchange& x);
  bool copy_round(Exchange& x);
  bool combine_round(Exchange& x);
  bool combine_groups(Exchange& x);
  bool step(Exchange& x);

  int size_;
  int me_;
  od::node::RegionLayout layout_;
  od::node::WakeMode wake_mode_;
  Tuning tuning_;
  void (*corrupt_)(void* context, int member);
  void* context_;
  std::uint64_t largest_element_bytes_;
  std::vector<Peer> peers_;
  bool all_reachable_ = false;  // buffers of this member, by all others
  // The last quarter of a slot holds results that wait for a root: places used in turn, each by the
  // exchange that shows it.
  static constexpr std::uint32_t kResults = 4;
  static constexpr std::uint64_t kResultShare = 16;  // of a slot's bytes, each
  std::uint64_t result_bytes_;
  std::array<std::uint64_t, kResults> result_shown_by_{};  // number + 1; 0: unused so far
  std::uint32_t next_result_ = 0;
  SlotRing ring_;
  std::array<Exchange, kLanes> exchanges_;
  std::vector<Shown> shown_;  // kLanes times one per member
  std::vector<const std::byte*> operands_;
  std::vector<std::byte> scratch_;
  std::byte* aligned_scratch_ = nullptr;  // to a line, as cells are
  Groups groups_;
  std::uint64_t segment_slice_bytes_ = 0;
  std::uint64_t* in_groups_;
  memory::SendHistory history_;

  Operation* first_open_ = nullptr;  // with exchanges that have not begun
  Operation* last_open_ = nullptr;
  std::uint64_t reserved_ = 0;      // numbers given to operations
  std::uint64_t next_number_ = 0;   // of the exchange that begins next
  std::uint64_t completed_ = 0;     // all below are over here
  std::uint64_t acknowledged_ = 0;  // all below are over everywhere
  Awaited awaits_acknowledgement_;
  int last_root_ = -1;
  bool shown_ahead_ = false;  // the next exchange's post is there already
  bool news_completed_ = false;
  bool any_news_ = false;
  bool broken_ = false;
  TeamCounters counters_;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_TEAM_H_
