// Whether a pair of ranks is near (shares a cache) or far, and how that knowledge is kept fresh.
//
// Only the choice of copy path depends on it, never correctness. It is measured once at start by
// bouncing a line, and re-measured for free in two ways (virtual machines move their processors
// about). While streaming, the time an ordinary copy into a cell takes tells the distance, because
// a far cell's lines come back several times more slowly; in the far state one cell in
// kTrialInterval is still written with ordinary stores to notice a change. Where the receiver reads
// the sender's buffer, the quickest answers to offers tell it: an answer takes two lines and some
// work. A receiver that was not waiting makes it later, so that near may look far; the copies that
// follow put that right, and after that the answers are not believed for a while.
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
      if (far_) doubtful_windows_ = kDoubtfulWindows;
      set(looks_far);
    } else {
      since_sample_ = kTrialInterval;  // ask again at once
    }
  }

  // An offer was answered `ns` after it was made; `far_line_ns` is what one line takes from which
  // on a pair counts as far.
  void sample_answer(std::uint64_t ns, std::uint64_t far_line_ns) {
    if (ns < quickest_ns_) quickest_ns_ = ns;
    if (++answers_ < kAnswers) return;
    const std::uint64_t far_ns = 2 * far_line_ns + kAnswerWorkNs;
    if (quickest_ns_ < far_ns) {
      far_ = false;
    } else if (doubtful_windows_ > 0) {
      --doubtful_windows_;
    } else if (quickest_ns_ < kLatestAnswerNs) {
      far_ = true;
    }
    answers_ = 0;
    quickest_ns_ = ~std::uint64_t{0};
  }

 private:
  // Of so many answers at least one found the receiver waiting, if it ever waits.
  static constexpr std::uint32_t kAnswers = 8;
  // Measured: the quickest of eight answers 190 to 260 ns near (a line 45), 560 to 700 far (240).
  static constexpr std::uint64_t kAnswerWorkNs = 150;
  // A sender that has just written a megabyte far away publishes its offer microseconds late; what
  // is later still tells nothing.
  static constexpr std::uint64_t kLatestAnswerNs = 10'000;
  static constexpr std::uint32_t kDoubtfulWindows = 64;
  static constexpr std::uint32_t kSampleInterval = 8;
  static constexpr std::uint32_t kTrialInterval = 64;
  static constexpr double kFarRate = 5.0;

  bool far_ = false;
  std::uint32_t votes_ = 0;
  std::uint32_t since_sample_ = 0;
  std::uint32_t answers_ = 0;
  std::uint32_t doubtful_windows_ = 0;
  std::uint64_t quickest_ns_ = ~std::uint64_t{0};
};

// Bounces a line between this rank and `peer_index` through the region of the lower of both;
// collective over the pair. Returns the one-way time in ns, or 0 when the peer did not answer.
double probe_line_ns(const node::Node& node, int peer_index);

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_DISTANCE_H_
