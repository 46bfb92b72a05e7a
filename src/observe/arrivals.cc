// Keeps the arrivals of a process, under a lock that two threads seldom want at once.
#include "observe/arrivals.h"

#include <algorithm>
#include <mutex>

namespace od::observe {
namespace {

constexpr std::uint64_t kLater = 0x4c61746572;

// Finaliser of murmur3: each bit of the number changes half of those that decide.
std::uint64_t hash(std::uint64_t number) {
  number ^= number >> 33;
  number *= 0xff51afd7ed558ccdu;
  number ^= number >> 33;
  number *= 0xc4ceb9fe1a85ec53u;
  return number ^ (number >> 33);
}

constinit std::mutex mutex;
std::vector<ArrivalStream>& streams() {
  // Never destroyed: other threads may still be in calls when the process ends.
  static auto* made = new std::vector<ArrivalStream>;
  return *made;
}

}  // namespace

bool ArrivalStream::keeps(std::uint64_t number) const {
  return (hash(number) & ((std::uint64_t{1} << halvings_) - 1)) == 0;
}

void ArrivalStream::keep(const Arrival& arrival) {
  kept_.push_back(arrival);
  while (kept_.size() > kMostKept) thin(halvings_ + 1);
}

void ArrivalStream::thin(unsigned halvings) {
  if (halvings <= halvings_) return;
  halvings_ = halvings;
  std::erase_if(kept_, [this](const Arrival& each) { return !keeps(each.number); });
}

void note_arrival(const ArrivalPlace& place, std::uint32_t function, std::uintptr_t address,
                  std::uint64_t ns) {
  const std::uint64_t id = place.blocks ? place.context : hash(place.context ^ kLater);
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<ArrivalStream>& all = streams();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const ArrivalStream& s) { return s.id() == id; });
  if (found != all.end()) {
    found->add(function, address, ns);
  } else if (all.size() < kMostStreams) {
    all.emplace_back(id, place.ranks).add(function, address, ns);
  }
}

std::vector<ArrivalStream> all_arrivals() {
  const std::lock_guard<std::mutex> lock(mutex);
  return streams();
}

}  // namespace od::observe
