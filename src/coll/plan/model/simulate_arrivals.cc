// Follows segments from node to node.
#include "coll/plan/model/simulate_arrivals.h"

#include <algorithm>
#include <cstddef>

#include "coll/plan/hierarchy/arrival_tree.h"

namespace od::coll {
namespace {

constexpr double kSegmentBytes = 64 << 10;

class Protocol {
 public:
  Protocol(const Nodes& nodes, std::uint64_t bytes, const Machine& machine,
           std::span<const double> arrivals)
      : nodes_(nodes),
        machine_(machine),
        arrivals_(arrivals.begin(), arrivals.end()),
        bytes_(static_cast<double>(bytes)),
        ends_(arrivals_),
        count_(static_cast<std::size_t>(nodes.count())),
        root_node_(static_cast<std::size_t>(nodes.node_of(0))) {}

  Simulated broadcast();
  Simulated reduce();
  Simulated gather();
  Simulated hand_out();

 private:
  double arrival(int rank) const { return arrivals_[static_cast<std::size_t>(rank)]; }
  double& end(int rank) { return ends_[static_cast<std::size_t>(rank)]; }
  std::span<const int> members(std::size_t node) const {
    return nodes_.members(static_cast<int>(node));
  }
  int first_of(std::size_t node) const {
    const std::span<const int> all = members(node);
    return *std::min_element(all.begin(), all.end(),
                             [this](int a, int b) { return arrival(a) < arrival(b); });
  }
  int last_of(std::size_t node) const {
    const std::span<const int> all = members(node);
    return *std::max_element(all.begin(), all.end(),
                             [this](int a, int b) { return arrival(a) < arrival(b); });
  }
  // A short message to another node.
  double message() const { return machine_.far.message_ns(); }
  // Asked and answered, where a segment waits for its receiver.
  double handshake() const {
    return segment_bytes() >= machine_.rendezvous_bytes ? 2 * machine_.far.latency_ns : 0;
  }
  double segment_bytes() const { return std::min(bytes_, kSegmentBytes); }
  std::size_t segments() const {
    return static_cast<std::size_t>((bytes_ + kSegmentBytes - 1) / kSegmentBytes);
  }
  double segment(std::size_t index) const {
    return std::min(kSegmentBytes, bytes_ - static_cast<double>(index) * kSegmentBytes);
  }
  double read(double bytes) const { return bytes * machine_.near.byte_ns / 2; }
  void read_segments(int rank, const std::vector<double>& there);
  Simulated result();

