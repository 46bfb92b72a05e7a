// Which tags the messages of collectives between nodes have in the host, on a communicator's hidden
// duplicate.
//
// A message of a collective has the first tag of its call plus its ordinal in the schedule. Two
// calls with the same first tag are told apart by the order in which each rank sends and receives
// alone: the later one may start its messages on a rank when the earlier one is complete there.
// What has an order of its own (blocking calls, each channel of non-blocking ones, each persistent
// call) has a range of its own, so that no message meets one of another order.
#ifndef OVERDRIVE_COLL_RUN_HOST_TAGS_H_
#define OVERDRIVE_COLL_RUN_HOST_TAGS_H_

#include <cstdint>

#include "coll/plan/schedule.h"

namespace od {

class HostTags {
 public:
  // Non-blocking calls of a communicator that may be under way between nodes at the same time.
  static constexpr std::uint32_t kChannels = 4;

  // `mask`: the highest tag of the host, all of whose bits are set; at least 32767, as MPI says.
  explicit HostTags(std::int32_t mask = 0x7fff)
      : mask_(mask), calls_((static_cast<std::uint32_t>(mask) + 1) / coll::kMostOrdinals) {}

  std::int32_t mask() const { return mask_; }

  // The first tag of a blocking call, which block and follow each other.
  std::int32_t blocking(std::uint64_t sequence) const {
    const std::uint32_t calls = calls_ / 4;
    return first_of(calls_ - calls + static_cast<std::uint32_t>(sequence % calls));
  }
  // Of the calls of a channel.
  std::int32_t channel(std::uint32_t number) const { return first_of(number); }
  // Of a persistent call, by how many were made before it. False: so many have no tags.
  bool persistent(std::uint64_t number, std::int32_t* first) const {
    if (number >= calls_ - calls_ / 4 - kChannels) return false;
    *first = first_of(kChannels + static_cast<std::uint32_t>(number));
    return true;
  }

 private:
  static std::int32_t first_of(std::uint32_t call) {
    return static_cast<std::int32_t>(call * coll::kMostOrdinals);
  }

  std::int32_t mask_;
  std::uint32_t calls_;  // first tags that there are
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_HOST_TAGS_H_
