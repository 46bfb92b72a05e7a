// The ranks that share this node's memory: joining, their regions, and whether they still live.
//
// join() is collective over the job (it calls the exchange functions it is given, blocking). Two
// ranks are local if and only if each has mapped the other's region and read the other's nonce
// through the mapping, whatever their host names say; locality is made transitive by agreement: a
// rank that could not map every candidate of its group leaves the group, for everybody. Nothing has
// a name in a file system, so nothing is left behind after any kind of end.
#ifndef OVERDRIVE_NODE_NODE_H_
#define OVERDRIVE_NODE_NODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "node/reach_file.h"
#include "node/region_layout.h"
#include "node/wait.h"

namespace od::node {

// What joining needs from the job: both collective over all ranks, 0 on success.
struct Exchange {
  int rank = 0;
  int size = 1;
  int (*allgather)(const void* send, void* recv, std::size_t bytes_per_rank) = nullptr;
  int (*barrier)() = nullptr;
};

// Sizes asked for; the join may shrink buffers_bytes (ulimit -v, ulimit -f, many ranks), and when
// that is not enough leave out the collective slots, then the frames, then shrink the pool.
struct RegionRequest {
  std::uint64_t box_bytes = 8192;
  std::uint32_t release_count = 4096;
  std::uint64_t envelope_bytes = 256;
  std::uint64_t envelope_count = 4096;
  std::uint64_t pool_bytes = 2u << 20;
  std::uint64_t frame_bytes = 256u << 10;
  std::uint32_t frame_count = 16;  // at most one per other rank is made
  std::uint64_t slot_bytes = 4u << 20;
  std::uint32_t slot_count = 64;
  std::uint64_t node_slots_bytes = std::uint64_t{4} << 30;  // of all ranks together, if touched
  std::uint64_t buffers_bytes = 1u << 30;
};

// A rank's whole address space, which peers may open beside what it shares (memory/space.h).
struct SpaceOffer {
  std::int64_t id = 0;             // 0: none
  std::uint64_t* proof = nullptr;  // own memory outside of everything shared, for the nonce
  // Opens a peer's space after having found its nonce at `proof`, an address of the peer: a handle,
  // or 0. Null: this rank opens nobody's.
  std::int64_t (*open)(std::int64_t id, std::uint64_t proof, const std::uint64_t* nonce) = nullptr;
  void (*close)(std::int64_t handle) = nullptr;
};

struct JoinOptions {
  RegionRequest region;
  std::string test_remote;         // pairs of world ranks that are treated as not local, or "all"
  ReachFile reach;                 // what peers may map of this process beside its region
  SpaceOffer space;                // and what they may open
  bool disabled = false;           // take part in the exchanges but share nothing
  bool look_for_crowding = false;  // find out what Node::crowding() tells
  std::uint32_t version = kRegionVersion;  // ranks of different versions never share
};

struct Member {
  int world_rank = -1;
  std::uint32_t pid = 0;      // in the member's own pid namespace
  std::byte* base = nullptr;  // start of its region in this process
  RegionHeader* header = nullptr;
  int pidfd = -1;                // for liveness where /proc does not show the member, else -1
  long pidfd_shows = 0;          // pid in its fdinfo when it was opened
  std::uint64_t start_time = 0;  // of the process, as /proc shows it; 0: /proc is no help
  // Reachable memory: the member's reach file in this process, null when it shares nothing or could
  // not be mapped here. Offsets that it tells have to be checked against reach_bytes.
  std::byte* reach = nullptr;
  std::uint64_t reach_bytes = 0;
  // Whether the member has mapped this process's reach file, so that offsets mean something to it.
  bool reaches_us = false;
  // The member's address space, as SpaceOffer::open has returned it; 0: not open here. Whether the
  // member has opened ours.
  std::int64_t space = 0;
  bool opens_us = false;
};

class Node {
 public:
  // Never fails: without any sharing the node has one member, this process (whose region may then
  // be private memory), and why() says for `overdrive info` and verbosity 1 what was missing.
  static std::unique_ptr<Node> join(const Exchange& exchange, const JoinOptions& options);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  int my_index() const { return my_index_; }
  const Member& member(int index) const { return members_[static_cast<std::size_t>(index)]; }
  // Node index of a world rank, or -1.
  int index_of(int world_rank) const {
    return world_rank < 0 || static_cast<std::size_t>(world_rank) >= index_of_world_rank_.size()
               ? -1
               : index_of_world_rank_[static_cast<std::size_t>(world_rank)];
  }
  // Whether the test setting separates two world ranks: they are to be treated as if on different
  // nodes. Symmetric, and equal on all ranks.
  bool separated(int a, int b) const;
  // Like index_of, but false for ranks that the test setting separates from this one.
  bool local(int world_rank) const {
    return index_of(world_rank) >= 0 &&
           !separated(members_[static_cast<std::size_t>(my_index_)].world_rank, world_rank);
  }
  const RegionLayout& layout() const { return layout_; }
  const std::string& why() const { return why_; }
  // Why the reach file of some member is not mapped here; empty when all that exist are.
  const std::string& reach_why() const { return reach_why_; }

  // Whether the member's process has ended (checked through pidfd or /proc, 10 to 20 us; cheap
  // enough for every 100 ms, not for every poll). A member that has left in order (phase `left`) is
  // not dead.
  bool dead(int index) const;

  // Gives the physical memory of the whole pages within [offset, offset + bytes) of the own region
  // back to the system; they read as zero afterwards.
  void punch(std::uint64_t offset, std::uint64_t bytes);

  // More ranks than usable cores on this node (affinity masks of all ranks, cgroup quota).
  bool oversubscribed() const { return oversubscribed_; }
  // What is wrong with the places of the node's ranks, a sentence each; on its first rank only.
  const std::vector<std::string>& crowding() const { return crowding_; }
  // How publishers and sleepers of this node are ordered; equal on all members.
  WakeMode wake_mode() const { return wake_mode_; }

 private:
  friend class Joiner;
  Node() = default;
  std::vector<Member> members_;
  std::vector<std::int32_t> index_of_world_rank_;
  std::vector<std::pair<int, int>> separated_;  // sorted, first < second
  bool all_separated_ = false;
  RegionLayout layout_;
  int my_index_ = 0;
  bool oversubscribed_ = false;
  WakeMode wake_mode_;
  std::string why_;
  std::string reach_why_;
  std::vector<std::string> crowding_;
};

}  // namespace od::node

#endif  // OVERDRIVE_NODE_NODE_H_
