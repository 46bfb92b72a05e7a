// Acknowledgements and waking.

#include "coll/shm/channel.h"

#include <algorithm>

namespace od::coll::shm {

Channel::Channel(const std::vector<ChannelMember>& members, int me,
                 const od::node::RegionLayout& layout, od::node::WakeMode wake_mode, Lanes lanes)
    : me_(me),
      slot_bytes_(layout.slot_bytes),
      wake_mode_(wake_mode),
      lanes_(lanes),
      peers_(members.size()) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ChannelMember& member = members[i];
    Peer& p = peers_[i];
    p.slot = slot_start(member.region, layout, member.lease.slot);
    p.control = reinterpret_cast<SlotControl*>(p.slot);
    auto* const header = reinterpret_cast<od::node::RegionHeader*>(member.region);
    p.armed = &header->armed;
    p.away = &header->away;
    p.base = member.lease.base;
  }
}

int Channel::owner_of(const void* word) const {
  const auto* const at = static_cast<const std::byte*>(word);
  for (int i = 0; i < size(); ++i) {
    if (at >= slot(i) && at < slot(i) + slot_bytes_) return i;
  }
  return -1;
}

bool Channel::look_for_acknowledgement(std::uint64_t exchange) {
  awaits_acknowledgement_ = {};
  if (completed_ < exchange) return false;
  std::uint64_t least = completed_;
  std::atomic<std::uint32_t>& wants = peer(me_).control->wants_acks;
  for (int i = 0; i < size(); ++i) {
    if (i == me_) continue;
    Peer& p = peer(i);
    if (p.known_completed < exchange) {
      // Pairs with the release in complete().
      p.known_completed = p.control->completed.load(std::memory_order_acquire) - p.base;
      if (p.known_completed < exchange) {
        awaits_acknowledgement_ = {&p.control->completed, p.base + exchange};
        // Read after the store of `completed` by those whom anything_ready() would miss otherwise:
        // ordered by the barriers around the armed word.
        wants.store(1, std::memory_order_relaxed);
        return false;
      }
    }
    least = std::min(least, p.known_completed);
  }
  if (wants.load(std::memory_order_relaxed) != 0) wants.store(0, std::memory_order_relaxed);
  acknowledged_ = least;
  return true;
}

bool Channel::seems_acknowledged(std::uint64_t exchange) const {
  for (int i = 0; i < size(); ++i) {
    const Peer& p = peer(i);
    // Relaxed: a hint, on which nothing is overwritten.
    if (i != me_ && p.known_completed < exchange &&
        p.control->completed.load(std::memory_order_relaxed) - p.base < exchange) {
      return false;
    }
  }
  return true;
}

std::vector<Slots::Acknowledgement> Channel::acknowledgements() const {
  std::vector<Slots::Acknowledgement> result;
  for (int i = 0; i < size(); ++i) {
    if (i != me_) result.push_back({&peer(i).control->completed, peer(i).base + next_});
  }
  return result;
}

void Channel::mark_for_completed() {
  if (!completed_untold_) return;
  completed_untold_ = false;
  for (Peer& p : peers_) {
    if (p.wants_acknowledgement()) p.to_wake = true;
  }
}

void Channel::wake_marked() {
  for (int i = 0; i < size(); ++i) {
    Peer& p = peer(i);
    if (!p.to_wake) continue;
    p.to_wake = false;
    if (i != me_) wake_if_asleep(p);
  }
}

void Channel::wake_for_post() {
  order_for_sleepers();
  for (int i = 0; i < size(); ++i) {
    if (i != me_) wake_if_asleep(peer(i));
  }
}

void Channel::wake_for_completed() {
  completed_untold_ = false;
  order_for_sleepers();
  for (int i = 0; i < size(); ++i) {
    if (i != me_ && peer(i).wants_acknowledgement()) wake_if_asleep(peer(i));
  }
}

void Channel::wake_if_asleep(const Peer& p) {
  if (p.armed->load(std::memory_order_relaxed) == 0) return;
  ++wakes_;
  od::node::wake_slow(*p.armed);
}

}  // namespace od::coll::shm
