// What happens to a frame on its way out of a port: rate, queue, latency, and faults for tests.
//
// A link is a calculation, not a queue: the frame's end of transmission follows from that of the
// frame before it, and the frames themselves wait in the timer wheel. A long frame that stands for
// a train of segments takes the time of all of them and arrives with the last. Faults come from a
// generator with a seed of its own per link: the same frames in the same order meet the same fate.
#ifndef OVERDRIVE_SWITCH_LINK_H_
#define OVERDRIVE_SWITCH_LINK_H_

#include <cstdint>

#include "switch/frame.h"

namespace od::fabric {

struct LinkSettings {
  std::uint64_t rate_bits = 0;  // per second; 0: no limit
  std::uint64_t latency_ns = 0;
  std::uint64_t queue_bytes = 1 << 20;  // waiting for transmission, at a limited rate
  double loss = 0;                      // shares of frames, from 0 to 1
  double receive_loss = 0;              // of those that come in
  double duplication = 0;
  double reordering = 0;
  double corruption = 0;               // one bit is turned over
  std::uint64_t reorder_ns = 100'000;  // longest additional delay of a frame that is reordered
  bool operator==(const LinkSettings&) const = default;
};

enum class Fate : std::uint8_t { sent, lost, queue_full };

// Numbers of chance by one word of state (SplitMix64): fabrics are made by the million under a
// fuzzer.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t mixed = (state_ ^ state_ >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return mixed ^ mixed >> 31;
  }
  // True in `share` of all cases.
  bool hits(double share) {
    return share > 0 && static_cast<double>(next() >> 11) * 0x1p-53 < share;
  }

 private:
  std::uint64_t state_;
};

class Link {
 public:
  explicit Link(std::uint64_t seed = 1) : chance_(seed) {}

  void set(const LinkSettings& settings) { settings_ = settings; }
  const LinkSettings& settings() const { return settings_; }
  bool has_faults() const {
    return settings_.loss > 0 || settings_.duplication > 0 || settings_.reordering > 0 ||
           settings_.corruption > 0;
  }

  struct Passage {
    Fate fate = Fate::sent;
    std::uint64_t due_ns = 0;       // when the frame has arrived at the other end
    bool twice = false;             // and once more, at the same time
    bool overtaken = false;         // delayed beyond its turn
    std::uint64_t corrupt_bit = 0;  // one more than the bit to turn over; 0: none
  };
  // Decides whether a frame that comes in gets lost.
  bool lost_on_arrival() { return chance_.hits(settings_.receive_loss); }
  // Decides the fate of a frame that is ready to leave at `ready_ns`.
  Passage pass(const Frame& frame, std::uint64_t ready_ns);

  // Bytes that a frame takes on the wire: preamble, checksum, gap, and headers of each segment.
  static std::uint64_t wire_bytes(const Frame& frame);

 private:
  std::uint64_t transmission_ns(std::uint64_t bytes) const {
    return bytes * 8 * 1'000'000'000 / settings_.rate_bits;
  }

  LinkSettings settings_;
  std::uint64_t busy_until_ns_ = 0;
  Chance chance_;
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_LINK_H_
