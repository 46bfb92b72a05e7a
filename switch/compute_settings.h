// What the compute unit of a switch may use, and what it is in the tree of switches.
#ifndef OVERDRIVE_SWITCH_COMPUTE_SETTINGS_H_
#define OVERDRIVE_SWITCH_COMPUTE_SETTINGS_H_

#include <cstddef>
#include <cstdint>

namespace od::fabric {

struct ComputeSettings {
  std::uint32_t address = 0;  // by which packets name this switch
  bool spine = false;         // switches are below it, not leaders
  std::uint32_t window = 16;  // packets on the way at once, a power of two
  std::uint32_t payload_bytes = 1024;
  std::size_t most_groups = 256;
  std::size_t most_members = 512;           // of a group
  std::size_t memory_bytes = 64 << 20;      // for all groups
  std::uint64_t lease_ns = 60'000'000'000;  // an unused group is freed after this
  bool operator==(const ComputeSettings&) const = default;
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_COMPUTE_SETTINGS_H_
