// A communicator's leaders and the switch between them that adds up what they send.
//
// The leaders, the first rank of each node, or with sockets as many of its first ranks as it has
// sockets, of which those of equal number belong together, make a group (or several) when the
// communicator's first collective that a switch could serve is called: all ranks exchange where the
// leaders are, these join the group, and all agree whether every one of them has. If not, they try
// again now and then: the switch may have been full or away. Then the switch takes part in the
// measurements (trial.h) of each collective and range of sizes. Now and then all agree whether the
// leaders still use the switch; if not, a new group is made, a few times. What the ranks of a node
// do before and after is in schedules, and so is what is done where the switch fails in the middle
// (StepKind::kElsewhere), on which the leaders agree among themselves (innetwork/leader.h); so
// ranks that are no leaders need not know.
//
// Used under the rank's lock, but for poll_join().
#ifndef OVERDRIVE_COLL_RUN_IN_NETWORK_H_
#define OVERDRIVE_COLL_RUN_IN_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coll/ops/kernels.h"
#include "coll/plan/hierarchy/nodes.h"
#include "coll/plan/schedule.h"
#include "coll/plan/shape.h"
#include "coll/run/call.h"
#include "innetwork/endpoint.h"
#include "observe/counters.h"

namespace od {

// Where the switch is.
struct SwitchPlace {
  enum class Kind : std::uint8_t { off, on_the_way, at_address };
  Kind kind = Kind::off;
  std::string interface;  // of packets to a switch on the way; empty: the first that is up
  innetwork::Address address;

  bool on() const { return kind != Kind::off; }
  // False if `text` is none; `reason` says why.
  static bool parse(std::string_view text, SwitchPlace& place, std::string& reason);
  // The address from which this host's packets go there; 0 if there is none.
  std::uint32_t own_ip() const;
};

// What a switch calls an operation of MPI on a type.
struct WireReduction {
  innetwork::Operation operation;
  innetwork::Type type;
};
// None: switches do not know it.
std::optional<WireReduction> wire_reduction(coll::ops::Kernel kernel);

// Whether a switch can do something for the call at all; the same on all ranks.
bool fits_switch(const CollectiveCall& call);

class InNetwork {
 public:
  // What each rank tells the others when a group is made. Those that do not lead say nothing.
  struct Claim {
    std::uint64_t key = 0;
    std::uint64_t job = 0;
    std::uint32_t group = 0;
    std::uint32_t ip = 0;
    std::uint16_t data_port = 0;
    std::uint16_t service_port = 0;
    std::uint32_t able = 0;
  };

  // `leaders` of each node, the first ones; fewer where a node has less ranks.
  InNetwork(const coll::Nodes& nodes, int rank, int leaders);
  int leaders() const { return leaders_; }
  bool is_leader() const { return slice_ < leaders_; }
  // The number of sockets that all nodes have, by the sockets of ranks as these see them; 1 where
  // nodes differ or do not know.
  static int common_sockets(std::span<const std::int32_t> socket_of_rank, const coll::Nodes& nodes);

  // At a leader: opens its sockets.
  Claim claim(const SwitchPlace& place, bool leads);
  // Whether all leaders are able, by what all have said, by rank.
  bool all_able(std::span<const Claim> claims, const coll::Nodes& nodes) const;
  // At a leader: begins to join, which is over when poll_join() says so.
  void begin_join(std::span<const Claim> claims, const coll::Nodes& nodes, int rank,
                  const SwitchPlace& place, std::uint64_t context, int world_rank);
  bool poll_join() { return endpoint_->poll(); }
  bool joined() { return endpoint_ != nullptr && endpoint_->joined(); }
  // What all have agreed on.
  void settle(bool ready);

  bool ready() const { return ready_; }
  bool leads() const { return endpoint_ != nullptr; }
  // Of a rank that does not lead, nothing is known.
  bool usable() const { return endpoint_ == nullptr || endpoint_->usable(); }

  // Counts a call that may be the switch's; true if it is time to agree whether the group lives, or
  // where there is none, to try once more.
  bool due_for_check() { return ++calls_ % kCallsPerCheck == 0; }

  // Starts a step at a leader; false: it has to be done otherwise, at all leaders.
  bool start(const coll::Step& step, const CollectiveCall& call, std::size_t units,
             std::size_t unit_bytes, const char* source, char* target);
  // True when the step has ended; then served() says how.
  bool poll() { return endpoint_->poll(); }
  bool served() const { return endpoint_->served(); }

  // No operation is under way at this leader: the switch may forget it. The endpoint goes on to
  // answer leaders that have not heard the end of their last operation.
  std::unique_ptr<innetwork::Endpoint> retire(observe::Counters& counters);

 private:
  static constexpr std::uint32_t kCallsPerCheck = 512;

  int leaders_;
  int slice_;  // this rank's place in its node: the slice that it leads, if it is a leader
  bool ready_ = false;
  std::uint32_t calls_ = 0;
  std::unique_ptr<innetwork::Endpoint> endpoint_;  // at leaders
  std::vector<std::uint8_t> aside_;
};

// Endpoints whose communicator is gone. Each has a thread and three descriptors, of which programs
// have a thousand: where there are many, no new group is made.
class RetiredEndpoints {
 public:
  static constexpr std::size_t kMost = 32;

  void add(std::unique_ptr<innetwork::Endpoint> endpoint);
  void clear() { entries_.clear(); }
  // Lets go of those that nobody asks any more; whether there may be more of them.
  bool room(std::uint64_t now_ns);

 private:
  // Leaders that have lost a result have asked for it long before.
  static constexpr std::uint64_t kKeptNs = 15'000'000'000;

  struct Entry {
    std::unique_ptr<innetwork::Endpoint> endpoint;
    std::uint64_t since_ns;
  };
  std::vector<Entry> entries_;  // oldest first
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_IN_NETWORK_H_
