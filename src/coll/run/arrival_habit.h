// How far apart the ranks of each node come to the calls of one kind on a communicator, and so
// whether it is worth measuring what starts with whoever comes first, or ends with whoever comes
// last.
//
// Each rank notes when it came to its last calls, how long it was inside, and from which place in
// the program. Once it is known what serves the calls best while nobody looks who comes first, and
// then before call 16, 32, 64 and so on (counted from 0; of short ones 64, 256, 1,024 and so on)
// the ranks tell each other of the last kKept; from the same numbers all of them draw the same
// conclusions. Only moments of ranks of one node are compared: they have one clock. The first
// calls, which make connections and touch fresh memory, tell nothing of those that follow.
//
// To agree is to wait for the last rank, which costs more than the messages where ranks come far
// apart; when there is a verdict they have just met.
//
// Calls from several places may have different habits, but the ranks of one call may stand at
// different places, and nothing says which of them belong together. So places decide only after how
// many calls they repeat: if that is the same number on all ranks, the *period*, then the number of
// a call tells its *position*, on all ranks alike, also where the program leaves the pattern before
// the next agreement. Each position is judged by itself.
//
//   Spread  What ranks would not wait if nobody waited for others of its node without need: in
//           broadcasts and scatters the node's leader, or the root, until the last rank has come
//           and taken the data from it, and on nodes without the root the others until the leader
//           has come; in reductions and gathers each until its node's last rank has. Where that is
//           more than kWorth of all time inside, and for each rank more than kWorthMessages take
//           between nodes, measuring is worth its price.
//   Fresh   A position whose habit has changed is measured anew; so is each, as programs and
//           machines change, at agreements from call kAgain on.
//   Tried   Spread is not all: where ranks of several nodes share processors, what needs fewer of
//           them at a time is faster also where they come together. So from call kAgain on, when a
//           measurement costs little beside the calls so far, each position is tried once, and goes
//           on to be measured where that has gained. So does what has gained in an earlier run.
#ifndef OVERDRIVE_COLL_RUN_ARRIVAL_HABIT_H_
#define OVERDRIVE_COLL_RUN_ARRIVAL_HABIT_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "coll/plan/hierarchy/nodes.h"

namespace od {

class ArrivalHabit {
 public:
  static constexpr std::size_t kKept = 8;  // calls of which the ranks tell each other
  static constexpr std::size_t kRemembered = 2 * kKept;
  static constexpr std::uint64_t kFirst = 16;
  static constexpr std::uint64_t kFirstOfShort = 64;
  // Where ranks share cores to tell each other takes 0.5 ms, as long as two calls of 64 KiB.
  static constexpr std::uint64_t kShortBytes = 256 << 10;
  static constexpr std::size_t kMostPeriod = 4;
  // Of 8 ranks on two cores that come together, over 2 and 4 nodes, the spread is 0.02 to 0.11
  // before call 16, and now and then more later; with linear arrival 0.1 to 0.7, with a rank late
  // by the time of a call 0.2 and more. To measure what does not pay takes a tenth of the first 64
  // calls there.
  static constexpr double kWorth = 0.15;
  // Starting with whoever comes first adds a message or two and copies; and at 64 KiB ranks that
  // come together there spread by a fifth of a call, which is 2 to 8 messages (25 to 140 us), and
  // to begin with whoever comes first loses as much.
  static constexpr double kWorthMessages = 10;
  static constexpr std::uint64_t kAgain = 1024;

  // What a rank tells the others.
  struct Told {
    std::int64_t periods = 0;  // bit p: its places repeat after p calls
    std::array<std::int64_t, kKept> came_ns{};
    std::array<std::int64_t, kKept> inside_ns{};  // 0: not known
  };

  // `to_root`: data flow to a root, otherwise from it. `bytes`: the least of these calls.
  ArrivalHabit(bool to_root, std::uint64_t bytes)
      : to_root_(to_root), short_(bytes < kShortBytes) {}

