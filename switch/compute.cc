// Handles in-network packets.
#include "switch/compute.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "innetwork/wire_numbers.h"

namespace od::fabric {
namespace {

using innetwork::Address;
using innetwork::Cause;
using innetwork::get;
using innetwork::Kind;
using innetwork::Packet;
using innetwork::put;

constexpr std::size_t kEthernetBytes = 14;
constexpr std::size_t kHeadBytes = kEthernetBytes + innetwork::kIpBytes + innetwork::kUdpBytes;
constexpr std::uint16_t kBetweenSwitches = 1;  // in the flags
constexpr std::uint64_t kLookNs = 1'000'000'000;

// The hardware address of a switch: a locally administered one with its address in it.
void put_switch_mac(std::uint8_t* at, std::uint32_t address) {
  put(at, 0x024f, 2);
  put(at + 2, address, 4);
}

// True if the frame is UDP, whole, and to a queue pair of ours; the port may have been replaced by
// a switch before. `bytes` gets what is from BTH to the ICRC.
bool is_ours(Frame& frame, std::span<std::uint8_t>& bytes) {
  std::uint8_t* const data = frame.data();
  if (frame.bytes < kHeadBytes + innetwork::kBthBytes + innetwork::kIcrcBytes) return false;
  if (get(data + 12, 2) != 0x0800) return false;
  const std::uint8_t* const ip = data + kEthernetBytes;
  if (ip[0] != 0x45 || ip[9] != 17 || (get(ip + 6, 2) & 0x3fff) != 0) return false;
  const std::uint8_t* const udp = ip + innetwork::kIpBytes;
  const std::uint32_t ip_bytes = get(ip + 2, 2);
  const std::uint32_t udp_bytes = get(udp + 4, 2);
  if (ip_bytes < innetwork::kIpBytes + innetwork::kUdpBytes ||
      ip_bytes > frame.bytes - kEthernetBytes || udp_bytes != ip_bytes - innetwork::kIpBytes) {
    return false;
  }
  bytes = {data + kHeadBytes, udp_bytes - innetwork::kUdpBytes};
  if (bytes.size() < innetwork::kBthBytes + innetwork::kIcrcBytes) return false;
  return get(bytes.data() + 5, 2) == innetwork::kQueuePair >> 8;
}

void write_ip_checksum(std::uint8_t* ip) {
  put(ip + 10, 0, 2);
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < innetwork::kIpBytes; i += 2) sum += get(ip + i, 2);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  put(ip + 10, ~sum & 0xffff, 2);
}

void write_head(std::uint8_t* data, Address from, Address to, std::size_t content_bytes) {
  put(data + 12, 0x0800, 2);
  std::uint8_t* const ip = data + kEthernetBytes;
  std::memset(ip, 0, innetwork::kIpBytes + innetwork::kUdpBytes);
  const auto udp_bytes = static_cast<std::uint32_t>(innetwork::kUdpBytes + content_bytes);
  ip[0] = 0x45;
  put(ip + 2, static_cast<std::uint32_t>(innetwork::kIpBytes) + udp_bytes, 2);
  put(ip + 4, innetwork::kUnfragmented, 4);
  ip[8] = 64;
  ip[9] = 17;
  put(ip + 12, from.ip, 4);
  put(ip + 16, to.ip, 4);
  write_ip_checksum(ip);
  put(ip + 20, from.port, 2);
  put(ip + 22, to.port, 2);
  put(ip + 24, udp_bytes, 2);  // without checksum: the ICRC guards it
}

}  // namespace

