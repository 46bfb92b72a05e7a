// One leader of a group: joins it, sends contributions, takes results, and settles what was lost.
//
// A state machine without sockets and clocks: packets and times are given to it, and what it sends
// goes to a callback. Not thread safe.
//
// Life: begin() -> joining -> ready (start() -> busy -> ready ...) or failed.
//
// When a result does not come, the leaders settle it among themselves, without the switch:
//   - a leader that gives up takes nothing from the switch any more and asks all others;
//   - one that has finished the operation answers with its result, which it keeps until the next;
//   - one that has not promises to take nothing from the switch any more either, and asks, too.
// If one has the result, it becomes everybody's. If all others have promised, nobody has it and
// nobody can get it: all fail, and compute the operation over the host MPI. So all leaders come to
// the same end, and never does a part of them use the sum of the switch and the rest another one.
// After that the group is abandoned: each leader begins its next operation by settling, since
// others may not know of it yet and would wait for its values, and all compute over the host MPI
// for ever.
#ifndef OVERDRIVE_INNETWORK_LEADER_H_
#define OVERDRIVE_INNETWORK_LEADER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "innetwork/packet.h"

namespace od::innetwork {

// Where a leader is: at `data` it talks with switches, at `service` other leaders reach it.
struct Peer {
  Address data;
  Address service;
  bool operator==(const Peer&) const = default;
};

struct LeaderSettings {
  std::uint32_t group = 0;
  std::uint64_t key = 0;
  std::uint64_t job = 0;
  std::uint32_t communicator = 0;
  std::uint32_t world_rank = 0;
  std::uint16_t index = 0;    // of this leader; 0 is the root leader
  std::vector<Peer> leaders;  // all, by index
  // Where packets for the switch go: to the switch itself, or (ip 0) to the root leader, on whose
  // way there is one.
  Address to_switch;
  bool reliable = false;  // RC packets instead of UD
  std::uint32_t window = 16;
  std::uint32_t payload_bytes = 1024;
  std::uint64_t retry_ns = 1'000'000;  // first; doubled with each try
  std::uint64_t longest_retry_ns = 16'000'000;
  std::uint64_t join_ns = 500'000'000;  // most for joining
  // Without progress of an operation, and with kLeastTries in vain.
  std::uint64_t give_up_ns = 200'000'000;
  std::uint64_t settle_ns = 10'000'000'000;  // most for settling, if somebody does not answer
};

struct LeaderCounters {
  std::uint64_t sent = 0;
  std::uint64_t repeated = 0;
  std::uint64_t results = 0;
  std::uint64_t unexpected = 0;  // late, repeated, forged
  std::uint64_t settled_with_result = 0;
  std::uint64_t settled_over_host = 0;
};

class Leader {
 public:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  enum class State : std::uint8_t { idle, joining, ready, busy, settling, failed };
  // `service`: by the socket for other leaders.
  using Send = std::function<void(Address to, const Packet& packet, bool service)>;

  Leader(LeaderSettings settings, Send send);

  void begin(std::uint64_t now_ns);
  // Begins an operation of all leaders: false if that is not possible here (too long, not
  // supported, failed before) and the host has to compute it. `in` and `out` may be the same and
  // stay the caller's until the state is ready (out holds the result) or failed (out is as it was,
  // unless it is in).
  bool start(Operation operation, Type type, std::size_t count, const void* in, void* out,
             std::uint64_t now_ns);
  void receive(const Packet& packet, Address from, std::uint64_t now_ns);
  void advance(std::uint64_t now_ns);
  std::uint64_t next_due_ns() const { return due_ns_; }
  // Tells the switches that this leader has no more use for the group.
  void leave();

  State state() const { return state_; }
  Cause cause() const { return cause_; }
  bool abandoned() const { return abandoned_; }
  const LeaderCounters& counters() const { return counters_; }
  std::uint32_t window() const { return window_; }
  std::uint32_t payload_bytes() const { return payload_bytes_; }
  // Bytes of one operation that the window and the space for kept results permit.
  static constexpr std::size_t kMostBytes = 64 << 10;
  // Who is advanced too seldom to have asked a switch says nothing about it: it may have to say
  // that others are late, which it does only when asked.
  static constexpr std::uint32_t kLeastTries = 4;

 private:
  // Of another leader: as it has come by each spine, or by none.
  struct Query {
    std::vector<ControlHeader> ways;
    ControlHeader control;  // the one that counts, once it is decided
  };
  // More are not compared. A lab or a row of racks has less.
  static constexpr std::size_t kMostSpines = 16;
  // When one query of each leader is there, so long for those that come by other spines.
  static constexpr std::uint64_t kCollectNs = 200'000;

  bool is_root() const { return settings_.index == 0; }
  Packet packet_of(Kind kind) const;
  Address switch_address() const;
  void send_query(std::uint64_t now_ns);
  void take_query(const Packet& packet, std::uint64_t now_ns);
  std::uint32_t choose_spine() const;
  void decide();
  void send_notify(std::size_t index);
  void take_notify(const Packet& packet);
  void fail(Cause cause);

  std::size_t values_in(std::uint32_t packet) const;
  void send_data(std::uint32_t packet);
  void fill_window(std::uint64_t now_ns);
  void hears_of_switch(std::uint64_t now_ns);
  bool gives_up(std::uint64_t now_ns);
  void take_result(const Packet& packet, std::uint64_t now_ns);
  void finish();

  void settle(std::uint64_t now_ns);
  void ask(std::uint64_t now_ns);
  void take_ask(const Packet& packet, Address from, std::uint64_t now_ns);
  void take_answer(const Packet& packet, std::uint64_t now_ns);

  LeaderSettings settings_;
  Send send_;
  State state_ = State::idle;
  Cause cause_ = Cause::none;
  bool abandoned_ = false;
  LeaderCounters counters_;
  std::uint64_t due_ns_ = kNever;
  std::uint64_t retry_ns_ = 0;
  std::uint32_t tries_in_vain_ = 0;  // of an operation, since it last got on
  bool asks_anew_ = false;           // has begun these tries again, after not having looked
  std::uint64_t deadline_ns_ = 0;

  // Joining.
  std::vector<Query> queries_;  // at the root leader
  bool collecting_ = false;
  bool decided_ = false;
  ControlHeader agreed_;
  std::vector<std::uint16_t> members_at_;  // at the root leader: leaders at the same first switch
  std::uint16_t tors_ = 0;
  std::uint32_t window_ = 0;
  std::uint32_t payload_bytes_ = 0;

  // The operation.
  ValuesHeader values_;
  std::size_t count_ = 0;
  std::size_t width_ = 0;
  std::size_t per_packet_ = 0;
  std::uint32_t base_ = 0;  // number of its first packet
  std::uint32_t packets_ = 0;
  std::uint32_t sent_ = 0;     // of its packets, from the first on
  std::uint32_t missing_ = 0;  // results
  std::vector<bool> arrived_;
  std::vector<std::uint8_t> in_;  // a copy: the caller's may be the result buffer
  std::vector<std::uint8_t> result_;
  std::uint8_t* out_ = nullptr;

  // The last finished operation, for those that have lost its result.
  ValuesHeader kept_values_;
  std::vector<std::uint8_t> kept_;
  std::uint32_t kept_base_ = 0;
  std::uint32_t kept_packets_ = 0;
  std::size_t kept_per_packet_ = 0;

  // Settling.
  std::vector<bool> promised_;
  std::size_t holder_ = 0;  // who has the result; the own index: nobody so far
};

}  // namespace od::innetwork

#endif  // OVERDRIVE_INNETWORK_LEADER_H_
