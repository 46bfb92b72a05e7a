// Moves frames through the switches.
#include "switch/fabric.h"

#include <algorithm>
#include <utility>

namespace od::fabric {

const char* drop_name(Drop drop) {
  switch (drop) {
    case Drop::lost:
      return "lost";
    case Drop::queue_full:
      return "queue full";
    case Drop::no_memory:
      return "no memory";
    case Drop::malformed:
      return "malformed";
    case Drop::link_local:
      return "link local";
    case Drop::cannot_send:
      return "cannot send";
    case Drop::oversized:
      return "oversized";
  }
  return "";
}

std::uint32_t Fabric::add_switch(std::string name, std::uint64_t latency_ns) {
  Switch added;
  added.name = std::move(name);
  added.latency_ns = latency_ns;
  switches_.push_back(std::move(added));
  return static_cast<std::uint32_t>(switches_.size() - 1);
}

std::uint32_t Fabric::add_port(std::uint32_t owner, std::string name, std::uint64_t seed,
                               bool only_in_network, std::uint32_t spine) {
  const auto number = static_cast<std::uint32_t>(ports_.size());
  Port added;
  added.name = std::move(name);
  added.owner = owner;
  added.only_in_network = only_in_network;
  added.spine = spine;
  // Ports with one seed must not meet the same fates at the same time.
  added.link = Link(seed * 0x9e3779b97f4a7c15u + number);
  ports_.push_back(std::move(added));
  switches_[owner].ports.push_back(number);
  if (!only_in_network) switches_[owner].in_tree = true;
  return number;
}

std::pair<std::uint32_t, std::uint32_t> Fabric::connect(std::uint32_t one, std::uint32_t other,
                                                        std::uint64_t seed, bool only_in_network) {
  const std::uint32_t near = add_port(one, "to " + switches_[other].name, seed, only_in_network);
  const std::uint32_t far = add_port(other, "to " + switches_[one].name, seed, only_in_network);
  ports_[near].peer = far;
  ports_[far].peer = near;
  return {near, far};
}

void Fabric::receive(std::uint32_t port, FramePtr frame, std::uint64_t arrival_ns,
                     std::uint64_t now_ns) {
  Port& in = ports_[port];
  ++in.counters.received_frames;
  in.counters.received_bytes += frame->bytes;
  if (frame->bytes < 14) return count_drop(port, Drop::malformed);
  if (in.link.lost_on_arrival()) return count_drop(port, Drop::lost);
  Switch& own = switches_[in.owner];
  if (!beside_tree(port)) own.table.learn(read_mac(frame->data() + 6), port, now_ns);
  if (own.compute != nullptr && own.compute->receive(port, frame, now_ns)) return;
  forward(port, std::move(frame), arrival_ns + own.latency_ns, now_ns);
}

void Fabric::forward(std::uint32_t port, FramePtr frame, std::uint64_t ready_ns,
                     std::uint64_t now_ns) {
  Switch& own = switches_[ports_[port].owner];
  const std::uint64_t receiver = read_mac(frame->data());
  if (is_link_local(receiver)) return count_drop(port, Drop::link_local);
  if (!is_group_address(receiver)) {
    if (const auto known = own.table.find(receiver, now_ns)) {
      // The receiver is on the side that the frame came from: it has it already.
      if (*known == port || (beside_tree(port) && ports_[*known].leads_up())) return;
      ++own.forwarded;
      return send(*known, std::move(frame), ready_ns, now_ns);
    }
  }
  if (beside_tree(port)) return;
  ++own.flooded;
  std::uint32_t last = kNoPort;
  for (const std::uint32_t out : own.ports) {
    if (out == port || !ports_[out].up || beside_tree(out)) continue;
    if (last != kNoPort) {
      if (FramePtr twin = pool_.copy(*frame)) {
        send(last, std::move(twin), ready_ns, now_ns);
      } else {
        count_drop(last, Drop::no_memory);
      }
    }
    last = out;
  }
  if (last != kNoPort) send(last, std::move(frame), ready_ns, now_ns);
}

void Fabric::send(std::uint32_t port, FramePtr frame, std::uint64_t ready_ns,
                  std::uint64_t now_ns) {
  Port& out = ports_[port];
  const Link::Passage passage = out.link.pass(*frame, ready_ns);
  if (passage.fate == Fate::lost) return count_drop(port, Drop::lost);
  if (passage.fate == Fate::queue_full) return count_drop(port, Drop::queue_full);
  out.counters.reordered += passage.overtaken ? 1 : 0;
  if (passage.corrupt_bit != 0) {
    const std::uint64_t bit = passage.corrupt_bit - 1;
    frame->data()[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
    ++out.counters.corrupted;
  }
  frame->destination = port;
  if (passage.twice) {
    if (FramePtr twin = pool_.copy(*frame)) {
      ++out.counters.duplicated;
      twin->destination = port;
      wheel_.insert(std::move(twin), passage.due_ns);
    }
  }
  // What is due waits no longer, unless it would overtake what waits.
  if (passage.due_ns <= now_ns && wheel_.size() == 0) {
    return deliver(port, std::move(frame), passage.due_ns, now_ns);
  }
  wheel_.insert(std::move(frame), passage.due_ns);
}

void Fabric::deliver(std::uint32_t port, FramePtr frame, std::uint64_t due_ns,
                     std::uint64_t now_ns) {
  Port& out = ports_[port];
  if (!out.up) return count_drop(port, Drop::cannot_send);
  const std::uint32_t bytes = frame->bytes;
  if (out.peer == kNoPort) {
    lateness_.add(now_ns > due_ns ? now_ns - due_ns : 0);
    if (!transmitter_.transmit(port, *frame)) return count_drop(port, Drop::cannot_send);
  }
  ++out.counters.sent_frames;
  out.counters.sent_bytes += bytes;
  // The next switch counts from when the frame was due, so that latencies do not add up errors.
  if (out.peer != kNoPort) receive(out.peer, std::move(frame), due_ns, now_ns);
}

std::size_t Fabric::advance(std::uint64_t now_ns) {
  std::size_t moved = wheel_.fire(now_ns, [&](FramePtr frame) {
    const std::uint32_t port = frame->destination;
    const std::uint64_t due_ns = frame->due_ns;
    deliver(port, std::move(frame), due_ns, now_ns);
  });
  for (Switch& own : switches_) {
    if (own.compute != nullptr && own.compute->next_due_ns() <= now_ns) {
      own.compute->advance(now_ns);
      ++moved;
    }
  }
  return moved;
}

std::uint64_t Fabric::next_due_ns() const {
  std::uint64_t earliest = wheel_.next_due_ns();
  for (const Switch& own : switches_) {
    if (own.compute != nullptr) earliest = std::min(earliest, own.compute->next_due_ns());
  }
  return earliest;
}

}  // namespace od::fabric
