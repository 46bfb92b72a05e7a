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
#include <map>
#include <memory>
#include <utility>
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
  Contest(int ways, Rival rival, int first) : Trial(ways, rival, first) {}
  const coll::Decision& decision(int way) const {
    return way == kOwn ? usual : rivals[static_cast<std::size_t>(way - 1)];
  }
  const char* name = "";               // of the calls
  coll::Decision usual;                // Overdrive's choice
  std::vector<coll::Decision> rivals;  // the ways after it
  std::uint64_t least_bytes = 0;       // of the calls that are counted together
  std::uint64_t most_bytes = 0;
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
  // How many other algorithms are compared: two that the model takes for nearly as good, or all
  // that there is room for.
  enum class Others : std::uint8_t { kNone, kFew, kMany };
  // The measurement of calls that choose() has just decided against the host and other algorithms;
  // null where a rule decides, or where there is nothing to compare.
  Contest* contest(const coll::Selection& selection, coll::Collective collective, bool commutative,
                   std::uint64_t bytes, Others others);
  // That of the usual algorithm against the one that starts with whoever comes first; also null
  // where that one cannot serve or is not worth trying.
  Contest* arrival_contest(const coll::Selection& selection, coll::Collective collective,
                           bool commutative, std::uint64_t bytes);
  // That of calls among the neighbours of a topology, whose equal blocks have `bytes`; 0 for all
  // calls of which ranks do not know each other's sizes. Null where nothing can be measured.
  Contest* neighbour_contest(const coll::Selection& selection, coll::Collective collective,
                             const char* name, const coll::Decision& usual, std::uint64_t bytes);
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
  // Of a call that is measured: when it began, and its trial while the host serves it.
  std::uint64_t turn_began_ns = 0;
  Contest* host_turn = nullptr;
  // What is known about calls that may outlast themselves (engine/overlap.h); null: nothing yet.
  std::shared_ptr<void> overlap;

 private:
  std::uint64_t draws_ = 0;  // of choose_any()
  coll::Nodes nodes_;
  coll::Layout layout_;
  std::array<std::array<std::unique_ptr<coll::Table>, 2>, coll::kCollectives> tables_;
  coll::ScheduleCache schedules_;
  Contest* contest(const coll::Selection& selection, coll::Collective collective, bool commutative,
                   std::uint64_t bytes, Trial::Rival rival, Others others);
  struct Place {
    bool known = false;
    std::unique_ptr<Contest> contest;  // null: there is nothing to measure
  };
  // Whether the ranks can add up times without the host.
  bool adds_up(const coll::Selection& selection) const {
    return !selection.own_choice(coll::Collective::kAllreduce, layout_, true, 0)
                .algorithm->is_host();
  }
  // By rival, collective and kind of operation, then by range of sizes.
  std::vector<std::vector<Place>> contests_;
  // By collective and number of bits of the size.
  std::map<std::pair<coll::Collective, int>, Place> neighbour_contests_;
};

// The size by which algorithms are chosen, as the collective defines it (docs/design).
std::uint64_t message_bytes(const CollectiveCall& call, int ranks, int rank);

// What a schedule is made from; *counts holds what Shape::counts points to.
coll::Shape shape_of(const CollectiveCall& call, int ranks, int rank, bool copied_input,
                     std::vector<std::int64_t>* counts);

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_COMMUNICATOR_H_
