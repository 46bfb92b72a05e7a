// An event queue over the steps of all ranks.
#include "coll/model/simulate.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "coll/schedule.h"

namespace od::coll {
namespace {

constexpr int kElementBytes = 8;

struct Event {
  enum class Kind : std::uint8_t {
    kStart,    // a step may start, when the processor is free
    kArrived,  // a message is there
    kDone,     // a step is complete
  };
  double time;
  std::uint64_t order;  // among events of the same time: as they were entered
  std::int32_t rank;
  std::uint32_t step;
  Kind kind;

  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : order > other.order;
  }
};

// One message, from when either side is known.
struct Message {
  double sent = -1;    // when the sender's processor had handed it over
  double wanted = -1;  // when the receive was posted
  double arrived = -1;
  std::uint32_t send_step = 0;
  std::uint32_t receive_step = 0;
  bool travels = false;
};

class Simulation {
 public:
  Simulation(const Algorithm& algorithm, const Parameters& parameters, int ranks, int per_node,
             std::uint64_t bytes, const Machine& machine)
      : machine_(machine), per_node_(per_node), ranks_(static_cast<std::size_t>(ranks)) {
    const CollectiveInfo& kind = info(algorithm.collective);
    Shape shape;
    shape.ranks = ranks;
    shape.unit_bytes = kind.reduces ? kElementBytes : 1;
    shape.parameters = parameters;
    const auto units = static_cast<std::int64_t>(bytes) / shape.unit_bytes;
    block_units_ = units;
    shape.count = units;
    std::vector<std::int64_t> counts;
    if (kind.has_counts) {
      for (int i = 0; i < ranks; ++i) counts.push_back(units * (i + 1) / ranks - units * i / ranks);
      shape.counts = counts.data();
    }
    if (algorithm.collective == Collective::kReduceScatterBlock) shape.count = units / ranks;
    unit_bytes_ = static_cast<double>(shape.unit_bytes);
    for (int rank = 0; rank < ranks; ++rank) {
      shape.rank = rank;
      Rank& self = ranks_[static_cast<std::size_t>(rank)];
      self.schedule = make_schedule(algorithm, shape);
      self.run.begin(self.schedule);
    }
    nodes_.resize(static_cast<std::size_t>((ranks + per_node - 1) / per_node));
  }

