// Random interleavings of all ranks of a collective.
#include "coll/plan/testing/all_ranks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <tuple>
#include <utility>

#include "coll/plan/hierarchy/node_steps.h"
#include "coll/plan/testing/definitions.h"
#include "coll/plan/testing/job_parts.h"

namespace od::coll::testing {
namespace {

class Job {
 public:
  explicit Job(const Case& test) : test_(test), random_(test.seed ^ 0x9e3779b97f4a7c15u) {
    start_ = before(test);
    buffered_ = random_() % 2 == 0;
    const std::vector<std::int64_t> counts = test.counts();
    ranks_.resize(static_cast<std::size_t>(test.ranks));
    if (!test.node_of.empty()) nodes_.emplace(test.node_of);
    for (int r = 0; r < test.ranks; ++r) {
      Rank& rank = ranks_[static_cast<std::size_t>(r)];
      rank.schedule = schedule_of(r, test.shape(r, counts));
      rank.memory = start_[static_cast<std::size_t>(r)];
      const CollectiveInfo& kind = info(test.algorithm->collective);
      const bool in_place = test.in_place && (!kind.rooted() || r == test.root);
      // What must not be used is taken away.
      if (in_place && kind.scatters()) {
        rank.memory.output.assign(1, {});
      } else if (in_place) {
        rank.memory.input.assign(1, {});
      }
      rank.scratch.resize(static_cast<std::size_t>(rank.schedule.scratch_units));
      for (Element& e : rank.scratch) e = {random_(), random_()};
      check_scaling(r, counts);
      rank.run.begin(rank.schedule);
    }
  }

  void execute() {
    for (int r = 0; r < test_.ranks; ++r) enqueue_ready(r);
    while (!events_.empty()) {
      std::swap(events_[random_() % events_.size()], events_.back());
      const Event event = events_.back();
      events_.pop_back();
      handle(event);
    }
    for (int r = 0; r < test_.ranks; ++r) {
      const Rank& rank = at(r);
      if (rank.run.done()) continue;
      std::string text = "deadlock: rank " + std::to_string(r) + " has " +
                         std::to_string(rank.run.open_steps()) + " open steps";
      for (const auto& [step, ranges] : rank.running.steps())
        text += ", waits in " + describe(r, step);
      throw Failure{text};
    }
    if (!messages_.empty()) {
      const auto& [from, to, ordinal] = messages_.begin()->first;
      throw Failure{"nobody receives message " + std::to_string(ordinal) + " from rank " +
                    std::to_string(from) + " to " + std::to_string(to)};
    }
    if (!node_work_.empty()) throw Failure{"a step of a node has not been done by all members"};
    check_results();
  }

 private:
  Schedule schedule_of(int rank, Shape shape) const {
    if (!nodes_) return make_schedule(*test_.algorithm, shape);
    shape.parameters =
        with_level_defaults(effective_parameters(*test_.algorithm, shape.parameters));
    return make_hierarchical(*test_.algorithm, shape, *nodes_, test_.driver(nodes_->node_of(rank)));
  }

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  std::string describe(int rank, std::uint32_t number) {
    const Step& step = at(rank).schedule.steps[number];
    static const char* const kinds[] = {"send", "receive", "copy",     "reduce",
                                        "node", "join",    "elsewhere"};
    return std::string(kinds[static_cast<int>(step.kind)]) + " (step " + std::to_string(number) +
           ", " + std::to_string(step.count) + " units, peer " + std::to_string(step.peer) + ")";
  }

  Block& block(int rank, Place place) {
    Rank& owner = at(rank);
    if (place.buffer == Buffer::kScratch) return owner.scratch;
    std::vector<Block>& blocks =
        place.buffer == Buffer::kInput ? owner.memory.input : owner.memory.output;
    if (place.block < 0 || place.block >= static_cast<std::int32_t>(blocks.size())) {
      throw Failure{"rank " + std::to_string(rank) + " has no block " +
                    std::to_string(place.block)};
    }
    return blocks[static_cast<std::size_t>(place.block)];
  }

