// What a communicator's collectives need: where its ranks lie, which algorithm serves which call,
// and the schedules that were made.
//
// Made at the first collective on the communicator. Everything that decides here is the same on all
// of its ranks: the placement (exchanged inside MPI_Init), settings, and the number of collectives
// so far (`sequence`), which MPI makes equal everywhere.
#ifndef OVERDRIVE_COLL_RUN_COMMUNICATOR_H_
#define OVERDRIVE_COLL_RUN_COMMUNICATOR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/quiet_floats.h"
#include "coll/plan/hierarchy/nodes.h"
#include "coll/plan/schedule_cache.h"
#include "coll/plan/select/learnt.h"
#include "coll/plan/select/selection.h"
#include "coll/run/arrival_call.h"
#include "coll/run/arrival_habit.h"
#include "coll/run/call.h"
#include "coll/run/host_channel.h"
#include "coll/run/host_tags.h"
#include "coll/run/in_network.h"
#include "coll/run/team.h"
#include "coll/run/trial.h"
#include "host/host_table.h"
#include "p2p/comm.h"

namespace od {

// Which of a communicator's calls that do not block, counted from 1, a switch serves, as far as
// they are of one kind and range of sizes. Ranks may call these and blocking ones, at which all
// agree about it, in different orders; so each agreement is about calls that none has made yet.
class SwitchedLater {
 public:
  bool at(std::uint64_t call) const {
    bool switched = false;
    for (const auto& [first, yes] : changes_) {
      if (first <= call) switched = yes;
    }
    return switched;
  }
  // From that call on, while this rank has made `calls`.
  void set(std::uint64_t first_call, bool switched, std::uint64_t calls) {
    while (changes_.size() > 1 && changes_[1].first <= calls) changes_.erase(changes_.begin());
    changes_.emplace_back(first_call, switched);
  }

 private:
  std::vector<std::pair<std::uint64_t, bool>> changes_;
};

// How many other algorithms are compared: two that the model takes for nearly as good, or all that
// there is room for.
enum class Others : std::uint8_t { kNone, kFew, kMany };

// What a measurement compares.
struct Compared {
  std::string name;                    // of the calls
  coll::Decision usual;                // Overdrive's choice
  std::vector<coll::Decision> rivals;  // the ways after it
  std::uint64_t least_bytes = 0;       // of the calls that are counted together
  std::uint64_t most_bytes = 0;
  // By what the model names the rivals (coll/run/rivals.h).
  std::uint64_t typical_bytes = 0;
  bool commutative = true;
  Others others = Others::kNone;
  bool fitted = false;  // named once more, by a network that has been fitted to what was seen
  // Those that have been given up, with the nanoseconds of a call on a rank.
  std::vector<std::pair<coll::Decision, double>> given_up;
};

struct ArrivalChoice;

struct Contest : Trial {
  using Trial::Trial;
  const coll::Decision& decision(int way) const {
    return way == kOwn ? compared.usual : compared.rivals[static_cast<std::size_t>(way - 1)];
  }
  // Says how the next call goes where it is not the turn of the usual way.
  void obey_turn(coll::Decision* decided) const {
    if (turn() != kOwn) *decided = decision(turn());
  }
  Compared compared;
  // At the first verdict the ranks agree about these arrivals, as they have just met.
  ArrivalChoice* arrivals = nullptr;
  // Of a switch's: which calls that do not block follow its verdicts.
  SwitchedLater* later = nullptr;
};

// Samples of contests to which the communicator's next calls belong. There are several only where
// nothing was known of any: those were served alike, all by the switch or none.
class OpenSamples {
 public:
  bool open() const { return count_ > 0; }
  // `switched`: the switch has served the call.
  void begin(Contest& contest, bool switched) {
    if (count_ == samples_.size()) return;
    samples_[count_++] = {&contest, Trial::kFollowing};
    switched_ = switched;
  }
  // A call of a contest begins, whose own sample has ended.
  void shift_aside(Contest& other) {
    other.step_aside(false, false);
    if (!open()) return;
    if (!other.follows() || other.judged()) {
      other.step_aside(true, false);
      return;
    }
    bool all_new = true;
    for (std::size_t i = 0; i < count_; ++i) {
      all_new = all_new && !samples_[i].of->judged();
      samples_[i].of->together();
    }
    const bool alike = (other.turn() == Trial::kRival) == switched_;
    if (all_new && alike && other.measuring()) {
      other.together();
    } else {
      other.step_aside(true, switched_);
    }
  }
  // Another call has taken so long.
  void add(std::uint64_t ns) {
    for (std::size_t i = 0; i < count_; ++i) samples_[i].of->followed(ns);
    remove_if([](Sample& sample) { return --sample.left == 0; });
  }
  // The contest's next call begins.
  void end(const Contest& contest) {
    remove_if([&](const Sample& sample) { return sample.of == &contest; });
  }

