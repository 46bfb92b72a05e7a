// Fuzzes in-network packets, the compute unit and the leader: no input may do harm.
//
// For libFuzzer (tests/switch/fuzz.py builds and runs it). The first byte of the input chooses what
// is fed: bytes to the parser; frames to a tree of switches, either as they are or made of commands
// with right checks and keys, so that the state machines are reached; packets to a leader. What
// must hold: what parses can be written again and says the same, memory stays within limits, all
// frames come back to the pool, and a leader never claims a result that it has not computed with
// all others.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "innetwork/leader.h"
#include "innetwork/packet.h"
#include "innetwork/wire_numbers.h"
#include "switch/compute.h"
#include "switch/fabric.h"

namespace {

using namespace od;  // NOLINT(google-build-using-namespace): a main file
using innetwork::Address;
using innetwork::Packet;

void require(bool condition) {
  if (!condition) std::abort();
}

// Takes numbers from the input; zeros when it is at its end.
class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool more() const { return !bytes_.empty(); }
  std::uint32_t take(int count) {
    std::uint32_t value = 0;
    for (int i = 0; i < count && more(); ++i) {
      value = value << 8 | bytes_[0];
      bytes_ = bytes_.subspan(1);
    }
    return value;
  }
  std::span<const std::uint8_t> take_bytes(std::size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

constexpr Address kFrom{0x0a4d0001, 5000};
constexpr Address kTo{0x0a4d0002, 4791};

void fuzz_parser(std::span<const std::uint8_t> bytes) {
  Packet packet;
  if (innetwork::parse(bytes, packet) != innetwork::Fault::none) return;
  std::vector<std::uint8_t> again(innetwork::packet_bytes(packet));
  require(innetwork::write(packet, kFrom, kTo, again) == again.size());
  require(innetwork::check(again, kFrom, kTo));
  Packet other;
  require(innetwork::parse({again.data(), again.size() - innetwork::kIcrcBytes}, other) ==
          innetwork::Fault::none);
  require(other.common.key == packet.common.key && other.common.sequence == packet.common.sequence);
  require(std::ranges::equal(other.payload, packet.payload));
}

// A packet made of a command, mostly plausible.
Packet make_packet(Input& input, std::vector<std::uint8_t>& payload) {
  Packet packet;
  packet.common.kind = static_cast<std::uint8_t>(1 + input.take(1) % 9);
  packet.common.group = 1 + input.take(1) % 3;
  packet.common.key = 7;
  packet.common.member = static_cast<std::uint16_t>(input.take(1) % 5);
  packet.common.sequence = input.take(1) % 32;
  const std::uint32_t bits = input.take(1);
  packet.common.flags = bits & 1;
  packet.transport.opcode = (bits & 2) != 0 ? innetwork::kRcSendOnly : innetwork::kUdSendOnly;
  packet.transport.acknowledge = (bits & 4) != 0;
  if ((bits & 8) != 0) packet.transport.queue_pair = innetwork::kLeaderQueuePair;
  packet.values.operation = static_cast<std::uint8_t>(input.take(1) % innetwork::kOperations);
  packet.values.type = static_cast<std::uint8_t>(input.take(1) % innetwork::kTypes);
  packet.values.count = static_cast<std::uint16_t>(input.take(1) % 24);
  packet.refusal.cause = static_cast<std::uint8_t>(input.take(1) % innetwork::kCauses);
  innetwork::ControlHeader& control = packet.control;
  control.operations = control.types = 0xffff;
  control.window = static_cast<std::uint16_t>(1u << input.take(1) % 6);
  control.payload_bytes = static_cast<std::uint16_t>(64 + input.take(1));
  control.group_size = static_cast<std::uint16_t>(input.take(1));
  control.tor1_members = static_cast<std::uint16_t>(input.take(1) % 4);
  control.tor2_members = static_cast<std::uint16_t>(input.take(1) % 4);
  control.tors = static_cast<std::uint16_t>(input.take(1) % 4);
  const std::uint32_t switches = input.take(1);
  control.tor1 = 0xc6120001 + (switches & 1);
  control.tor2 = 0xc6120001 + (switches >> 1 & 1);
  control.spine = (switches & 4) == 0 ? 0 : 0xc6120003 + (control.window & 1);
  control.destination_ip = 0x0a4d0001 + (switches >> 3 & 3);
  control.destination_port = 5000;
  control.source_ip = 0x0a4d0001 + (switches >> 5 & 3);
  control.source_port = 5000;
  control.hops = 1;
  const auto kind = static_cast<innetwork::Kind>(packet.common.kind);
  if (kind == innetwork::Kind::data || kind == innetwork::Kind::result ||
      kind == innetwork::Kind::kept) {
    payload.assign(packet.values.count * innetwork::type_bytes(packet.values.type),
                   static_cast<std::uint8_t>(input.take(1)));
    packet.payload = payload;
  }
  return packet;
}

constexpr std::size_t kMemory = 256 << 10;

// Two switches with two ports each, and two above them. It outlasts the runs, since to make it
// costs more than most of them. Groups end with each run, as fuzz_switches() requires, and what the
// switches have learned of addresses is forgotten; counters are all that goes on, and steer
// nothing.
struct Tree : fabric::Transmitter {
  fabric::FramePool pool{8 << 20};
  fabric::Fabric fabric{pool, *this};

  Tree() {
    for (std::uint32_t i = 0; i < 4; ++i) fabric.add_switch("s", 1000);
    for (std::uint32_t i = 0; i < 4; ++i) fabric.add_port(i / 2, "p", 1);
    fabric.connect(0, 2, 1);
    fabric.connect(1, 2, 1);
    fabric.connect(0, 3, 1, true);
    fabric.connect(1, 3, 1, true);
    for (std::uint32_t i = 0; i < 4; ++i) {
      fabric::ComputeSettings settings;
      settings.address = 0xc6120001 + i;
      settings.spine = i >= 2;
      settings.window = 4;
      settings.payload_bytes = 128;
      settings.most_groups = 2;
      settings.most_members = 8;
      settings.memory_bytes = kMemory;
      fabric.switches()[i].compute = std::make_unique<fabric::Compute>(fabric, i, settings);
    }
  }
  bool transmit(std::uint32_t, fabric::Frame& frame) override {
    require(frame.bytes <= fabric::kLargeFrameBytes);
    return true;
  }
  void forget() {
    require(fabric.waiting() == 0 && pool.in_use() == 0);
    for (fabric::Switch& own : fabric.switches()) {
      const auto& compute = static_cast<const fabric::Compute&>(*own.compute);
      require(compute.groups() == 0 && compute.memory_bytes() == 0);
      require(compute.next_due_ns() == fabric::TimerWheel::kNever);
      own.table = fabric::MacTable();
    }
    fabric.advance(1);  // nothing waits, so time may begin anew
  }
};

void fuzz_switches(Input input) {
  static Tree tree;
  fabric::Fabric& fabric = tree.fabric;
  fabric::FramePool& pool = tree.pool;
  tree.forget();
  std::uint64_t now_ns = 1;
  while (input.more()) {
    const std::uint32_t how = input.take(1);
    const std::uint32_t port = how & 3;
    fabric::FramePtr frame = pool.hold(nullptr);
    if ((how & 4) != 0) {
      const auto bytes = input.take_bytes(input.take(1));
      frame = pool.take(bytes.size());
      if (!frame) break;
      std::ranges::copy(bytes, frame->data());
    } else {
      static std::vector<std::uint8_t> payload;
      const Packet packet = make_packet(input, payload);
      const bool between = packet.common.flags != 0;
      const std::uint32_t own = between ? 0xc6120001 + (how >> 3 & 3) : 0x0a4d0001 + port;
      const Address from{own, static_cast<std::uint16_t>(between ? 4791 : 5000)};
      const Address to{between ? 0xc6120001 + (how >> 5 & 3) : 0x0a4d0001 + (how >> 3 & 3), 4791};
      const std::size_t bytes = innetwork::packet_bytes(packet);
      frame = pool.take(42 + bytes);
      if (!frame) break;
      std::uint8_t* const data = frame->data();
      std::memset(data, 0, 42);
      const auto put = [data](std::size_t at, std::uint64_t value, std::size_t bytes_of_it) {
        innetwork::put(data + at, value, bytes_of_it);
      };
      put(0, 0x020000000000 + (to.ip & 0xff), 6);
      put(6, 0x020000000000 + (from.ip & 0xff), 6);
      put(12, 0x0800, 2);
      put(14, 0x45, 1);
      put(16, 28 + bytes, 2);
      put(20, 0x4000, 2);
      put(23, 17, 1);
      put(26, from.ip, 4);
      put(30, to.ip, 4);
      put(34, from.port, 2);
      put(36, to.port, 2);
      put(38, 8 + bytes, 2);
      innetwork::write(packet, from, to, {data + 42, bytes});
    }
    fabric.receive(port, std::move(frame), now_ns, now_ns);
    now_ns += (how & 0x80) != 0 ? 5'000 : 10;
    fabric.advance(now_ns);
    for (const fabric::Switch& own : fabric.switches()) {
      const auto& compute = static_cast<const fabric::Compute&>(*own.compute);
      require(compute.groups() <= 2 && compute.memory_bytes() <= kMemory);
    }
  }
  fabric.advance(now_ns + 1'000'000'000);
  fabric.advance(now_ns + 100'000'000'000);
  fabric.advance(now_ns + 200'000'000'000);
  for (const fabric::Switch& own : fabric.switches()) {
    require(static_cast<const fabric::Compute&>(*own.compute).groups() == 0);
  }
  require(pool.in_use() == 0);
}

void fuzz_leader(Input input) {
  innetwork::LeaderSettings settings;
  settings.group = 1;
  settings.key = 7;
  settings.index = static_cast<std::uint16_t>(input.take(1) % 3);
  settings.leaders.reserve(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    settings.leaders.push_back({{0x0a4d0001 + i, 5000}, {0x0a4d0001 + i, 5001}});
  }
  // Short waits: each try is a packet, and hundreds of them in vain teach nothing.
  settings.join_ns = settings.give_up_ns = 8'000'000;
  settings.settle_ns = 30'000'000;
  innetwork::Leader leader(std::move(settings), [](Address, const Packet& packet, bool) {
    static std::array<std::uint8_t, 9000> room;
    const std::span<std::uint8_t> bytes(room.data(), innetwork::packet_bytes(packet));
    require(innetwork::write(packet, kFrom, kTo, bytes) == bytes.size());
  });
  std::uint64_t now_ns = 1;
  leader.begin(now_ns);
  static const std::vector<std::uint8_t> in(1 << 20, 1);
  static std::vector<std::uint8_t> out(1 << 20);
  while (input.more()) {
    const std::uint32_t how = input.take(1);
    if (how % 8 == 0) {
      const std::size_t values = std::size_t{input.take(1)} * ((how & 0x80) != 0 ? 64 : 1);
      leader.start(static_cast<innetwork::Operation>(input.take(1) % innetwork::kOperations),
                   static_cast<innetwork::Type>(input.take(1) % innetwork::kTypes), values,
                   in.data(), out.data(), now_ns);
    } else if (how % 8 == 1) {
      now_ns += std::uint64_t{input.take(2)} * 10'000;
      leader.advance(now_ns);
    } else {
      static std::vector<std::uint8_t> payload;
      const Packet packet = make_packet(input, payload);
      leader.receive(packet, {0x0a4d0001 + (how >> 3 & 3), 5001}, now_ns);
    }
    using State = innetwork::Leader::State;
    require(leader.state() != State::idle);
    // Whoever waits has a time at which it does something about it.
    const bool waits = leader.state() == State::joining || leader.state() == State::busy ||
                       leader.state() == State::settling;
    require(!waits || leader.next_due_ns() != innetwork::Leader::kNever);
  }
  // Whatever came, it ends.
  for (int i = 0; i < 100'000 && leader.next_due_ns() != innetwork::Leader::kNever; ++i) {
    now_ns = std::max(now_ns, leader.next_due_ns());
    leader.advance(now_ns);
  }
  require(leader.next_due_ns() == innetwork::Leader::kNever);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes == 0) return 0;
  const std::span<const std::uint8_t> rest(data + 1, bytes - 1);
  switch (data[0] % 3) {
    case 0:
      fuzz_parser(rest);
      break;
    case 1:
      fuzz_switches(Input(rest));
      break;
    default:
      fuzz_leader(Input(rest));
      break;
  }
  return 0;
}