  const Nodes& nodes_;
  const Machine& machine_;
  std::vector<double> arrivals_;
  double bytes_;
  std::vector<double> ends_;
  std::size_t count_;
  std::size_t root_node_;
  Simulated sums_;
};

Simulated Protocol::result() {
  double inside = 0;
  for (std::size_t rank = 0; rank < ends_.size(); ++rank) {
    sums_.last_ns = std::max(sums_.last_ns, ends_[rank]);
    sums_.average_ns += ends_[rank];
    inside += ends_[rank] - arrivals_[rank];
  }
  const auto ranks = static_cast<double>(ends_.size());
  sums_.average_ns /= ranks;
  sums_.inside_ns = inside / ranks;
  return sums_;
}

// Takes segments as they are there.
void Protocol::read_segments(int rank, const std::vector<double>& there) {
  double now = arrival(rank);
  for (std::size_t i = 0; i < there.size(); ++i) {
    now = std::max(now, there[i]) + read(segment(i));
  }
  end(rank) = std::max(end(rank), now);
}

Simulated Protocol::broadcast() {
  const std::size_t root = root_node_;
  // When a node has each segment, is free to send, and who speaks for it.
  std::vector<std::vector<double>> there(count_, std::vector<double>(segments(), arrival(0)));
  std::vector<double> free(count_, 0);
  std::vector<int> winner(count_, 0);
  std::vector<double> ready(count_, 0);
  std::vector<std::size_t> order;
  for (std::size_t node = 0; node < count_; ++node) {
    if (node == root) continue;
    winner[node] = first_of(node);
    ready[node] = std::max(arrival(winner[node]) + message(), arrival(0));
    order.push_back(node);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ready[a] < ready[b]; });
  ArrivalTree tree(segments());
  std::vector<std::size_t> member = {root};
  std::vector<double> sent;  // when each segment has left the root, to whomever
  for (const std::size_t node : order) {
    const auto left = static_cast<std::size_t>(
        std::upper_bound(sent.begin(), sent.end(), ready[node]) - sent.begin());
    // When it has nothing to send, the root lets the others go.
    if (left == sent.size()) tree.close();
    const std::size_t from = member[tree.add(left)];
    member.push_back(node);
    // It hears its part, and the other its next, at the same time.
    const double begins = ready[node] + (from == root ? 0 : message()) + handshake();
    for (std::size_t i = 0; i < segments(); ++i) {
      const double time = segment(i) * machine_.far.byte_ns;
      const double begin = std::max({begins, there[from][i], free[from]});
      free[from] = begin + std::max(time, machine_.far.gap_ns);
      there[node][i] = begin + time + machine_.far.latency_ns + machine_.far.overhead_ns;
      if (from == root) sent.push_back(free[from]);
      ++sums_.messages;
    }
    sums_.far_bytes += static_cast<std::uint64_t>(bytes_);
    end(winner[from]) = std::max(end(winner[from]), free[from]);
    end(0) = std::max(end(0), ready[node]);
  }
  for (const int rank : members(root)) {
    if (rank != 0) read_segments(rank, there[root]);
  }
  end(0) = std::max(end(0), arrival(0) + bytes_ * machine_.copy_byte_ns);
  for (const std::size_t node : order) {
    for (const int rank : members(node)) read_segments(rank, there[node]);
  }
  return result();
}

Simulated Protocol::reduce() {
  struct Sending {
    std::size_t node;
    int sender;
    double begin;
  };
  std::vector<Sending> all;
  for (std::size_t node = 0; node < count_; ++node) {
    for (const int rank : members(node)) end(rank) = arrival(rank) + read(bytes_);
    if (node == root_node_) continue;
    const int sender = last_of(node);
    // It copies nothing, and its root must be there.
    all.push_back({node, sender, std::max(arrival(sender) + message(), arrival(0)) + handshake()});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Sending& a, const Sending& b) { return a.begin < b.begin; });
  double in_free = 0;
  double last = arrival(last_of(root_node_)) + read(bytes_);
  for (const Sending& each : all) {
    const auto ranks = static_cast<double>(members(each.node).size());
    const double wire = bytes_ * machine_.far.byte_ns;
    // Segments are combined while others travel.
    const double combine = (ranks - 1) * machine_.add_byte_ns;
    const double first = segment_bytes() * combine;
    const double begin = std::max(each.begin + first, in_free);
    in_free = begin + std::max(wire, bytes_ * combine - first);
    end(each.sender) = in_free + machine_.far.latency_ns;
    last = std::max(last, end(each.sender));
    sums_.messages += segments();
    sums_.far_bytes += static_cast<std::uint64_t>(bytes_);
  }
  const auto own = static_cast<double>(members(root_node_).size());
  const double rest = bytes_ * machine_.add_byte_ns * (static_cast<double>(count_) + own - 2);
  end(0) = std::max(last, arrival(0)) + rest;
  return result();
}

