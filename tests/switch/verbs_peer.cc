// verbs_peer: talks with an RDMA adapter as the client of ibv_rc_pingpong or
// ibv_ud_pingpong would, but by packets of ours, to test these with somebody else's implementation.
//
// The server (rdma-core's example on any adapter, such as Linux's rdma_rxe) returns each message.
// An adapter drops what is not right: opcode, queue pair, number, padding, length, or ICRC. What it
// returns is compared with what was sent, and the ICRC of all that it sends is checked, over the IP
// header that it came with. Prints the counts as JSON; ends with 1 if anything was wrong.
//
//   verbs_peer INTERFACE OWN_IP PEER_IP rc|ud MESSAGES MESSAGE_BYTES WAIT_MS
//
// Sends by an ordinary UDP socket and receives by a raw one (CAP_NET_RAW), because an ordinary one
// does not show the IP header.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "innetwork/packet.h"

namespace {

using namespace od::innetwork;  // NOLINT(google-build-using-namespace): a main file

constexpr std::uint32_t kPingpongKey = 0x11111111;  // of the example's datagram queue pairs
constexpr std::uint32_t kOwnQueuePair = 0x123456;
constexpr std::uint32_t kOwnFirstNumber = 0xfffff0;  // wraps soon
constexpr std::size_t kRoomBytes = 2048;

struct Options {
  std::string interface;
  std::string own;
  std::string peer;
  std::uint16_t port = 18515;
  std::string transport = "rc";
  std::uint32_t count = 100;
  std::size_t message_bytes = 1000;
  std::uint64_t wait_ms = 10'000;
};

struct Counts {
  std::uint32_t sent = 0;
  std::uint32_t returned = 0;
  std::uint32_t acknowledged = 0;
  std::uint32_t right_checks = 0;
  std::uint32_t wrong_checks = 0;
  std::uint32_t wrong_contents = 0;
};

std::runtime_error failure(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

std::uint64_t now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1000 +
         static_cast<std::uint64_t>(time.tv_nsec) / 1'000'000;
}

sockaddr_in socket_address(std::uint32_t ip, std::uint16_t port) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_addr.s_addr = htonl(ip);
  made.sin_port = htons(port);
  return made;
}

std::uint32_t read_ip(const std::string& text) {
  in_addr address{};
  if (inet_pton(AF_INET, text.c_str(), &address) != 1) {
    throw std::runtime_error(text + " is no IPv4 address");
  }
  return ntohl(address.s_addr);
}

std::uint32_t get(const std::uint8_t* at, int bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | at[i];
  return value;
}

struct Remote {
  std::uint32_t queue_pair = 0;
  std::uint32_t first_number = 0;
};

