// Receives and sends frames by an interface.
#include "switch/packet_port.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <stdexcept>

namespace od::fabric {
namespace {

// VIRTIO_NET_HDR_F_NEEDS_CSUM; <linux/virtio_net.h> is no C++.
constexpr std::uint8_t kNeedsChecksum = 1;

constexpr std::size_t kSlotBytes = 2048;
constexpr std::size_t kSlots = 1024;
constexpr std::size_t kBlockBytes = 1 << 16;
constexpr std::size_t kRingBytes = kSlotBytes * kSlots;
constexpr std::uint32_t kVlanBytes = 4;
// Long frames on their way through the socket's queue, and frames handed to the driver.
constexpr int kSocketBytes = 8 << 20;

std::runtime_error failure(const std::string& interface, const char* what) {
  const int error = errno;
  std::string text = interface + ": " + what + ": " + std::strerror(error);
  if (error == EPERM || error == EACCES) {
    text += "; raw sockets need CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep` the program";
  }
  return std::runtime_error(text);
}

std::uint64_t realtime_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// Puts back the VLAN tag that the kernel has taken out of the frame; the frame has room for it.
void insert_vlan(Frame& frame, std::uint16_t protocol, std::uint16_t tag) {
  std::uint8_t* const data = frame.data();
  std::memmove(data + 12 + kVlanBytes, data + 12, frame.bytes - 12);
  data[12] = static_cast<std::uint8_t>(protocol >> 8);
  data[13] = static_cast<std::uint8_t>(protocol);
  data[14] = static_cast<std::uint8_t>(tag >> 8);
  data[15] = static_cast<std::uint8_t>(tag);
  frame.bytes += kVlanBytes;
  const auto longer = static_cast<std::uint16_t>(kVlanBytes);
  if (frame.offload.flags != 0) {
    frame.offload.checksum_start =
        static_cast<std::uint16_t>(frame.offload.checksum_start + longer);
  }
  if (frame.offload.gso_type != 0) {
    frame.offload.header_bytes = static_cast<std::uint16_t>(frame.offload.header_bytes + longer);
  }
}

}  // namespace

PacketPort::PacketPort(const std::string& interface) : interface_(interface) {
  const unsigned index = if_nametoindex(interface.c_str());
  if (index == 0) throw failure(interface, "there is no such interface");
  // No protocol yet: nothing may come before the ring is there.
  socket_ = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) throw failure(interface, "no raw socket");
  try {
    open_ring();
    packet_mreq everything{};
    everything.mr_ifindex = static_cast<int>(index);
    everything.mr_type = PACKET_MR_PROMISC;
    if (setsockopt(socket_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &everything, sizeof everything)) {
      throw failure(interface, "cannot be made promiscuous");
    }
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(index);
    if (bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      throw failure(interface, "cannot be bound to");
    }
  } catch (...) {
    if (ring_ != nullptr) munmap(ring_, kRingBytes);
    close(socket_);
    throw;
  }
}

PacketPort::~PacketPort() {
  munmap(ring_, kRingBytes);
  close(socket_);
}

void PacketPort::open_ring() {
  const auto set = [this](int option, int value) {
    return setsockopt(socket_, SOL_PACKET, option, &value, sizeof value) == 0;
  };
  if (!set(PACKET_VERSION, TPACKET_V2)) throw failure(interface_, "no ring of version 2");
  if (!set(PACKET_VNET_HDR, 1)) throw failure(interface_, "no offload headers");
  // Frames longer than a slot are queued at the socket besides.
  if (!set(PACKET_COPY_THRESH, 1)) throw failure(interface_, "no queue for long frames");
  // Best effort: what others send by this interface is not ours, and the rate is made here.
  set(PACKET_IGNORE_OUTGOING, 1);
  set(PACKET_QDISC_BYPASS, 1);
  const int bytes = kSocketBytes;
  for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE, SO_RCVBUF, SO_SNDBUF}) {
    // Beyond the system's limit only where that is allowed; then the second pair does nothing more.
    if (setsockopt(socket_, SOL_SOCKET, option, &bytes, sizeof bytes) == 0 &&
        option == SO_SNDBUFFORCE) {
      break;
    }
  }
  tpacket_req request{};
  request.tp_block_size = kBlockBytes;
  request.tp_block_nr = kRingBytes / kBlockBytes;
  request.tp_frame_size = kSlotBytes;
  request.tp_frame_nr = kSlots;
  if (setsockopt(socket_, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0) {
    throw failure(interface_, "no receive ring");
  }
  void* const mapped = mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, socket_, 0);
  if (mapped == MAP_FAILED) throw failure(interface_, "the receive ring cannot be mapped");
  ring_ = static_cast<std::uint8_t*>(mapped);
}

