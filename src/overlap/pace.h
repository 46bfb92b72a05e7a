// How much may be under way from one rank to another, beside the few pieces that always are.
//
// Hosts ask the receiver before they send a longer message, and neither side answers before it
// looks again. So with little under way a fast link is idle for most of the time; with much, pieces
// share a slow link, and none is there before the others. What has travelled in the time that such
// an answer takes is enough: it follows from how fast the last calls were. A rank's own business.
#ifndef OVERDRIVE_OVERLAP_PACE_H_
#define OVERDRIVE_OVERLAP_PACE_H_

#include <algorithm>
#include <cstdint>

namespace od::overlap {

class Pace {
 public:
  // A call that moved so much between nodes.
  void took(std::int64_t bytes, std::uint64_t ns) {
    if (bytes < kLeastBytes || ns == 0) return;
    const auto now = std::min(static_cast<double>(bytes) / static_cast<double>(ns), kMostPerNs);
    const double kept = bytes_per_ns_ == 0 ? 0 : now > bytes_per_ns_ ? 1 : kKeptOfFaster;
    bytes_per_ns_ = (kept * bytes_per_ns_ + now) / (kept + 1);
  }
  // To all other nodes together; 0: nothing is known.
  std::int64_t under_way_bytes() const {
    return static_cast<std::int64_t>(bytes_per_ns_ * static_cast<double>(kAnswerNs));
  }

 private:
  // Question and answer, each of which an agent may not see for some quarters of a millisecond.
  static constexpr std::uint64_t kAnswerNs = 1'000'000;
  static constexpr std::int64_t kLeastBytes = 64 << 10;  // of shorter ones latency is most
  // A slow call may have waited for other ranks or for a core.
  static constexpr double kKeptOfFaster = 7;
  static constexpr double kMostPerNs = 1000;

  double bytes_per_ns_ = 0;
};

}  // namespace od::overlap

#endif  // OVERDRIVE_OVERLAP_PACE_H_
