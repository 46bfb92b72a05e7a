// Random interleavings of all ranks of a collective.
#include "coll/testing/all_ranks.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "coll/testing/definitions.h"

namespace od::coll::testing {
namespace {

struct Failure {
  std::string what;
};

struct Range {
  Buffer buffer;
  std::int32_t block;
  std::int64_t begin;
  std::int64_t end;
  bool writes;

  bool collides(const Range& other) const {
    return (writes || other.writes) && buffer == other.buffer && block == other.block &&
           begin < other.end && other.begin < end;
  }
};

struct Rank {
  Schedule schedule;
  Run run;
  Buffers memory;
  Block scratch;
  std::vector<std::pair<std::uint32_t, std::vector<Range>>> running;
};

struct Event {
  enum Kind { kStart, kLocal, kBuffer, kDeliver } kind;
  int rank;
  std::uint32_t step;  // of the sender for kDeliver and kBuffer
};

// One message; steps are known when they have started.
struct Message {
  bool sent = false;
  bool buffered = false;
  bool delivery_due = false;
  std::uint32_t send_step = 0;
  std::int64_t receive_step = -1;
  Block content;
};

class Job {
 public:
  explicit Job(const Case& test) : test_(test), random_(test.seed ^ 0x9e3779b97f4a7c15u) {
    start_ = before(test);
    buffered_ = random_() % 2 == 0;
    const std::vector<std::int64_t> counts = test.counts();
    ranks_.resize(static_cast<std::size_t>(test.ranks));
    for (int r = 0; r < test.ranks; ++r) {
      Rank& rank = ranks_[static_cast<std::size_t>(r)];
      rank.schedule = make_schedule(*test.algorithm, test.shape(r, counts));
      rank.memory = start_[static_cast<std::size_t>(r)];
      const bool rooted = info(test.algorithm->collective).rooted;
      const bool in_place = test.in_place && (!rooted || r == test.root);
      const bool scatters = test.algorithm->collective == Collective::kScatter ||
                            test.algorithm->collective == Collective::kScatterv;
      // What must not be used is taken away.
      if (in_place && scatters) {
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
      for (const auto& [step, ranges] : rank.running) text += ", waits in " + describe(r, step);
      throw Failure{text};
    }
    if (!messages_.empty()) {
      const auto& [from, to, ordinal] = messages_.begin()->first;
      throw Failure{"nobody receives message " + std::to_string(ordinal) + " from rank " +
                    std::to_string(from) + " to " + std::to_string(to)};
    }
    check_results();
  }

 private:
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  std::string describe(int rank, std::uint32_t number) {
    const Step& step = at(rank).schedule.steps[number];
    static const char* const kinds[] = {"send", "receive", "copy", "reduce", "node", "join"};
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
    while (at(rank).run.take(step)) events_.push_back({Event::kStart, rank, step});
  }

  void complete(int rank, std::uint32_t step) {
    auto& running = at(rank).running;
    std::erase_if(running, [&](const auto& entry) { return entry.first == step; });
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
    for (const auto& [other, others] : at(rank).running) {
      for (const Range& a : ranges) {
        for (const Range& b : others) {
          if (!a.collides(b)) continue;
          throw Failure{"rank " + std::to_string(rank) + ": " + describe(rank, number) +
                        " disturbs " + describe(rank, other)};
        }
      }
    }
    at(rank).running.emplace_back(number, std::move(ranges));
  }

  void handle(const Event& event) {
    const Step& step = at(event.rank).schedule.steps[event.step];
    switch (event.kind) {
      case Event::kStart:
        claim(event.rank, event.step);
        if (step.kind == StepKind::kSend || step.kind == StepKind::kReceive) {
          start_message(event, step);
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
    }
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
    if (!test_.algorithm->scales || test_.count <= 1) return;
    Shape shape = test_.shape(r, counts);
    shape.count = 1;
    Schedule one = make_schedule(*test_.algorithm, shape);
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
};

}  // namespace

std::int64_t Case::irregular(int from, int to) const {
  const Collective collective = algorithm->collective;
  const bool one_list =
      collective != Collective::kAlltoallv && collective != Collective::kAlltoallw;
  if (one_list) to = 0;
  // Some blocks are empty, some are larger than `count`.
  std::uint64_t mix = seed * 31 + static_cast<std::uint64_t>(from) * 1000003 +
                      static_cast<std::uint64_t>(to) * 7919 + 12345;
  mix ^= mix >> 33;
  mix *= 0xff51afd7ed558ccdu;
  mix ^= mix >> 33;
  return mix % 4 == 0 ? 0 : static_cast<std::int64_t>(mix >> 8) % (2 * count + 1);
}

std::vector<std::int64_t> Case::counts() const {
  std::vector<std::int64_t> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(irregular(rank, 0));
  return result;
}

Shape Case::shape(int rank, const std::vector<std::int64_t>& counts) const {
  Shape shape;
  shape.ranks = ranks;
  shape.rank = rank;
  shape.root = root;
  shape.count = count;
  shape.unit_bytes = unit_bytes;
  shape.commutative = commutative;
  shape.in_place = in_place;
  shape.parameters = parameters;
  if (info(algorithm->collective).has_counts) shape.counts = counts.data();
  return shape;
}

std::string Case::text() const {
  return std::string(info(algorithm->collective).name) + ' ' + algorithm->name + ": ranks " +
         std::to_string(ranks) + ", root " + std::to_string(root) + ", count " +
         std::to_string(count) + ", unit bytes " + std::to_string(unit_bytes) +
         (commutative ? "" : ", does not commute") + (in_place ? ", in place" : "") + ", radix " +
         std::to_string(parameters.radix) + ", segment " +
         std::to_string(parameters.segment_bytes) + ", window " +
         std::to_string(parameters.window) + ", seed " + std::to_string(seed);
}

std::string run_case(const Case& test) {
  try {
    Job(test).execute();
  } catch (const Failure& failure) {
    return failure.what;
  }
  return {};
}

Case shrink(Case failing) {
  // Each attempt makes one thing smaller; what still fails is kept.
  using Change = void (*)(Case&);
  static constexpr Change kChanges[] = {
      [](Case& c) { c.ranks /= 2; },
      [](Case& c) { c.ranks -= 1; },
      [](Case& c) { c.count /= 2; },
      [](Case& c) { c.count -= 1; },
      [](Case& c) { c.root = 0; },
      [](Case& c) { c.in_place = false; },
      [](Case& c) { c.unit_bytes = 1; },
      [](Case& c) { c.seed %= 16; },
      [](Case& c) { c.parameters = {}; },
      // Never back from the defaults, or it would not end.
      [](Case& c) { c.parameters.radix = std::min(c.parameters.radix, 2); },
      [](Case& c) { c.parameters.window = std::min(c.parameters.window, 1); },
      [](Case& c) {
        if (c.parameters.segment_bytes > 0) c.parameters.segment_bytes = -1;
      },
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (const Change change : kChanges) {
      Case smaller = failing;
      change(smaller);
      if (smaller.ranks < 1 || smaller.count < 0 || smaller.text() == failing.text()) continue;
      smaller.root = std::min(smaller.root, smaller.ranks - 1);
      if (why_not(*smaller.algorithm, {smaller.ranks, smaller.commutative}) != nullptr) continue;
      if (run_case(smaller).empty()) continue;
      failing = smaller;
      progress = true;
    }
  }
  return failing;
}

}  // namespace od::coll::testing
