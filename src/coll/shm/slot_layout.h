// A collective slot: the part of a rank's region through which one communicator's ranks on a node
// work together, and who writes what in it.
//
// Each member of a communicator has a slot of its own region for it. Only the owner writes to a
// slot; the others read. No word is ever cleared or reset, also when the slot goes to another
// communicator: tickets and step words only grow, so that a late look at an old word finds at least
// what it waits for and never something that looks like an earlier state.
//
//   control page   completed, wants_acks, and lanes; exchange n uses lane n % kLanes
//   lines          further posts where ranks share cores (Lanes), and cells for lines (line.h)
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

#include "base/round.h"
#include "node/region_layout.h"

namespace od::coll::shm {

// Raised when what members tell each other by a slot changes; equal on all ranks of a job.
inline constexpr std::uint32_t kSlotVersion = 4;
// Exchanges of one communicator that can be under way at once.
inline constexpr std::uint32_t kLanes = 8;
// Where ranks share cores (Lanes): posts that a member can show at once, and cells.
inline constexpr std::uint32_t kSharedCorePosts = 64;
inline constexpr std::uint32_t kSharedCoreCells = 16;
// What fits the post: the rest of its first line, and the second one, which prefetchers that take
// lines in pairs bring along.
inline constexpr std::size_t kInlineBytes = 112;
inline constexpr std::size_t kFirstLineBytes = 48;
// What a member can show at once, past the ring, where it has a core: larger blocks gain little.
inline constexpr std::size_t kLinesBytes = 4096;
// With more sources than these (a member counted) a reader asks for the lines of all before it
// looks at the first: of two it would only ask for what it waits for anyway.
inline constexpr int kFewSources = 3;
// Where a member has a core, now and then one of its longer exchanges has a line that was written
// just before the post: readers time it, because processors and programs move about.
inline constexpr std::uint64_t kTimedInterval = 8;
inline constexpr std::uint64_t kTimedMinBytes = 16 << 10;  // of such an exchange: some microseconds
// What precedes the ring of a slot.
inline constexpr std::size_t kLinesOffset = od::node::kPageBytes;
inline constexpr std::size_t kControlBytes = kLinesOffset + kLanes * kLinesBytes;

// Where the bytes are that a member shows to others.
enum class Way : std::uint8_t {
  nothing,  // the post is a signal only
  payload,  // in the post itself
  cells,    // in the ring of the member's slot, piece by piece
  direct,   // in its own buffer, in reachable memory
  message,  // sent to the one reader by the transport (carrier.h); `place` has its length only
};

// Two lines: what a member contributes to an exchange; the second only holds payload that the first
// has no room for. Written once per exchange by the owner; `ticket` is stored last (release).
struct Post {
  struct Place {
    std::uint64_t offset;  // cells: from the start of the slot; direct: in the reach file
    // Of the block, where there is one for all, or where blocks are equally long; of all blocks
    // together else.
    std::uint64_t bytes;
    std::uint64_t cell_bytes;   // cells: from one piece's place to the next one's
    std::uint64_t block_bytes;  // from one reader's block to the next one's (in a cell, or direct)
    std::uint32_t cells;        // how many pieces have a place of their own
    std::uint32_t filled;       // pieces that were there when this was posted
  };

  std::atomic<std::uint64_t> ticket;
  std::uint32_t completed;  // low half of SlotControl::completed at the time of posting
  Way way;
  bool awaits_readers;         // the owner waits for its readers' `read`
  bool table;                  // `offset` is that of a table with one TableEntry per member
  std::uint8_t payload_bytes;  // of the block, or of one of them
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
  return round_up(static_cast<std::uint64_t>(members) * sizeof(TableEntry), kFalseSharingBytes);
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
inline constexpr std::uint32_t kArrivals = 32;

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

// How many posts there are, how many cells of lines, and where: alike in all teams of a node, since
// further posts lie where others have cells.
//
// A member that only shows (the root of a broadcast, whoever contributes to a reduction) goes on
// until every post is in use; then all others must have had a core before it can show more. With a
// core for each rank that is soon, and few posts stay in the caches. Where ranks share cores it
// takes a switch for each of them, and the more calls share that cost the better.
//
// Step words need no more than kLanes: whoever shows more than so many exchanges later has told all
// there was to tell of the earlier one.
class Lanes {
 public:
  explicit constexpr Lanes(bool shared_cores)
      : posts_(shared_cores ? kSharedCorePosts : kLanes),
        cells_(shared_cores ? kSharedCoreCells : kLanes),
        cells_offset_(kLinesOffset + (posts_ - kLanes) * sizeof(Post)),
        cell_bytes_((kControlBytes - cells_offset_) / cells_ / kFalseSharingBytes *
                    kFalseSharingBytes) {}

  constexpr std::uint64_t posts() const { return posts_; }
  constexpr std::uint64_t cells() const { return cells_; }
  // What a member can show at once in a cell.
  constexpr std::uint64_t cell_bytes() const { return cell_bytes_; }
  // From the slot's start.
  constexpr std::uint64_t cell_offset(std::uint64_t number) const {
    return cells_offset_ + (number & (cells_ - 1)) * cell_bytes_;
  }
  Post& post(SlotControl* control, std::uint64_t number) const {
    const std::uint64_t index = number & (posts_ - 1);
    if (index < kLanes) return control->lanes[index].post;
    auto* const slot = reinterpret_cast<std::byte*>(control);
    return reinterpret_cast<Post*>(slot + kLinesOffset)[index - kLanes];
  }

 private:
  std::uint64_t posts_;
  std::uint64_t cells_;
  std::uint64_t cells_offset_;
  std::uint64_t cell_bytes_;
};
static_assert(kSharedCorePosts >= kLanes && (kSharedCorePosts & (kSharedCorePosts - 1)) == 0);
static_assert((kLanes & (kLanes - 1)) == 0 && (kSharedCoreCells & (kSharedCoreCells - 1)) == 0);
static_assert(Lanes(false).cell_offset(0) == kLinesOffset);
static_assert(Lanes(false).cell_bytes() == kLinesBytes);
static_assert(Lanes(true).cell_bytes() == 1536);

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
