// For tests: leaders, switches, and a network with faults between them, with invented time.
//
// Leaders and switches are the real ones; the network between them is a Fabric, and each leader's
// own cable loses, doubles, delays and corrupts as well. run_job() compares every result with one
// computed here in the order of members, bit by bit.
#ifndef OVERDRIVE_SWITCH_TEST_NETWORK_H_
#define OVERDRIVE_SWITCH_TEST_NETWORK_H_

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "innetwork/leader.h"
#include "switch/compute.h"

namespace od::fabric {

using innetwork::Address;
using innetwork::Leader;
using innetwork::LeaderSettings;
using innetwork::Operation;
using innetwork::Packet;
using innetwork::Type;

inline constexpr std::uint64_t kUs = 1000;
inline constexpr std::uint64_t kMs = 1'000'000;
inline constexpr std::size_t kHead = 42;

inline bool is(const Packet& packet, innetwork::Kind kind) {
  return packet.common.kind == static_cast<std::uint8_t>(kind);
}

class Network : private Transmitter {
 public:
  struct Shape {
    std::size_t leaders = 4;
    std::size_t tors = 1;
    std::size_t spines = 1;  // where there are several ToRs
    std::uint32_t window = 4;
    std::uint32_t payload_bytes = 64;
    bool compute = true;
    bool reliable = false;
    bool apart = false;  // each spine in a program of its own
  };

  explicit Network(const Shape& shape, const LinkSettings& faults = {}, std::uint64_t seed = 1)
      : shape_(shape),
        random_(seed),
        faults_(faults),
        cut_(shape.leaders, false),
        asleep_(shape.leaders, false),
        unread_(shape.leaders) {
    for (std::size_t i = 0; i < shape.tors; ++i) fabric_.add_switch("tor" + std::to_string(i), kUs);
    for (std::size_t i = 0; shape.tors > 1 && i < shape.spines; ++i) {
      if (shape.apart) {
        apart_.push_back(std::make_unique<Apart>(*this, i));
      } else {
        fabric_.add_switch("spine" + std::to_string(i), kUs);
      }
    }
    for (std::size_t i = 0; i < shape.leaders; ++i) {
      const auto tor = static_cast<std::uint32_t>(i * shape.tors / shape.leaders);
      const std::uint32_t port = fabric_.add_port(tor, "p", seed);
      fabric_.ports()[port].link.set(faults);
      cables_.emplace_back(seed * 77 + i);
      cables_.back().set(faults);
    }
    for (std::size_t spine = 0; shape.tors > 1 && spine < shape.spines; ++spine) {
      for (std::uint32_t i = 0; i < shape.tors; ++i) {
        if (shape.apart) {
          const std::uint32_t up =
              fabric_.add_port(i, "up", seed, spine > 0, address_of(shape.tors + spine));
          // Its ports are numbered from 0 again: with the seed of the others, what one of these
          // corrupts would be put right by the next.
          const std::uint32_t down = apart_[spine]->fabric.add_port(0, "down", ~(seed + spine));
          fabric_.ports()[up].link.set(faults);
          apart_[spine]->fabric.ports()[down].link.set(faults);
          continue;
        }
        const auto above = static_cast<std::uint32_t>(shape.tors + spine);
        const auto [near, far] = fabric_.connect(i, above, seed, spine > 0);
        fabric_.ports()[near].link.set(faults);
        fabric_.ports()[far].link.set(faults);
      }
    }
    if (shape.compute) restart_switches();
  }

  // As when the processes are started anew: everything that they knew is gone.
  void restart_switches() {
    for (std::uint32_t i = 0; i < switches(); ++i) restart_switch(i);
  }
  void restart_switch(std::uint32_t i) { restart_switch(i, most_groups_); }
  void restart_switch(std::uint32_t i, std::size_t most_groups) {
    ComputeSettings settings;
    settings.address = address_of(i);
    settings.spine = i >= shape_.tors;
    settings.window = shape_.window;
    settings.payload_bytes = shape_.payload_bytes;
    settings.most_groups = most_groups;
    const auto [fabric, own] = place_of(i);
    fabric->switches()[own].compute = std::make_unique<Compute>(*fabric, own, settings);
  }
  void set_most_groups(std::size_t most) {
    most_groups_ = most;
    restart_switches();
  }
  Compute& compute(std::size_t i = 0) {
    const auto [fabric, own] = place_of(i);
    return static_cast<Compute&>(*fabric->switches()[own].compute);
  }
  void set_faults(const LinkSettings& faults) {
    faults_ = faults;
    for (Link& cable : cables_) cable.set(faults);
    for (Fabric* fabric : fabrics()) {
      for (Port& port : fabric->ports()) port.link.set(faults);
    }
  }

