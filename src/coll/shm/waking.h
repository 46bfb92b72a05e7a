// Which members the news of an exchange may concern.
//
// With a core for each rank everybody whom news may concern is woken at once: hardly anybody ever
// sleeps. With more ranks than cores a member that waits for several others would be woken by each
// of them; there it is woken by the one that finds that nothing is missing any more. Of several who
// publish at the same time, the fence (Channel::order_for_sleepers) lets at least one see what all
// have published.
#ifndef OVERDRIVE_COLL_SHM_WAKING_H_
#define OVERDRIVE_COLL_SHM_WAKING_H_

#include "coll/shm/channel.h"
#include "coll/shm/exchange.h"

namespace od::coll::shm {

// Marks those who may wait for this member's post (to be called after order_for_sleepers()).
void mark_readers(Channel& channel, const ExchangeSpec& spec, const Seat& seat,
                  std::uint64_t number);
// Marks all whom an exchange's news may concern, and forgets the news.
void mark_for_news(Channel& channel, Exchange& x);

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_WAKING_H_