  // The units of a place, checked.
  Element* units(int rank, std::uint32_t step, Place place, std::int64_t count) {
    Block& memory = block(rank, place);
    if (place.offset < 0 || place.offset + count > static_cast<std::int64_t>(memory.size())) {
      throw Failure{"rank " + std::to_string(rank) + " leaves a buffer in " + describe(rank, step) +
                    ": units " + std::to_string(place.offset) + " to " +
                    std::to_string(place.offset + count) + " of " + std::to_string(memory.size())};
    }
    return memory.data() + place.offset;
  }

  std::int64_t count_of(int rank, const Step& step) {
    if (step.count != kWholeBlock) return step.count;
    const Place place = step.kind == StepKind::kSend ? step.source : step.target;
    return static_cast<std::int64_t>(block(rank, place).size());
  }

  void enqueue_ready(int rank) {
    std::uint32_t step;
    while (at(rank).run.take(step)) {
      if (at(rank).schedule.steps[step].otherwise && at(rank).served_elsewhere) {
        at(rank).run.complete(step);
      } else {
        events_.push_back({Event::kStart, rank, step});
      }
    }
  }

  void complete(int rank, std::uint32_t step) {
    at(rank).running.end(step);
    at(rank).run.complete(step);
    enqueue_ready(rank);
  }

  void claim(int rank, std::uint32_t number) {
    const Step& step = at(rank).schedule.steps[number];
    const std::int64_t count = count_of(rank, step);
    std::vector<Range> ranges;
    const auto add = [&](Place place, bool writes) {
      if (writes && place.buffer == Buffer::kInput) throw Failure{"the input is written"};
      units(rank, number, place, count);
      ranges.push_back({place.buffer, place.block, place.offset, place.offset + count, writes});
    };
    if (count > 0) {
      if (step.kind == StepKind::kSend) add(step.source, false);
      if (step.kind == StepKind::kReceive) add(step.target, true);
      if (step.kind == StepKind::kCopy || step.kind == StepKind::kReduce) {
        add(step.source, false);
        if (step.kind == StepKind::kReduce) add(step.right, false);
        add(step.target, true);
      }
    }
    if (step.kind == StepKind::kElsewhere && count > 0) {
      if (elsewhere_work(step) != Elsewhere::kTake) add(step.source, false);
      if (elsewhere_work(step) != Elsewhere::kShow) add(step.target, true);
    }
    if (step.kind == StepKind::kNode) {
      const NodeUse use = node_use_of(rank, step);
      const auto add_part = [&](Place place, std::int64_t units_used, bool writes) {
        if (units_used == 0) return;
        if (writes && place.buffer == Buffer::kInput) throw Failure{"the input is written"};
        units(rank, number, place, units_used);
        ranges.push_back(
            {place.buffer, place.block, place.offset, place.offset + units_used, writes});
      };
      add_part(step.source, use.reads, false);
      add_part(step.target, use.writes, true);
    }
    if (const auto other = at(rank).running.start(number, std::move(ranges))) {
      throw Failure{"rank " + std::to_string(rank) + ": " + describe(rank, number) + " disturbs " +
                    describe(rank, *other)};
    }
  }

  void handle(const Event& event) {
    const Step& step = at(event.rank).schedule.steps[event.step];
    switch (event.kind) {
      case Event::kStart:
        claim(event.rank, event.step);
        if (step.kind == StepKind::kSend || step.kind == StepKind::kReceive) {
          start_message(event, step);
        } else if (step.kind == StepKind::kNode) {
          start_node_step(event, step);
        } else if (step.kind == StepKind::kElsewhere) {
          start_elsewhere(event);
        } else {
          events_.push_back({Event::kLocal, event.rank, event.step});
        }
        break;
      case Event::kLocal:
        compute(event, step);
        complete(event.rank, event.step);
        break;
      case Event::kBuffer: {
        Message& message = messages_[{event.rank, step.peer, step.ordinal}];
        if (message.buffered || message.delivery_due) break;
        const std::int64_t count = count_of(event.rank, step);
        const Element* from =
            count > 0 ? units(event.rank, event.step, step.source, count) : nullptr;
        message.content.assign(from, from + count);
        message.buffered = true;
        complete(event.rank, event.step);
        if (message.receive_step >= 0) due(event.rank, step, message);
        break;
      }
      case Event::kDeliver:
        deliver(event, step);
        break;
      case Event::kNodeWork:
        work_in_node(event, step);
        break;
      case Event::kNodeDone:
        finish_node_step(event, step);
        break;
      case Event::kOutside:
        at(event.rank).served_elsewhere = outside_works();
        complete(event.rank, event.step);
        break;
    }
  }

