// Measures in the running program which of several ways serves a collective of one size fastest,
// and lets that one go on: Overdrive's usual choice, the host, or another algorithm.
//
// Calls of the same collective, kind of operation and range of sizes on one communicator are
// counted; MPI makes their number equal on all ranks, so whose turn it is follows from the number
// alone. A measurement has stages; in each, ways have blocks of kBlock calls in turn, the first of
// which is not measured, since it still feels the way before. At the end of a stage the ranks add
// up their times (the caller does that, by a collective of its own); so all come to the same
// verdict.
//
//   1  Each way has a block. If every call of the usual way is shorter by far than each of the
//      others that is the verdict; likewise, the first time, if another way is. Of the others the
//      best kFinalists - 1 that are not left far behind go on: three calls do not tell more.
//   2  Two blocks each, backwards and forwards. Only these count now, because the best of many is
//      partly the luckiest. The one with the smallest median becomes the usual one if it gains more
//      than three percent (what starts with whoever comes first: ten). What the noise hides is not
//      left to the usual way: which of two is better by half is told wrong more rarely than it
//      matters, and by a tenth it matters little.
//   3  but later, when there has been a verdict before, only if it has still won after two more
//      blocks each: chance shall not undo what has been found.
//
// In later measurements all stages are taken together: a mean of a way's cost as a multiple of the
// usual way's. Where blocks are long (below) the measurements before count as
// well, each half as much as the next: where ranks share processors, a block of half a millisecond
// says more about who else ran than about the way.
//
// The first kQuiet calls measure nothing, so that programs with few calls pay nothing: they go the
// way that needs the least before it can be gone, which the owner knows. Then all ways are
// measured; once more at call kEarly, because a verdict by few calls may be wrong; and again at
// call kAgain and at each further power of two, because machines and programs change. Then only
// those take part whose turns, by what is known of them, fit into kShare of the calls so far: those
// that come near always, others more rarely the slower they are.
//
// Which ways there are is the owner's choice (coll/run/rivals.h), who may change it: after the
// first look all of them, which then has to be made again, and after a verdict one that has lost.
//
// Four calls of some microseconds tell little: each root and each link has its own first call after
// those of the way before, and a library whose calls have stood aside looks two to four times as
// slow as it is. So from call kAgain on, where a call takes less than kSampleNs on a rank, blocks
// are longer: kMostMeasured samples, each of as many calls as take that time and kMostGroup at
// most, after a third as many calls that are not measured. And since what the blocks before said of
// the other ways is too much, their turns may cost kAllowance samples once beyond kShare.
//
// Where a call takes milliseconds that is the other way round: few tell enough, what the way before
// has left behind is short beside them, and a program makes perhaps a hundred. So blocks of the
// first measurement have kFewCalls there, all of them measured.
//
// What is measured is the time inside the call, on all ranks together: who waits for a late rank
// waits as long with either. But where a rank may leave before the others have what they need, as
// the root of a broadcast does, calls are alike long only in the mean: one finds its data there,
// the next one waits for two. What is left undone is even paid for by another way's calls. So there
// all calls of a block are one sample together with the wait for all ranks that ends it, which the
// caller does where awaits() says so.
//
// Where a switch competes that is not all. A barrier by which all ranks leave at once may be quick
// and the call after it slow, because all of them want the same cores then. So a sample has a
// second part there, the time inside the communicator's other calls until the next one of the same
// kind, and of these the first kFollowing. Its end is known only when that next call begins: then
// the ranks add up. How far the second part counts follows from how sure it is: what strays by
// more than a whole call takes says little about the call. While a sample is open all other kinds
// of calls step aside and measure nothing, so that the sample tells about one way alone: they go
// their usual ways; but of those about which nothing is known yet the switch serves all or none, as
// it does the sample's call; whose turn is the same is measured, too. Kinds that gain only together
// would never be found otherwise: a host's call after a switch's is slow, and a switch's after a
// host's as well. What was found so with others is measured once more when there are verdicts about
// them.
#ifndef OVERDRIVE_COLL_RUN_TRIAL_H_
#define OVERDRIVE_COLL_RUN_TRIAL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace od {

class Trial {
 public:
  // What is compared with the usual choice: the host and perhaps other algorithms, or the broadcast
  // that starts with whoever comes first, or a switch and perhaps the host.
  enum class Rival : std::uint8_t { host, first_arrival, in_network };