  // From now on ranks agree before calls, because nothing else is measured any more, or nothing
  // was. Before, next_is_told() says no.
  void start() { started_ = true; }
  bool started() const { return started_; }
  // Before a call: whether the ranks have to tell each other offer(), and to call judge().
  bool agreement_due() const {
    return started_ && agreement_from(calls_) == calls_ && agreed_at_ != calls_;
  }
  Told offer() const;
  // `message_ns`: of a short message between nodes; the same on all ranks.
  void judge(std::span<const Told> all, const coll::Nodes& nodes, double message_ns);

  // Whether the next call is one of those of which the ranks tell; of the others nothing is noted:
  // where eight ranks share two cores that would make calls of 64 KiB longer by a fifth.
  bool next_is_told() const {
    return started_ && agreement_from(calls_ + 1) - calls_ <= kRemembered;
  }
  // The next call, from a place in the program.
  void begins(std::uint64_t place, std::uint64_t ns, int root);
  // The next call, which is not told of.
  void passes() {
    told_ = false;
    ++calls_;
  }
  // Whether that of the call that has begun last matters.
  bool awaits_end() const { return told_; }
  void ended(std::uint64_t ns);

  // Of the call that has begun last.
  std::size_t position() const { return static_cast<std::size_t>((calls_ - 1) % period_); }
  bool worth_measuring() const { return worth_[position()]; }
  // At any position.
  bool any_worth_measuring() const {
    return std::find(worth_.begin(), worth_.end(), true) != worth_.end();
  }
  // Measuring its position has shown whether what starts with whoever comes first gains.
  void measured(bool gains) {
    // What gains because ranks come apart is no reason to go on when they come together.
    if (!gains || !apart_[position()]) tried_[position()] = gains ? Tried::gains : Tried::loses;
  }
  // Whether all calls have one habit, and it gains there whenever ranks come.
  bool gains_anyway() const { return period_ == 1 && tried_[0] == Tried::gains; }
  // So it did in an earlier run.
  void begin_with_gain() {
    started_ = worth_[0] = true;
    tried_[0] = Tried::gains;
  }
  std::uint64_t calls() const { return calls_; }
  // Whether what was measured for its position holds no more; says so once.
  bool take_fresh() {
    const bool fresh = fresh_[position()];
    fresh_[position()] = false;
    return fresh;
  }
  std::uint64_t period() const { return period_; }

 private:
  struct Call {
    std::uint64_t place = 0;
    std::int64_t came_ns = 0;
    std::int64_t inside_ns = 0;
    int root = 0;
  };

  // The first agreement before this call or a later one.
  std::uint64_t agreement_from(std::uint64_t number) const {
    const std::uint64_t power = std::bit_ceil(std::max(number, short_ ? kFirstOfShort : kFirst));
    return short_ && std::countr_zero(power) % 2 != 0 ? 2 * power : power;
  }
  // The call with this number, one of the last kRemembered.
  const Call& call(std::uint64_t number) const { return last_[number % kRemembered]; }
  std::int64_t avoidable_ns(std::span<const Told> all, const coll::Nodes& nodes, std::size_t at,
                            int root) const;
  // Of all ranks in the calls of a position but the one in which it is most.
  struct Spread {
    int calls = 0;  // 0: nothing is known
    double avoidable_ns = 0;
    double inside_ns = 0;
  };
  Spread spread(std::span<const Told> all, const coll::Nodes& nodes, std::size_t position) const;

  bool to_root_;
  bool short_;
  bool started_ = false;
  bool told_ = false;
  std::uint64_t calls_ = 0;
  std::uint64_t agreed_at_ = 0;
  std::uint64_t period_ = 1;
  std::array<bool, kMostPeriod> worth_{};
  std::array<bool, kMostPeriod> fresh_{};
  std::array<bool, kMostPeriod> apart_{};
  enum class Tried : std::uint8_t { never, gains, loses };
  std::array<Tried, kMostPeriod> tried_{};
  std::array<Call, kRemembered> last_{};
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_ARRIVAL_HABIT_H_