  // A group of leaders 0 to n-1, at their ports; returns its number.
  std::size_t add_group(std::uint32_t id, std::uint64_t key,
                        std::uint16_t first_port_number = 5000) {
    const std::size_t number = groups_.size();
    groups_.emplace_back();
    std::vector<innetwork::Peer> peers;
    for (std::size_t i = 0; i < shape_.leaders; ++i) {
      const std::uint32_t ip = 0x0a4d0001 + static_cast<std::uint32_t>(i);
      peers.push_back(
          {{ip, first_port_number}, {ip, static_cast<std::uint16_t>(first_port_number + 1)}});
    }
    for (std::size_t i = 0; i < shape_.leaders; ++i) {
      LeaderSettings settings;
      settings.group = id;
      settings.key = key;
      settings.index = static_cast<std::uint16_t>(i);
      settings.leaders = peers;
      settings.reliable = shape_.reliable;
      settings.payload_bytes = 1024;
      groups_.back().push_back(std::make_unique<Leader>(
          settings, [this, i, peers](Address to, const Packet& packet, bool service) {
            emit(i, service ? peers[i].service : peers[i].data, to, packet);
          }));
    }
    return number;
  }
  Leader& leader(std::size_t i, std::size_t group = 0) { return *groups_[group][i]; }

  // Joins all leaders of a group; true if all are ready.
  bool join(std::size_t group = 0) {
    for (auto& one : groups_[group]) one->begin(now_ns_);
    run_until([&] {
      return std::ranges::none_of(
          groups_[group], [](const auto& one) { return one->state() == Leader::State::joining; });
    });
    return std::ranges::all_of(
        groups_[group], [](const auto& one) { return one->state() == Leader::State::ready; });
  }

  template <typename Done>
  bool run_until(Done&& done, std::uint64_t most_ns = 60'000 * kMs) {
    const std::uint64_t end_ns = now_ns_ + most_ns;
    while (!done()) {
      const std::uint64_t next = next_ns();
      if (next > end_ns) return false;
      now_ns_ = std::max(now_ns_, next);
      while (!coming_.empty() && coming_.top().due_ns <= now_ns_) {
        Coming one = coming_.top();
        coming_.pop();
        put(*one.into, one.port, one.bytes);
      }
      for (Fabric* fabric : fabrics()) fabric->advance(now_ns_);
      for (auto& group : groups_) {
        for (std::size_t i = 0; i < group.size(); ++i) {
          if (!asleep_[i]) group[i]->advance(now_ns_);
        }
      }
    }
    return true;
  }
  std::uint64_t next_ns() {
    std::uint64_t next = TimerWheel::kNever;
    for (Fabric* fabric : fabrics()) next = std::min(next, fabric->next_due_ns());
    if (!coming_.empty()) next = std::min(next, coming_.top().due_ns);
    for (auto& group : groups_) {
      for (std::size_t i = 0; i < group.size(); ++i) {
        if (!asleep_[i]) next = std::min(next, group[i]->next_due_ns());
      }
    }
    return next;
  }

