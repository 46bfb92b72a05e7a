// How the context of a communicator is computed from what all its members know.
#ifndef OVERDRIVE_P2P_CONTEXT_H_
#define OVERDRIVE_P2P_CONTEXT_H_

#include <cstdint>

namespace od {

// Contexts of the two communicators every job starts with.
inline constexpr std::uint64_t kWorldContext = 0x576f726c64000001;
inline constexpr std::uint64_t kSelfContext = 0x53656c6600000001;

// A bijective mix (the finaliser of splitmix64).
inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline std::uint64_t combine(std::uint64_t a, std::uint64_t b) { return mix(a ^ mix(b)); }

// The communicator that the `sequence`-th constructor called on `parent` made around the group
// whose lowest world rank is `lowest` (disjoint groups of one split differ in it).
inline std::uint64_t child_context(std::uint64_t parent, std::uint64_t sequence, int lowest) {
  return combine(combine(parent, sequence), static_cast<std::uint64_t>(lowest));
}

}  // namespace od

#endif  // OVERDRIVE_P2P_CONTEXT_H_