// What the example exchanges by TCP before: LID, queue pair, first number and GID of both sides.
Remote meet(const Options& options) {
  const sockaddr_in address = socket_address(read_ip(options.peer), options.port);
  int stream = -1;
  const std::uint64_t until_ms = now_ms() + options.wait_ms;
  while (true) {
    stream = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(stream, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) break;
    close(stream);
    if (now_ms() > until_ms) throw failure(options.peer);
    usleep(20'000);
  }
  constexpr std::size_t kWords = sizeof "0000:000000:000000:00000000000000000000000000000000";
  char text[kWords];
  std::snprintf(text, sizeof text, "%04x:%06x:%06x:00000000000000000000ffff%08x", 0u, kOwnQueuePair,
                kOwnFirstNumber, read_ip(options.own));
  std::size_t got = 0;
  bool works = write(stream, text, sizeof text) == static_cast<ssize_t>(sizeof text);
  while (works && got < sizeof text) {
    const ssize_t more = read(stream, text + got, sizeof text - got);
    works = more > 0;
    got += works ? static_cast<std::size_t>(more) : 0;
  }
  unsigned lid = 0;
  Remote remote;
  text[sizeof text - 1] = '\0';
  works =
      works && std::sscanf(text, "%x:%x:%x:", &lid, &remote.queue_pair, &remote.first_number) == 3;
  static constexpr char kDone[] = "done";
  works = works && write(stream, kDone, sizeof kDone) == static_cast<ssize_t>(sizeof kDone);
  close(stream);
  if (!works) throw std::runtime_error("the server speaks another protocol");
  return remote;
}

class Client {
 public:
  explicit Client(const Options& options)
      : options_(options),
        own_{read_ip(options.own), kUdpPort},
        peer_{read_ip(options.peer), kUdpPort},
        reliable_(options.transport == "rc") {
    udp_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int discover = IP_PMTUDISC_DO;
    const sockaddr_in bound = socket_address(own_.ip, own_.port);
    if (setsockopt(udp_, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover) != 0 ||
        bind(udp_, reinterpret_cast<const sockaddr*>(&bound), sizeof bound) != 0) {
      throw failure(options.own);
    }
    raw_ = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP));
    sockaddr_ll link{};
    link.sll_family = AF_PACKET;
    link.sll_protocol = htons(ETH_P_IP);
    link.sll_ifindex = static_cast<int>(if_nametoindex(options.interface.c_str()));
    if (raw_ < 0 || bind(raw_, reinterpret_cast<const sockaddr*>(&link), sizeof link) != 0) {
      throw failure(options.interface);
    }
  }
  ~Client() {
    close(raw_);
    close(udp_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // One message there and back; false if it does not come.
  bool exchange(std::uint32_t number) {
    std::array<std::uint8_t, kRoomBytes> bytes;
    const std::size_t length = write_message(number, bytes);
    ++counts_.sent;
    send({bytes.data(), length});
    bool returned = false;
    bool acknowledged = !reliable_;
    const std::uint64_t until_ms = now_ms() + options_.wait_ms;
    while ((!returned || !acknowledged) && now_ms() < until_ms) {
      std::array<std::uint8_t, kRoomBytes> room;
      const std::span<const std::uint8_t> packet = receive(room);
      if (packet.empty()) continue;
      const std::uint8_t opcode = packet[0];
      if (opcode == kRcAcknowledge) {
        // Positive, and of this number.
        if ((packet[kBthBytes] >> 5) == 0 && get(packet.data() + 9, 3) == number_of(number)) {
          acknowledged = true;
          ++counts_.acknowledged;
        }
      } else if (opcode == (reliable_ ? kRcSendOnly : kUdSendOnly) && !returned) {
        returned = true;
        ++counts_.returned;
        if (!equals(packet, {bytes.data(), length})) ++counts_.wrong_contents;
        if (reliable_) acknowledge(get(packet.data() + 9, 3));
      }
    }
    return returned && acknowledged;
  }

  void set_remote(const Remote& remote) { remote_ = remote; }
  const Counts& counts() const { return counts_; }

 private:
  static std::uint32_t number_of(std::uint32_t number) {
    return (kOwnFirstNumber + number) & 0xffffff;
  }
  std::size_t head_bytes() const { return kBthBytes + (reliable_ ? 0 : kDethBytes); }

  // Each kind in turn, with headers and values of chance.
  std::size_t write_message(std::uint32_t number, std::span<std::uint8_t> out) {
    Packet packet;
    packet.transport.opcode = reliable_ ? kRcSendOnly : kUdSendOnly;
    packet.transport.queue_pair = remote_.queue_pair;
    packet.transport.psn = number_of(number);
    packet.transport.acknowledge = reliable_;
    packet.transport.queue_key = kPingpongKey;
    packet.transport.source_queue_pair = kOwnQueuePair;
    packet.common.kind = static_cast<std::uint8_t>(1 + number % static_cast<int>(Kind::kept));
    packet.common.group = static_cast<std::uint32_t>(random_());
    packet.common.key = random_();
    packet.common.sequence = static_cast<std::uint32_t>(random_());
    packet.control.job = random_();
    packet.values.operation = static_cast<std::uint8_t>(random_() % kOperations);
    packet.values.type = static_cast<std::uint8_t>(random_() % kTypes);
    const auto kind = static_cast<Kind>(packet.common.kind);
    if (kind == Kind::data || kind == Kind::result || kind == Kind::kept) {
      const std::size_t width = type_bytes(packet.values.type);
      const std::size_t most = options_.message_bytes - CommonHeader::kBytes - ValuesHeader::kBytes;
      packet.values.count = static_cast<std::uint16_t>(random_() % (most / width + 1));
      payload_.resize(packet.values.count * width);
      for (std::uint8_t& byte : payload_) byte = static_cast<std::uint8_t>(random_());
      packet.payload = payload_;
    }
    return od::innetwork::write(packet, own_, peer_, out);
  }

  void send(std::span<const std::uint8_t> bytes) {
    const sockaddr_in address = socket_address(peer_.ip, peer_.port);
    if (sendto(udp_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&address),
               sizeof address) < 0) {
      throw failure(options_.peer);
    }
  }

  void acknowledge(std::uint32_t psn) {
    std::array<std::uint8_t, kBthBytes + kAethBytes + kIcrcBytes> bytes;
    write_acknowledgement(remote_.queue_pair, psn, counts_.returned, own_, peer_, bytes);
    send(bytes);
  }

  // A RoCEv2 packet of the adapter to this queue pair with a right check, from BTH to before the
  // ICRC; empty if there was none.
  std::span<const std::uint8_t> receive(std::span<std::uint8_t> room) {
    pollfd waiting{raw_, POLLIN, 0};
    if (poll(&waiting, 1, 100) <= 0) return {};
    sockaddr_ll from{};
    socklen_t from_bytes = sizeof from;
    const ssize_t got = recvfrom(raw_, room.data(), room.size(), 0,
                                 reinterpret_cast<sockaddr*>(&from), &from_bytes);
    const std::uint8_t* const ip = room.data();
    constexpr std::size_t kHead = kIpBytes + kUdpBytes;
    if (got < static_cast<ssize_t>(kHead + kBthBytes + kIcrcBytes) ||
        from.sll_pkttype == PACKET_OUTGOING || ip[0] != 0x45 || ip[9] != IPPROTO_UDP ||
        get(ip + 22, 2) != kUdpPort || get(ip + 12, 4) != peer_.ip) {
      return {};
    }
    const std::size_t length = get(ip + 24, 2);
    if (length < kUdpBytes + kBthBytes + kIcrcBytes ||
        kIpBytes + length > static_cast<std::size_t>(got)) {
      return {};
    }
    const std::span<const std::uint8_t> packet(ip + kHead, length - kUdpBytes);
    const Address sender{peer_.ip, static_cast<std::uint16_t>(get(ip + 20, 2))};
    if (!check(packet, sender, own_, get(ip + 4, 4))) {
      ++counts_.wrong_checks;
      return {};
    }
    ++counts_.right_checks;
    if (get(packet.data() + 5, 3) != kOwnQueuePair) return {};
    return packet.first(packet.size() - kIcrcBytes);
  }

  // The message that came back is as long as the server's buffer and begins with ours.
  bool equals(std::span<const std::uint8_t> packet, std::span<const std::uint8_t> sent) const {
    const std::size_t pad = sent[1] >> 4 & 3;
    const std::span<const std::uint8_t> content =
        sent.subspan(head_bytes(), sent.size() - head_bytes() - kIcrcBytes - pad);
    return packet.size() == head_bytes() + options_.message_bytes &&
           std::memcmp(packet.data() + head_bytes(), content.data(), content.size()) == 0;
  }

  Options options_;
  Address own_;
  Address peer_;
  bool reliable_;
  int udp_ = -1;
  int raw_ = -1;
  Remote remote_;
  Counts counts_;
  std::mt19937_64 random_{1};
  std::vector<std::uint8_t> payload_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fprintf(stderr, "verbs_peer: seven arguments are needed\n");
    return 2;
  }
  const auto number = [argv](int index) { return std::strtoul(argv[index], nullptr, 10); };
  Options options;
  options.interface = argv[1];
  options.own = argv[2];
  options.peer = argv[3];
  options.transport = argv[4];
  options.count = static_cast<std::uint32_t>(number(5));
  options.message_bytes = number(6);
  options.wait_ms = number(7);
  try {
    Client client(options);
    client.set_remote(meet(options));
    bool all = true;
    for (std::uint32_t i = 0; i < options.count && all; ++i) all = client.exchange(i);
    const Counts& counts = client.counts();
    std::printf(
        "{\"sent\": %u, \"returned\": %u, \"acknowledged\": %u, \"right_checks\": %u, "
        "\"wrong_checks\": %u, \"wrong_contents\": %u}\n",
        counts.sent, counts.returned, counts.acknowledged, counts.right_checks, counts.wrong_checks,
        counts.wrong_contents);
    return all && counts.wrong_checks == 0 && counts.wrong_contents == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbs_peer: %s\n", error.what());
    return 2;
  }
}