  // Puts a frame on a leader's cable, as a stranger might.
  void inject(std::size_t leader, const std::vector<std::uint8_t>& bytes) {
    put(fabric_, static_cast<std::uint32_t>(leader), bytes);
  }
  // An ordinary frame to all, as a host sends that looks for another one: switches learn where it
  // is.
  void announce(std::size_t leader) {
    std::vector<std::uint8_t> bytes(60);
    std::fill_n(bytes.begin(), 6, std::uint8_t{0xff});
    bytes[6] = 2;
    bytes[11] = static_cast<std::uint8_t>(1 + leader);
    bytes[12] = 8;
    bytes[13] = 6;
    inject(leader, bytes);
  }
  std::vector<std::uint8_t> frame_of(std::size_t leader, Address from, Address to,
                                     const Packet& packet) {
    std::vector<std::uint8_t> bytes(kHead + innetwork::packet_bytes(packet));
    const auto put = [&](std::size_t at, std::uint64_t value, int count) {
      for (int i = 0; i < count; ++i) {
        bytes[at + static_cast<std::size_t>(i)] =
            static_cast<std::uint8_t>(value >> (8 * (count - 1 - i)));
      }
    };
    put(0, 0x020000000000 + (to.ip & 0xffff), 6);
    put(6, 0x020000000000 + 1 + leader, 6);
    put(12, 0x0800, 2);
    put(14, 0x45, 1);
    put(16, bytes.size() - 14, 2);
    put(20, 0x4000, 2);
    put(22, 64, 1);
    put(23, 17, 1);
    put(26, from.ip, 4);
    put(30, to.ip, 4);
    put(34, from.port, 2);
    put(36, to.port, 2);
    put(38, bytes.size() - 34, 2);
    put(24, 0xffff & ~ip_sum(bytes.data() + 14), 2);
    innetwork::write(packet, from, to, {bytes.data() + kHead, bytes.size() - kHead});
    return bytes;
  }
  // From now on in-network packets disappear at the switches, and all others pass.
  void stop_computing() {
    struct Hole : ComputeUnit {
      bool receive(std::uint32_t, FramePtr& frame, std::uint64_t) override {
        return frame->bytes > kHead + 8 && frame->data()[kHead + 5] == 0x4f &&
               frame->data()[kHead + 6] == 0x44;
      }
      std::uint64_t next_due_ns() const override { return TimerWheel::kNever; }
      void advance(std::uint64_t) override {}
    };
    for (Fabric* fabric : fabrics()) {
      for (Switch& own : fabric->switches()) own.compute = std::make_unique<Hole>();
    }
  }
  std::uint64_t settled_with_result() const {
    std::uint64_t sum = 0;
    for (const auto& one : groups_[0]) sum += one->counters().settled_with_result;
    return sum;
  }
  std::vector<std::uint8_t> last_data(std::size_t leader) const { return last_data_.at(leader); }
  // From now on nothing comes from this leader's host or goes there.
  void cut(std::size_t leader) { cut_[leader] = true; }
  // As when the program of this leader computes: until it wakes, what comes lies in its sockets.
  void sleep(std::size_t leader) { asleep_[leader] = true; }
  void wake(std::size_t leader) {
    asleep_[leader] = false;
    for (const auto& read : std::exchange(unread_[leader], {})) read();
  }

  std::uint64_t now_ns_ = kMs;
  std::mt19937_64& random() { return random_; }
  FramePool& pool() { return pool_; }
  std::uint64_t blocked_ = 0;
  // Which packets a leader never gets.
  std::function<bool(std::size_t leader, const Packet& packet)> lost_;

 private:
  struct Coming {
    std::uint64_t due_ns;
    std::uint64_t order;
    Fabric* into;
    std::uint32_t port;
    std::vector<std::uint8_t> bytes;
    bool operator<(const Coming& other) const {
      return std::pair(due_ns, order) > std::pair(other.due_ns, other.order);
    }
  };

  // A program with one spine, whose port i leads to ToR i.
  struct Apart : Transmitter {
    Apart(Network& around, std::size_t spine)
        : network(around), number(spine), fabric(around.pool_, *this) {
      fabric.add_switch("spine" + std::to_string(spine), kUs);
    }
    bool transmit(std::uint32_t port, Frame& frame) override {
      const std::size_t up = network.shape_.leaders + number * network.shape_.tors + port;
      network.cross(network.fabric_, static_cast<std::uint32_t>(up), frame);
      return true;
    }
    Network& network;
    std::size_t number;
    Fabric fabric;
  };

  std::size_t switches() const {
    return shape_.tors > 1 ? shape_.tors + shape_.spines : shape_.tors;
  }
  static std::uint32_t address_of(std::size_t i) {
    return 0xc6120001 + static_cast<std::uint32_t>(i);
  }
  // The program of a switch, and its number there.
  std::pair<Fabric*, std::uint32_t> place_of(std::size_t i) {
    if (shape_.apart && i >= shape_.tors) return {&apart_[i - shape_.tors]->fabric, 0};
    return {&fabric_, static_cast<std::uint32_t>(i)};
  }
  std::vector<Fabric*> fabrics() {
    std::vector<Fabric*> all{&fabric_};
    for (auto& one : apart_) all.push_back(&one->fabric);
    return all;
  }
  void put(Fabric& into, std::uint32_t port, const std::vector<std::uint8_t>& bytes) {
    FramePtr frame = pool_.take(bytes.size());
    std::copy(bytes.begin(), bytes.end(), frame->data());
    into.receive(port, std::move(frame), now_ns_, now_ns_);
  }
  // From one program to the other.
  void cross(Fabric& into, std::uint32_t port, Frame& frame) {
    coming_.push(
        {now_ns_ + 100, order_++, &into, port, {frame.data(), frame.data() + frame.bytes}});
  }

