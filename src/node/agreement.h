// Who stays in a node when some pairs of candidates could not map each other.
//
// Every candidate reports whom it could not map; all compute the same set of survivors from the
// same reports. Among survivors every pair has mapped each other, in both directions.
#ifndef OVERDRIVE_NODE_AGREEMENT_H_
#define OVERDRIVE_NODE_AGREEMENT_H_

#include <cstdint>
#include <vector>

namespace od::node {

// One rank's report, exchanged as bytes; all zero from a rank that is no candidate of anything.
struct MapReport {
  static constexpr int kMostNamed = 14;
  std::uint16_t took_part;              // 0: could not even make its own region
  std::uint16_t failures;               // how many could not be mapped; more than kMostNamed: many
  std::uint16_t positions[kMostNamed];  // which, by position in the group
};
static_assert(sizeof(MapReport) == 32);

// One flag per position: whether that candidate stays. Those with the most failures go first, so
// that one bad candidate does not cost the others.
std::vector<bool> survivors(const std::vector<MapReport>& reports);

}  // namespace od::node

#endif  // OVERDRIVE_NODE_AGREEMENT_H_