bool Compute::receive(std::uint32_t port, FramePtr& frame, std::uint64_t now_ns) {
  std::span<std::uint8_t> bytes;
  if (!is_ours(*frame, bytes)) return false;
  if (next_look_ns_ == TimerWheel::kNever) next_look_ns_ = now_ns + kLookNs;
  const std::uint8_t* const ip = frame->data() + kEthernetBytes;
  Arrival arrival{port,
                  frame,
                  now_ns,
                  {get(ip + 12, 4), static_cast<std::uint16_t>(get(ip + 20, 2))},
                  {get(ip + 16, 4), static_cast<std::uint16_t>(get(ip + 22, 2))},
                  {}};
  if (!innetwork::check(bytes, arrival.from, arrival.to, get(ip + 4, 4))) {
    ++counters_.bad_checks;
    return true;
  }
  switch (innetwork::parse(bytes.first(bytes.size() - innetwork::kIcrcBytes), arrival.packet)) {
    case innetwork::Fault::none:
      break;
    case innetwork::Fault::foreign:
      return false;
    case innetwork::Fault::bad_version:
      ++counters_.bad_versions;
      return true;
    default:
      ++counters_.malformed;
      return true;
  }
  if (arrival.packet.transport.acknowledge) acknowledge(arrival);
  const std::uint8_t kind = arrival.packet.common.kind;
  switch (static_cast<Kind>(kind)) {
    case Kind::query:
      query(arrival);
      break;
    case Kind::notify:
      notify(arrival);
      break;
    case Kind::kill:
      return kill(arrival);
    case Kind::data:
      return data(arrival);
    case Kind::result:
      return result(arrival);
    case Kind::refuse:
      return refusal(arrival);
    default:
      return false;  // between leaders
  }
  return pass_on(arrival, bytes);
}

// True if it has been sent from here, or cannot be.
bool Compute::pass_on(Arrival& arrival, std::span<std::uint8_t> bytes) {
  FramePtr& frame = arrival.frame;
  // It goes on as it is now. Hosts address RoCEv2's port, behind which unprivileged processes
  // cannot all be; the first switch on the way puts in the receiver's own.
  const innetwork::ControlHeader& control = arrival.packet.control;
  if (arrival.to.port == innetwork::kUdpPort && arrival.to.ip == control.destination_ip &&
      control.destination_port != 0) {
    arrival.to.port = control.destination_port;
    put(frame->data() + kEthernetBytes + innetwork::kIpBytes + 2, arrival.to.port, 2);
  }
  const std::size_t length = innetwork::write(arrival.packet, arrival.from, arrival.to, bytes);
  if (length != bytes.size()) return true;
  frame->offload = OffloadHeader{};
  std::uint8_t* const sent_ip = frame->data() + kEthernetBytes;
  // Adapters number their packets; the check that was just written is of one without.
  put(sent_ip + 4, innetwork::kUnfragmented, 4);
  write_ip_checksum(sent_ip);
  put(sent_ip + innetwork::kIpBytes + 6, 0, 2);
  if (arrival.first_switch) copy_to_spines(*frame, arrival.now_ns);
  if (arrival.leaves_by == kNoPort) return false;
  leave(arrival.leaves_by, std::move(frame), arrival.now_ns);
  return true;
}

void Compute::leave(std::uint32_t port, FramePtr frame, std::uint64_t now_ns) {
  fabric_.send(port, std::move(frame), now_ns + fabric_.switches()[own_].latency_ns, now_ns);
}

void Compute::copy_to_spines(const Frame& frame, std::uint64_t now_ns) {
  const Switch& own = fabric_.switches()[own_];
  const auto known = own.table.find(read_mac(frame.data()), now_ns);
  if (known && !fabric_.ports()[*known].leads_up()) return;  // it does not go up at all
  for (const std::uint32_t port : own.ports) {
    if (!fabric_.ports()[port].only_in_network || !fabric_.ports()[port].up) continue;
    if (FramePtr copy = fabric_.pool().copy(frame)) {
      leave(port, std::move(copy), now_ns);
    } else {
      fabric_.count_drop(port, Drop::no_memory);
    }
  }
}

std::uint32_t Compute::port_of_spine(std::uint32_t address) const {
  for (const std::uint32_t port : fabric_.switches()[own_].ports) {
    const std::uint32_t peer = fabric_.ports()[port].peer;
    if (peer == kNoPort) {
      if (fabric_.ports()[port].spine == address) return port;
      continue;
    }
    const Switch& other = fabric_.switches()[fabric_.ports()[peer].owner];
    if (other.compute != nullptr && other.compute->spine_address() == address) return port;
  }
  return kNoPort;
}

