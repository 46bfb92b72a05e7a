// The memory a rank shares with its node: what lies where in the rank's memfd, and who writes it.
//
// One region per rank, created by that rank (the *owner*), mapped read-write by every local peer.
//   RegionHeader   one page and a bit: identity, wait word, inbox, doorbells
//   fast boxes     one ring per local peer, in the receiver's region: peer i writes box i, the
//                  owner reads it (p2p/fast_box.h)
//   releases       one byte per cell allocation: written by whoever has read the cell, with a value
//                  that alternates from use to use (p2p/cell_pool.h)
//   envelopes      message descriptors of the owner's sends that do not fit a box (p2p/envelope.h)
//   cell pool      payload on its way, written by the owner, read by receivers
//   frames         payload to and fro, one per neighbour, written by either side (p2p/frames.h)
//   slots          collectives inside the node: one slot per communicator, written by the owner,
//                  read by peers (coll/shm/slot_layout.h); sparse
//   buffers        self-buffered payload; sparse, grows to the buffer limit
// Every offset is relative to the region's start. A peer's offset or length is never used without a
// bounds check against the sizes that were verified when the region was joined.
#ifndef OVERDRIVE_NODE_REGION_LAYOUT_H_
#define OVERDRIVE_NODE_REGION_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/line_sizes.h"

namespace od::node {

inline constexpr std::size_t kPageBytes = 4096;
// What precedes the long payload of an exchange frame: its head line and short payload.
inline constexpr std::size_t kFrameHeadBytes = kPageBytes;
// Most ranks of one node that can share; the doorbell bitmap and the inbox links are sized by it.
inline constexpr std::uint32_t kMaxLocalRanks = 1024;

inline constexpr std::uint64_t kRegionMagic = 0x6f76657264726976;  // "overdriv"
inline constexpr std::uint32_t kRegionVersion = 10;

// Where the parts of one region are; equal on all ranks of a job by construction, verified on join.
struct RegionLayout {
  std::uint64_t total_bytes = 0;  // size of the memfd (sparse) and of every mapping of it
  std::uint64_t boxes_offset = 0;
  std::uint64_t box_bytes = 0;  // per peer
  std::uint32_t box_count = 0;  // local ranks
  std::uint32_t release_count = 0;
  std::uint64_t releases_offset = 0;
  std::uint64_t envelopes_offset = 0;
  std::uint64_t envelope_count = 0;
  std::uint64_t pool_offset = 0;
  std::uint64_t pool_bytes = 0;
  std::uint64_t frames_offset = 0;
  std::uint64_t frame_bytes = 0;  // long payload of each, behind its head page
  std::uint64_t frame_count = 0;
  std::uint64_t slots_offset = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slot_count = 0;
  std::uint64_t buffers_offset = 0;
  std::uint64_t buffers_bytes = 0;
};

// Instead of a call that a rank has come to (RegionHeader::entered): its threads may be in several.
inline constexpr std::uint64_t kSeveralEntries = ~std::uint64_t{0};

enum class RankPhase : std::uint32_t { joining = 0, running = 1, finalizing = 2, left = 3 };

struct RegionHeader {
  // Identity: written by the owner before the memfd is handed over, constant afterwards.
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t nonce[2];
  std::int32_t world_rank;
  std::uint32_t pid;
  RegionLayout layout;

  // How far the owner is (RankPhase), by which peers tell one that has left from one that has died.
  alignas(kFalseSharingBytes) std::atomic<std::uint32_t> phase;
  // Which collective call of the host the owner has come to, 0: none (engine/host_entry.cc). Read
  // by ranks that wait for the owner to come to it; pairs with their acquire load.
  std::atomic<std::uint64_t> entered;

  // Wait word. `armed` is written by the owner just before it sleeps and read by every sender after
  // it has published (see node/wait.h for the pairing); the first sender that sees 1 swaps it to 0
  // and wakes the futex.
  alignas(kFalseSharingBytes) std::atomic<std::uint32_t> armed;
  // Whether the owner has given its core away while it waits: written by the owner around yields
  // and sleeps where ranks share cores, read by ranks that wait for it (node/wait.h). Only a hint.
  std::atomic<std::uint32_t> away;

  // Inbox: newest envelope as ((node index + 1) << 48 | offset); producers push with
  // compare-exchange, the owner detaches the whole list with one exchange. Envelopes of the owner
  // itself are calls of receivers that have come (p2p/envelope.h).
  alignas(kFalseSharingBytes) std::atomic<std::uint64_t> inbox;

  // Doorbells: bit i set by peer i, once, before its first fast-box message; read by the owner.
  alignas(kFalseSharingBytes) std::atomic<std::uint64_t> box_doorbells[kMaxLocalRanks / 64];
  // How many boxes have been opened towards the owner; peers stop at the limit (fetch_add).
  std::atomic<std::uint32_t> boxes_opened;

  // Distance probe: two lines that a pair of ranks bounces at start; the store of each pairs with
  // the other rank's load (p2p/distance.h).
  alignas(kFalseSharingBytes) std::atomic<std::uint32_t> probe_ping;
  alignas(kFalseSharingBytes) std::atomic<std::uint32_t> probe_pong;

  // Bit i set by the peer at position i of the join when it has mapped the owner's reach file; read
  // by the owner after the exchange that ends the join.
  alignas(kFalseSharingBytes) std::atomic<std::uint64_t> reached_by[kMaxLocalRanks / 64];
  // Likewise when it has opened the owner's address space.
  alignas(kFalseSharingBytes) std::atomic<std::uint64_t> opened_by[kMaxLocalRanks / 64];

  // Message blocks of the owner's arena that other ranks were the last to use (smpi/block.h): the
  // offset of the newest, 0: none. Peers push with compare-exchange, the owner detaches the list.
  alignas(kFalseSharingBytes) std::atomic<std::uint64_t> returned_blocks;
};

static_assert(std::is_standard_layout_v<RegionHeader>);
static_assert(sizeof(std::atomic<std::uint64_t>) == 8 && sizeof(std::atomic<std::uint32_t>) == 4);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(offsetof(RegionHeader, layout) == 40);
static_assert(offsetof(RegionHeader, phase) == 256);
static_assert(offsetof(RegionHeader, entered) == 264);
static_assert(offsetof(RegionHeader, armed) == 384);
static_assert(offsetof(RegionHeader, inbox) == 512);
static_assert(offsetof(RegionHeader, box_doorbells) == 640);
static_assert(offsetof(RegionHeader, probe_ping) == 896 &&
              offsetof(RegionHeader, probe_pong) == 1024);
static_assert(sizeof(RegionHeader) <= kPageBytes);

}  // namespace od::node

#endif  // OVERDRIVE_NODE_REGION_LAYOUT_H_
