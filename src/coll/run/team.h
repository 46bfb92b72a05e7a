// The ranks of a communicator that share memory with this one, as a team (coll/shm/team.h): how
// they find each other's slots, and which collective of the program is which of the team's.
//
// At the first collective every member sends the others which slot it has taken and which cache it
// works at; until all have told, that call waits (it would wait for these members anyway), and so
// do those that follow it. If one of them has none left, all of this node go on without: by
// messages.
//
// What a team serves has one order, the same at all members. So a communicator has one for blocking
// calls, one at a time, and one for non-blocking calls, of which any number may be under way; ranks
// may call the ones and the others in different orders. Each persistent call has its own, because
// ranks may start several in any order; its slot is taken when it is made, which happens in one
// order, so that all run out of slots at the same call.
#ifndef OVERDRIVE_COLL_RUN_TEAM_H_
#define OVERDRIVE_COLL_RUN_TEAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "coll/plan/registry.h"
#include "coll/plan/schedule.h"
#include "coll/run/buffers.h"
#include "coll/run/call.h"
#include "coll/run/team_messages.h"
#include "coll/shm/team.h"
#include "p2p/endpoint.h"
#include "topology/cache_claim.h"

namespace od {

class CollectiveOp;
class Collectives;

class CollectiveTeam {
 public:
  enum class Phase : std::uint8_t { leased, joining, ready, impossible };

  // Takes a slot. `members` are the ranks of `comm` on this node, in ascending order. So many slots
  // are left for others.
  CollectiveTeam(Collectives& owner, Comm& comm, std::vector<int> members, std::uint64_t context,
                 std::uint32_t spare_slots);
  ~CollectiveTeam();
  CollectiveTeam(const CollectiveTeam&) = delete;
  CollectiveTeam& operator=(const CollectiveTeam&) = delete;

  Phase phase() const { return phase_; }
  // The first call begins: what was leased becomes joining.
  void tell_members();
  // While joining: the operation is launched, after those that came before, when that is over.
  void launch_later(CollectiveOp& op) { waiting_.push_back(&op); }
  // Looks whether the other members have told, or does what can be done in shared memory; true if
  // anything has moved.
  bool advance();
  // Of the operations that it does as a whole only the oldest can move, as many as it has lanes:
  // the others are not looked at before one of these is over.
  bool enters(CollectiveOp& op) {
    if (entered_ == kEntered || !behind_.empty()) {
      behind_.push_back(&op);
      return false;
    }
    ++entered_;
    return true;
  }
  // One that has entered is over. The one that enters for it; null: there is none.
  CollectiveOp* next_to_enter() {
    --entered_;
    if (behind_.empty()) return nullptr;
    CollectiveOp* const op = behind_.front();
    behind_.pop_front();
    ++entered_;
    return op;
  }
  // Whether it would move something that stood still: another member has come. What members tell
  // while joining are messages, for which others look.
  bool anything_ready() const { return phase_ == Phase::ready && team_->anything_ready(); }

  coll::shm::Team& team() { return *team_; }
  // When ready: whether it can do this reduction, or any collective that only moves data; the same
  // on all ranks.
  bool serves(const CollectiveCall& call) const;
  // Tells the team how far its members are from each other now.
  void look_at_distance();

 private:
  // What the members tell each other.
  struct Joining {
    coll::shm::SlotLease lease;
    topology::CacheClaim cache;
  };

  bool join();
  void leave();
  void make_team();
  void describe_team() const;

  Collectives& owner_;
  p2p::Endpoint& endpoint_;
  Comm& comm_;
  std::vector<int> members_;
  std::uint64_t context_;
  Phase phase_ = Phase::leased;
  Joining own_;
  std::vector<Joining> joining_;    // by member
  std::vector<Request*> messages_;  // under way while joining
  std::vector<CollectiveOp*> waiting_;
  static constexpr std::size_t kEntered = 2 * coll::shm::kLanes;
  std::size_t entered_ = 0;
  std::deque<CollectiveOp*> behind_;
  std::uint32_t neighbour_ = 0;  // node index of another member
  bool far_ = false;
  TeamMessages carrier_;
  std::unique_ptr<coll::shm::Team> team_;
};

// A part of a collective that the team does: what the team works with has to stay where it is.
struct TeamWork {
  coll::shm::Operation operation;
  std::vector<std::int64_t> send_offsets, send_bytes, recv_offsets, recv_bytes;
};

// How the ranks of a node reduce by this algorithm.
coll::shm::ReductionForm reduction_form(const coll::Algorithm& algorithm);
// Starts the whole collective, of a communicator that lies on this node alone.
void start_whole(coll::shm::Team& team, TeamWork& work, const CollectiveCall& call,
                 const CollectiveBuffers& buffers, coll::shm::ReductionForm form);
// Starts a step of kind kNode (coll/plan/hierarchy/node_steps.h).
void start_node_step(coll::shm::Team& team, TeamWork& work, const coll::Step& step,
                     const CollectiveCall& call, const CollectiveBuffers& buffers,
                     coll::shm::ReductionForm form);

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_TEAM_H_