void Compute::query(Arrival& arrival) {
  ++counters_.queries;
  innetwork::ControlHeader& control = arrival.packet.control;
  control.operations &= supported_operations();
  control.types &= supported_types();
  control.window = static_cast<std::uint16_t>(
      std::min<std::uint32_t>(std::bit_floor(std::uint32_t{control.window}), settings_.window));
  control.payload_bytes = static_cast<std::uint16_t>(
      std::min<std::uint32_t>(control.payload_bytes, settings_.payload_bytes));
  const auto load = static_cast<std::uint32_t>(groups_.size());
  ++control.hops;
  if (settings_.spine) {
    if (control.spine == 0) {
      control.spine = settings_.address;
      control.load = load;
    }
  } else {
    // Else it says what spines can be compared by.
    if (control.spine == 0) control.load = std::max(control.load, load);
    arrival.first_switch = control.tor1 == 0 && control.spine == 0;
    if (control.tor1 == 0) control.tor1 = settings_.address;
    control.tor2 = settings_.address;
  }
  const std::size_t needed = Aggregation::bytes(
      control.group_size, std::max<std::uint32_t>(control.window, 1), control.payload_bytes);
  const bool known = groups_.contains({arrival.packet.common.group, arrival.packet.common.key});
  if (control.cause == 0 && !known &&
      (groups_.size() >= settings_.most_groups || control.group_size > settings_.most_members ||
       memory_bytes_ + needed > settings_.memory_bytes)) {
    control.cause = static_cast<std::uint8_t>(Cause::no_slots);
  }
}

std::uint32_t Compute::port_towards(const FramePtr& frame, std::uint64_t now_ns) const {
  const auto found = fabric_.switches()[own_].table.find(read_mac(frame->data()), now_ns);
  return found ? *found : kNoPort;
}

void Compute::notify(Arrival& arrival) {
  ++counters_.notifies;
  const innetwork::ControlHeader& control = arrival.packet.control;
  const Key key{arrival.packet.common.group, arrival.packet.common.key};
  if (control.cause != 0) {
    const auto found = groups_.find(key);
    if (found != groups_.end()) release(found);
    return;
  }
  const bool first = control.tor1 == settings_.address;
  const bool last = control.tor2 == settings_.address;
  const bool top = control.spine == settings_.address;
  if (!first && !last && !top) return;
  std::uint32_t out = port_towards(arrival.frame, arrival.now_ns);
  if (last && !first && control.spine != 0) {
    // By another spine it would make another tree than the one that was chosen.
    arrival.leaves_by = port_of_spine(control.spine);
    if (arrival.leaves_by != kNoPort) out = arrival.leaves_by;
  }
  if (out == kNoPort) return;  // nobody has been heard there yet; it will be asked for again
  const std::uint32_t window = std::bit_floor(std::uint32_t{control.window});
  const std::size_t expected =
      top ? control.tors : (first ? control.tor1_members : control.tor2_members);
  if (window == 0 || window > settings_.window || control.payload_bytes == 0 ||
      control.payload_bytes > settings_.payload_bytes || expected == 0 ||
      expected > settings_.most_members) {
    ++counters_.malformed;
    return;
  }
  auto found = groups_.find(key);
  if (found == groups_.end()) {
    const std::size_t bytes = Aggregation::bytes(expected, window, control.payload_bytes);
    if (groups_.size() >= settings_.most_groups || memory_bytes_ + bytes > settings_.memory_bytes) {
      return;  // its packets will be refused
    }
    found = groups_.emplace(key, Group{}).first;
    found->second.expected = expected;
    found->second.window = window;
    found->second.payload_bytes = control.payload_bytes;
    found->second.memory_bytes = bytes;
    memory_bytes_ += bytes;
  }
  Group& group = found->second;
  group.used_ns = arrival.now_ns;
  if (group.active) return;  // repeated for one that has missed it
  if (top) {
    add_member(group, control.tor1, out, {control.tor1, 0});
    add_member(group, control.tor2, arrival.port, {control.tor2, 0});
  } else {
    if (first) {
      add_member(group, arrival.packet.common.member, out,
                 {control.destination_ip, control.destination_port});
    }
    if (last) add_member(group, 0, arrival.port, {control.source_ip, control.source_port});
    if (control.tors > 1 && first != last) {
      group.parent = control.spine;
      group.parent_port = first ? arrival.port : out;
    }
  }
  if (group.members.size() == group.expected && (top || control.tors == 1 || group.parent != 0)) {
    activate(group);
  }
}

void Compute::add_member(Group& group, std::uint32_t number, std::uint32_t port, Address address) {
  for (const Member& other : group.members) {
    if (other.number == number) return;
  }
  Member added;
  added.number = number;
  added.port = port;
  added.address = address;
  group.members.push_back(added);
}

