// Measures whether Overdrive or the host serves a collective of one size faster, by letting both do
// it in turn inside the running program, and lets the faster one go on.
//
// Calls of the same collective, kind of operation and range of sizes on one communicator are
// counted; MPI makes their number equal on all ranks, so whose turn it is follows from the number
// alone. After kQuiet calls, in which nothing is measured so that programs with few calls pay
// nothing, blocks of kBlock calls alternate; the first call of each block is not measured, since it
// still feels the other's. Before a verdict the ranks add up their times (the caller does that, by
// a collective of its own); so all come to the same one. Two blocks are enough where every call of
// one was clearly shorter than each of the other, otherwise two more follow. Whoever serves, at
// first Overdrive, goes on unless the other one is faster by more than three percent and than twice
// the noise. Both are measured again after kAgain calls, then 16 times as many, and so on: machines
// and programs change.
//
// What is measured is the time inside the call, on all ranks together: who waits for a late rank
// waits as long with either, and a root that leaves early is paid for by nobody.
#ifndef OVERDRIVE_COLL_RUN_TRIAL_H_
#define OVERDRIVE_COLL_RUN_TRIAL_H_

#include <array>
#include <cstdint>
#include <span>

namespace od {

class Trial {
 public:
  enum class Turn : std::uint8_t { own, host };
  // What takes the host's turns: the host, or another algorithm of Overdrive.
  enum class Rival : std::uint8_t { host, first_arrival };

  explicit Trial(Rival rival = Rival::host) : rival_(rival) {}
  Rival rival() const { return rival_; }

  static constexpr int kQuiet = 8;
  static constexpr int kBlock = 4;
  static constexpr int kMeasured = kBlock - 1;  // of a block
  static constexpr int kBlocks = 4;             // own, host, host, own
  static constexpr std::uint64_t kAgain = 4096;

  // Who serves the next call.
  Turn turn() const {
    if (!measuring()) return winner_;
    const int block = position() / kBlock;
    return block == 0 || block == 3 ? Turn::own : Turn::host;
  }
  // Whether the next call belongs to a measurement.
  bool measuring() const { return calls_ >= begins_; }

  // The call has ended after so many nanoseconds on this rank. True: samples() must be added up
  // over all ranks, and judge() be called, before the next call.
  bool took(std::uint64_t ns);
  // What this rank has measured since the last addition: nanoseconds of each call.
  std::span<std::int64_t> samples() {
    const std::size_t half = samples_.size() / 2;
    return std::span(samples_).subspan(position() > 2 * kBlock ? half : 0, half);
  }
  // True: there is a verdict. False: two more blocks are needed.
  bool judge();
  // Whether there has been a verdict.
  bool judged() const { return judged_; }
  // Who serves outside of measurements.
  Turn winner() const { return winner_; }

 private:
  int position() const { return static_cast<int>(calls_ - begins_); }

  std::uint64_t calls_ = 0;
  std::uint64_t begins_ = kQuiet;  // number of the first call of the present or next measurement
  std::uint64_t apart_ = kAgain;   // calls until the measurement after it
  Turn winner_ = Turn::own;
  Rival rival_;
  bool judged_ = false;
  std::array<std::int64_t, kBlocks * kMeasured> samples_{};  // block by block
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_TRIAL_H_