  // Of an IP header; all ones with the right checksum in it.
  static std::uint32_t ip_sum(const std::uint8_t* header) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < innetwork::kIpBytes; i += 2) {
      sum += std::uint32_t{header[i]} << 8 | header[i + 1];
    }
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return sum;
  }
  void emit(std::size_t leader, Address from, Address to, const Packet& packet) {
    if (cut_[leader]) return;
    std::vector<std::uint8_t> bytes = frame_of(leader, from, to, packet);
    if (packet.common.kind == static_cast<std::uint8_t>(innetwork::Kind::data)) {
      last_data_.resize(shape_.leaders);
      last_data_[leader] = bytes;
    }
    FramePtr frame = pool_.take(bytes.size());
    const Link::Passage passage = cables_[leader].pass(*frame, now_ns_ + 100);
    if (passage.fate != Fate::sent) return;
    if (passage.corrupt_bit != 0) {
      bytes[(passage.corrupt_bit - 1) / 8] ^=
          static_cast<std::uint8_t>(1u << ((passage.corrupt_bit - 1) % 8));
    }
    const auto port = static_cast<std::uint32_t>(leader);
    if (passage.twice) coming_.push({passage.due_ns, order_++, &fabric_, port, bytes});
    coming_.push({passage.due_ns, order_++, &fabric_, port, std::move(bytes)});
  }
  bool transmit(std::uint32_t port, Frame& frame) override {
    if (port >= shape_.leaders) {
      const std::size_t up = port - shape_.leaders;
      cross(apart_[up / shape_.tors]->fabric, static_cast<std::uint32_t>(up % shape_.tors), frame);
      return true;
    }
    if (cut_[port]) return true;
    const std::uint8_t* const data = frame.data();
    const auto get = [&](std::size_t at, int count) {
      std::uint32_t value = 0;
      for (int i = 0; i < count; ++i) value = value << 8 | data[at + static_cast<std::size_t>(i)];
      return value;
    };
    // What a host's network stack would not hand to a socket.
    if (frame.bytes < kHead + 16 || get(12, 2) != 0x0800 || get(26, 0) != 0 || data[14] != 0x45 ||
        get(30, 4) != 0x0a4d0001 + port || get(16, 2) != frame.bytes - 14 ||
        get(38, 2) != frame.bytes - 34 || ip_sum(data + 14) != 0xffff) {
      return true;
    }
    const Address from{get(26, 4), static_cast<std::uint16_t>(get(34, 2))};
    const Address to{get(30, 4), static_cast<std::uint16_t>(get(36, 2))};
    const std::span<const std::uint8_t> bytes{data + kHead, frame.bytes - kHead};
    Packet packet;
    if (!innetwork::check(bytes, from, to) ||
        innetwork::parse(bytes.first(bytes.size() - 4), packet) != innetwork::Fault::none) {
      ++blocked_;
      return true;
    }
    if (lost_ && lost_(port, packet)) return true;
    // Copied: the leader may send, and frames are reused.
    const std::vector<std::uint8_t> payload(packet.payload.begin(), packet.payload.end());
    const auto read = [this, port, from, packet, payload] {
      Packet own = packet;
      own.payload = payload;
      for (auto& group : groups_) group[port]->receive(own, from, now_ns_);
    };
    if (asleep_[port]) {
      unread_[port].push_back(read);
    } else {
      read();
    }
    return true;
  }

  Shape shape_;
  std::mt19937_64 random_;
  LinkSettings faults_;
  std::size_t most_groups_ = 256;
  FramePool pool_{64 << 20};
  Fabric fabric_{pool_, *this};
  std::vector<std::unique_ptr<Apart>> apart_;
  std::vector<Link> cables_;
  std::vector<std::vector<std::unique_ptr<Leader>>> groups_;
  std::priority_queue<Coming> coming_;
  std::uint64_t order_ = 0;
  std::vector<std::vector<std::uint8_t>> last_data_;
  std::vector<bool> cut_;
  std::vector<bool> asleep_;
  std::vector<std::vector<std::function<void()>>> unread_;
};

