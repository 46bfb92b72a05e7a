// Whether a cache line is long on its way between two ranks' cores (far), and how that is kept
// fresh.
//
// Only the choice of copy path depends on it, never correctness. The distance is measured at start
// by bouncing a line, and again for free while messages move (virtual machines move their
// processors about): a receiver times the first load from a cell that the sender has just written
// and tells the sender; where no cells are used, the quickest answers to offers tell it. Longer
// collectives have a line of their own for that (coll/shm/slot_layout.h). What
// ordinary stores cost is another matter: see store_speed.h.
#ifndef OVERDRIVE_P2P_DISTANCE_H_
#define OVERDRIVE_P2P_DISTANCE_H_

#include <cstdint>

#include "node/node.h"

namespace od::p2p {

class Distance {
 public:
  bool far() const { return far_; }
  // From the probe at start.
  void set(bool far) { far_ = far; }
  // For measurements, which know the distance better: it stays until the next call.
  void fix(bool far) {
    far_ = far;
    fixed_ = true;
  }

  // Whether the receiver should time a line of the next cell.
  bool wants_line() { return ++since_line_ >= kLineInterval; }
  // A load of a line that the other side had just written took `ns`; a pair is far from
  // `far_line_ns` on. The quickest of several counts: interruptions only add.
  void sample_line(std::uint64_t ns, std::uint64_t far_line_ns) {
    since_line_ = 0;
    lines_.add(ns);
    if (lines_.count < kLines) return;
    note(lines_.take() >= far_line_ns);
  }
  // An offer was answered `ns` after it was made.
  void sample_answer(std::uint64_t ns, std::uint64_t far_line_ns) {
    answers_.add(ns);
    if (answers_.count < kAnswers) return;
    const std::uint64_t far_ns = 2 * far_line_ns + kAnswerWorkNs;
    const std::uint64_t quickest = answers_.take();
    // Later than any distance explains: nobody was waiting.
    if (quickest < kLatestAnswer * far_ns) note(quickest >= far_ns);
  }

 private:
  struct Quickest {
    std::uint32_t count = 0;
    std::uint64_t ns = ~std::uint64_t{0};
    void add(std::uint64_t sample) {
      ++count;
      if (sample < ns) ns = sample;
    }
    std::uint64_t take() {
      const std::uint64_t result = ns;
      *this = {};
      return result;
    }
  };

  void note(bool looks_far) {
    if (looks_far == far_) {
      changes_ = 0;
    } else if (++changes_ >= kChanges && !fixed_) {
      far_ = looks_far;
      changes_ = 0;
    }
  }

  // Verdicts in a row that it takes to believe a change. A line that a prefetcher has fetched, or a
  // wait that happened to be over, makes a far pair look near once in a while; another set of
  // thresholds and of learnt paths for the next 32 messages costs more than to notice a change so
  // much later.
  static constexpr std::uint32_t kChanges = 2;
  static constexpr std::uint32_t kLineInterval = 8;
  static constexpr std::uint32_t kLines = 4;
  // Of so many answers at least one found the receiver waiting, if it ever waits.
  static constexpr std::uint32_t kAnswers = 8;
  // Measured: the quickest of eight answers 90 to 130 ns with a line of 42 ns, 330 to 530 with 195.
  static constexpr std::uint64_t kAnswerWorkNs = 40;
  static constexpr std::uint64_t kLatestAnswer = 6;

  bool far_ = false;
  bool fixed_ = false;
  std::uint8_t changes_ = 0;
  std::uint32_t since_line_ = 0;
  Quickest lines_;
  Quickest answers_;
};

// Nanoseconds that a load of the line at `address` takes.
std::uint64_t time_line(const void* address);

// Bounces a line between this rank and `peer_index` through the region of the lower of both;
// collective over the pair. Returns the one-way time in ns, or 0 when the peer did not answer.
double probe_line_ns(const node::Node& node, int peer_index);

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_DISTANCE_H_
