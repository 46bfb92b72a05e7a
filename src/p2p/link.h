// What a rank knows about one peer: where its memory lies, its fast box, and what has been learnt
// about it.
//
// Invariants:
//  - The box may be used only while direct() holds: no listed message of ours may be one that the
//    peer has not taken yet (Outbox says why).
//  - What the peer cannot do (`offers_declined`, `kernel_refused`, `opens_us` gone) stays so: it
//  has
//    been tried. What it is slow at (`late_receives`, the store speeds) may change again.
// Private to the rank; of the peer's memory only `armed`, the box and the inbox are written here.
#ifndef OVERDRIVE_P2P_LINK_H_
#define OVERDRIVE_P2P_LINK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "node/region_layout.h"
#include "p2p/distance.h"
#include "p2p/envelope.h"
#include "p2p/fast_box.h"
#include "p2p/store_speed.h"

namespace od::p2p {

struct Link {
  BoxProducer box;
  Envelope* last_listed = nullptr;  // newest message on the peer's inbox list, if maybe untaken
  // See Outbox::list_drains: listed messages that are done, what had been seen of the receiver's
  // work when it was last waited for in vain, and how often the list was in the way.
  std::uint64_t listed_given_back = 0;
  std::uint64_t stuck_at = std::numeric_limits<std::uint64_t>::max();
  std::uint8_t posts_behind_list = 0;
  std::atomic<std::uint32_t>* armed = nullptr;
  node::RegionHeader* header = nullptr;
  std::byte* base = nullptr;
  std::atomic<std::uint8_t>* releases = nullptr;
  std::byte* reach = nullptr;  // the peer's shared memory of its program, if it is mapped
  std::uint64_t reach_bytes = 0;
  bool reaches_us = false;  // the peer has mapped ours
  bool opens_us = false;    // the peer has opened our address space, and could attach so far
  Distance distance;
  StoreSpeed cell_stores;
  // Into the peer's own buffers, which it reads and writes itself: nothing that is written in
  // rotation, as cells are, tells what that costs.
  StoreSpeed buffer_stores{StoreSpeed::kSlowInBuffers};
  StoreSpeed frame_stores;  // into frames that have come back
  bool box_refused = false;
  bool offers_declined = false;      // the peer cannot read our memory
  bool kernel_refused = false;       // process_vm_readv of the peer is not permitted
  std::uint8_t late_receives = 0;    // how often, of late, an offer had to be withdrawn
  std::uint8_t offers_left_out = 0;  // since the peer is known to be late

  // Whether to let the peer read our buffer. Waiting for a receiver that is usually late is in
  // vain; now and then it is tried again.
  bool offer_worthwhile() {
    if (offers_declined) return false;
    return late_receives < kLateReceives || ++offers_left_out % kOfferInterval == 0;
  }
  // An offer had to be withdrawn, or was taken in time.
  void note_late() {
    if (late_receives < kLateReceives) ++late_receives;
  }
  void note_in_time() { late_receives = static_cast<std::uint8_t>(late_receives / 2); }

  // Whether the box may be used now without overtaking a listed message.
  bool direct() {
    if (last_listed == nullptr) [[likely]]
      return box.open();
    return listed_taken();
  }
  bool listed_taken() {
    // Acquire: pairs with the receiver's release in take_listed.
    if (last_listed->taken.load(std::memory_order_acquire) != last_listed->generation) {
      return false;
    }
    last_listed = nullptr;
    return box.open();
  }
  // A message on the peer's list is done, which implies that it has been taken.
  void note_done(const Envelope* listed) {
    if (last_listed == listed) last_listed = nullptr;
  }

  void set_distance(bool far) {
    distance.set(far);
    cell_stores.assume(far);
    buffer_stores.assume(far);
    frame_stores.assume(false);
  }

 private:
  static constexpr std::uint8_t kLateReceives = 3;
  static constexpr std::uint8_t kOfferInterval = 16;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_LINK_H_
