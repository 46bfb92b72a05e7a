// Memory of a node in which whoever comes first to a broadcast leaves it for those who come later.
//
// One area per communicator and node, in slots that the node's lowest rank has leased (slots.h).
// All members of the node read and write it. Broadcasts have numbers, the same on all ranks.
//
//   claim    The first member to arrive sets the entry's `claim` from the number that it had to its
//            own by compare-exchange; it *owns* the entry. In the root's node that is the root.
//   place    The owner finds room for the segments in the ring of cells and says how they are cut.
//   publish  It counts the segments in `made` as they arrive.
//   took     Every member, the owner too, says so once when it reads no more of them; the cells and
//            the entry serve again when all have.
//
//   give     The other way round, members count in `given` that they have left segments of theirs.
//   carry    One bit of `given` says whether a member is passing them on.
//
// Words only grow, but for `given`, which an owner begins anew: an entry's `taken` counts all
// broadcasts that it has served. What an owner
// writes without order (`begin`, `end`, `bytes`, `segment_bytes`) is published by `made`; the next
// owner has seen that, because every member takes part in every broadcast.
#ifndef OVERDRIVE_COLL_SHM_ARRIVAL_AREA_H_
#define OVERDRIVE_COLL_SHM_ARRIVAL_AREA_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "node/region_layout.h"

namespace od::coll::shm {

class ArrivalArea {
 public:
  static constexpr std::uint32_t kMostSlots = 4;
  static constexpr std::uint32_t kEntries = 8;  // broadcasts that some member has not taken yet
  static constexpr std::uint64_t kCellBytes = 64 << 10;

  // Which slots of the leasing rank; what it tells the others.
  struct Lease {
    std::uint32_t count = 0;
    std::array<std::uint32_t, kMostSlots> slots{};
  };
  // Cells of so many slots.
  static std::uint64_t cells_in(const od::node::RegionLayout& layout, std::uint32_t slots);
  // Segments of one length for which they have room, when nothing else is there.
  static std::uint64_t segments_in(const od::node::RegionLayout& layout, std::uint32_t slots,
                                   std::uint64_t segment_bytes);
  // Makes the slots an empty area; by the rank that has leased them, before it tells anybody.
  static void clear(std::byte* region, const od::node::RegionLayout& layout, const Lease& lease);
  // Counts the members that have left: what must be seen before a slot serves again.
  static const std::atomic<std::uint64_t>& left(std::byte* region,
                                                const od::node::RegionLayout& layout,
                                                std::uint32_t slot);

  // `region` is that of the rank that has leased the slots.
  ArrivalArea(std::byte* region, const od::node::RegionLayout& layout, const Lease& lease,
              std::uint32_t members);

  std::uint64_t cells() const { return cells_; }

  enum class Claim : std::uint8_t {
    mine,    // this member owns it now
    others,  // another one does
    wait,    // somebody has not taken the broadcast that the entry served before
  };
  Claim claim(std::uint64_t number);
  // By the owner, before publish(): room for `bytes` in segments, each of which lies in cells one
  // behind the other. False: not before others have taken what is there.
  bool place(std::uint64_t number, std::uint64_t bytes, std::uint64_t segment_bytes) {
    if (!reserve(number, bytes, segment_bytes)) return false;
    publish(number, 0);
    return true;
  }
  // The same, but others do not see it before publish().
  bool reserve(std::uint64_t number, std::uint64_t bytes, std::uint64_t segment_bytes);
  void publish(std::uint64_t number, std::uint64_t segments);
  void took(std::uint64_t number);
  // Of a broadcast's mirror, in which members leave segments and one of them reads: a member has
  // left its own; returns how many have. What they have left is seen by who counts, or looks.
  std::uint64_t give(std::uint64_t number);
  std::uint64_t given(std::uint64_t number) const;
  // Where members pass on what others give: true if nobody did so and this member does now. It sees
  // what those have done that have stopped.
  bool carry(std::uint64_t number);
  // It has seen that so many have given. False: more have meanwhile, and it has to go on.
  bool stop_carrying(std::uint64_t number, std::uint64_t seen);

  struct Seen {
    bool placed = false;
    std::uint64_t segments = 0;  // that are there
    std::uint64_t bytes = 0;     // of all
    std::uint64_t segment_bytes = 0;
  };
  Seen look(std::uint64_t number) const;
  // Another number when there is more to see of a broadcast, or of what stands in its way.
  std::uint64_t changes(std::uint64_t number) const;
  // Of a broadcast that has been placed.
  std::byte* segment(std::uint64_t number, std::uint64_t index) const;

  // This member uses the area no more.
  void leave();

 private:
  struct Entry {
    alignas(kFalseSharingBytes) std::atomic<std::uint64_t> claim;  // number + 1 of its broadcast
    // number + 1, and segments that are there.
    alignas(kFalseSharingBytes) std::atomic<std::uint64_t> made;
    std::atomic<std::uint64_t> begin, end;  // cells, counted since the area was made
    std::atomic<std::uint64_t> bytes, segment_bytes;
    alignas(kFalseSharingBytes) std::atomic<std::uint64_t> taken;
    std::atomic<std::uint64_t> given;
  };
  struct Control {
    alignas(kFalseSharingBytes) std::atomic<std::uint64_t> left;
    Entry entries[kEntries];  // of the first slot only
  };
  static_assert(sizeof(Control) <= od::node::kPageBytes);

  static Control* control(std::byte* region, const od::node::RegionLayout& layout,
                          std::uint32_t slot);
  Entry& entry(std::uint64_t number) const {
    return control(region_, layout_, lease_.slots[0])->entries[number % kEntries];
  }
  // The first cell, counted since the area was made, of a segment of so many, where the first
  // segment begins with cell `begin` or the first one that suits: no segment lies in two slots.
  std::uint64_t cell_of(std::uint64_t begin, std::uint64_t index, std::uint64_t cells_each) const;
  // `taken` when everybody has taken what the entry has served up to this broadcast.
  std::uint64_t taken_by_all(std::uint64_t number) const {
    return (number / kEntries + 1) * members_;
  }

  std::byte* region_;
  od::node::RegionLayout layout_;
  Lease lease_;
  std::uint32_t members_;
  std::uint64_t cells_per_slot_;
  std::uint64_t cells_;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_ARRIVAL_AREA_H_