void Compute::activate(Group& group) {
  std::ranges::sort(group.members, {}, &Member::number);
  group.sums =
      std::make_unique<Aggregation>(group.members.size(), group.window, group.payload_bytes);
  group.begun_ns.assign(std::size_t{2} * group.window, 0);
  group.active = true;
}

void Compute::release(std::map<Key, Group>::iterator group) {
  memory_bytes_ -= group->second.memory_bytes;
  groups_.erase(group);
}

bool Compute::kill(Arrival& arrival) {
  const auto found = groups_.find({arrival.packet.common.group, arrival.packet.common.key});
  if (found == groups_.end()) return true;
  ++counters_.kills;
  Group& group = found->second;
  const bool from_switch = (arrival.packet.common.flags & kBetweenSwitches) != 0;
  const std::uint32_t number = from_switch ? arrival.from.ip : arrival.packet.common.member;
  bool all_gone = true;
  for (Member& member : group.members) {
    if (member.number == number) member.gone = true;
    all_gone = all_gone && member.gone;
  }
  if (!all_gone) return true;
  if (group.parent != 0) {
    Packet up;
    up.transport.psn = arrival.packet.common.sequence;
    up.common = arrival.packet.common;
    up.common.flags = kBetweenSwitches;
    std::array<std::uint8_t, 12> ethernet{};
    put_switch_mac(ethernet.data(), group.parent);
    put_switch_mac(ethernet.data() + 6, settings_.address);
    send(group.parent_port, ethernet.data(), {settings_.address, innetwork::kUdpPort},
         {group.parent, innetwork::kUdpPort}, up, arrival.now_ns);
  }
  release(found);
  return true;
}

bool Compute::data(Arrival& arrival) {
  const innetwork::CommonHeader& common = arrival.packet.common;
  const bool from_switch = (common.flags & kBetweenSwitches) != 0;
  if (from_switch && arrival.to.ip != settings_.address) return false;  // another's
  ++counters_.contributions;
  const Key key{common.group, common.key};
  const auto found = groups_.find(key);
  if (found == groups_.end() || !found->second.active) {
    ++counters_.strangers;
    // Before the tree is complete silence is right: the packet will be sent again.
    if (found == groups_.end()) refuse(arrival, Cause::unknown_group);
    return true;
  }
  Group& group = found->second;
  const std::uint32_t number = from_switch ? arrival.from.ip : common.member;
  const auto member = std::ranges::find(group.members, number, &Member::number);
  if (member == group.members.end() || member->address.ip != arrival.from.ip ||
      (!from_switch && member->address.port != arrival.from.port)) {
    ++counters_.strangers;
    return true;
  }
  const innetwork::ValuesHeader& values = arrival.packet.values;
  const bool barrier = values.operation == static_cast<std::uint8_t>(innetwork::Operation::barrier);
  if (!supports(values.operation, values.type) || (barrier && values.count != 0)) {
    refuse(arrival, Cause::unsupported);
    return true;
  }
  group.used_ns = arrival.now_ns;
  std::memcpy(member->ethernet.data(), arrival.frame->data() + 6, 6);
  std::memcpy(member->ethernet.data() + 6, arrival.frame->data(), 6);
  member->replies_to = arrival.to;
  member->port = arrival.port;
  member->opcode = arrival.packet.transport.opcode;
  member->queue_pair = arrival.packet.transport.source_queue_pair;
  member->queue_key = arrival.packet.transport.queue_key;
  member->heard = true;
  const auto index = static_cast<std::size_t>(member - group.members.begin());
  std::uint64_t& begun_ns = group.begun_ns[common.sequence % group.begun_ns.size()];
  const std::size_t before = group.sums->slots_in_use();
  switch (group.sums->contribute(index, common.sequence, values, arrival.packet.payload)) {
    case Outcome::accepted:
      if (group.sums->slots_in_use() > before) begun_ns = arrival.now_ns;
      return true;
    case Outcome::complete:
      if (group.members.size() == 1) begun_ns = arrival.now_ns;
      waits_.add(arrival.now_ns - begun_ns);
      ++counters_.combined;
      complete(key, group, common.sequence, arrival.now_ns);
      return true;
    case Outcome::answered:
      ++counters_.repeated;
      send_result(key, group, *member, common.sequence, arrival.now_ns);
      return true;
    case Outcome::repeated:
      ++counters_.repeated;
      // If all are here, what went up or came down was lost; else it is told that the switch lives.
      if (group.parent != 0 && group.sums->waits_for_parent(common.sequence)) {
        send_up(key, group, common.sequence, arrival.now_ns);
      } else {
        refuse(arrival, Cause::waiting);
      }
      return true;
    case Outcome::stale:
      ++counters_.stale;
      return true;
    case Outcome::mismatch:
      ++counters_.mismatches;
      refuse_all(key, group, common.sequence, Cause::mismatch, arrival.now_ns);
      return true;
  }
  return true;
}