bool PacketPort::receive_one(FramePool& pool, Received& received) {
  std::uint8_t* const slot = ring_ + next_slot_ * kSlotBytes;
  auto* const header = reinterpret_cast<tpacket2_hdr*>(slot);
  // Pairs with the kernel's write of the status behind the frame.
  std::atomic_ref<std::uint32_t> status(header->tp_status);
  const std::uint32_t flags = status.load(std::memory_order_acquire);
  if ((flags & TP_STATUS_USER) == 0) return false;
  next_slot_ = (next_slot_ + 1) % kSlots;

  const std::uint64_t stamped_ns = std::uint64_t{header->tp_sec} * 1'000'000'000 + header->tp_nsec;
  const std::uint64_t now_ns = realtime_ns();
  // A clock that was set meanwhile must not make frames old.
  constexpr std::uint64_t kOldest = 1'000'000'000;
  received.age_ns = now_ns > stamped_ns && now_ns - stamped_ns < kOldest ? now_ns - stamped_ns : 0;
  received.oversized = false;
  received.frame = pool.hold(nullptr);

  const bool cut = header->tp_len > header->tp_snaplen;
  const bool tagged = (flags & TP_STATUS_VLAN_VALID) != 0;
  if (!cut) {
    received.frame = pool.take(header->tp_snaplen + (tagged ? kVlanBytes : 0));
    if (received.frame) {
      const std::uint8_t* const data = slot + header->tp_mac;
      std::memcpy(&received.frame->offload, data - sizeof(OffloadHeader), sizeof(OffloadHeader));
      std::memcpy(received.frame->data(), data, header->tp_snaplen);
      received.frame->bytes = header->tp_snaplen;
    }
  } else if ((flags & TP_STATUS_COPY) == 0) {
    received.oversized = true;
  } else {
    // It has to leave the queue even if there is no memory for it, or the order would break.
    OffloadHeader offload;
    std::uint8_t nothing = 0;
    received.frame = pool.take(kLargeFrameBytes);
    iovec parts[2] = {{&offload, sizeof offload}, {&nothing, 1}};
    if (received.frame) parts[1] = {received.frame->data(), kLargeFrameBytes - kVlanBytes};
    const ssize_t length = readv(socket_, parts, 2);
    if (length <= static_cast<ssize_t>(sizeof offload) || header->tp_len > parts[1].iov_len) {
      received.oversized = received.frame != nullptr;
      received.frame.reset();
    } else {
      received.frame->offload = offload;
      received.frame->bytes =
          static_cast<std::uint32_t>(length) - static_cast<std::uint32_t>(sizeof offload);
    }
  }
  if (received.frame) {
    // "Checksum known to be good" is the receiver's business, not that of who sends it on.
    received.frame->offload.flags &= kNeedsChecksum;
    if (tagged && received.frame->bytes >= 14) {
      const bool known = (flags & TP_STATUS_VLAN_TPID_VALID) != 0;
      insert_vlan(*received.frame, known ? header->tp_vlan_tpid : std::uint16_t{ETH_P_8021Q},
                  header->tp_vlan_tci);
    }
  }
  // Gives the slot back; pairs with the kernel's read of the status before it writes a frame.
  status.store(TP_STATUS_KERNEL, std::memory_order_release);
  return true;
}

bool PacketPort::send(Frame& frame) {
  iovec parts[2] = {{&frame.offload, sizeof frame.offload}, {frame.data(), frame.bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  while (true) {
    const ssize_t sent = sendmsg(socket_, &message, MSG_DONTWAIT);
    if (sent >= 0) return true;
    if (errno != EINTR) return false;
  }
}

std::uint64_t PacketPort::take_ring_drops() {
  tpacket_stats counts{};
  socklen_t bytes = sizeof counts;
  if (getsockopt(socket_, SOL_PACKET, PACKET_STATISTICS, &counts, &bytes) != 0) return 0;
  return counts.tp_drops;
}

}  // namespace od::fabric
