// Copies into memory that a peer reads, by the kind of stores that is quick there.
//
// Invariants:
//  - Only the speed depends on what is chosen. What was written past the caches is ordered before
//    whatever follows (memory/copy.h).
//  - A copy is timed only into memory that the peer has read before, and then made with ordinary
//    stores; see store_speed.h.
#ifndef OVERDRIVE_P2P_STORES_H_
#define OVERDRIVE_P2P_STORES_H_

#include <cstddef>
#include <cstdint>

#include "config/settings.h"
#include "observe/counters.h"
#include "p2p/link.h"

namespace od::p2p {

class Stores {
 public:
  Stores(const config::Settings& settings, observe::Counters& counters)
      : settings_(settings), counters_(counters) {}

  // Into cells or the peer's buffer, whose `speed` it is; true if it used non-temporal stores.
  // `seen`: the peer has read this memory before, so that the copy tells how fast stores are.
  bool copy(StoreSpeed& speed, void* to, const void* from, std::uint64_t bytes, bool seen);
  void copy_into_frame(Link& link, void* to, const void* from, std::uint64_t bytes, bool seen);
  // Into the receive buffer of the peer.
  void copy_to_peer(Link& link, std::byte* to, const char* from, std::uint64_t bytes);
  // Whether frames are a good place for long payload to this peer.
  bool frames_are_quick(Link& link) const;

 private:
  const config::Settings& settings_;
  observe::Counters& counters_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_STORES_H_
