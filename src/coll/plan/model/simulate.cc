// An event queue over the steps of all ranks.
#include "coll/plan/model/simulate.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coll/plan/hierarchy/node_steps.h"
#include "coll/plan/schedule.h"

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
  double left = -1;    // when it began to travel
  double arrived = -1;
  std::uint32_t send_step = 0;
  std::uint32_t receive_step = 0;
  bool travels = false;
};

// What the leaders of a slice have a switch do.
struct SwitchMeeting {
  std::vector<std::pair<std::int32_t, std::uint32_t>> come;  // rank and step
  double last = 0;                                           // when the last was heard
};

// What the members of a node do together.
struct NodeMeeting {
  std::vector<double> started;  // by position; below 0: not yet
  std::vector<double> ends;     // of those who are done
  std::vector<std::uint32_t> steps;
  std::size_t come = 0;
};

class Simulation {
 public:
  Simulation(const Decision& decision, const Nodes& nodes, NodeDriver driver, std::uint64_t bytes,
             const Machine& machine)
      : machine_(machine),
        nodes_(nodes),
        collective_(decision.algorithm->collective),
        bytes_(static_cast<double>(bytes)),
        by_leaders_(decision.mode == Mode::kHierarchical || nodes.ranks() == nodes.count()),
        ranks_(static_cast<std::size_t>(nodes.ranks())) {
    const CollectiveInfo& kind = info(collective_);
    const int ranks = nodes.ranks();
    Shape shape;
    shape.ranks = ranks;
    shape.unit_bytes = kind.reduces ? kElementBytes : 1;
    shape.parameters = decision.parameters;
    const auto units = static_cast<std::int64_t>(bytes) / shape.unit_bytes;
    block_units_ = units;
    shape.count = units;
    std::vector<std::int64_t> counts;
    if (kind.has_counts()) {
      for (int i = 0; i < ranks; ++i) counts.push_back(units * (i + 1) / ranks - units * i / ranks);
      shape.counts = counts.data();
    }
    if (kind.size_rule() == SizeRule::kTotal && !kind.has_counts()) shape.count = units / ranks;
    unit_bytes_ = static_cast<double>(shape.unit_bytes);
    for (int rank = 0; rank < ranks; ++rank) {
      shape.rank = rank;
      Rank& self = ranks_[static_cast<std::size_t>(rank)];
      self.schedule = decision.mode == Mode::kHierarchical
                          ? make_hierarchical(*decision.algorithm, shape, nodes, driver)
                          : make_schedule(*decision.algorithm, shape);
      self.run.begin(self.schedule);
    }
    links_.resize(static_cast<std::size_t>(nodes.count()));
  }

  Simulated execute(TimeLine* time_line, std::span<const double> arrivals) {
    time_line_ = time_line;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const double arrival = arrivals.empty() ? 0 : arrivals[rank];
      ranks_[rank].last = arrival;
      start_ready(static_cast<std::int32_t>(rank), arrival);
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
          note_end(event);
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
    for (const double arrival : arrivals) sum -= arrival;
    result_.inside_ns = sum / static_cast<double>(ranks_.size());
    if (time_line != nullptr) {
      for (Rank& rank : ranks_) time_line->schedules.push_back(std::move(rank.schedule));
    }
    return result_;
  }

 private:
  struct Rank {
    Schedule schedule;
    Run run;
    double processor_free = 0;
    double link_free = 0;  // to other ranks of the node
    double last = 0;
    bool served_elsewhere = false;
  };
  struct NodeLink {
    double out_free = 0;
    double in_free = 0;
  };