// All contributions are there.
void Compute::complete(const Key& key, Group& group, std::uint32_t sequence, std::uint64_t now_ns) {
  if (group.parent != 0) return send_up(key, group, sequence, now_ns);
  group.sums->finish(sequence);
  for (Member& member : group.members) send_result(key, group, member, sequence, now_ns);
}

void Compute::send_up(const Key& key, Group& group, std::uint32_t sequence, std::uint64_t now_ns) {
  if (!group.sums->waits_for_parent(sequence)) return;
  Packet up;
  up.transport.psn = sequence;
  up.common.kind = static_cast<std::uint8_t>(Kind::data);
  up.common.group = key.first;
  up.common.key = key.second;
  up.common.sequence = sequence;
  up.common.flags = kBetweenSwitches;
  up.values = group.sums->values(sequence);
  up.payload = group.sums->combined(sequence);
  std::array<std::uint8_t, 12> ethernet{};
  put_switch_mac(ethernet.data(), group.parent);
  put_switch_mac(ethernet.data() + 6, settings_.address);
  send(group.parent_port, ethernet.data(), {settings_.address, innetwork::kUdpPort},
       {group.parent, innetwork::kUdpPort}, up, now_ns);
}

void Compute::send_result(const Key& key, Group& group, Member& member, std::uint32_t sequence,
                          std::uint64_t now_ns) {
  if (!member.heard) return;
  ++counters_.results;
  Packet down;
  down.transport.opcode = member.opcode;
  down.transport.queue_pair = member.queue_pair;
  down.transport.queue_key = member.queue_key;
  down.transport.source_queue_pair = innetwork::kQueuePair;
  down.transport.psn = sequence;
  down.common.kind = static_cast<std::uint8_t>(Kind::result);
  down.common.group = key.first;
  down.common.key = key.second;
  down.common.sequence = sequence;
  down.common.member =
      settings_.spine ? std::uint16_t{0} : static_cast<std::uint16_t>(member.number);
  down.common.flags = settings_.spine ? kBetweenSwitches : std::uint16_t{0};
  if (settings_.spine) down.transport.queue_pair = innetwork::kQueuePair;
  down.values = group.sums->values(sequence);
  down.payload = group.sums->combined(sequence);
  send(member.port, member.ethernet.data(), member.replies_to, member.reply_address(), down,
       now_ns);
}

bool Compute::result(Arrival& arrival) {
  const innetwork::CommonHeader& common = arrival.packet.common;
  if ((common.flags & kBetweenSwitches) == 0 || arrival.to.ip != settings_.address) return false;
  const Key key{common.group, common.key};
  const auto found = groups_.find(key);
  if (found == groups_.end() || !found->second.active || found->second.parent != arrival.from.ip) {
    ++counters_.strangers;
    return true;
  }
  Group& group = found->second;
  group.used_ns = arrival.now_ns;
  if (!group.sums->finish(common.sequence, arrival.packet.values, arrival.packet.payload)) {
    ++counters_.stale;
    return true;
  }
  for (Member& member : group.members) {
    send_result(key, group, member, common.sequence, arrival.now_ns);
  }
  return true;
}

bool Compute::refusal(Arrival& arrival) {
  const innetwork::CommonHeader& common = arrival.packet.common;
  if ((common.flags & kBetweenSwitches) == 0 || arrival.to.ip != settings_.address) return false;
  const Key key{common.group, common.key};
  const auto found = groups_.find(key);
  if (found == groups_.end() || found->second.parent != arrival.from.ip) {
    ++counters_.strangers;
    return true;
  }
  refuse_all(key, found->second, common.sequence, static_cast<Cause>(arrival.packet.refusal.cause),
             arrival.now_ns);
  return true;
}