  static constexpr int kOwn = 0;    // Overdrive's usual choice
  static constexpr int kRival = 1;  // the rival; further ways follow
  static constexpr int kMostWays = 6;
  static constexpr int kQuiet = 8;
  static constexpr int kQuietOfRival = 32;  // where the rival serves these calls
  // Likewise, where blocks are one sample each. A measurement costs as much there as some hundred
  // short calls, with the first call between nodes: who makes few calls does not pay for it.
  static constexpr int kQuietAwaited = 80;
  static constexpr int kBlock = 4;
  static constexpr int kMeasured = kBlock - 1;  // of a block
  static constexpr int kFinalists = 3;
  static constexpr int kMostBlocks = 6;  // of a stage
  static constexpr std::uint64_t kEarly = 128;
  static constexpr std::uint64_t kAgain = 1024;
  static constexpr double kShare = 0.01;
  static constexpr int kMostMeasured = 6;
  static constexpr std::uint64_t kSampleNs = 400'000;
  static constexpr int kMostGroup = 4;  // calls of a sample
  // Where a block is one sample: its calls at first; and in the second stage, where as many as take
  // kFinalNs on a rank, within these bounds.
  static constexpr int kFirstAwaited = 3;
  static constexpr int kFinalAwaited = 12;
  static constexpr double kFinalNs = 1e6;
  static constexpr double kAllowance = 16;
  // Calls that take so long on a rank: the first measurement has blocks of as few.
  static constexpr double kLongCallNs = 2e6;
  static constexpr int kFewCalls = 2;
  // What a measurement has said counts half as much at the next one.
  static constexpr double kFades = 0.5;
  static constexpr int kFollowing = 3;  // other calls that belong to a sample
  static constexpr int kMostDelays = 8;

  // Whether all ranks of a call need one another, or some may leave before the others.
  enum class Ends : std::uint8_t { alike, apart };

  struct Terms {
    int ways = 2;
    Rival rival = Rival::host;
    int first = kOwn;    // the way of the calls before the first measurement
    int quiet = kQuiet;  // their number
    int ranks = 1;       // how many add up their times
    Ends ends = Ends::alike;
    bool long_calls = false;  // a call is expected to take kLongCallNs
    // What an earlier run of the program has found by so many calls is that `first` is the best: it
    // is the verdict, and the next measurement is that of a program that goes on. 0: nothing.
    std::uint64_t calls = 0;
  };

  explicit Trial(const Terms& terms);
  Rival rival() const { return rival_; }
  // Of this kind so far, with those of the runs before.
  std::uint64_t calls() const { return calls_; }
  // Whether other calls belong to the samples.
  bool follows() const { return rival_ == Rival::in_network; }
  int ways() const { return ways_; }

  // Which way serves the next call.
  int turn() const {
    if (!measuring()) return judged_ ? winner_ : (aside_ && along_ ? kRival : first_);
    return order_[static_cast<std::size_t>(position() / block_calls())];
  }
  // Whether the next call belongs to a measurement.
  bool measuring() const { return !aside_ && calls_ >= begins_; }
  // How many calls there are until the end of this stage, or of the next one.
  int calls_left() const { return blocks_ * block_calls() - position(); }
  // Whether the next call is left out of the measurement, which goes on with the one after it;
  // where nothing is known yet it is the rival's with `along`.
  void step_aside(bool aside, bool along) {
    aside_ = aside;
    along_ = along;
  }
  // Calls about which nothing was known have gone the way of the last one.
  void together();

  // The call has ended after so many nanoseconds on this rank. True: samples() must be added up
  // over all ranks, and judge() be called, before the next call.
  bool took(std::uint64_t ns);
  // Whether the ranks must wait for one another before they go on, after took(), and before
  // samples() are added up. The first block begins with it, too: what the wait itself needs is made
  // then, and nobody pays for the calls before.
  bool awaits() const {
    return ends_ == Ends::apart && calls_ >= begins_ && position() % block_calls() == 0;
  }
  // That took so many nanoseconds on this rank.
  void awaited(std::uint64_t ns);
  // Another call, which belongs to the sample of the last one.
  void followed(std::uint64_t ns);
  // Where calls follow: whether what took() says otherwise is so before the call that begins now.
  bool due() const { return position() == blocks_ * block_calls(); }
  // Whether samples() are those of the first look.
  bool first_look() const { return phase_ == Phase::first && stage_ == 1; }
  // Whether calls are expected to take kLongCallNs.
  bool long_calls() const { return long_calls_; }
  // After samples() have been added up: what a call of the way took a rank at least.
  double least_ns(int way) const { return times_of(way, true, false).smallest / ranks_; }
  // In place of judge(), after the first look: it has shown that others are to be compared. All
  // ways have another look, with so many of them from now on.
  void begin_anew(int ways, bool long_calls);
  // After a verdict: another way from now on, the first of those that there were or a further one,
  // which is expected to take so many times as long as the winner.
  void renew(int way, double expected_ratio);
  // At which call the next measurement begins.
  std::uint64_t next_begins() const { return begins_; }
  // The way's time as a multiple of the winner's, by all that is known.
  double ratio_of(int way) const { return ratios_[static_cast<std::size_t>(way)]; }
  // What this rank has measured in the stage: nanoseconds of each sample's calls, then, where calls
  // follow, of those that have followed each.
  std::span<std::int64_t> samples() {
    return std::span(samples_).first(static_cast<std::size_t>(count() * (follows() ? 2 : 1)));
  }
  // The ranks could not add up: the stage is begun anew, much later.
  void give_up() { begin_stage(stage_, calls_ + kAgain); }
  // True: there is a verdict. False: another stage follows.
  bool judge();
  // Whether there has been a verdict.
  bool judged() const { return judged_; }
  // Which way serves outside of measurements.
  int winner() const { return winner_; }
  // Nanoseconds of a call on all ranks together when the way was last measured; 0: never.
  double ns_of(int way) const { return ns_[static_cast<std::size_t>(way)]; }
  // Likewise of the calls that have followed one.
  double ns_after(int way) const { return ns_after_[static_cast<std::size_t>(way)]; }