  Rank& at(std::int32_t rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  NodeLink& link_of(std::int32_t rank) {
    return links_[static_cast<std::size_t>(nodes_.node_of(rank))];
  }
  bool near(std::int32_t a, std::int32_t b) const { return nodes_.node_of(a) == nodes_.node_of(b); }

  void note_begin(std::int32_t rank, std::uint32_t step, double time) {
    if (time_line_ != nullptr) begun_[{rank, step}] = time;
  }
  void note_end(const Event& event) {
    if (time_line_ == nullptr) return;
    const auto begun = begun_.find({event.rank, event.step});
    if (begun == begun_.end()) return;
    time_line_->steps.push_back({event.rank, event.step, begun->second, event.time});
    begun_.erase(begun);
  }

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

  // A step that only occupies the processor.
  double work_on(std::int32_t rank, std::uint32_t step, double time, double duration) {
    const double end = work(rank, time, duration);
    note_begin(rank, step, end - duration);
    enter(Event::Kind::kDone, end, rank, step);
    return end;
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
    if (step.otherwise && at(event.rank).served_elsewhere) {
      enter(Event::Kind::kDone, event.time, event.rank, event.step);
      return;
    }
    const double bytes = bytes_of(step);
    if (step.kind != StepKind::kJoin) note_begin(event.rank, event.step, event.time);
    switch (step.kind) {
      case StepKind::kCopy:
        work_on(event.rank, event.step, event.time, bytes * machine_.copy_byte_ns);
        break;
      case StepKind::kReduce:
        work_on(event.rank, event.step, event.time, bytes * machine_.add_byte_ns);
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
        meet(event, step, bytes);
        break;
      case StepKind::kElsewhere:
        if (machine_.switch_ports > 0 && by_leaders_) {
          hand_to_switch(event, step, bytes);
          break;
        }
        [[fallthrough]];  // comes to nothing
      case StepKind::kJoin:
        enter(Event::Kind::kDone, event.time, event.rank, event.step);
        break;
    }
  }

  // Packets follow each other, so that of a long vector only the last one's way is seen.
  void hand_to_switch(const Event& event, const Step& step, double bytes) {
    const Link& l = machine_.far;
    const double sent = work(event.rank, event.time, l.overhead_ns);
    double& out = link_of(event.rank).out_free;
    const double begin = std::max(sent, out);
    out = begin + std::max(l.gap_ns, bytes * l.byte_ns);
    ++result_.messages;
    result_.far_bytes += static_cast<std::uint64_t>(bytes);
    const int slice = elsewhere_slice(step);
    SwitchMeeting& meeting = switch_meetings_[slice];
    meeting.last = std::max(meeting.last, begin + bytes * l.byte_ns + l.latency_ns / 2);
    meeting.come.push_back({event.rank, event.step});
    if (static_cast<int>(meeting.come.size()) < nodes_.count()) return;
    const bool one_switch = nodes_.count() <= machine_.switch_ports;
    const double answered =
        meeting.last + (one_switch ? 0 : 2 * machine_.switch_hop_ns) + l.latency_ns / 2;
    for (const auto& [rank, own_step] : meeting.come) {
      at(rank).served_elsewhere = true;
      NodeLink& node = link_of(rank);
      node.in_free = std::max(answered, node.in_free + bytes * l.byte_ns);
      enter(Event::Kind::kDone, work(rank, node.in_free, l.overhead_ns), rank, own_step);
    }
    switch_meetings_.erase(slice);
  }

  const Link& link(std::int32_t from, std::int32_t to) const {
    return near(from, to) ? machine_.near : machine_.far;
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
    const bool inside = near(from, to);
    double& out = inside ? at(from).link_free : link_of(from).out_free;
    const double begin = std::max(ready, out);
    const double time = bytes * l.byte_ns;
    message.left = begin;
    // A network's link takes the messages of all ranks of the node, each for the gap at least;
    // inside a node the sender's processor was busy for a part of it.
    out = begin + std::max(inside ? l.gap_ns - l.overhead_ns : l.gap_ns, time);
    double end = begin + time + l.latency_ns;
    if (!inside) {
      double& in = link_of(to).in_free;
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
    note_begin(send.peer, message.receive_step, std::max(message.wanted, message.left));
    finish_receive(send.peer, event.rank, event.time, message.receive_step);
    messages_.erase(found);
  }

  void finish_receive(std::int32_t rank, std::int32_t from, double time, std::uint32_t step) {
    enter(Event::Kind::kDone, work(rank, time, link(from, rank).overhead_ns), rank, step);
  }

  // A step of the node: what a member has to do begins when those it needs have come.
  void meet(const Event& event, const Step& step, double bytes) {
    const int node = nodes_.node_of(event.rank);
    const std::span<const int> members = nodes_.members(node);
    const auto key = std::make_pair(node, step.ordinal);
    NodeMeeting& meeting = meetings_[key];
    if (meeting.started.empty()) {
      meeting.started.assign(members.size(), -1);
      meeting.steps.resize(members.size());
    }
    const auto me = static_cast<std::size_t>(nodes_.position_of(event.rank));
    const auto leader = static_cast<std::size_t>(node_leader(step));
    meeting.started[me] = event.time;
    meeting.steps[me] = event.step;
    ++meeting.come;
    const bool all = meeting.come == members.size();
    const double flag = machine_.near.latency_ns + machine_.near.overhead_ns;
    const double read = bytes * machine_.near.byte_ns / 2;
    const NodeWork what = node_work(step);
    if (what == NodeWork::kBcast || what == NodeWork::kScatter) {
      const bool signal = bytes <= 0;
      if (signal && me == leader) {
        enter(Event::Kind::kDone, event.time, event.rank, event.step);
      }
      if (meeting.started[leader] < 0) return;
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (i == leader || meeting.started[i] < 0 || (me != leader && i != me)) continue;
        const double from = std::max(meeting.started[i], meeting.started[leader] + flag);
        meeting.ends.push_back(work_on(members[i], meeting.steps[i], from, read));
      }
      if (!all) return;
      // The leader may go on when all have read.
      const double last = *std::max_element(meeting.ends.begin(), meeting.ends.end());
      if (!signal) {
        enter(Event::Kind::kDone, last + flag, members[leader], meeting.steps[leader]);
      }
    } else {
      if (!all) return;
      double begin = event.time + flag;
      double duration = read + bytes * machine_.add_byte_ns;
      if (what == NodeWork::kGather) duration = 0;
      if (what == NodeWork::kWhole) {
        duration = node_cost(machine_, collective_, nodes_.ranks(), bytes_) - flag;
      }
      if (what == NodeWork::kScan || what == NodeWork::kExscan) duration *= 2;
      double last = begin;
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (i == leader) continue;
        last = std::max(last, work_on(members[i], meeting.steps[i], begin, duration));
      }
      if (what == NodeWork::kGather) duration = read * static_cast<double>(members.size());
      const double own = work(members[leader], begin, duration);
      note_begin(members[leader], meeting.steps[leader], own - duration);
      enter(Event::Kind::kDone, std::max(own, last), members[leader], meeting.steps[leader]);
    }
    meetings_.erase(key);
  }

