// A port on a network interface: a receive ring of AF_PACKET (TPACKET_V2) and a raw socket to send
// by.
//
// Frames that fit into a slot of the ring are read from memory that the kernel has written, without
// a system call. Longer ones (segments of a TCP stream that a virtual link hands over whole) come
// by the socket's queue as well, and the ring tells where they belong in the order. The kernel's
// notes on unfinished checksums and uncut streams (virtio_net_hdr) travel with the frame.
// TPACKET_V3 would add up to a millisecond until it closes a block. Needs CAP_NET_RAW.
#ifndef OVERDRIVE_SWITCH_PACKET_PORT_H_
#define OVERDRIVE_SWITCH_PACKET_PORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "switch/frame.h"

namespace od::fabric {

class PacketPort {
 public:
  // Throws std::runtime_error with the interface, the cause and the remedy.
  explicit PacketPort(const std::string& interface);
  ~PacketPort();
  PacketPort(const PacketPort&) = delete;
  PacketPort& operator=(const PacketPort&) = delete;

  int descriptor() const { return socket_; }

  struct Received {
    FramePtr frame;  // null: dropped, because there was no memory or it was cut off
    std::uint64_t age_ns = 0;
    bool oversized = false;
  };
  // Takes at most `most` frames; `age_ns` says how long each has lain there. Returns their number.
  template <typename Take>
  std::size_t receive(FramePool& pool, std::size_t most, Take&& take) {
    std::size_t count = 0;
    Received received;
    while (count < most && receive_one(pool, received)) {
      ++count;
      take(received);
    }
    return count;
  }
  bool send(Frame& frame);
  // Frames that the kernel dropped because the ring was full, since the last call.
  std::uint64_t take_ring_drops();

 private:
  bool receive_one(FramePool& pool, Received& received);
  void open_ring();

  std::string interface_;
  int socket_ = -1;
  std::uint8_t* ring_ = nullptr;
  std::size_t next_slot_ = 0;
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_PACKET_PORT_H_