 private:
  struct Times {
    double median = 0;
    double smallest = 0;
    double largest = 0;
    double error = 0;  // of the median, from the distance of the quartiles
  };
  // What is known of a way.
  struct Found {
    Times own;    // the call's time
    Times after;  // that of the calls that follow it
    Times whole;  // both together
    // What is compared: the time of the call, and by how much later calls take longer than with
    // the usual way.
    double cost = 0;
    double error = 0;  // of a gain by it
  };
  using AllFound = std::array<Found, kMostWays>;
  // What several looks have said of a way's cost as a multiple of the usual way's. What is averaged
  // is (ratio - 1) / (ratio + 1), to which half counts as much as twice, and which few outliers
  // move little. Not logarithms: a C library's may differ in the last bit from processor to
  // processor, and all ranks must come to the same verdict.
  struct Memory {
    double sum = 0;
    double weight = 0;

    void add(double ratio, double its_weight) {
      sum += (ratio - 1) / (ratio + 1) * its_weight;
      weight += its_weight;
    }
    double ratio() const { return weight > 0 ? (weight + sum) / (weight - sum) : 1; }
    Memory divided_by(double other) const {
      Memory divided;
      divided.add(ratio() / other, weight);
      return divided;
    }
    Memory inverse() const { return {-sum, weight}; }
    Memory faded() const { return {sum * kFades, weight * kFades}; }
  };

  int position() const { return static_cast<int>(calls_ - begins_); }
  int count() const { return blocks_ * measured_; }
  // Whether a block is one short sample, which may have been disturbed.
  bool one_sample() const { return ends_ == Ends::apart && !long_; }
  // Of a call on a rank, as the usual way was last measured; 1: never.
  double usual_ns() const;
  int block_calls() const { return skipped_ + measured_ * group_; }
  // Whether blocks have as few calls as possible.
  bool few() const { return long_calls_ && phase_ == Phase::first; }
  // The least number of calls of a block that has one sample.
  int least_calls() const { return few() ? kFewCalls : kFirstAwaited; }
  Times times_of(int way, bool own, bool after) const;
  AllFound find() const;
  // Whether every call of the way is shorter by far than each of the others.
  bool clear(const AllFound& found, int best) const;
  // The sample to which the last call belongs.
  std::optional<std::size_t> last_sample() const;
  void add_block(int way);
  bool takes_part(int way) const;
  // The second stage follows the first; false: there is a verdict already.
  bool begin_final(const AllFound& found);
  // Two of each, backwards and forwards.
  void final_blocks(std::span<const int> ways);
  void begin_stage(int stage, std::uint64_t at);
  // What the stage has said of the other ways is added to what is known of them.
  void remember(const AllFound& found);
  // The best of those that have won; the usual way if nobody has.
  int best_of(const AllFound& found) const;
  void end(int winner);
  // How long blocks of the measurement at that call are.
  void shape_blocks(std::uint64_t call);
  void shape_samples(int samples, int calls);
  // The next measurement.
  void plan();
  // When that is, and who takes part.
  void pick_ways();
  // All ways once more, soon.
  void plan_apart();
  // The first look at all ways.
  void plan_first();

  std::uint64_t calls_ = 0;
  std::uint64_t begins_;  // number of the first call of the present or next stage
  int ways_;
  int ranks_;
  int first_;
  int winner_ = kOwn;
  int stage_ = 1;
  Rival rival_;
  Ends ends_;
  bool long_calls_;
  bool judged_ = false;
  bool aside_ = false;
  bool along_ = false;
  bool open_ = false;  // other calls belong to the last sample
  // Where calls follow: of the present measurement, and those that are one time each.
  bool together_ = false;
  enum class Phase : std::uint8_t { first, apart, later };
  Phase phase_ = Phase::first;
  int delays_ = 0;
  int blocks_ = 0;
  int skipped_ = 1;                                // calls of a block that are not measured
  int measured_ = kMeasured;                       // samples of a block
  int group_ = 1;                                  // calls of a sample
  bool long_ = false;                              // blocks are longer than the first ones
  std::array<std::uint8_t, kMostBlocks> order_{};  // ways of the stage's blocks
  std::array<std::int64_t, 2 * kMostBlocks * kMostMeasured> samples_{};  // block by block
  // Of each way: its time as a multiple of the usual way's, by all that is known.
  std::array<double, kMostWays> ratios_{};
  std::array<Memory, kMostWays> memories_{};  // where no other calls belong to samples
  std::array<double, kMostWays> ns_{};
  std::array<double, kMostWays> ns_after_{};
  double spent_ = 0;  // on later measurements, in calls of the usual way
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_TRIAL_H_
