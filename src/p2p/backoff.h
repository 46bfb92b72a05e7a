// Spares a rank searches that have just failed: after each search in vain twice as many are left
// out.
//
// A flood of messages that nobody receives makes every send look for memory that has become free; a
// full search then costs more with every message. Private to its owner.
#ifndef OVERDRIVE_P2P_BACKOFF_H_
#define OVERDRIVE_P2P_BACKOFF_H_

#include <algorithm>
#include <cstdint>

namespace od::p2p {

class Backoff {
 public:
  // Whether to search now.
  bool due() {
    if (left_out_ < skip_) {
      ++left_out_;
      return false;
    }
    left_out_ = 0;
    return true;
  }
  void found() { skip_ = 0; }
  void in_vain() { skip_ = std::min(2 * skip_ + 1, kMost); }

 private:
  // At most so many searches are left out in a row, so that memory is found again soon enough.
  static constexpr std::uint32_t kMost = 255;
  std::uint32_t skip_ = 0;
  std::uint32_t left_out_ = 0;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_BACKOFF_H_
