// RoCEv2 packets that carry in-network headers: taking apart, putting together, the invariant
// check.
//
//     IPv4 | UDP 4791 | BTH | DETH (UD only) | common | values, control or refusal | payload | pad
//     | ICRC
//
// The format of the headers behind BTH and DETH: packet_fields.txt. The ICRC (InfiniBand
// Architecture Specification, volume 1, annex A17 for RoCEv2) covers the IP and UDP headers but for
// what routers change, so it needs an IP identification that the sender knows: an unconnected
// socket with IP_PMTUDISC_DO sends 0 and "do not fragment". Everything here is a pure function of
// its arguments; parsing accepts arbitrary bytes.
#ifndef OVERDRIVE_INNETWORK_PACKET_H_
#define OVERDRIVE_INNETWORK_PACKET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "innetwork/packet_fields.h"

namespace od::innetwork {

inline constexpr std::size_t kIpBytes = 20;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kDethBytes = 8;
inline constexpr std::size_t kAethBytes = 4;
inline constexpr std::size_t kIcrcBytes = 4;

inline constexpr std::uint8_t kRcSendOnly = 0x04;
inline constexpr std::uint8_t kRcAcknowledge = 0x11;
inline constexpr std::uint8_t kUdSendOnly = 0x64;

// An address as the headers have it, in the byte order of this machine.
struct Address {
  std::uint32_t ip = 0;
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

// The InfiniBand headers.
struct Transport {
  std::uint8_t opcode = kUdSendOnly;
  std::uint32_t queue_pair = kQueuePair;  // of the receiver, 24 bits
  std::uint32_t psn = 0;                  // 24 bits
  bool acknowledge = false;               // RC: an acknowledgement is asked for
  std::uint32_t queue_key = 0;            // UD
  std::uint32_t source_queue_pair = 0;    // UD, 24 bits
};

struct Packet {
  Transport transport;
  CommonHeader common;
  ValuesHeader values;                    // of data and result
  ControlHeader control;                  // of query, notify and kill
  RefusalHeader refusal;                  // of refuse
  std::span<const std::uint8_t> payload;  // of data and result: the values, without padding
};

// Why bytes are not a packet of ours.
enum class Fault : std::uint8_t {
  none,
  foreign,      // other RoCEv2 traffic: not for us
  malformed,    // ours, but too short, or lengths that contradict each other
  bad_version,  // ours, of another version
  bad_check,    // the ICRC is wrong
};

// Bytes of one value; 0 for an unknown type.
std::size_t type_bytes(std::uint8_t type);

// What follows the UDP header: BTH up to and without the ICRC.
Fault parse(std::span<const std::uint8_t> bytes, Packet& packet);

// The length of the packet from BTH to the ICRC.
std::size_t packet_bytes(const Packet& packet);
// Writes BTH up to and with the ICRC, as it is between these addresses; returns the length, or 0 if
// there is no room. `packet.payload` must not overlap.
std::size_t write(const Packet& packet, Address from, Address to, std::span<std::uint8_t> out);
// An acknowledgement of an RC packet (Fault::none is implied): BTH, AETH, ICRC.
std::size_t write_acknowledgement(std::uint32_t queue_pair, std::uint32_t psn, std::uint32_t count,
                                  Address from, Address to, std::span<std::uint8_t> out);

// Identification and flags in the IP header, which the ICRC covers: what packets of ours have.
inline constexpr std::uint32_t kUnfragmented = 0x00004000;

// The ICRC of a packet from BTH without its last four bytes.
std::uint32_t icrc(std::span<const std::uint8_t> from_bth, Address from, Address to,
                   std::uint32_t identification = kUnfragmented);
// True if the last four bytes are the ICRC of the rest.
bool check(std::span<const std::uint8_t> from_bth, Address from, Address to,
           std::uint32_t identification = kUnfragmented);
// Writes the last four bytes anew, after a change.
void seal(std::span<std::uint8_t> from_bth, Address from, Address to);

}  // namespace od::innetwork

#endif  // OVERDRIVE_INNETWORK_PACKET_H_
