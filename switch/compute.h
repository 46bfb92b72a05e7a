// The compute unit of a switch: in-network packets, groups, and the tree of switches.
//
// Control, once per group (docs/design/in-network.md):
//   query    a leader -> ... -> root leader: each switch narrows what can be done and passes it on;
//            where several spines are above the first one, each gets a copy
//   notify   root leader -> ... -> a leader, by the spine that the root leader has chosen: each
//            switch learns who is at which port
//   kill     a leader -> its switch: one member less; the last one frees the group
// Data, per packet of values: contributions of the leaders at this switch are combined when all are
// there; a switch with others beside it sends that to the spine and hands the result down.
//
// What is not for this switch is forwarded like any frame. Nothing here blocks or keeps time by
// itself, and all memory is bounded by ComputeSettings.
#ifndef OVERDRIVE_SWITCH_COMPUTE_H_
#define OVERDRIVE_SWITCH_COMPUTE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "innetwork/packet.h"
#include "switch/aggregation.h"
#include "switch/compute_settings.h"
#include "switch/fabric.h"

namespace od::fabric {

struct ComputeCounters {
  std::uint64_t queries = 0;
  std::uint64_t notifies = 0;
  std::uint64_t kills = 0;
  std::uint64_t contributions = 0;
  std::uint64_t results = 0;
  std::uint64_t combined = 0;    // sums that were completed here
  std::uint64_t repeated = 0;    // contributions that were there before
  std::uint64_t stale = 0;       // of a round that is over
  std::uint64_t mismatches = 0;  // members that compute something else
  std::uint64_t bad_checks = 0;
  std::uint64_t malformed = 0;
  std::uint64_t bad_versions = 0;
  std::uint64_t strangers = 0;  // unknown group, wrong key, or not the member's address
  std::uint64_t refusals = 0;   // sent
  std::uint64_t expired = 0;    // groups freed by time
};

class Compute : public ComputeUnit {
 public:
  Compute(Fabric& fabric, std::uint32_t own, const ComputeSettings& settings)
      : fabric_(fabric), own_(own), settings_(settings) {}

  bool receive(std::uint32_t port, FramePtr& frame, std::uint64_t now_ns) override;
  std::uint64_t next_due_ns() const override { return next_look_ns_; }
  void advance(std::uint64_t now_ns) override;
  std::uint32_t spine_address() const override { return settings_.spine ? settings_.address : 0; }

  const ComputeCounters& counters() const { return counters_; }
  std::size_t groups() const { return groups_.size(); }
  std::size_t slots_in_use() const;
  std::size_t memory_bytes() const { return memory_bytes_; }
  // From the first contribution of a sum to its completion here, in nanoseconds.
  const Histogram& waits() const { return waits_; }
  const ComputeSettings& settings() const { return settings_; }

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;

  // A leader or a switch that contributes.
  struct Member {
    std::uint32_t number = 0;  // in the group; of a switch: its address
    std::uint32_t port = kNoPort;
    innetwork::Address address;  // that it has to send from
    bool gone = false;
    // How it was heard last: where results go, and from whom they seem to come.
    std::array<std::uint8_t, 12> ethernet{};
    innetwork::Address replies_to;
    std::uint32_t queue_pair = 0;
    std::uint8_t opcode = innetwork::kUdSendOnly;
    std::uint32_t queue_key = 0;
    bool heard = false;
    innetwork::Address reply_address() const {
      return {address.ip, address.port != 0 ? address.port : std::uint16_t{innetwork::kUdpPort}};
    }
  };

  struct Group {
    std::vector<Member> members;  // in the order of numbers once `active`
    std::size_t expected = 0;
    bool active = false;
    std::uint32_t parent = 0;  // address of the spine; 0: this is the top
    std::uint32_t parent_port = kNoPort;
    std::uint32_t window = 0;
    std::uint32_t payload_bytes = 0;
    std::unique_ptr<Aggregation> sums;
    std::vector<std::uint64_t> begun_ns;  // by slot
    std::size_t memory_bytes = 0;
    std::uint64_t used_ns = 0;
  };

  // An in-network packet in a frame.
  struct Arrival {
    std::uint32_t port;
    FramePtr& frame;
    std::uint64_t now_ns;
    innetwork::Address from;
    innetwork::Address to;
    innetwork::Packet packet;
    bool first_switch = false;          // of a query
    std::uint32_t leaves_by = kNoPort;  // of a notify; kNoPort: as any frame
  };

  void query(Arrival& arrival);
  void notify(Arrival& arrival);
  // By all links to spines but that of ordinary frames.
  void copy_to_spines(const Frame& frame, std::uint64_t now_ns);
  // Sends a frame by a port, after the time that the switch takes.
  void leave(std::uint32_t port, FramePtr frame, std::uint64_t now_ns);
  // Of the link inside that leads to it, or kNoPort.
  std::uint32_t port_of_spine(std::uint32_t address) const;
  // Writes the query or notify, whose bytes from BTH to the ICRC these are, as it is to leave.
  bool pass_on(Arrival& arrival, std::span<std::uint8_t> bytes);
  bool kill(Arrival& arrival);
  bool data(Arrival& arrival);
  bool result(Arrival& arrival);
  bool refusal(Arrival& arrival);

  static void add_member(Group& group, std::uint32_t number, std::uint32_t port,
                         innetwork::Address address);
  static void activate(Group& group);
  void release(std::map<Key, Group>::iterator group);
  void complete(const Key& key, Group& group, std::uint32_t sequence, std::uint64_t now_ns);
  void send_up(const Key& key, Group& group, std::uint32_t sequence, std::uint64_t now_ns);
  void send_result(const Key& key, Group& group, Member& member, std::uint32_t sequence,
                   std::uint64_t now_ns);
  void refuse(const Arrival& arrival, innetwork::Cause cause);
  void refuse_all(const Key& key, Group& group, std::uint32_t sequence, innetwork::Cause cause,
                  std::uint64_t now_ns);
  void acknowledge(const Arrival& arrival);
  // Makes a frame with these Ethernet addresses and sends it by a port.
  void send(std::uint32_t port, const std::uint8_t* ethernet, innetwork::Address from,
            innetwork::Address to, const innetwork::Packet& packet, std::uint64_t now_ns);
  std::uint32_t port_towards(const FramePtr& frame, std::uint64_t now_ns) const;

  Fabric& fabric_;
  std::uint32_t own_;
  ComputeSettings settings_;
  std::map<Key, Group> groups_;
  ComputeCounters counters_;
  Histogram waits_;
  std::size_t memory_bytes_ = 0;
  std::uint64_t next_look_ns_ = TimerWheel::kNever;
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_COMPUTE_H_