  // Sometimes what is outside serves, sometimes it fails.
  bool outside_works() const { return (test_.seed >> 4 & 1) != 0; }

  // All ranks that have such a step, in the order of ranks.
  void start_elsewhere(const Event& event) {
    const int slice = elsewhere_slice(at(event.rank).schedule.steps[event.step]);
    std::map<int, std::uint32_t>& started = outside_[slice];
    started[event.rank] = event.step;
    std::size_t expected = 0;
    for (const Rank& rank : ranks_) {
      const std::vector<Step>& steps = rank.schedule.steps;
      expected += std::any_of(steps.begin(), steps.end(), [&](const Step& other) {
        return other.kind == StepKind::kElsewhere && elsewhere_slice(other) == slice;
      });
    }
    if (started.size() < expected) return;
    std::vector<OutsidePart> outside;
    for (const auto& [r, number] : started) {
      const Step& own = at(r).schedule.steps[number];
      OutsidePart part{&own, nullptr, nullptr};
      if (own.count > 0 && part.reads()) part.source = units(r, number, own.source, own.count);
      if (own.count > 0 && part.writes()) part.target = units(r, number, own.target, own.count);
      outside.push_back(part);
    }
    if (outside_works()) work_outside(test_, outside);
    for (const auto& [r, number] : started) events_.push_back({Event::kOutside, r, number});
    outside_.erase(slice);
  }

  NodeUse node_use_of(int rank, const Step& step) const {
    const int position = nodes_->position_of(rank);
    const auto members = static_cast<int>(nodes_->members(nodes_->node_of(rank)).size());
    return node_use(step, position, members);
  }

  // What others do together does not wait for those who only receive, nor for the leader of what it
  // only receives.
  void start_node_step(const Event& event, const Step& step) {
    const int node = nodes_->node_of(event.rank);
    const std::span<const int> members = nodes_->members(node);
    NodeWorkDone& work = node_work_[{node, step.ordinal}];
    if (work.step.empty()) {
      work.step.assign(members.size(), kNotYet);
      work.done.assign(members.size(), false);
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (work.step[i] < 0) continue;
      const Step& other = at(members[i]).schedule.steps[static_cast<std::size_t>(work.step[i])];
      if (other.peer != step.peer || other.count != step.count) {
        throw Failure{"ranks " + std::to_string(event.rank) + " and " + std::to_string(members[i]) +
                      " of a node do not do the same: " + describe(event.rank, event.step) + ", " +
                      describe(members[i], static_cast<std::uint32_t>(work.step[i]))};
      }
    }
    const auto position = static_cast<std::size_t>(nodes_->position_of(event.rank));
    work.step[position] = event.step;
    if (node_work(step) == NodeWork::kWhole) throw Failure{"the whole collective is not tested"};
    const bool from_leader =
        node_work(step) == NodeWork::kBcast || node_work(step) == NodeWork::kScatter;
    const auto leader = static_cast<std::size_t>(node_leader(step));
    if (from_leader) {
      if (work.step[leader] == kNotYet) return;
      for (std::size_t i = 0; i < members.size(); ++i) {
        // Those that have waited for the leader, or just this one.
        if (work.step[i] < 0 || (position != leader && i != position)) continue;
        if (i == leader && members.size() > 1 && step.count > 0) continue;
        events_.push_back({Event::kNodeWork, members[i], static_cast<std::uint32_t>(work.step[i])});
      }
      return;
    }
    for (const std::int64_t started : work.step) {
      if (started < 0) return;
    }
    events_.push_back(
        {Event::kNodeWork, members[leader], static_cast<std::uint32_t>(work.step[leader])});
  }