void Compute::refuse(const Arrival& arrival, Cause cause) {
  if (cause != Cause::waiting) ++counters_.refusals;
  Packet back;
  back.transport = arrival.packet.transport;
  back.transport.acknowledge = false;
  back.transport.queue_pair = arrival.packet.transport.source_queue_pair;
  back.transport.source_queue_pair = innetwork::kQueuePair;
  back.common = arrival.packet.common;
  if ((back.common.flags & kBetweenSwitches) != 0) {
    back.transport.queue_pair = innetwork::kQueuePair;
  }
  back.common.kind = static_cast<std::uint8_t>(Kind::refuse);
  back.refusal.cause = static_cast<std::uint8_t>(cause);
  back.refusal.refused_kind = arrival.packet.common.kind;
  std::array<std::uint8_t, 12> ethernet{};
  std::memcpy(ethernet.data(), arrival.frame->data() + 6, 6);
  std::memcpy(ethernet.data() + 6, arrival.frame->data(), 6);
  send(arrival.port, ethernet.data(), arrival.to, arrival.from, back, arrival.now_ns);
}

void Compute::refuse_all(const Key& key, Group& group, std::uint32_t sequence, Cause cause,
                         std::uint64_t now_ns) {
  for (Member& member : group.members) {
    if (!member.heard) continue;
    if (cause != Cause::waiting) ++counters_.refusals;
    Packet down;
    down.transport.opcode = member.opcode;
    down.transport.queue_pair = settings_.spine ? innetwork::kQueuePair : member.queue_pair;
    down.transport.queue_key = member.queue_key;
    down.transport.source_queue_pair = innetwork::kQueuePair;
    down.transport.psn = sequence;
    down.common.kind = static_cast<std::uint8_t>(Kind::refuse);
    down.common.group = key.first;
    down.common.key = key.second;
    down.common.sequence = sequence;
    down.common.flags = settings_.spine ? kBetweenSwitches : std::uint16_t{0};
    down.refusal.cause = static_cast<std::uint8_t>(cause);
    down.refusal.refused_kind = static_cast<std::uint8_t>(Kind::data);
    send(member.port, member.ethernet.data(), member.replies_to, member.reply_address(), down,
         now_ns);
  }
}

void Compute::acknowledge(const Arrival& arrival) {
  const std::uint32_t psn = arrival.packet.transport.psn;
  constexpr std::size_t kBytes =
      innetwork::kBthBytes + innetwork::kAethBytes + innetwork::kIcrcBytes;
  FramePtr frame = fabric_.pool().take(kHeadBytes + kBytes);
  if (!frame) return fabric_.count_drop(arrival.port, Drop::no_memory);
  std::memcpy(frame->data(), arrival.frame->data() + 6, 6);
  std::memcpy(frame->data() + 6, arrival.frame->data(), 6);
  write_head(frame->data(), arrival.to, arrival.from, kBytes);
  innetwork::write_acknowledgement(0, psn, psn + 1, arrival.to, arrival.from,
                                   {frame->data() + kHeadBytes, kBytes});
  leave(arrival.port, std::move(frame), arrival.now_ns);
}

void Compute::send(std::uint32_t port, const std::uint8_t* ethernet, Address from, Address to,
                   const Packet& packet, std::uint64_t now_ns) {
  const std::size_t bytes = innetwork::packet_bytes(packet);
  FramePtr frame = fabric_.pool().take(kHeadBytes + bytes);
  if (!frame) return fabric_.count_drop(port, Drop::no_memory);
  std::memcpy(frame->data(), ethernet, 12);
  write_head(frame->data(), from, to, bytes);
  innetwork::write(packet, from, to, {frame->data() + kHeadBytes, bytes});
  leave(port, std::move(frame), now_ns);
}

void Compute::advance(std::uint64_t now_ns) {
  for (auto group = groups_.begin(); group != groups_.end();) {
    const auto next = std::next(group);
    if (now_ns - group->second.used_ns > settings_.lease_ns) {
      ++counters_.expired;
      release(group);
    }
    group = next;
  }
  next_look_ns_ = groups_.empty() ? TimerWheel::kNever : now_ns + kLookNs;
}

std::size_t Compute::slots_in_use() const {
  std::size_t sum = 0;
  for (const auto& [key, group] : groups_) {
    if (group.active) sum += group.sums->slots_in_use();
  }
  return sum;
}

}  // namespace od::fabric
