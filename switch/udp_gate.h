// Ports for leaders that talk with the switch itself, by ordinary UDP: no interface, no privilege.
//
// Each address that has sent something becomes a port of the switch. What it sends is made a frame,
// as it would have been on a wire, with hardware addresses that are derived from IP address and
// port; so bridge and compute unit need not know that there is no Ethernet. Packets that name
// another receiver (query, notify) get its hardware address, and are forwarded to it. The switch
// cannot forward ordinary traffic in this way.
//
// Bounded: at most kMostPeers; when all are taken, one that has been silent for kIdleNs makes room.
#ifndef OVERDRIVE_SWITCH_UDP_GATE_H_
#define OVERDRIVE_SWITCH_UDP_GATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "innetwork/packet.h"
#include "switch/fabric.h"

namespace od::fabric {

class UdpGate {
 public:
  static constexpr std::size_t kMostPeers = 1024;
  static constexpr std::uint64_t kIdleNs = 120'000'000'000;

  // `address` such as 127.0.0.1:4791. Throws std::runtime_error with cause and remedy.
  UdpGate(const std::string& address, Fabric& fabric, std::uint32_t owner, std::uint64_t seed,
          const LinkSettings& link);
  ~UdpGate();
  UdpGate(const UdpGate&) = delete;
  UdpGate& operator=(const UdpGate&) = delete;

  int descriptor() const { return socket_; }
  // Takes at most `most` packets; returns their number.
  std::size_t receive(std::size_t most, std::uint64_t now_ns);
  // Sends a frame of the fabric by one of this gate's ports; false if that failed.
  bool send(std::uint32_t port, Frame& frame);
  bool owns(std::uint32_t port) const { return port_peers_.contains(port); }
  std::uint64_t refused() const { return refused_; }
  void set_link(const LinkSettings& link);

 private:
  struct Peer {
    std::uint32_t port;
    std::uint64_t seen_ns;
  };
  // The port of an address; kNoPort if there is no room.
  std::uint32_t port_of(innetwork::Address address, std::uint64_t now_ns);

  Fabric& fabric_;
  std::uint32_t owner_;
  std::uint64_t seed_;
  LinkSettings link_;
  int socket_ = -1;
  innetwork::Address own_;
  std::map<std::uint64_t, Peer> peers_;  // by address
  std::map<std::uint32_t, innetwork::Address> port_peers_;
  std::uint64_t refused_ = 0;
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_UDP_GATE_H_
