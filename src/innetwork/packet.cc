// Takes RoCEv2 packets apart and puts them together.
#include "innetwork/packet.h"

#include <array>
#include <cstring>

#include "innetwork/crc32.h"
#include "innetwork/wire_numbers.h"

namespace od::innetwork {
namespace {

constexpr std::uint16_t kDefaultPartition = 0xffff;

bool is_datagram(std::uint8_t opcode) { return opcode == kUdSendOnly; }

// Length of the header behind the common one; none: an unknown kind.
std::optional<std::size_t> following_bytes(std::uint8_t kind) {
  switch (static_cast<Kind>(kind)) {
    case Kind::query:
    case Kind::notify:
    case Kind::kill:
      return ControlHeader::kBytes;
    case Kind::data:
    case Kind::result:
    case Kind::kept:
      return ValuesHeader::kBytes;
    case Kind::refuse:
      return RefusalHeader::kBytes;
    case Kind::ask:
    case Kind::promise:
      return 0;
  }
  return std::nullopt;
}

std::size_t transport_bytes(const Transport& transport) {
  return kBthBytes + (is_datagram(transport.opcode) ? kDethBytes : 0);
}

void write_bth(const Transport& transport, std::size_t pad, std::uint8_t* at) {
  at[0] = transport.opcode;
  at[1] = static_cast<std::uint8_t>(pad << 4);
  put(at + 2, kDefaultPartition, 2);
  put(at + 4, transport.queue_pair & 0xffffff, 4);
  put(at + 8, (transport.psn & 0xffffff) | (transport.acknowledge ? 0x80000000u : 0), 4);
}

}  // namespace

std::size_t type_bytes(std::uint8_t type) {
  switch (static_cast<Type>(type)) {
    case Type::int8:
    case Type::uint8:
      return 1;
    case Type::int16:
    case Type::uint16:
    case Type::float16:
    case Type::bfloat16:
      return 2;
    case Type::int32:
    case Type::uint32:
    case Type::float32:
      return 4;
    case Type::int64:
    case Type::uint64:
    case Type::float64:
      return 8;
  }
  return 0;
}

std::uint32_t icrc(std::span<const std::uint8_t> from_bth, Address from, Address to,
                   std::uint32_t identification) {
  // Eight bytes of ones for InfiniBand's local header, then IP and UDP with ones for what changes
  // on the way: type of service, time to live, both checksums.
  std::array<std::uint8_t, 8 + kIpBytes + kUdpBytes + kBthBytes> head;
  head.fill(0xff);
  std::uint8_t* const ip = head.data() + 8;
  const std::size_t udp_bytes = kUdpBytes + from_bth.size() + kIcrcBytes;
  ip[0] = 0x45;
  put(ip + 2, kIpBytes + udp_bytes, 2);
  put(ip + 4, identification, 4);
  ip[9] = 17;
  put(ip + 12, from.ip, 4);
  put(ip + 16, to.ip, 4);
  std::uint8_t* const udp = ip + kIpBytes;
  put(udp, from.port, 2);
  put(udp + 2, to.port, 2);
  put(udp + 4, udp_bytes, 2);
  std::uint8_t* const bth = udp + kUdpBytes;
  std::memcpy(bth, from_bth.data(), kBthBytes);
  bth[4] = 0xff;  // congestion bits
  return crc32(crc32(0, head), from_bth.subspan(kBthBytes));
}

bool check(std::span<const std::uint8_t> from_bth, Address from, Address to,
           std::uint32_t identification) {
  if (from_bth.size() < kBthBytes + kIcrcBytes) return false;
  const std::size_t bytes = from_bth.size() - kIcrcBytes;
  const std::uint8_t* const end = from_bth.data() + bytes;
  const std::uint32_t found =
      static_cast<std::uint32_t>(end[0]) | static_cast<std::uint32_t>(end[1]) << 8 |
      static_cast<std::uint32_t>(end[2]) << 16 | static_cast<std::uint32_t>(end[3]) << 24;
  return icrc(from_bth.first(bytes), from, to, identification) == found;
}

void seal(std::span<std::uint8_t> from_bth, Address from, Address to) {
  const std::size_t bytes = from_bth.size() - kIcrcBytes;
  const std::uint32_t value = icrc(from_bth.first(bytes), from, to);
  for (std::size_t i = 0; i < kIcrcBytes; ++i) {
    from_bth[bytes + i] = static_cast<std::uint8_t>(value >> (8 * i));
  }
}

Fault parse(std::span<const std::uint8_t> bytes, Packet& packet) {
  if (bytes.size() < kBthBytes) return Fault::foreign;
  Transport& transport = packet.transport;
  transport.opcode = bytes[0];
  if (transport.opcode != kUdSendOnly && transport.opcode != kRcSendOnly) return Fault::foreign;
  const std::size_t pad = bytes[1] >> 4 & 3;
  transport.queue_pair = get(bytes.data() + 5, 3);
  transport.psn = get(bytes.data() + 9, 3);
  transport.acknowledge = (bytes[8] & 0x80) != 0;
  transport.queue_key = 0;
  transport.source_queue_pair = 0;
  std::size_t offset = transport_bytes(transport);
  if (bytes.size() < offset + CommonHeader::kBytes) return Fault::foreign;
  if (is_datagram(transport.opcode)) {
    transport.queue_key = get(bytes.data() + kBthBytes, 4);
    transport.source_queue_pair = get(bytes.data() + kBthBytes + 5, 3);
  }
  packet.common.read(bytes.data() + offset);
  if (packet.common.magic != kMagic) return Fault::foreign;
  if (packet.common.version != kVersion) return Fault::bad_version;
  offset += CommonHeader::kBytes;
  const std::optional<std::size_t> following = following_bytes(packet.common.kind);
  if (!following || bytes.size() < offset + *following + pad) return Fault::malformed;
  const std::uint8_t* const at = bytes.data() + offset;
  offset += *following;
  const std::size_t rest = bytes.size() - offset - pad;
  packet.payload = {};
  switch (static_cast<Kind>(packet.common.kind)) {
    case Kind::data:
    case Kind::result:
    case Kind::kept:
      packet.values.read(at);
      if (packet.values.operation >= kOperations || type_bytes(packet.values.type) == 0 ||
          rest != packet.values.count * type_bytes(packet.values.type)) {
        return Fault::malformed;
      }
      packet.payload = bytes.subspan(offset, rest);
      return Fault::none;
    case Kind::refuse:
      packet.refusal.read(at);
      break;
    case Kind::ask:
    case Kind::promise:
      break;
    default:
      packet.control.read(at);
      break;
  }
  return rest == 0 ? Fault::none : Fault::malformed;
}

std::size_t packet_bytes(const Packet& packet) {
  const std::size_t content = transport_bytes(packet.transport) + CommonHeader::kBytes +
                              following_bytes(packet.common.kind).value_or(0) +
                              packet.payload.size();
  return (content + 3) / 4 * 4 + kIcrcBytes;
}

std::size_t write(const Packet& packet, Address from, Address to, std::span<std::uint8_t> out) {
  const std::size_t bytes = packet_bytes(packet);
  const std::optional<std::size_t> following = following_bytes(packet.common.kind);
  if (bytes > out.size() || !following) return 0;
  std::size_t offset = transport_bytes(packet.transport);
  const std::size_t content = offset + CommonHeader::kBytes + *following + packet.payload.size();
  const std::size_t pad = bytes - kIcrcBytes - content;
  write_bth(packet.transport, pad, out.data());
  if (is_datagram(packet.transport.opcode)) {
    put(out.data() + kBthBytes, packet.transport.queue_key, 4);
    put(out.data() + kBthBytes + 4, packet.transport.source_queue_pair & 0xffffff, 4);
  }
  CommonHeader common = packet.common;
  common.magic = kMagic;
  common.version = kVersion;
  common.write(out.data() + offset);
  offset += CommonHeader::kBytes;
  switch (static_cast<Kind>(common.kind)) {
    case Kind::data:
    case Kind::result:
    case Kind::kept:
      packet.values.write(out.data() + offset);
      break;
    case Kind::refuse:
      packet.refusal.write(out.data() + offset);
      break;
    case Kind::ask:
    case Kind::promise:
      break;
    default:
      packet.control.write(out.data() + offset);
      break;
  }
  offset += *following;
  if (!packet.payload.empty()) {
    std::memcpy(out.data() + offset, packet.payload.data(), packet.payload.size());
  }
  std::memset(out.data() + content, 0, pad);
  seal(out.first(bytes), from, to);
  return bytes;
}

std::size_t write_acknowledgement(std::uint32_t queue_pair, std::uint32_t psn, std::uint32_t count,
                                  Address from, Address to, std::span<std::uint8_t> out) {
  constexpr std::size_t kBytes = kBthBytes + kAethBytes + kIcrcBytes;
  if (out.size() < kBytes) return 0;
  write_bth({.opcode = kRcAcknowledge, .queue_pair = queue_pair, .psn = psn}, 0, out.data());
  // Positive, without limit of credits.
  put(out.data() + kBthBytes, 0x1f000000u | (count & 0xffffff), 4);
  seal(out.first(kBytes), from, to);
  return kBytes;
}

}  // namespace od::innetwork
