// Which slots of the own region are in use: one per communicator that works in shared memory.
//
// A slot that is given back is used again only when every member of the old communicator has said
// that all its exchanges are over, so nobody still reads in it. Numbers go on where they stopped:
// see slot_layout.h.
#ifndef OVERDRIVE_COLL_SHM_SLOTS_H_
#define OVERDRIVE_COLL_SHM_SLOTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "node/region_layout.h"

namespace od::coll::shm {

// A slot in use; what a member tells the others before the first exchange.
struct SlotLease {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t slot = kNone;
  std::uint64_t base = 0;
};

class Slots {
 public:
  // What has to be seen in a peer's slot before one's own is used again.
  struct Acknowledgement {
    const std::atomic<std::uint64_t>* completed;
    std::uint64_t at_least;
  };

  // `region` is the start of the own region. No slot is touched before it is handed out: each would
  // cost a page and a page of the page table, and most programs use one or two.
  Slots(std::byte* region, const od::node::RegionLayout& layout);

  // The lowest free slot, so that few of them are ever touched; kNone if there is none, or if fewer
  // than `spare` would be left for others.
  SlotLease allocate(std::uint32_t spare = 0);
  // After `exchanges` of the communicator: those that the acknowledgements are about.
  void release(const SlotLease& lease, std::uint64_t exchanges,
               std::vector<Acknowledgement> acknowledgements);

  std::uint32_t count() const { return static_cast<std::uint32_t>(slots_.size()); }
  std::uint32_t in_use() const { return in_use_; }

 private:
  struct Slot {
    bool used = false;
    bool base_known = false;  // read when the slot is handed out for the first time
    std::uint64_t base = 0;
    std::vector<Acknowledgement> acknowledgements;  // empty: free
  };
  static bool acknowledged(Slot& slot);

  std::byte* region_;
  od::node::RegionLayout layout_;
  std::vector<Slot> slots_;
  std::uint32_t in_use_ = 0;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_SLOTS_H_