 private:
  struct Sample {
    Contest* of = nullptr;
    int left = 0;
  };
  template <typename Gone>
  void remove_if(Gone&& gone) {
    const auto end = samples_.begin() + static_cast<std::ptrdiff_t>(count_);
    count_ =
        static_cast<std::size_t>(std::remove_if(samples_.begin(), end, gone) - samples_.begin());
  }

  std::array<Sample, Trial::kFollowing + 1> samples_{};
  std::size_t count_ = 0;
  bool switched_ = false;
};

// Whether calls of one kind and range of sizes are served by what starts with whoever comes first:
// measured at positions (arrival_habit.h) where ranks come so far apart that it may pay. What is
// best among all other ways is found before, by the usual contest; so what starts with the first
// costs few calls where it loses, and where it wins nothing has to be measured anew.
struct ArrivalChoice {
  ArrivalChoice(bool to_root, int ranks_in, Compared ways)
      : habit(to_root, ways.least_bytes), ranks(ranks_in), compared(std::move(ways)) {}
  ArrivalHabit habit;
  int ranks;
  Compared compared;
  std::array<std::unique_ptr<Contest>, ArrivalHabit::kMostPeriod> contests;
  Contest* usual = nullptr;  // that of the last call
  std::uint64_t calls_before = 0;

