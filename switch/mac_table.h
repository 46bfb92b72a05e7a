// Which port of a switch a hardware address was last seen at.
//
// Bounded: when the table is full new addresses are not learned, and frames to them go to all
// ports, as in any switch. Entries that are not refreshed age out.
#ifndef OVERDRIVE_SWITCH_MAC_TABLE_H_
#define OVERDRIVE_SWITCH_MAC_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

namespace od::fabric {

// The 48 bits of a hardware address, first byte highest.
inline std::uint64_t read_mac(const std::uint8_t* bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < 6; ++i) value = value << 8 | bytes[i];
  return value;
}
// The lowest bit of the first byte: several receivers, or all.
inline bool is_group_address(std::uint64_t mac) { return (mac >> 40 & 1) != 0; }
// 01:80:c2:00:00:00 to 0f: protocols between neighbours, which no bridge passes on (IEEE 802.1Q).
inline bool is_link_local(std::uint64_t mac) { return mac >> 4 == 0x0180c200000; }

class MacTable {
 public:
  static constexpr std::size_t kMostEntries = 8192;
  static constexpr std::uint64_t kAgeNs = 300'000'000'000;  // as IEEE 802.1Q recommends

  void learn(std::uint64_t mac, std::uint32_t port, std::uint64_t now_ns);
  std::optional<std::uint32_t> find(std::uint64_t mac, std::uint64_t now_ns) const;
  void forget_port(std::uint32_t port);
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint32_t port;
    std::uint64_t seen_ns;
  };
  void age(std::uint64_t now_ns);

  std::unordered_map<std::uint64_t, Entry> entries_;
  std::uint64_t aged_ns_ = 0;
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_MAC_TABLE_H_
