// Whether ordinary stores into memory that a peer has read are slow, learnt from timed copies.
//
// On some machines they are quick even between far cores, on others they crawl: nothing that is
// known beforehand tells it. Some copies are timed; where stores are slow, now and then one is made
// all the same, to notice a change (virtual machines move their processors about).
#ifndef OVERDRIVE_P2P_STORE_SPEED_H_
#define OVERDRIVE_P2P_STORE_SPEED_H_

#include <cstdint>

namespace od::p2p {

class StoreSpeed {
 public:
  // Bytes per ns. Into cells, measured with a line of 45 ns: 12 to 120; of 190 ns: 20 to 50 on one
  // machine, with 240 ns on another 2.0 to 2.4, where non-temporal stores are twice as fast in the
  // end. Into a buffer that the peer sends back 4 to 6 there, and non-temporal ones 16.
  static constexpr std::uint64_t kSlowInCells = 5;
  static constexpr std::uint64_t kSlowInBuffers = 8;

  explicit StoreSpeed(std::uint64_t slow_rate = kSlowInCells) : slow_rate_(slow_rate) {}
  // What to believe until copies have shown otherwise; the next copy is timed.
  void assume(bool slow) {
    slow_ = slow;
    since_sample_ = kTrialInterval;
  }
  bool slow() const { return slow_; }
  // Whether the next copy should be timed, and made with ordinary stores.
  bool wants_sample() { return ++since_sample_ >= interval(); }
  // The same for those who only ask.
  bool due() const { return since_sample_ + 1 >= interval(); }
  // An ordinary copy of `bytes` into memory that the peer has read before took `ns`.
  void sample(std::uint64_t bytes, std::uint64_t ns) {
    since_sample_ = 0;
    if (ns == 0) return;
    // A preempted copy looks slow as well, hence several votes in a row. In integers: a message
    // must not raise floating-point flags.
    const bool looks_slow = bytes / slow_rate_ < ns;
    if (looks_slow == slow_) {
      votes_ = 0;
    } else if (++votes_ >= (slow_ ? 2 : 3)) {
      slow_ = looks_slow;
      votes_ = 0;
    } else {
      since_sample_ = kTrialInterval;  // ask again at once
    }
  }

 private:
  static constexpr std::uint32_t kSampleInterval = 8;
  static constexpr std::uint32_t kTrialInterval = 64;

  std::uint32_t interval() const { return slow_ ? kTrialInterval : kSampleInterval; }

  std::uint64_t slow_rate_;
  bool slow_ = false;
  std::uint32_t votes_ = 0;
  std::uint32_t since_sample_ = 0;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_STORE_SPEED_H_