  Simulated execute() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      start_ready(static_cast<std::int32_t>(rank), 0);
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      switch (event.kind) {
        case Event::Kind::kStart:
          start(event);
          break;
        case Event::Kind::kArrived:
          arrived(event);
          break;
        case Event::Kind::kDone:
          at(event.rank).run.complete(event.step);
          at(event.rank).last = std::max(at(event.rank).last, event.time);
          start_ready(event.rank, event.time);
          break;
      }
    }
    double sum = 0;
    for (const Rank& rank : ranks_) {
      result_.last_ns = std::max(result_.last_ns, rank.last);
      sum += rank.last;
    }
    result_.average_ns = sum / static_cast<double>(ranks_.size());
    return result_;
  }

 private:
  struct Rank {
    Schedule schedule;
    Run run;
    double processor_free = 0;
    double link_free = 0;  // to other ranks of the node
    double last = 0;
  };
  struct Node {
    double out_free = 0;
    double in_free = 0;
  };

  Rank& at(std::int32_t rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Node& node_of(std::int32_t rank) { return nodes_[static_cast<std::size_t>(rank / per_node_)]; }

  void enter(Event::Kind kind, double time, std::int32_t rank, std::uint32_t step) {
    events_.push({time, order_++, rank, step, kind});
  }

  void start_ready(std::int32_t rank, double time) {
    std::uint32_t step = 0;
    while (at(rank).run.take(step)) enter(Event::Kind::kStart, time, rank, step);
  }

  // The processor works for `duration` from `time` on, or as soon as it is free; returns the end.
  double work(std::int32_t rank, double time, double duration) {
    double& free = at(rank).processor_free;
    free = std::max(free, time) + duration;
    return free;
  }

  double bytes_of(const Step& step) const {
    return unit_bytes_ * static_cast<double>(step.count == kWholeBlock ? block_units_ : step.count);
  }

  static std::uint64_t key(std::int32_t from, std::int32_t to, std::uint32_t ordinal) {
    // 20 bits of ordinal: more messages of a pair than any schedule that fits into memory.
    return (static_cast<std::uint64_t>(from) << 42) ^ (static_cast<std::uint64_t>(to) << 20) ^
           ordinal;
  }

  void start(const Event& event) {
    const Step& step = at(event.rank).schedule.steps[event.step];
    const double bytes = bytes_of(step);
    switch (step.kind) {
      case StepKind::kCopy:
        enter(Event::Kind::kDone, work(event.rank, event.time, bytes * machine_.copy_byte_ns),
              event.rank, event.step);
        break;
      case StepKind::kReduce:
        enter(Event::Kind::kDone, work(event.rank, event.time, bytes * machine_.add_byte_ns),
              event.rank, event.step);
        break;
      case StepKind::kSend: {
        const std::uint64_t k = key(event.rank, step.peer, step.ordinal);
        Message& message = messages_[k];
        message.send_step = event.step;
        message.sent = work(event.rank, event.time, link(event.rank, step.peer).overhead_ns);
        ++result_.messages;
        travel(event.rank, step.peer, bytes, message);
        break;
      }
      case StepKind::kReceive: {
        const std::uint64_t k = key(step.peer, event.rank, step.ordinal);
        Message& message = messages_[k];
        message.receive_step = event.step;
        message.wanted = event.time;
        if (message.arrived >= 0) {
          finish_receive(event.rank, step.peer, event.time, event.step);
          messages_.erase(k);
        } else if (message.sent >= 0 && !message.travels) {
          travel(step.peer, event.rank, bytes, message);
        }
        break;
      }
      case StepKind::kNode:
      case StepKind::kJoin:
        enter(Event::Kind::kDone, event.time, event.rank, event.step);
        break;
    }
  }

  const Link& link(std::int32_t from, std::int32_t to) const {
    return from / per_node_ == to / per_node_ ? machine_.near : machine_.far;
  }

  // Sends the message on its way, unless it is large and nobody wants it yet.
  void travel(std::int32_t from, std::int32_t to, double bytes, Message& message) {
    const Link& l = link(from, to);
    double ready = message.sent;
    if (bytes >= machine_.rendezvous_bytes) {
      if (message.wanted < 0) return;
      // Asked, and answered.
      ready = std::max(message.sent + l.latency_ns, message.wanted) + l.latency_ns;
    }
    message.travels = true;
    const bool near = from / per_node_ == to / per_node_;
    double& out = near ? at(from).link_free : node_of(from).out_free;
    const double begin = std::max(ready, out);
    const double time = bytes * l.byte_ns;
    out = begin + std::max(l.gap_ns - l.overhead_ns, time);
    double end = begin + time + l.latency_ns;
    if (!near) {
      double& in = node_of(to).in_free;
      end = std::max(end, in + time);
      in = end;
      result_.far_bytes += static_cast<std::uint64_t>(bytes);
    }
    enter(Event::Kind::kDone, begin + time, from, message.send_step);
    enter(Event::Kind::kArrived, end, from, message.send_step);
  }

  void arrived(const Event& event) {
    const Step& send = at(event.rank).schedule.steps[event.step];
    const std::uint64_t k = key(event.rank, send.peer, send.ordinal);
    const auto found = messages_.find(k);
    Message& message = found->second;
    message.arrived = event.time;
    if (message.wanted < 0) return;
    finish_receive(send.peer, event.rank, event.time, message.receive_step);
    messages_.erase(found);
  }

  void finish_receive(std::int32_t rank, std::int32_t from, double time, std::uint32_t step) {
    enter(Event::Kind::kDone, work(rank, time, link(from, rank).overhead_ns), rank, step);
  }

  const Machine& machine_;
  std::int32_t per_node_;
  double unit_bytes_ = 1;
  std::int64_t block_units_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Node> nodes_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::unordered_map<std::uint64_t, Message> messages_;
  Simulated result_;
};

}  // namespace

Simulated simulate(const Algorithm& algorithm, const Parameters& parameters, int ranks,
                   int per_node, std::uint64_t bytes, const Machine& machine) {
  return Simulation(algorithm, parameters, ranks, per_node, bytes, machine).execute();
}

}  // namespace od::coll