  const Machine& machine_;
  const Nodes& nodes_;
  Collective collective_;
  double bytes_;
  bool by_leaders_;  // one rank of each node, and slice, takes part between nodes
  double unit_bytes_ = 1;
  std::int64_t block_units_ = 0;
  std::vector<Rank> ranks_;
  std::vector<NodeLink> links_;
  std::map<std::pair<int, std::uint32_t>, NodeMeeting> meetings_;  // by node and ordinal
  std::map<int, SwitchMeeting> switch_meetings_;                   // by slice
  TimeLine* time_line_ = nullptr;
  std::map<std::pair<std::int32_t, std::uint32_t>, double> begun_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::unordered_map<std::uint64_t, Message> messages_;
  Simulated result_;
};

}  // namespace

Simulated simulate(const Algorithm& algorithm, const Parameters& parameters, int ranks,
                   int per_node, std::uint64_t bytes, const Machine& machine) {
  return simulate({&algorithm, Mode::kFlat, parameters}, Nodes::in_blocks(ranks, per_node),
                  NodeDriver::kMessages, bytes, machine);
}

Simulated simulate(const Decision& decision, const Nodes& nodes, NodeDriver driver,
                   std::uint64_t bytes, const Machine& machine, TimeLine* time_line,
                   std::span<const double> arrivals) {
  return Simulation(decision, nodes, driver, bytes, machine).execute(time_line, arrivals);
}

}  // namespace od::coll
