// Makes frames of datagrams, and datagrams of frames.
#include "switch/udp_gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "innetwork/wire_numbers.h"

namespace od::fabric {
namespace {

using innetwork::Address;
using innetwork::put;

constexpr std::size_t kHeadBytes = 14 + innetwork::kIpBytes + innetwork::kUdpBytes;
constexpr std::size_t kLongestDatagram = 9000;

// Locally administered; different for all ports of all hosts in one network of class A.
std::uint64_t mac_of(Address address) {
  return std::uint64_t{0x02} << 40 | std::uint64_t{address.ip & 0xffffff} << 16 | address.port;
}
std::uint64_t key_of(Address address) { return std::uint64_t{address.ip} << 16 | address.port; }

sockaddr_in socket_address(Address address) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_addr.s_addr = htonl(address.ip);
  made.sin_port = htons(address.port);
  return made;
}

Address parse_address(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string host = text.substr(0, colon);
  std::uint16_t port = innetwork::kUdpPort;
  bool good = true;
  if (colon != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + colon + 1, end, port);
    good = error == std::errc() && at == end;
  }
  in_addr address{};
  if (!good || inet_pton(AF_INET, host.c_str(), &address) != 1 || address.s_addr == 0) {
    throw std::runtime_error("udp: '" + text + "' is not an address such as 127.0.0.1:4791");
  }
  return {ntohl(address.s_addr), port};
}

}  // namespace

UdpGate::UdpGate(const std::string& address, Fabric& fabric, std::uint32_t owner,
                 std::uint64_t seed, const LinkSettings& link)
    : fabric_(fabric), owner_(owner), seed_(seed), link_(link), own_(parse_address(address)) {
  socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const sockaddr_in bound = socket_address(own_);
  if (socket_ < 0 || bind(socket_, reinterpret_cast<const sockaddr*>(&bound), sizeof bound) != 0) {
    const std::string reason = std::strerror(errno);
    if (socket_ >= 0) close(socket_);
    throw std::runtime_error("udp " + address + ": " + reason +
                             "; name an address of this host and a free port");
  }
  // Identification 0 and "do not fragment", which the ICRC covers.
  const int discover = IP_PMTUDISC_DO;
  setsockopt(socket_, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
  const int room = 4 << 20;
  setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
}

UdpGate::~UdpGate() { close(socket_); }

void UdpGate::set_link(const LinkSettings& link) {
  link_ = link;
  for (const auto& [port, peer] : port_peers_) fabric_.ports()[port].link.set(link);
}

std::uint32_t UdpGate::port_of(Address address, std::uint64_t now_ns) {
  const auto found = peers_.find(key_of(address));
  if (found != peers_.end()) {
    found->second.seen_ns = now_ns;
    return found->second.port;
  }
  std::uint32_t port = kNoPort;
  char name[32];
  in_addr ip{htonl(address.ip)};
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &ip, text, sizeof text);
  std::snprintf(name, sizeof name, "%s:%u", text, address.port);
  if (peers_.size() < kMostPeers) {
    port = fabric_.add_port(owner_, name, seed_);
    fabric_.ports()[port].link.set(link_);
  } else {
    const auto oldest =
        std::ranges::min_element(peers_, {}, [](const auto& item) { return item.second.seen_ns; });
    if (now_ns - oldest->second.seen_ns < kIdleNs) {
      ++refused_;
      return kNoPort;
    }
    port = oldest->second.port;
    peers_.erase(oldest);
    fabric_.switches()[owner_].table.forget_port(port);
    fabric_.ports()[port].name = name;
  }
  peers_[key_of(address)] = {port, now_ns};
  port_peers_[port] = address;
  return port;
}

std::size_t UdpGate::receive(std::size_t most, std::uint64_t now_ns) {
  std::uint8_t datagram[kLongestDatagram];
  for (std::size_t count = 0; count < most; ++count) {
    sockaddr_in from{};
    socklen_t from_bytes = sizeof from;
    const ssize_t length = recvfrom(socket_, datagram, sizeof datagram, MSG_DONTWAIT,
                                    reinterpret_cast<sockaddr*>(&from), &from_bytes);
    if (length < 0) {
      if (errno == EINTR || errno == ECONNREFUSED) continue;  // that peer has gone
      return count;
    }
    const Address peer{ntohl(from.sin_addr.s_addr), ntohs(from.sin_port)};
    const auto bytes = static_cast<std::size_t>(length);
    innetwork::Packet packet;
    // Who sends something else does not become a port.
    if (bytes < innetwork::kBthBytes + innetwork::kIcrcBytes ||
        innetwork::parse({datagram, bytes - innetwork::kIcrcBytes}, packet) ==
            innetwork::Fault::foreign) {
      ++refused_;
      continue;
    }
    const std::uint32_t port = port_of(peer, now_ns);
    if (port == kNoPort) continue;
    FramePtr frame = fabric_.pool().take(kHeadBytes + bytes);
    if (!frame) {
      fabric_.count_drop(port, Drop::no_memory);
      continue;
    }
    std::uint8_t* const data = frame->data();
    std::memset(data, 0, kHeadBytes);
    const Address receiver{packet.control.destination_ip, packet.control.destination_port};
    put(data, mac_of(receiver.ip != 0 ? receiver : own_), 6);
    put(data + 6, mac_of(peer), 6);
    put(data + 12, 0x0800, 2);
    put(data + 14, 0x45, 1);
    put(data + 16, innetwork::kIpBytes + innetwork::kUdpBytes + bytes, 2);
    put(data + 20, 0x4000, 2);
    put(data + 22, 64, 1);
    put(data + 23, 17, 1);
    put(data + 26, peer.ip, 4);
    put(data + 30, own_.ip, 4);
    put(data + 34, peer.port, 2);
    put(data + 36, own_.port, 2);
    put(data + 38, innetwork::kUdpBytes + bytes, 2);
    std::memcpy(data + kHeadBytes, datagram, bytes);
    fabric_.receive(port, std::move(frame), now_ns, now_ns);
  }
  return most;
}

bool UdpGate::send(std::uint32_t port, Frame& frame) {
  const Address peer = port_peers_.at(port);
  constexpr std::size_t kLeast = kHeadBytes + innetwork::kBthBytes + innetwork::kIcrcBytes;
  if (frame.bytes < kLeast) return false;
  const std::span<std::uint8_t> content(frame.data() + kHeadBytes, frame.bytes - kHeadBytes);
  // Other addresses than in the frame; a frame that was damaged on purpose has to stay so.
  const Address from{static_cast<std::uint32_t>(read_mac(frame.data() + 26) >> 16),
                     static_cast<std::uint16_t>(frame.data()[34] << 8 | frame.data()[35])};
  const Address to{static_cast<std::uint32_t>(read_mac(frame.data() + 30) >> 16),
                   static_cast<std::uint16_t>(frame.data()[36] << 8 | frame.data()[37])};
  if (innetwork::check(content, from, to)) innetwork::seal(content, own_, peer);
  const sockaddr_in address = socket_address(peer);
  while (true) {
    if (sendto(socket_, content.data(), content.size(), MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address), sizeof address) >= 0) {
      return true;
    }
    if (errno != EINTR) return false;
  }
}

}  // namespace od::fabric
