// The unbounded list through which any rank can hand a message to a rank without waiting for room.
//
// Treiber stack of envelopes: producers push with compare-exchange, the owner takes everything with
// one exchange and reverses it, so per-producer order is kept and there is no ABA problem (nothing
// is ever popped singly). A producer links its envelope before it becomes visible; a producer that
// is preempted anywhere therefore hides nobody's messages, unlike with a queue whose tail is
// swapped before the link is written.
//   push: compare-exchange release     pairs with the acquire of detach()
//   detach: exchange acquire
#ifndef OVERDRIVE_P2P_INBOX_H_
#define OVERDRIVE_P2P_INBOX_H_

#include <atomic>
#include <cstdint>

#include "p2p/envelope.h"

namespace od::p2p {

inline void inbox_push(std::atomic<std::uint64_t>& inbox, Envelope& envelope, std::uint64_t link) {
  std::uint64_t head = inbox.load(std::memory_order_relaxed);
  do {
    // Relaxed: published by the release of the exchange below, which pairs with inbox_detach.
    envelope.next.store(head, std::memory_order_relaxed);
  } while (!inbox.compare_exchange_weak(head, link, std::memory_order_release,
                                        std::memory_order_relaxed));
}

// Whether anything waits; relaxed because detach() acquires.
inline bool inbox_waiting(const std::atomic<std::uint64_t>& inbox) {
  return inbox.load(std::memory_order_relaxed) != 0;
}

// Takes the whole list, newest first; the caller follows Envelope::next and reverses.
inline std::uint64_t inbox_detach(std::atomic<std::uint64_t>& inbox) {
  return inbox.exchange(0, std::memory_order_acquire);  // pairs with inbox_push
}

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_INBOX_H_