  // Whether the ranks will tell each other of the next call.
  bool next_is_told() const {
    if (habit.started()) return habit.next_is_told();
    // At the end of a stage there may be a verdict.
    return usual != nullptr && usual->calls_left() <= static_cast<int>(ArrivalHabit::kRemembered);
  }
  // The call that has begun has ended.
  void left() {
    if (habit.awaits_end()) habit.ended(now_ns());
  }
  // An earlier run has found by so many calls that it gains.
  void begin_with_gain(std::uint64_t calls);
  // With those of the runs before.
  std::uint64_t calls() const { return calls_before + habit.calls(); }
  // Whether it is worth keeping for the next run. Where it gains because ranks come apart that is
  // found anew: a run, or a part of one, in which they come together would lose by it.
  bool gains() const {
    const Contest* const mine = contests.front().get();
    return habit.gains_anyway() && mine != nullptr && mine->judged() &&
           mine->winner() == Trial::kRival;
  }
  // To which contest the call that has begun belongs: the usual one, or that of its position, or
  // none. What the contest finds best serves it unless it is another way's turn.
  Contest* decide(Contest* best_of_others, coll::Decision* decision);
};

class CollectiveComm {
 public:
  // `node_of_world` names the node of each world rank; this one has more ranks than cores or not.
  CollectiveComm(const Comm& comm, const std::vector<int>& node_of_world, bool shares_cores,
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
  // The measurement of calls that choose() has just decided against the host and other algorithms;
  // null where a rule decides, or where there is nothing to compare.
  Contest* contest(const coll::Selection& selection, coll::Collective collective, bool commutative,
                   std::uint64_t bytes, const coll::Decision& usual, Others others);
  // What contests have found so far, for the next run of the program; and how many have begun with
  // what an earlier one has found since this was last asked.
  void tell_learnt(coll::LearntChoices& choices) const;
  std::uint64_t take_choices_learnt() { return std::exchange(choices_learnt_, 0); }
  // The measurement of calls that the switch could serve against the host and, unless there is
  // nothing but a switch, the choice of choose(); null where there is nothing to measure. Barriers
  // have one for each kind and length of the call before them: what a barrier is good for lies in
  // the calls around it.
  Contest* switch_contest(const coll::Selection& selection, coll::Collective collective,
                          bool commutative, std::uint64_t bytes, bool only_switch);
  // A call for which the switch is on goes by: the next barrier's is that after it.
  void passes(coll::Collective collective, std::uint64_t bytes);
  // For another group of the leaders, which may lie elsewhere.
  void forget_switch_contests() {
    samples = {};
    switch_contests_.clear();
    switch_barriers_.clear();
  }
  // What was agreed about calls that do not block, for which choose() has decided.
  SwitchedLater& switched_later(coll::Collective collective, bool commutative, std::uint64_t bytes);
  // Between the usual algorithm and the one that starts with whoever comes first; null where a rule
  // decides, or where that one cannot serve.
  ArrivalChoice* arrival_choice(const coll::Selection& selection, coll::Collective collective,
                                bool commutative, std::uint64_t bytes);
  // That of calls among the neighbours of a topology, whose equal blocks have `bytes`; 0 for all
  // calls of which ranks do not know each other's sizes. Null where nothing can be measured.
  Contest* neighbour_contest(const coll::Selection& selection, coll::Collective collective,
                             const char* name, const coll::Decision& usual, std::uint64_t bytes);
  // Whether by the rules a broadcast of some size starts with whoever comes first.
  bool any_first_bcast(const coll::Selection& selection);
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
  // Likewise of non-blocking broadcasts, made with the communicator; null: they go as others do.
  std::unique_ptr<ArrivalComm> arrival_later;
  HostChannel arrival_channel;  // of these, which begin one after the other
  std::array<HostChannel, HostTags::kChannels> channels;  // where the communicator spans nodes
  // The leaders and the switch between them; null: not looked for yet.
  std::unique_ptr<InNetwork> in_network;
  std::uint32_t switch_calls = 0;   // for which one might be of use, before that
  std::uint32_t switch_groups = 0;  // made so far
  static constexpr std::uint32_t kMostSwitchGroups = 4;
  bool switch_missed = false;  // a group could not be made
  bool with_sockets = false;   // a rule has asked for leaders by socket
  // The same leaders once more, for calls that do not block: operations of a group have one order.
  std::unique_ptr<InNetwork> in_network_later;
  std::uint64_t calls_later = 0;     // made so far
  std::uint64_t first_switched = 0;  // the first that a switch may serve, from 1; 0: none
  std::uint64_t switched_until = std::numeric_limits<std::uint64_t>::max();
  // Of a call that is measured: when it began, and its trial while the host serves it.
  std::uint64_t turn_began_ns = 0;
  Contest* host_turn = nullptr;
  OpenSamples samples;                // of a switch's contests
  std::uint64_t follow_began_ns = 0;  // of a call that belongs to it while the host serves it
  ArrivalChoice* watched = nullptr;   // of the call under way, if anybody looks when ranks come
  // What is known about calls that may outlast themselves (engine/overlap.h); null: nothing yet.
  std::shared_ptr<void> overlap;

 private:
  std::uint64_t draws_ = 0;  // of choose_any()
  std::uint64_t choices_learnt_ = 0;
  coll::Nodes nodes_;
  coll::Layout layout_;
  std::array<std::array<std::unique_ptr<coll::Table>, 2>, coll::kCollectives> tables_;
  coll::ScheduleCache schedules_;
  // Whether the ranks can add up times, by an allreduce that does not depend on the host.
  bool adds_up(const coll::Selection& selection) const {
    return !selection.own_choice(coll::Collective::kAllreduce, layout_, true, 0)
                .algorithm->is_host();
  }
  // Whether ways may be compared in a range of sizes, for which choose() has decided: no rule of
  // the user's decides there.
  bool may_measure(const coll::Selection& selection, coll::Collective collective, bool commutative,
                   std::uint64_t bytes) const;
  // The same, and the usual way there is not the host's anyway.
  bool may_measure_own(const coll::Selection& selection, coll::Collective collective,
                       bool commutative, std::uint64_t bytes) const;
  // What is compared in a range of sizes, but for the rivals.
  Compared compared(coll::Collective collective, bool commutative, std::uint64_t bytes,
                    const coll::Decision& usual) const;
  template <typename Made>
  struct Place {
    bool known = false;
    std::unique_ptr<Made> made;  // null: there is nothing to measure
  };
  // By collective and kind of operation, then by range of sizes.
  template <typename Made>
  using Places = std::vector<std::vector<Place<Made>>>;
  template <typename Made>
  Place<Made>& place(Places<Made>& places, coll::Collective collective, bool commutative,
                     std::uint64_t bytes) const;
  Places<Contest> contests_;
  Places<Contest> switch_contests_;
  // Of barriers, by the call before; a program with many kinds of calls has one for the rest.
  static constexpr std::size_t kMostBarriers = 24;
  std::map<std::uint32_t, Place<Contest>> switch_barriers_;
  std::uint32_t previous_ = 0;  // kind and length of the last call, from 1
  Places<SwitchedLater> switched_later_;
  Places<ArrivalChoice> arrivals_;
  // By collective and number of bits of the size.
  std::map<std::pair<coll::Collective, int>, Place<Contest>> neighbour_contests_;
};

// The size by which algorithms are chosen, as the collective defines it (docs/design).
std::uint64_t message_bytes(const CollectiveCall& call, int ranks, int rank);

// What a schedule is made from; *counts holds what Shape::counts points to.
coll::Shape shape_of(const CollectiveCall& call, int ranks, int rank, bool copied_input,
                     std::vector<std::int64_t>* counts);

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_COMMUNICATOR_H_
