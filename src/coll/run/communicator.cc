// Where a communicator's ranks lie, and how its calls look to the algorithms.

#include "coll/run/communicator.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coll/run/rivals.h"
#include "p2p/context.h"

namespace od {

using coll::Collective;

namespace {

constexpr std::uint64_t kCollectiveContext = 0x436f6c6c00000001;

// Bytes of the vector, or of the block that one rank sends to or gets from one rank: seen from the
// side that holds one, which every rank of an equal-sized collective has.
std::int64_t block_bytes(const CollectiveCall& call, bool at_root) {
  const coll::CollectiveInfo& info = coll::info(call.collective);
  const bool by_input = info.rooted() && !info.reduces && info.input != coll::Part::kNone &&
                        at_root == info.scatters();
  if (by_input) return call.send_count * call.send_type->size;
  return call.recv_count * call.recv_type->size;
}

// Whether few calls are enough to make up for what a communicator needs before its first call
// between nodes, about a millisecond for the hidden communicator and the node's team: long ones,
// but for all-to-alls, whose every block crosses over once whatever is done.
bool gains_at_once(Collective collective, const coll::Layout& layout, std::uint64_t bytes) {
  constexpr std::uint64_t kLeastBytes = 64 << 10;
  if (layout.nodes == 1) return true;
  const coll::CollectiveInfo& kind = coll::info(collective);
  if (!kind.reduces && !kind.rooted() && kind.input == coll::Part::kEach) return false;
  const bool blocks = kind.size_rule() == coll::SizeRule::kBlock;
  return bytes * (blocks ? static_cast<std::uint64_t>(layout.ranks) : 1) >= kLeastBytes;
}

coll::Nodes nodes_of(const Comm& comm, const std::vector<int>& node_of_world) {
  std::vector<int> node_of(comm.world_rank.size(), 0);
  for (std::size_t rank = 0; rank < node_of.size() && !node_of_world.empty(); ++rank) {
    node_of[rank] = node_of_world[static_cast<std::size_t>(comm.world_rank[rank])];
  }
  return coll::Nodes(node_of);
}

}  // namespace

CollectiveComm::CollectiveComm(const Comm& comm, const std::vector<int>& node_of_world,
                               bool shares_cores, std::size_t schedule_bytes)
    : context(combine(comm.context, kCollectiveContext)),
      nodes_(nodes_of(comm, node_of_world)),
      layout_(nodes_.layout()),
      schedules_(schedule_bytes) {
  layout_.shares_cores = shares_cores && layout_.nodes == 1;
}

template <typename Made>
CollectiveComm::Place<Made>& CollectiveComm::place(Places<Made>& places, Collective collective,
                                                   bool commutative, std::uint64_t bytes) const {
  const auto number = static_cast<std::size_t>(collective);
  const coll::Table& table = *tables_[number][commutative ? 1 : 0];
  if (places.empty()) [[unlikely]]
    places.resize(coll::kCollectives << 1);
  std::vector<Place<Made>>& ranges = places[number << 1 | (commutative ? 1 : 0)];
  if (ranges.empty()) [[unlikely]]
    ranges.resize(table.last_bytes().size());
  return ranges[table.range_of(bytes)];
}

bool CollectiveComm::may_measure(const coll::Selection& selection, Collective collective,
                                 bool commutative, std::uint64_t bytes) const {
  return !ruled(collective, commutative, bytes) && adds_up(selection);
}

bool CollectiveComm::may_measure_own(const coll::Selection& selection, Collective collective,
                                     bool commutative, std::uint64_t bytes) const {
  coll::Table& table = *tables_[static_cast<std::size_t>(collective)][commutative ? 1 : 0];
  return may_measure(selection, collective, commutative, bytes) &&
         !table.at(bytes).algorithm->is_host();
}

ArrivalChoice* CollectiveComm::arrival_choice(const coll::Selection& selection,
                                              Collective collective, bool commutative,
                                              std::uint64_t bytes) {
  Place<ArrivalChoice>& place = this->place(arrivals_, collective, commutative, bytes);
  if (!place.known) [[unlikely]] {
    place.known = true;
    const QuietFloats quiet;
    const coll::Algorithm* const rival = coll::find_algorithm(collective, "first_arrival");
    if (rival == nullptr || layout_.nodes < 2 || layout_.most_per_node < 2 ||
        coll::why_not_hierarchical(*rival, layout_, commutative) != nullptr ||
        !may_measure_own(selection, collective, commutative, bytes)) {
      return nullptr;
    }
    const coll::CollectiveInfo& info = coll::info(collective);
    coll::Table& table = *tables_[static_cast<std::size_t>(collective)][commutative ? 1 : 0];
    Compared ways = compared(collective, commutative, bytes, table.at(bytes));
    ways.rivals = {selection.complete(*rival, coll::Mode::kHierarchical, {}, layout_, commutative)};
    const auto learnt = selection.learnt(collective, layout_, commutative, ways.most_bytes);
    const bool gains = learnt && learnt->decision == ways.rivals.front();
    place.made = std::make_unique<ArrivalChoice>(info.flow == coll::Flow::kToRoot, layout_.ranks,
                                                 std::move(ways));
    if (gains) {
      place.made->begin_with_gain(learnt->calls);
      ++choices_learnt_;
    }
  }
  return place.made.get();
}

void ArrivalChoice::begin_with_gain(std::uint64_t calls) {
  habit.begin_with_gain();
  calls_before = calls;
  std::unique_ptr<Contest>& mine = contests.front();
  mine = std::make_unique<Contest>(Trial::Terms{.rival = Trial::Rival::first_arrival,
                                                .first = Trial::kRival,
                                                .quiet = 0,
                                                .ranks = ranks,
                                                .calls = calls});
  mine->compared = compared;
}

Contest* ArrivalChoice::decide(Contest* best_of_others, coll::Decision* decision) {
  usual = best_of_others;
  if (usual != nullptr) usual->arrivals = this;
  if (usual == nullptr || usual->judged()) habit.start();
  std::unique_ptr<Contest>& mine = contests[habit.position()];
  if (habit.take_fresh()) mine.reset();
  if (!habit.worth_measuring()) return usual;
  if (mine != nullptr && mine->judged()) {
    habit.measured(mine->winner() == Trial::kRival);
    if (mine->winner() != Trial::kRival) return usual;
    *decision = compared.rivals.front();
    return nullptr;
  }
  if (usual != nullptr) {
    if (!usual->judged() || usual->measuring()) return usual;
    *decision = usual->decision(usual->winner());
  }
  if (mine == nullptr) {
    const bool long_calls =
        usual != nullptr && usual->ns_of(usual->winner()) >= Trial::kLongCallNs * ranks;
    mine = std::make_unique<Contest>(Trial::Terms{.rival = Trial::Rival::first_arrival,
                                                  .quiet = 0,
                                                  .ranks = ranks,
                                                  .long_calls = long_calls});
    mine->compared = compared;
    mine->compared.usual = *decision;
  }
  return mine.get();
}

Compared CollectiveComm::compared(Collective collective, bool commutative, std::uint64_t bytes,
                                  const coll::Decision& usual) const {
  const coll::Table& table = *tables_[static_cast<std::size_t>(collective)][commutative ? 1 : 0];
  const std::size_t range = table.range_of(bytes);
  Compared made;
  made.name = coll::info(collective).name;
  made.usual = usual;
  made.least_bytes = range == 0 ? 0 : table.last_bytes()[range - 1] + 1;
  made.most_bytes = table.last_bytes()[range];
  made.typical_bytes = table.bytes_of(range);
  made.commutative = commutative;
  return made;
}

Contest* CollectiveComm::contest(const coll::Selection& selection, Collective collective,
                                 bool commutative, std::uint64_t bytes, const coll::Decision& usual,
                                 Others others) {
  Place<Contest>& place = this->place(contests_, collective, commutative, bytes);
  if (!place.known) [[unlikely]] {
    place.known = true;
    const QuietFloats quiet;
    if (!may_measure_own(selection, collective, commutative, bytes)) return nullptr;
    Compared ways = compared(collective, commutative, bytes, usual);
    ways.others = others;
    const bool long_calls = expects_long_calls(selection, layout_, ways);
    ways.rivals = rivals_of(selection, layout_, ways, long_calls);
    const bool own_first = gains_at_once(collective, layout_, bytes);
    const bool apart = coll::info(collective).rooted();
    const int rivals_quiet = apart ? Trial::kQuietAwaited : Trial::kQuietOfRival;
    int first = own_first ? Trial::kOwn : Trial::kRival;
    const auto learnt = others == Others::kNone
                            ? std::nullopt
                            : selection.learnt(collective, layout_, commutative, ways.most_bytes);
    // What starts with whoever comes first has a measurement of its own.
    const bool begins = learnt && !od::starts_with_first(learnt->decision);
    if (begins) {
      first = way_of_learnt(learnt->decision, ways);
      ++choices_learnt_;
    }
    auto made = std::make_unique<Contest>(Trial::Terms{
        .ways = static_cast<int>(ways.rivals.size()) + 1,
        .first = first,
        .quiet = own_first ? Trial::kQuiet : rivals_quiet,
        .ranks = layout_.ranks,
        .ends = apart ? Trial::Ends::apart : Trial::Ends::alike,
        .long_calls = long_calls,
        .calls = begins ? learnt->calls : 0,
    });
    made->compared = std::move(ways);
    place.made = std::move(made);
  }
  return place.made.get();
}

namespace {

// What was measured in a contest, which may have begun with what was found before and measured
// nothing yet.
coll::LearntChoices::Times times_of(const Contest& contest, int ranks) {
  coll::LearntChoices::Times times;
  for (int way = 0; way < contest.ways(); ++way) {
    if (contest.ns_of(way) <= 0) continue;
    times.emplace_back(coll::way_name(contest.decision(way)),
                       static_cast<std::uint64_t>(contest.ns_of(way) / ranks));
  }
  return times;
}

}  // namespace

void CollectiveComm::tell_learnt(coll::LearntChoices& choices) const {
  const auto tell = [&](Collective collective, const Contest& contest, std::uint64_t calls) {
    const Compared& compared = contest.compared;
    const coll::Decision& winner = contest.decision(contest.winner());
    coll::Condition condition;
    condition.bytes = {compared.least_bytes, compared.most_bytes};
    condition.ranks = {layout_.ranks, layout_.ranks};
    condition.nodes = {layout_.nodes, layout_.nodes};
    condition.per_node = {layout_.most_per_node, layout_.most_per_node};
    if (coll::info(collective).reduces) condition.commutative = compared.commutative;
    coll::Rule rule;
    rule.algorithm = winner.algorithm;
    rule.mode = winner.mode;
    rule.parameters = winner.parameters;
    rule.conditions = {condition};
    rule.calls = calls;
    choices.add(collective, std::move(rule), times_of(contest, layout_.ranks));
  };
  for (std::size_t number = 0; number < contests_.size(); ++number) {
    const auto collective = static_cast<Collective>(number >> 1);
    for (std::size_t range = 0; range < contests_[number].size(); ++range) {
      const bool looked = number < arrivals_.size() && range < arrivals_[number].size();
      const ArrivalChoice* const arrival = looked ? arrivals_[number][range].made.get() : nullptr;
      const Contest* const contest = contests_[number][range].made.get();
      if (arrival != nullptr && arrival->gains()) {
        tell(collective, *arrival->contests.front(), arrival->calls());
      } else if (contest != nullptr && contest->judged()) {
        tell(collective, *contest, contest->calls());
      }
    }
  }
}

SwitchedLater& CollectiveComm::switched_later(Collective collective, bool commutative,
                                              std::uint64_t bytes) {
  std::unique_ptr<SwitchedLater>& made =
      place(switched_later_, collective, commutative, bytes).made;
  if (made == nullptr) [[unlikely]]
    made = std::make_unique<SwitchedLater>();
  return *made;
}

Contest* CollectiveComm::switch_contest(const coll::Selection& selection, Collective collective,
                                        bool commutative, std::uint64_t bytes, bool only_switch) {
  const bool barrier = collective == Collective::kBarrier;
  const bool room = switch_barriers_.size() < kMostBarriers || switch_barriers_.contains(previous_);
  const std::uint32_t before = barrier && room ? previous_ : 0;
  Place<Contest>& place = barrier ? switch_barriers_[before]
                                  : this->place(switch_contests_, collective, commutative, bytes);
  if (!place.known) [[unlikely]] {
    place.known = true;
    const QuietFloats quiet;
    if (!may_measure(selection, collective, commutative, bytes)) return nullptr;
    const coll::Decision host = coll::host_decision(collective);
    const coll::Decision usual =
        only_switch ? host : choose(selection, collective, commutative, bytes);
    std::vector<coll::Decision> rivals;
    rivals.push_back(selection.complete(*coll::find_algorithm(collective, "in_network_node"),
                                        coll::Mode::kAuto, {}, layout_, true));
    if (!usual.algorithm->is_host()) rivals.push_back(host);
    // Enough calls have gone by before there was a group.
    place.made = std::make_unique<Contest>(Trial::Terms{.ways = static_cast<int>(rivals.size()) + 1,
                                                        .rival = Trial::Rival::in_network,
                                                        .quiet = 0});
    Compared& made = place.made->compared;
    made = compared(collective, commutative, bytes, usual);
    made.rivals = std::move(rivals);
    if (before != 0) {
      const std::uint64_t end = std::uint64_t{1} << (before & 0xff) >> 1;
      made.name += std::string(" after ") + coll::info(Collective(before >> 8)).name;
      made.least_bytes = end >> 1;
      made.most_bytes = end - 1;
    }
    place.made->later = &switched_later(collective, commutative, bytes);
  }
  return place.made.get();
}

void CollectiveComm::passes(Collective collective, std::uint64_t bytes) {
  previous_ = static_cast<std::uint32_t>(collective) << 8 |
              static_cast<std::uint32_t>(std::bit_width(bytes) + 1);
}

bool CollectiveComm::any_first_bcast(const coll::Selection& selection) {
  if (!spans_nodes()) return false;
  const std::vector<std::uint64_t> ends =
      selection.compile(Collective::kBcast, layout_, true).last_bytes();
  return std::any_of(ends.begin(), ends.end(), [&](std::uint64_t bytes) {
    return starts_with_first(choose(selection, Collective::kBcast, true, bytes)) &&
           ruled(Collective::kBcast, true, bytes);
  });
}

Contest* CollectiveComm::neighbour_contest(const coll::Selection& selection, Collective collective,
                                           const char* name, const coll::Decision& usual,
                                           std::uint64_t bytes) {
  const auto bits = static_cast<int>(std::bit_width(bytes));
  Place<Contest>& place = neighbour_contests_[{collective, bits}];
  if (!place.known) [[unlikely]] {
    place.known = true;
    const QuietFloats quiet;
    if (!adds_up(selection)) return nullptr;
    place.made =
        std::make_unique<Contest>(Trial::Terms{.first = Trial::kRival, .ranks = layout_.ranks});
    Compared& made = place.made->compared;
    made.name = name;
    made.usual = usual;
    made.rivals = {coll::host_decision(collective)};
    made.least_bytes = bits == 0 ? 0 : std::uint64_t{1} << (bits - 1);
    made.most_bytes = bits == 0 ? 0 : made.least_bytes * 2 - 1;
  }
  return place.made.get();
}

coll::Decision CollectiveComm::choose_any(const coll::Selection& selection, Collective collective,
                                          bool commutative, std::uint64_t bytes,
                                          std::uint64_t seed) {
  std::uint64_t draw = combine(combine(context, ++draws_), seed);
  const auto next = [&draw](std::size_t limit) {
    draw = mix(draw);
    return static_cast<std::size_t>(draw % limit);
  };
  std::vector<std::pair<const coll::Algorithm*, coll::Mode>> able;
  for (const coll::Algorithm& each : coll::algorithms(collective)) {
    if (coll::why_not(each, {.ranks = layout_.ranks, .commutative = commutative}) == nullptr) {
      able.emplace_back(&each, coll::Mode::kFlat);
    }
    if (!each.is_host() && layout_.most_per_node > 1 &&
        coll::why_not_hierarchical(each, layout_, commutative) == nullptr) {
      able.emplace_back(&each, coll::Mode::kHierarchical);
    }
  }
  if (able.empty() || next(8) == 0) return choose(selection, collective, commutative, bytes);
  coll::Decision decision;
  std::tie(decision.algorithm, decision.mode) = able[next(able.size())];
  coll::Parameters chosen;
  constexpr int kRadixes[] = {0, 2, 3, 4, 8};
  constexpr std::int64_t kSegments[] = {0, -1, 1, 64, 1000, 8192, 65536};
  constexpr int kWindows[] = {0, -1, 1, 2, 4};
  chosen.radix = kRadixes[next(std::size(kRadixes))];
  chosen.segment_bytes = kSegments[next(std::size(kSegments))];
  chosen.window = kWindows[next(std::size(kWindows))];
  // Thousands of tiny segments test nothing but patience.
  if (chosen.segment_bytes > 0) {
    chosen.segment_bytes = std::max(chosen.segment_bytes, static_cast<std::int64_t>(bytes / 64));
  }
  if (!decision.algorithm->is_host()) {
    decision.parameters = coll::effective_parameters(*decision.algorithm, chosen);
  }
  if (decision.mode == coll::Mode::kHierarchical) {
    constexpr int kLeaders[] = {0, 1, 2, 3, 8};
    decision.parameters.leaders = kLeaders[next(std::size(kLeaders))];
    const std::int64_t pipeline = kSegments[next(std::size(kSegments))];
    decision.parameters.pipeline_bytes =
        pipeline > 0 ? std::max(pipeline, static_cast<std::int64_t>(bytes / 16)) : pipeline;
    decision.parameters = coll::with_level_defaults(decision.parameters);
  }
  return decision;
}

std::uint64_t message_bytes(const CollectiveCall& call, int ranks, int rank) {
  const coll::CollectiveInfo& info = coll::info(call.collective);
  std::int64_t bytes = 0;
  switch (info.size_rule()) {
    case coll::SizeRule::kNone:
      return 0;
    case coll::SizeRule::kVector:
    case coll::SizeRule::kBlock:
      bytes = block_bytes(call, rank == call.root);
      break;
    case coll::SizeRule::kTotal:
      if (info.has_counts()) {
        for (const BlockPlace& block : call.recv_blocks) bytes += block.count;
      } else {
        bytes = call.recv_count * ranks;
      }
      bytes *= call.recv_type->size;
  }
  return static_cast<std::uint64_t>(bytes);
}

coll::Shape shape_of(const CollectiveCall& call, int ranks, int rank, bool copied_input,
                     std::vector<std::int64_t>* counts) {
  coll::Shape shape;
  shape.ranks = ranks;
  shape.rank = rank;
  shape.root = call.root;
  shape.commutative = call.reduction.commutative;
  const coll::CollectiveInfo& info = coll::info(call.collective);
  shape.in_place = call.in_place && !copied_input && (!info.rooted() || rank == call.root);
  if (info.output == coll::Part::kNone) return shape;
  if (info.reduces) shape.unit_bytes = std::max<std::int64_t>(1, call.recv_type->size);
  if (info.has_counts()) {
    const std::int64_t unit = info.reduces ? 1 : call.recv_type->size;
    counts->clear();
    for (const BlockPlace& block : call.recv_blocks) counts->push_back(block.count * unit);
    shape.counts = counts->data();
    return shape;
  }
  if (info.counts_are_local()) return shape;
  shape.count = info.reduces ? call.recv_count : block_bytes(call, rank == call.root);
  return shape;
}

}  // namespace od