  void work_in_node(const Event& event, const Step& step) {
    const int node = nodes_->node_of(event.rank);
    const std::span<const int> members = nodes_->members(node);
    NodeWorkDone& work = node_work_.at({node, step.ordinal});
    const std::int64_t count = step.count;
    const auto leader = static_cast<std::size_t>(node_leader(step));
    const auto step_of = [&](std::size_t i) -> const Step& {
      return at(members[i]).schedule.steps[static_cast<std::size_t>(work.step[i])];
    };
    const auto memory = [&](std::size_t i, Place place, std::int64_t used) {
      return units(members[i], static_cast<std::uint32_t>(work.step[i]), place, used);
    };
    const auto all = static_cast<std::int64_t>(members.size());
    if (node_work(step) == NodeWork::kBcast || node_work(step) == NodeWork::kScatter) {
      const auto me = static_cast<std::size_t>(nodes_->position_of(event.rank));
      const bool scatters = node_work(step) == NodeWork::kScatter;
      if (count > 0 && (scatters || me != leader)) {
        const Element* from =
            memory(leader, step_of(leader).source, scatters ? all * count : count);
        if (scatters) from += static_cast<std::int64_t>(me) * count;
        Element* to = memory(me, step_of(me).target, count);
        if (from != to) std::copy(from, from + count, to);
      }
      work.done[me] = true;
      events_.push_back({Event::kNodeDone, event.rank, event.step});
      std::size_t served = 0;
      for (std::size_t i = 0; i < members.size(); ++i) served += i != leader && work.done[i];
      // The leader's source has been read, and its own block is the last one.
      if (me != leader && served + 1 == members.size() && count > 0) {
        events_.push_back(
            {Event::kNodeWork, members[leader], static_cast<std::uint32_t>(work.step[leader])});
      }
      return;
    }
    std::vector<const Element*> sources;
    std::vector<Element*> targets;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const NodeUse use = node_use_of(members[i], step_of(i));
      sources.push_back(use.reads > 0 ? memory(i, step_of(i).source, use.reads) : nullptr);
      targets.push_back(use.writes > 0 ? memory(i, step_of(i).target, use.writes) : nullptr);
    }
    if (count > 0) join_members(test_, node_work(step), leader, count, sources, targets);
    for (std::size_t i = 0; i < members.size(); ++i) {
      work.done[i] = true;
      events_.push_back({Event::kNodeDone, members[i], static_cast<std::uint32_t>(work.step[i])});
    }
  }

  void finish_node_step(const Event& event, const Step& step) {
    const std::pair<int, std::uint32_t> key{nodes_->node_of(event.rank), step.ordinal};
    NodeWorkDone& work = node_work_.at(key);
    work.step[static_cast<std::size_t>(nodes_->position_of(event.rank))] = kDone;
    if (std::count(work.step.begin(), work.step.end(), kDone) ==
        static_cast<std::ptrdiff_t>(work.step.size())) {
      node_work_.erase(key);
    }
    complete(event.rank, event.step);
  }

  void due(int sender, const Step& send, Message& message) {
    (void)send;
    message.delivery_due = true;
    events_.push_back({Event::kDeliver, sender, message.send_step});
  }

  void start_message(const Event& event, const Step& step) {
    const bool sends = step.kind == StepKind::kSend;
    const int from = sends ? event.rank : step.peer;
    const int to = sends ? step.peer : event.rank;
    if (to < 0 || to >= test_.ranks || from < 0 || from >= test_.ranks || to == from) {
      throw Failure{"rank " + std::to_string(event.rank) + " has an impossible peer in " +
                    describe(event.rank, event.step)};
    }
    Message& message = messages_[{from, to, step.ordinal}];
    if (sends) {
      message.sent = true;
      message.send_step = event.step;
      if (message.receive_step < 0 && buffered_) {
        events_.push_back({Event::kBuffer, event.rank, event.step});
        return;
      }
    } else {
      message.receive_step = event.step;
    }
    // A send that will be buffered is delivered once it is.
    const bool will_buffer = buffered_ && !message.buffered && !sends;
    if (message.sent && message.receive_step >= 0 && !will_buffer) due(from, step, message);
  }

