// Judges the times of the ways, and decides what is measured next.
#include "coll/run/trial.h"

#include <algorithm>
#include <cmath>

#include "base/quiet_floats.h"

namespace od {
namespace {

constexpr double kLeastGain = 0.03;
constexpr double kNoises = 2;
// How much shorter every call of the best way must be than each of the others for a verdict after
// the first stage.
constexpr double kFar = 1.5;
// A way that takes so many times as long as the usual one in three calls may still be faster.
constexpr double kNear = 1.5;
// One that had a bad moment may be tried again.
constexpr double kMostRatio = 100;

}  // namespace

Trial::Trial(int ways, Rival rival, int first, int quiet)
    : begins_(static_cast<std::uint64_t>(quiet)),
      ways_(std::clamp(ways, 2, kMostWays)),
      first_(first),
      rival_(rival) {
  ratios_.fill(1);
  for (int way = 0; way < ways_; ++way) add_block(way);
}

void Trial::add_block(int way) {
  order_[static_cast<std::size_t>(blocks_++)] = static_cast<std::uint8_t>(way);
}

bool Trial::takes_part(int way) const {
  return std::find(order_.begin(), order_.begin() + blocks_, way) != order_.begin() + blocks_;
}

bool Trial::took(std::uint64_t ns) {
  const bool measured = measuring();
  const int at = position();
  ++calls_;
  if (!measured) return false;
  const int in_block = at % kBlock;
  if (in_block > 0) {
    samples_[static_cast<std::size_t>(at / kBlock * kMeasured + in_block - 1)] =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(ns));
  }
  return at == blocks_ * kBlock - 1;
}

Trial::Times Trial::times_of(int way) const {
  std::array<double, kMostBlocks * kMeasured> values{};
  std::size_t count = 0;
  for (std::size_t block = 0; block < static_cast<std::size_t>(blocks_); ++block) {
    if (order_[block] != way) continue;
    for (std::size_t i = 0; i < kMeasured; ++i) {
      values[count++] = static_cast<double>(samples_[block * kMeasured + i]);
    }
  }
  Times times;
  if (count == 0) return times;
  std::sort(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(count - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, count - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  times.median = at(0.5);
  times.smallest = values[0];
  times.largest = values[count - 1];
  // Of a normal distribution: the quartiles are 1.35 deviations apart, the median of n values
  // strays by 1.25 deviations over the root of n.
  times.error = (at(0.75) - at(0.25)) * 1.25 / 1.35 / std::sqrt(static_cast<double>(count));
  return times;
}

int Trial::best_of(const AllTimes& times) const {
  const Times& usual = times[static_cast<std::size_t>(winner_)];
  int best = winner_;
  for (int way = 0; way < ways_; ++way) {
    const Times& other = times[static_cast<std::size_t>(way)];
    if (way == winner_ || !takes_part(way)) continue;
    const double noise = kNoises * std::hypot(usual.error, other.error);
    if (usual.median - other.median <= std::max(kLeastGain * usual.median, noise)) continue;
    if (other.median < times[static_cast<std::size_t>(best)].median) best = way;
  }
  return best;
}

bool Trial::judge() {
  const QuietFloats quiet;
  AllTimes times{};
  for (int way = 0; way < ways_; ++way) times[static_cast<std::size_t>(way)] = times_of(way);
  const Times& usual = times[static_cast<std::size_t>(winner_)];
  for (int block = 0; block < blocks_; ++block) {
    const int way = order_[static_cast<std::size_t>(block)];
    double& ratio = ratios_[static_cast<std::size_t>(way)];
    ns_[static_cast<std::size_t>(way)] = times[static_cast<std::size_t>(way)].median;
    ratio = std::min(times[static_cast<std::size_t>(way)].median / usual.median, kMostRatio);
    if (judged_) spent_ += kBlock * std::max(ratio - 1, 0.0);
  }
  if (stage_ == 1) return !begin_final(times);
  const int best = best_of(times);
  if (stage_ == 2 && judged_ && best != winner_) {
    blocks_ = 0;
    for (const int way : {winner_, best, best, winner_}) add_block(way);
    begin_stage(3, calls_);
    return false;
  }
  end(best);
  return true;
}

bool Trial::begin_final(const AllTimes& times) {
  std::array<int, kMostWays> able{};
  int count = 0;
  for (int way = 0; way < ways_; ++way) {
    if (takes_part(way)) able[static_cast<std::size_t>(count++)] = way;
  }
  const auto of = [&](int way) -> const Times& { return times[static_cast<std::size_t>(way)]; };
  std::stable_sort(able.begin(), able.begin() + count,
                   [&](int a, int b) { return of(a).median < of(b).median; });
  const int best = able[0];
  bool clear = true;
  for (int i = 1; i < count; ++i) {
    clear = clear && of(best).largest * kFar < of(able[static_cast<std::size_t>(i)]).smallest;
  }
  // Something that disturbs one whole block looks the same, so a verdict that stands is not undone.
  if (clear && (best == winner_ || !judged_)) {
    end(best);
    return false;
  }
  std::array<int, kFinalists> finalists{winner_};
  int chosen = 1;
  for (int i = 0; i < count && chosen < kFinalists; ++i) {
    const int way = able[static_cast<std::size_t>(i)];
    if (way == winner_ || of(way).median > kNear * of(winner_).median) continue;
    finalists[static_cast<std::size_t>(chosen++)] = way;
  }
  if (chosen == 1) {
    end(winner_);
    return false;
  }
  blocks_ = 0;
  for (int i = chosen; i-- > 0;) add_block(finalists[static_cast<std::size_t>(i)]);
  for (int i = 0; i < chosen; ++i) add_block(finalists[static_cast<std::size_t>(i)]);
  begin_stage(2, calls_);
  return true;
}

void Trial::begin_stage(int stage, std::uint64_t at) {
  stage_ = stage;
  begins_ = at;
  samples_ = {};
}

void Trial::end(int winner) {
  const double ratio = ratios_[static_cast<std::size_t>(winner)];
  if (winner != winner_) {
    for (double& each : ratios_) each /= ratio;
  }
  winner_ = winner;
  judged_ = true;
  plan();
}

void Trial::plan() {
  std::uint64_t at = calls_ + kQuiet <= kEarly ? kEarly : kAgain;
  while (at < calls_ + kQuiet) at *= 2;
  for (;; at *= 2) {
    blocks_ = 0;
    add_block(winner_);
    double left = kShare * static_cast<double>(at) - spent_;
    // The nearest first.
    std::array<bool, kMostWays> seen{};
    seen[static_cast<std::size_t>(winner_)] = true;
    for (int i = 1; i < ways_; ++i) {
      std::size_t next = 0;
      for (std::size_t way = 0; way < static_cast<std::size_t>(ways_); ++way) {
        if (!seen[way] && (seen[next] || ratios_[way] < ratios_[next])) next = way;
      }
      seen[next] = true;
      const double price = kBlock * std::max(ratios_[next] - 1, 0.0);
      if (price > left) break;
      left -= price;
      add_block(static_cast<int>(next));
    }
    if (blocks_ > 1) break;
  }
  begin_stage(1, at);
}

}  // namespace od