// Blocks leave their nodes as they come, and share the root's link.
Simulated Protocol::gather() {
  std::vector<int> order;
  double last = arrival(0);
  for (std::size_t node = 0; node < count_; ++node) {
    for (const int rank : members(node)) {
      if (node != root_node_) {
        order.push_back(rank);
      } else if (rank != 0) {
        end(rank) = arrival(rank) + read(bytes_);
        last = std::max(last, end(rank)) + read(bytes_);
      }
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [this](int a, int b) { return arrival(a) < arrival(b); });
  double in_free = 0;
  // Who carries a node's blocks, and until when.
  std::vector<int> carrier(count_, 0);
  std::vector<double> carries_until(count_, -1);
  for (const int rank : order) {
    const auto node = static_cast<std::size_t>(nodes_.node_of(rank));
    double there = arrival(rank);
    if (carries_until[node] <= there) {
      carrier[node] = rank;
    } else {
      there += read(bytes_);
      end(rank) = there;
    }
    const double wire = std::max(bytes_ * machine_.far.byte_ns,
                                 machine_.far.gap_ns * static_cast<double>(segments()));
    const double told = std::max(there + message(), arrival(0)) + handshake();
    in_free = std::max({told, in_free, carries_until[node]}) + wire;
    carries_until[node] = end(carrier[node]) = in_free;
    last = std::max(last, in_free + machine_.far.latency_ns);
    sums_.messages += segments();
    sums_.far_bytes += static_cast<std::uint64_t>(bytes_);
  }
  end(0) = last + bytes_ * machine_.copy_byte_ns;
  return result();
}

// A scatter: the root's link carries the blocks of node after node, as somebody is there.
Simulated Protocol::hand_out() {
  struct Node {
    std::size_t number;
    double ready;
  };
  std::vector<Node> others;
  for (std::size_t node = 0; node < count_; ++node) {
    if (node == root_node_) continue;
    others.push_back({node, std::max(arrival(first_of(node)) + message(), arrival(0))});
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const Node& a, const Node& b) { return a.ready < b.ready; });
  double free = 0;
  for (const Node& node : others) {
    // Told how long blocks are, then sent them.
    double now = std::max(node.ready + message() + handshake(), free);
    double there = now;
    for (const int rank : members(node.number)) {
      now += std::max(bytes_ * machine_.far.byte_ns,
                      machine_.far.gap_ns * static_cast<double>(segments()));
      there = now + machine_.far.latency_ns + machine_.far.overhead_ns;
      sums_.messages += segments();
      sums_.far_bytes += static_cast<std::uint64_t>(bytes_);
      if (rank != first_of(node.number)) end(rank) = std::max(arrival(rank), there) + read(bytes_);
    }
    end(first_of(node.number)) = there;
    free = now;
  }
  double here = arrival(0);
  for (const int rank : members(root_node_)) {
    here += bytes_ * machine_.copy_byte_ns;
    if (rank != 0) end(rank) = std::max(arrival(rank), here) + read(bytes_);
  }
  end(0) = std::max(free, here);
  return result();
}

}  // namespace

std::vector<double> arrival_pattern(std::string_view name, const Nodes& nodes, double delay_ns) {
  const auto ranks = static_cast<std::size_t>(nodes.ranks());
  std::vector<double> found(ranks, 0);
  if (name == "together") return found;
  if (name == "one-late") {
    if (ranks > 1) found.back() = delay_ns;
  } else if (name == "linear") {
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      found[rank] = delay_ns * static_cast<double>(rank) / static_cast<double>(ranks - 1);
    }
  } else if (name == "random") {
    std::uint64_t state = 0x9e3779b97f4a7c15u;
    for (double& each : found) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      each = delay_ns * static_cast<double>(state >> 11) / 9007199254740992.0;
    }
  } else if (name == "late-leader") {
    if (nodes.count() > 1) found[static_cast<std::size_t>(nodes.members(1).front())] = delay_ns;
  } else if (name == "late-root") {
    found.front() = delay_ns;
  } else {
    found.clear();
  }
  return found;
}

Simulated simulate_first_arrival(Collective collective, const Nodes& nodes, std::uint64_t bytes,
                                 const Machine& machine, std::span<const double> arrivals) {
  Protocol protocol(nodes, bytes, machine, arrivals);
  if (collective == Collective::kBcast) return protocol.broadcast();
  if (collective == Collective::kScatter) return protocol.hand_out();
  return collective == Collective::kReduce ? protocol.reduce() : protocol.gather();
}

}  // namespace od::coll
