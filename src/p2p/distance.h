// Whether a pair of ranks is near (shares a cache) or far, and how that knowledge is kept fresh.
//
// Only the choice of copy kernel depends on it, never correctness. It is measured once at start by
// bouncing a line, and re-measured for free while streaming: the time an ordinary copy into a cell
// takes tells the distance, because a far cell's lines come back several times more slowly. In the
// far state one cell in kTrialInterval is still written with ordinary stores to notice a change
// (virtual machines move their processors about).
#ifndef OVERDRIVE_P2P_DISTANCE_H_
#define OVERDRIVE_P2P_DISTANCE_H_

#include <cstdint>

#include "node/node.h"

namespace od::p2p {

class Distance {
 public:
  bool far() const { return far_; }
  void set(bool far) {
    far_ = far;
    votes_ = 0;
  }

  // Whether the next cell's copy should be timed, and (when far) made with ordinary stores.
  bool wants_sample() { return ++since_sample_ >= (far_ ? kTrialInterval : kSampleInterval); }

  // An ordinary copy of `bytes` into a cell took `ns`.
  void sample(std::uint64_t bytes, std::uint64_t ns) {
    since_sample_ = 0;
    if (ns == 0) return;
    const double rate = static_cast<double>(bytes) / static_cast<double>(ns);
    // Measured: near 12 to 45 bytes/ns, far 2.0 to 2.4. A preempted copy looks far as well, hence
    // several votes in a row.
    const bool looks_far = rate < kFarRate;
    if (looks_far == far_) {
      votes_ = 0;
    } else if (++votes_ >= (far_ ? 2 : 3)) {
      set(looks_far);
    } else {
      since_sample_ = kTrialInterval;  // ask again at once
    }
  }

 private:
  static constexpr std::uint32_t kSampleInterval = 8;
  static constexpr std::uint32_t kTrialInterval = 64;
  static constexpr double kFarRate = 5.0;

  bool far_ = false;
  std::uint32_t votes_ = 0;
  std::uint32_t since_sample_ = 0;
};

// Bounces a line between this rank and `peer_index` through the region of the lower of both;
// collective over the pair. Returns the one-way time in ns, or 0 when the peer did not answer.
double probe_line_ns(const node::Node& node, int peer_index);

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_DISTANCE_H_