  void deliver(const Event& event, const Step& send) {
    const auto key = std::make_tuple(event.rank, static_cast<int>(send.peer), send.ordinal);
    Message& message = messages_.at(key);
    const auto receive_step = static_cast<std::uint32_t>(message.receive_step);
    const Step& receive = at(send.peer).schedule.steps[receive_step];
    if (!message.buffered) {
      const std::int64_t count = count_of(event.rank, send);
      const Element* from = count > 0 ? units(event.rank, event.step, send.source, count) : nullptr;
      message.content.assign(from, from + count);
    }
    const std::int64_t count = count_of(send.peer, receive);
    if (count != static_cast<std::int64_t>(message.content.size())) {
      throw Failure{"rank " + std::to_string(send.peer) + " expects " + std::to_string(count) +
                    " units from rank " + std::to_string(event.rank) + ", which sends " +
                    std::to_string(message.content.size())};
    }
    if (count > 0) {
      std::copy(message.content.begin(), message.content.end(),
                units(send.peer, receive_step, receive.target, count));
    }
    const bool buffered = message.buffered;
    const int receiver = send.peer;
    messages_.erase(key);
    if (!buffered) complete(event.rank, event.step);
    complete(receiver, receive_step);
  }

  void compute(const Event& event, const Step& step) {
    const std::int64_t count = count_of(event.rank, step);
    if (count == 0) return;
    Element* target = units(event.rank, event.step, step.target, count);
    const Element* left = units(event.rank, event.step, step.source, count);
    if (step.kind == StepKind::kCopy) {
      std::copy(left, left + count, target);
      return;
    }
    const Element* right = units(event.rank, event.step, step.right, count);
    for (std::int64_t i = 0; i < count; ++i) target[i] = apply(test_, left[i], right[i]);
  }

  // A schedule that claims to serve all sizes is the one for a single unit, enlarged.
  void check_scaling(int r, const std::vector<std::int64_t>& counts) {
    Shape shape = test_.shape(r, counts);
    if (test_.count <= 1) return;
    if (nodes_) {
      Shape effective = shape;
      effective.parameters = with_level_defaults(shape.parameters);
      if (!hierarchical_scales(*test_.algorithm, effective, *nodes_)) return;
    } else if (!test_.algorithm->scales) {
      return;
    }
    shape.count = 1;
    Schedule one = schedule_of(r, shape);
    for (Step& step : one.steps) {
      if (step.count == kWholeBlock) continue;
      step.count *= test_.count;
      for (Place* place : {&step.target, &step.source, &step.right}) place->offset *= test_.count;
    }
    one.scratch_units *= test_.count;
    if (one != at(r).schedule) {
      throw Failure{"rank " + std::to_string(r) + ": the schedule depends on the size"};
    }
  }

  void check_results() {
    const std::vector<std::vector<Block>> expected = after(test_, start_);
    for (int r = 0; r < test_.ranks; ++r) {
      const std::vector<Block>& got = at(r).memory.output;
      const std::vector<Block>& wanted = expected[static_cast<std::size_t>(r)];
      for (std::size_t b = 0; b < got.size(); ++b) {
        for (std::size_t u = 0; u < got[b].size(); ++u) {
          if (wanted[b][u].factor == 0 || got[b][u] == wanted[b][u]) continue;
          throw Failure{"wrong result at rank " + std::to_string(r) + ", block " +
                        std::to_string(b) + ", unit " + std::to_string(u)};
        }
      }
    }
  }

  const Case& test_;
  std::mt19937_64 random_;
  bool buffered_ = false;
  std::vector<Buffers> start_;
  std::vector<Rank> ranks_;
  std::vector<Event> events_;
  std::map<std::tuple<int, int, std::uint32_t>, Message> messages_;
  // Who has started a step of kind kElsewhere, by slice.
  std::map<int, std::map<int, std::uint32_t>> outside_;
  static constexpr std::int64_t kNotYet = -1;
  static constexpr std::int64_t kDone = -2;
  std::optional<Nodes> nodes_;
  std::map<std::pair<int, std::uint32_t>, NodeWorkDone> node_work_;  // by node and ordinal
};

}  // namespace

std::string run_case(const Case& test) {
  try {
    Job(test).execute();
  } catch (const Failure& failure) {
    return failure.what;
  }
  return {};
}

}  // namespace od::coll::testing
