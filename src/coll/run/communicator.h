// What a communicator's collectives need: where its ranks lie, which algorithm serves which call,
// and the schedules that were made.
//
// Made at the first collective on the communicator. Everything that decides here is the same on all
// of its ranks: the placement (exchanged inside MPI_Init), settings, and the number of collectives
// so far (`sequence`), which MPI makes equal everywhere.
#ifndef OVERDRIVE_COLL_RUN_COMMUNICATOR_H_
#define OVERDRIVE_COLL_RUN_COMMUNICATOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "base/quiet_floats.h"
#include "coll/plan/hierarchy/nodes.h"
#include "coll/plan/schedule_cache.h"
#include "coll/plan/select/selection.h"
#include "coll/run/arrival_call.h"
#include "coll/run/call.h"
#include "coll/run/host_channel.h"
#include "coll/run/host_tags.h"
#include "coll/run/in_network.h"
#include "coll/run/team.h"
#include "coll/run/trial.h"
#include "host/host_table.h"
#include "p2p/comm.h"

namespace od {

// A measurement, and what is compared.
struct Contest : Trial {
  Contest(int ways, Rival rival) : Trial(ways, rival) {}
  std::vector<coll::Decision> rivals;  // the ways after Overdrive's usual choice
};

class CollectiveComm {
 public:
  // `node_of_world` names the node of each world rank.
  CollectiveComm(const Comm& comm, const std::vector<int>& node_of_world,
                 std::size_t schedule_bytes);

  // The algorithm of a call whose message size is `bytes`.
  const coll::Decision& choose(const coll::Selection& selection, coll::Collective collective,
                               bool commutative, std::uint64_t bytes) {
    std::unique_ptr<coll::Table>& table =
        tables_[static_cast<std::size_t>(collective)][commutative ? 1 : 0];
    if (table == nullptr) [[unlikely]] {
      const QuietFloats quiet;
      table = std::make_unique<coll::Table>(selection.compile(collective, layout_, commutative));
    }
    return table->at(bytes);
  }
  // Whether a rule of the user's decides about calls of that size, for which choose() has decided.
  bool ruled(coll::Collective collective, bool commutative, std::uint64_t bytes) const {
    const coll::Table& table = *tables_[static_cast<std::size_t>(collective)][commutative ? 1 : 0];
    return table.ruled(table.range_of(bytes));
  }
  // The measurement of calls that choose() has just decided against the host and, `widely`, against
  // other algorithms; null where a rule decides, or where there is nothing to compare.
  Contest* contest(const coll::Selection& selection, coll::Collective collective, bool commutative,
                   std::uint64_t bytes, bool widely);
  // That of the usual algorithm against the one that starts with whoever comes first; also null
  // where that one cannot serve or is not worth trying.
  Contest* arrival_contest(const coll::Selection& selection, coll::Collective collective,
                           bool commutative, std::uint64_t bytes);
  // One of the algorithms that can serve, by chance that all ranks share.
  coll::Decision choose_any(const coll::Selection& selection, coll::Collective collective,
                            bool commutative, std::uint64_t bytes, std::uint64_t seed);

  const coll::Layout& layout() const { return layout_; }
  // Whether some of the ranks do not share memory with this one.
  bool spans_nodes() const { return layout_.nodes > 1; }
  const coll::Nodes& nodes() const { return nodes_; }
  coll::ScheduleCache& schedules() { return schedules_; }

  std::uint64_t context = 0;   // of messages of collectives; the call's number is added
  std::uint64_t sequence = 0;  // blocking collectives served so far
  std::uint64_t sequence_without_blocking = 0;  // and others
  host::Handle hidden = 0;  // the host's communicator for messages between nodes
  // Whether non-blocking and persistent calls may be served between nodes: the hidden communicator
  // was made with this one, before any call, so that all ranks of all calls agree.
  bool serves_later = false;
  std::uint64_t sequence_between = 0;    // non-blocking calls served between nodes so far
  std::uint64_t persistent_between = 0;  // persistent calls made so far, of those that span nodes
  int persistent_left = 0;               // of those, not freed yet
  // Made when a call first asks for one: for blocking calls and for non-blocking ones.
  std::unique_ptr<CollectiveTeam> team;
  std::unique_ptr<CollectiveTeam> team_without_blocking;
  // Of calls that start with whoever comes first, or end with the last; made at the first of them.
  std::unique_ptr<ArrivalComm> arrival;
  std::array<HostChannel, HostTags::kChannels> channels;  // where the communicator spans nodes
  // The leaders and the switch between them; null: not looked for yet.
  std::unique_ptr<InNetwork> in_network;
  std::uint32_t switch_calls = 0;     // for which one might be of use, before that
  std::uint32_t switch_attempts = 0;  // to make a group
  bool with_sockets = false;          // a rule has asked for leaders by socket
  // The same leaders once more, for calls that do not block: operations of a group have one order.
  std::unique_ptr<InNetwork> in_network_later;
  // Ranks call these and blocking ones in different orders, so they agree from which non-blocking
  // call of the communicator on, counted from 1, and up to which a switch serves.
  struct SwitchedLater {
    std::uint64_t first_call = 0;  // 0: none
    std::uint64_t most_bytes = 0;
  };
  std::uint64_t calls_later = 0;
  std::uint64_t first_switched = 0;  // the first that any may serve; 0: none
  std::array<SwitchedLater, coll::kCollectives> switched_later{};
  std::uint64_t switched_until = std::numeric_limits<std::uint64_t>::max();
  // Of a call that is measured: when it began, and its trial while the host serves it.
  std::uint64_t turn_began_ns = 0;
  Trial* host_turn = nullptr;
  // What is known about calls that may outlast themselves (engine/overlap.h); null: nothing yet.
  std::shared_ptr<void> overlap;

 private:
  std::uint64_t draws_ = 0;  // of choose_any()
  coll::Nodes nodes_;
  coll::Layout layout_;
  std::array<std::array<std::unique_ptr<coll::Table>, 2>, coll::kCollectives> tables_;
  coll::ScheduleCache schedules_;
  Contest* contest(const coll::Selection& selection, coll::Collective collective, bool commutative,
                   std::uint64_t bytes, Trial::Rival rival, bool widely);
  struct Place {
    bool known = false;
    std::unique_ptr<Contest> contest;  // null: there is nothing to measure
  };
  // By rival, collective and kind of operation, then by range of sizes.
  std::vector<std::vector<Place>> contests_;
};

// The size by which algorithms are chosen, as the collective defines it (docs/design).
std::uint64_t message_bytes(const CollectiveCall& call, int ranks, int rank);

// What a schedule is made from; *counts holds what Shape::counts points to.
coll::Shape shape_of(const CollectiveCall& call, int ranks, int rank, bool copied_input,
                     std::vector<std::int64_t>* counts);

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_COMMUNICATOR_H_
