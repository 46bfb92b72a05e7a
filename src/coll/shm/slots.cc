// Handing out the slots of the own region.

#include "coll/shm/slots.h"

#include <utility>

#include "coll/shm/slot_layout.h"

namespace od::coll::shm {

Slots::Slots(std::byte* region, const od::node::RegionLayout& layout)
    : region_(region), layout_(layout), slots_(layout.slot_count) {}

bool Slots::acknowledged(Slot& slot) {
  std::vector<Acknowledgement>& open = slot.acknowledgements;
  while (!open.empty()) {
    // Acquire: pairs with the release in Channel::complete(); the peer's reads come before what we
    // write next.
    if (open.back().completed->load(std::memory_order_acquire) < open.back().at_least) return false;
    open.pop_back();
  }
  open.shrink_to_fit();
  return true;
}

SlotLease Slots::allocate(std::uint32_t spare) {
  if (in_use_ + 1 + spare > count()) return {};
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.used || !acknowledged(slot)) continue;
    slot.used = true;
    ++in_use_;
    if (!slot.base_known) {
      // Relaxed: only the owner has written it. Zero in new memory; regions that a test uses twice
      // go on where they were.
      slot.base = slot_control(region_, layout_, i)->completed.load(std::memory_order_relaxed);
      slot.base_known = true;
    }
    return {i, slot.base};
  }
  return {};
}

void Slots::release(const SlotLease& lease, std::uint64_t exchanges,
                    std::vector<Acknowledgement> acknowledgements) {
  if (lease.slot == SlotLease::kNone) return;
  Slot& slot = slots_[lease.slot];
  slot.used = false;
  slot.base = lease.base + exchanges;
  slot.acknowledgements = std::move(acknowledgements);
  --in_use_;
}

}  // namespace od::coll::shm