// One operation of all leaders with random values.
struct Job {
  Operation operation = Operation::sum;
  Type type = Type::float32;
  std::size_t count = 0;
  std::vector<std::vector<std::uint8_t>> in, out;

  Job(std::mt19937_64& random, std::size_t leaders, std::size_t most_values) {
    do {
      operation = static_cast<Operation>(random() % innetwork::kOperations);
      type = static_cast<Type>(random() % innetwork::kTypes);
    } while (!supports(static_cast<std::uint8_t>(operation), static_cast<std::uint8_t>(type)));
    count = operation == Operation::barrier ? 0 : random() % (most_values + 1);
    const std::size_t bytes = count * innetwork::type_bytes(static_cast<std::uint8_t>(type));
    in.resize(leaders);
    for (auto& one : in) {
      one.resize(bytes);
      if (type == Type::float32) {
        for (std::size_t i = 0; i < count; ++i) {
          const float value = std::ldexp(static_cast<float>(random() % 65536) - 32768,
                                         static_cast<int>(random() % 40) - 20);
          std::memcpy(one.data() + 4 * i, &value, 4);
        }
      } else {
        for (auto& byte : one) byte = static_cast<std::uint8_t>(random() & 0x3f);
      }
    }
    out.assign(leaders, std::vector<std::uint8_t>(bytes, 0xee));
  }

  // The result by the tree: in the order of members at each switch, then of switches.
  std::vector<std::uint8_t> expected(std::size_t tors) const {
    const std::size_t leaders = in.size();
    std::vector<std::vector<std::uint8_t>> partial;
    for (std::size_t tor = 0; tor < tors; ++tor) {
      std::vector<const std::uint8_t*> sources;
      for (std::size_t i = 0; i < leaders; ++i) {
        if (i * tors / leaders == tor) sources.push_back(in[i].data());
      }
      partial.emplace_back(in[0].size());
      combine(static_cast<std::uint8_t>(operation), static_cast<std::uint8_t>(type), sources, count,
              partial.back().data());
    }
    std::vector<const std::uint8_t*> sources;
    for (const auto& one : partial) sources.push_back(one.data());
    std::vector<std::uint8_t> result(in[0].size());
    combine(static_cast<std::uint8_t>(operation), static_cast<std::uint8_t>(type), sources, count,
            result.data());
    return result;
  }
};

enum class End : std::uint8_t { by_switch, by_host, hang, wrong, split };

// Runs a job, leaders entering up to `skew_ns` apart, and judges its end.
inline End run_job(Network& network, std::size_t leaders, std::size_t tors, std::uint64_t skew_ns,
                   std::size_t group = 0, const std::function<void()>& during = {}) {
  Job job(network.random(), leaders, 120);
  std::vector<std::size_t> order(leaders);
  for (std::size_t i = 0; i < leaders; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), network.random());
  std::vector<bool> over_host(leaders, false);
  for (const std::size_t i : order) {
    if (skew_ns > 0) {
      const std::uint64_t until = network.now_ns_ + network.random()() % (skew_ns / leaders + 1);
      network.run_until([&] { return network.now_ns_ >= until || network.next_ns() > until; });
      network.now_ns_ = std::max(network.now_ns_, until);
    }
    over_host[i] = !network.leader(i, group).start(
        job.operation, job.type, job.count, job.in[i].data(), job.out[i].data(), network.now_ns_);
  }
  if (during) during();
  const bool ended = network.run_until([&] {
    for (std::size_t i = 0; i < leaders; ++i) {
      const Leader::State state = network.leader(i, group).state();
      if (!over_host[i] && (state == Leader::State::busy || state == Leader::State::settling)) {
        return false;
      }
    }
    return true;
  });
  if (!ended) return End::hang;
  const std::vector<std::uint8_t> expected = job.expected(tors);
  std::size_t by_switch = 0;
  for (std::size_t i = 0; i < leaders; ++i) {
    if (over_host[i] || network.leader(i, group).state() == Leader::State::failed) continue;
    ++by_switch;
    if (job.out[i] != expected) return End::wrong;
  }
  if (by_switch != 0 && by_switch != leaders) return End::split;
  return by_switch == leaders ? End::by_switch : End::by_host;
}

inline int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_TEST_NETWORK_H_
