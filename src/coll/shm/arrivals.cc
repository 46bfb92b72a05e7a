// When members came to a collective: for statistics only.

#include <algorithm>

#include "coll/shm/channel.h"

namespace od::coll::shm {

void Channel::note_arrival(std::uint64_t number, std::uint64_t ns) {
  const std::uint64_t ticket = this->ticket(me_, number);
  Arrival& mine = peer(me_).control->arrivals[ticket % kArrivals];
  // Relaxed: whoever sees the old ticket, or the new one with the old time, has come too early and
  // finds out by looking at the ticket again.
  mine.ticket.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  mine.ns.store(ns, std::memory_order_relaxed);
  // Release: pairs with the acquire in arrivals_apart().
  mine.ticket.store(ticket, std::memory_order_release);
}

bool Channel::arrivals_apart(std::uint64_t number, std::uint64_t* ns) const {
  std::uint64_t first = ~std::uint64_t{0};
  std::uint64_t last = 0;
  for (int i = 0; i < size(); ++i) {
    const std::uint64_t ticket = this->ticket(i, number);
    const Arrival& arrival = peer(i).control->arrivals[ticket % kArrivals];
    if (arrival.ticket.load(std::memory_order_acquire) != ticket) return false;
    const std::uint64_t at = arrival.ns.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence above
    if (arrival.ticket.load(std::memory_order_relaxed) != ticket) return false;
    first = std::min(first, at);
    last = std::max(last, at);
  }
  *ns = last - first;
  return true;
}

}  // namespace od::coll::shm
