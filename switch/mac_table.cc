// Learns where hardware addresses are.
#include "switch/mac_table.h"

namespace od::fabric {

void MacTable::learn(std::uint64_t mac, std::uint32_t port, std::uint64_t now_ns) {
  if (is_group_address(mac) || mac == 0) return;  // no sender has such an address
  const auto found = entries_.find(mac);
  if (found != entries_.end()) {
    found->second = {port, now_ns};
    return;
  }
  if (entries_.size() >= kMostEntries) age(now_ns);
  if (entries_.size() < kMostEntries) entries_.emplace(mac, Entry{port, now_ns});
}

std::optional<std::uint32_t> MacTable::find(std::uint64_t mac, std::uint64_t now_ns) const {
  const auto found = entries_.find(mac);
  if (found == entries_.end() || now_ns - found->second.seen_ns > kAgeNs) return std::nullopt;
  return found->second.port;
}

void MacTable::forget_port(std::uint32_t port) {
  std::erase_if(entries_, [port](const auto& item) { return item.second.port == port; });
}

// At most once a second, so that a flood of addresses does not make every frame a search.
void MacTable::age(std::uint64_t now_ns) {
  if (now_ns - aged_ns_ < 1'000'000'000) return;
  aged_ns_ = now_ns;
  std::erase_if(entries_,
                [now_ns](const auto& item) { return now_ns - item.second.seen_ns > kAgeNs; });
}

}  // namespace od::fabric
