// A collective slot: the part of a rank's region through which one communicator's ranks on a node
// work together, and who writes what in it.
//
// Each member of a communicator has a slot of its own region for it. Only the owner writes to a
// slot; the others read. No word is ever cleared or reset, also when the slot goes to another
// communicator: tickets and step words only grow, so that a late look at an old word finds at least
// what it waits for and never something that looks like an earlier state.
//
//   control page   completed, wants_acks, and kLanes lanes; exchange n uses lane n % kLanes
//   lines          a cell of kLinesBytes for each lane (line.h)
//   ring           payload and tables of exchanges under way (slot_ring.h)
//
// Exchange n of a member has the ticket base + n + 1; `base` is where the member's slot stood when
// the communicator got it (slots.h).
#ifndef OVERDRIVE_COLL_SHM_SLOT_LAYOUT_H_
#define OVERDRIVE_COLL_SHM_SLOT_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "node/region_layout.h"

namespace od::coll::shm {

// Exchanges of one communicator that can be under way at once.
inline constexpr std::uint32_t kLanes = 8;
// What fits the post: the rest of its first line, and the second one, which prefetchers that take
// lines in pairs bring along.
inline constexpr std::size_t kInlineBytes = 112;
inline constexpr std::size_t kFirstLineBytes = 48;
// What a member can show at once, past the ring: larger blocks gain little by it.
inline constexpr std::size_t kLinesBytes = 4096;
// With more sources than these (a member counted) a reader asks for the lines of all before it
// looks at the first: of two it would only ask for what it waits for anyway.
inline constexpr int kFewSources = 3;
// What precedes the ring of a slot.
inline constexpr std::size_t kLinesOffset = od::node::kPageBytes;
inline constexpr std::size_t kControlBytes = kLinesOffset + kLanes * kLinesBytes;

// Where the bytes are that a member shows to others.
enum class Way : std::uint8_t {
  nothing,  // the post is a signal only
  payload,  // in the post itself
  cells,    // in the ring of the member's slot, piece by piece
  direct,   // in its own buffer, in reachable memory
};

// Two lines: what a member contributes to an exchange; the second only holds payload that the first
// has no room for. Written once per exchange by the owner; `ticket` is stored last (release).
struct Post {
  struct Place {
    std::uint64_t offset;  // cells: from the start of the slot; direct: in the reach file
    std::uint64_t bytes;   // of the block, where there is one for all; of all blocks together else
    std::uint64_t cell_bytes;   // cells: from one piece's place to the next one's
    std::uint64_t block_bytes;  // from one reader's block to the next one's (in a cell, or direct)
    std::uint32_t cells;        // how many pieces have a place of their own
    std::uint32_t filled;       // pieces that were there when this was posted
  };

  std::atomic<std::uint64_t> ticket;
  std::uint32_t completed;  // low half of SlotControl::completed at the time of posting
  Way way;
  bool awaits_readers;  // the owner waits for its readers' `read`
  bool table;           // `offset` is that of a table with one TableEntry per member
  std::uint8_t payload_bytes;
  union {
    Place place;
    std::byte payload[kInlineBytes];
  };
};
static_assert(sizeof(Post) == kFalseSharingBytes);
static_assert(offsetof(Post, payload) + kFirstLineBytes == kLineBytes);
static_assert(offsetof(Post, payload) == 16);  // reductions want aligned elements

struct TableEntry {
  std::uint64_t offset;  // direct: of this reader's block in the reach file
  std::uint64_t bytes;
};

// What a table of so many members takes; cells follow it.
constexpr std::uint64_t table_bytes(int members) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(members) * sizeof(TableEntry);
  return (bytes + kFalseSharingBytes - 1) / kFalseSharingBytes * kFalseSharingBytes;
}

// Step words hold a ticket and a number of steps, of which all count once the last one is there.
inline constexpr unsigned kStepBits = 24;
inline constexpr std::uint64_t kAllSteps = (std::uint64_t{1} << kStepBits) - 1;
constexpr std::uint64_t step_word(std::uint64_t ticket, std::uint64_t steps) {
  return ticket << kStepBits | steps;
}

struct Lane {
  alignas(kFalseSharingBytes) Post post;
  // Step word: pieces that are in the cells.
  alignas(kFalseSharingBytes) std::atomic<std::uint64_t> made;
  // Step word: pieces of its sources that the owner has read; kAllSteps: it reads no more.
  alignas(kFalseSharingBytes) std::atomic<std::uint64_t> read;
};

// When the owner was called for the operation whose first exchange has this ticket; for statistics.
struct Arrival {
  std::atomic<std::uint64_t> ticket;  // stored last (release)
  std::atomic<std::uint64_t> ns;      // of the node's monotonic clock
};
inline constexpr std::uint32_t kArrivals = 8;

struct SlotControl {
  // All exchanges of the owner with a ticket up to this one are over: it reads nothing of them any
  // more. Later exchanges of the others may overwrite what these showed.
  alignas(kFalseSharingBytes) std::atomic<std::uint64_t> completed;
  // Not 0 while the owner may sleep until somebody's `completed` grows.
  alignas(kFalseSharingBytes) std::atomic<std::uint32_t> wants_acks;
  Lane lanes[kLanes];
  alignas(kFalseSharingBytes) Arrival arrivals[kArrivals];
};
static_assert(std::is_standard_layout_v<SlotControl>);
static_assert(sizeof(Lane) == 384);
static_assert(offsetof(SlotControl, wants_acks) == 128);
static_assert(offsetof(SlotControl, lanes) == 256);
static_assert(sizeof(SlotControl) <= kLinesOffset);
static_assert(kControlBytes % od::node::kPageBytes == 0);

inline std::byte* slot_start(std::byte* region, const od::node::RegionLayout& layout,
                             std::uint32_t slot) {
  return region + layout.slots_offset + slot * layout.slot_bytes;
}
inline SlotControl* slot_control(std::byte* region, const od::node::RegionLayout& layout,
                                 std::uint32_t slot) {
  return reinterpret_cast<SlotControl*>(slot_start(region, layout, slot));
}

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_SLOT_LAYOUT_H_
