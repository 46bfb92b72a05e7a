// The switches: learning bridges whose ports lead to the outside or to another switch.
//
// A Fabric holds any number of switches in one process, so that a frame crosses several of them
// without a change of process. It knows neither sockets nor clocks: frames and times are given to
// it, and what leaves by an outside port is handed to a Transmitter. The same code therefore runs
// in the program, in unit tests with invented time, and under a fuzzer.
//
// Links may be for in-network packets alone, so that there can be several switches above the same
// ones: ordinary frames need a tree. At a switch that has other ports as well nothing is learned
// from frames of such a link, and they go on only to a port outside that is known to be the
// receiver's; else they would teach others wrong ways, or run in circles.
//
// The way of a frame: receive() -> the switch's bridge (or its compute unit, which may take it)
//   -> Link of each port that it leaves by (rate, latency, faults) -> timer wheel -> Transmitter,
//   or receive() of the switch at the other end.
#ifndef OVERDRIVE_SWITCH_FABRIC_H_
#define OVERDRIVE_SWITCH_FABRIC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "switch/frame.h"
#include "switch/histogram.h"
#include "switch/link.h"
#include "switch/mac_table.h"
#include "switch/timer_wheel.h"

namespace od::fabric {

enum class Drop : std::uint8_t {
  lost,         // by the fault that was asked for
  queue_full,   // more than the port's queue holds at its rate
  no_memory,    // the frame pool is at its limit
  malformed,    // shorter than an Ethernet header
  link_local,   // protocols between neighbours
  cannot_send,  // the kernel refused it, or the port is down
  oversized,    // received cut off: longer than any frame may be
};
inline constexpr std::size_t kDrops = static_cast<std::size_t>(Drop::oversized) + 1;
const char* drop_name(Drop drop);

struct PortCounters {
  std::uint64_t received_frames = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t sent_frames = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
  std::array<std::uint64_t, kDrops> drops{};
};

// Sends frames by the outside ports. Called by the thread that drives the fabric.
class Transmitter {
 public:
  virtual ~Transmitter() = default;
  // False if the frame could not be sent; it is counted and forgotten.
  virtual bool transmit(std::uint32_t port, Frame& frame) = 0;
};

class Fabric;

// What a switch does with frames that are not simply forwarded.
class ComputeUnit {
 public:
  virtual ~ComputeUnit() = default;
  // True if the frame was taken (and may have been moved from); else it is forwarded.
  virtual bool receive(std::uint32_t port, FramePtr& frame, std::uint64_t now_ns) = 0;
  // When advance() has to be called next.
  virtual std::uint64_t next_due_ns() const = 0;
  virtual void advance(std::uint64_t now_ns) = 0;
  // By which packets name the switch if it adds up what other switches send; else 0.
  virtual std::uint32_t spine_address() const { return 0; }
};

inline constexpr std::uint32_t kNoPort = ~std::uint32_t{0};

struct Port {
  std::string name;
  std::uint32_t owner = 0;       // its switch
  std::uint32_t peer = kNoPort;  // the port at the other end of a link inside; kNoPort: outside
  std::uint32_t spine = 0;       // outside: the address of the spine there, in another process
  bool only_in_network = false;
  bool up = true;
  Link link;
  PortCounters counters;
  // At a switch that is no spine: whether other switches are behind it, no hosts.
  bool leads_up() const { return peer != kNoPort || spine != 0; }
};

struct Switch {
  std::string name;
  std::uint64_t latency_ns = 0;  // from a frame's arrival to its leaving, without transmission
  std::vector<std::uint32_t> ports;
  bool in_tree = false;  // has ports for ordinary frames
  MacTable table;
  std::uint64_t forwarded = 0;
  std::uint64_t flooded = 0;
  std::unique_ptr<ComputeUnit> compute;
};

class Fabric {
 public:
  Fabric(FramePool& pool, Transmitter& transmitter)
      : pool_(pool), transmitter_(transmitter), wheel_(pool) {}

  std::uint32_t add_switch(std::string name, std::uint64_t latency_ns);
  // A port that leads outside; returns its number, unique in the fabric. `spine`: to this one.
  std::uint32_t add_port(std::uint32_t owner, std::string name, std::uint64_t seed,
                         bool only_in_network = false, std::uint32_t spine = 0);
  // Two ports that lead to each other.
  std::pair<std::uint32_t, std::uint32_t> connect(std::uint32_t one, std::uint32_t other,
                                                  std::uint64_t seed, bool only_in_network = false);

  // A frame has arrived at a port at `arrival_ns`, which may be a little before now.
  void receive(std::uint32_t port, FramePtr frame, std::uint64_t arrival_ns, std::uint64_t now_ns);
  // Sends a frame by a port as if it had been forwarded at `ready_ns`.
  void send(std::uint32_t port, FramePtr frame, std::uint64_t ready_ns, std::uint64_t now_ns);
  void count_drop(std::uint32_t port, Drop drop) {
    ++ports_[port].counters.drops[static_cast<std::size_t>(drop)];
  }

  // Moves everything whose time has come; returns how much that was.
  std::size_t advance(std::uint64_t now_ns);
  std::uint64_t next_due_ns() const;

  FramePool& pool() { return pool_; }
  const FramePool& pool() const { return pool_; }
  std::vector<Port>& ports() { return ports_; }
  const std::vector<Port>& ports() const { return ports_; }
  std::vector<Switch>& switches() { return switches_; }
  const std::vector<Switch>& switches() const { return switches_; }
  std::size_t waiting() const { return wheel_.size(); }
  // How late frames were handed over, in nanoseconds: how exactly latencies were kept.
  const Histogram& lateness() const { return lateness_; }

 private:
  // Of a port: whether its link leads beside the tree that ordinary frames need.
  bool beside_tree(std::uint32_t port) const {
    return ports_[port].only_in_network && switches_[ports_[port].owner].in_tree;
  }
  void forward(std::uint32_t port, FramePtr frame, std::uint64_t ready_ns, std::uint64_t now_ns);
  void deliver(std::uint32_t port, FramePtr frame, std::uint64_t due_ns, std::uint64_t now_ns);

  FramePool& pool_;
  Transmitter& transmitter_;
  TimerWheel wheel_;
  std::vector<Port> ports_;
  std::vector<Switch> switches_;
  Histogram lateness_;
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_FABRIC_H_
