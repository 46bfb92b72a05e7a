// Judges the times of the ways, and decides what is measured next.
#include "coll/run/trial.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/quiet_floats.h"

namespace od {
namespace {

constexpr double kLeastGain = 0.03;
// Of what starts with whoever comes first: where ranks come together two equal ways are a tenth
// apart by chance, and it is the slower one there; where they do not it gains a fifth and more.
constexpr double kLeastGainOfFirst = 0.1;
// Where other calls belong to the samples; a verdict there changes what those cost, too.
constexpr double kNoises = 2;
// By how many noises another way must be better for a verdict to be undone. Simulated (four ways,
// blocks that stray by 15 to 30 %, 10,000 calls), 0.5 and 0.7 find the best way equally well, 1
// more slowly; with 0.5 verdicts change more often where ways are near each other. With 2, also for
// the first verdict, calls take 1.15 to 1.2 times as long as with the best way throughout, where
// the usual one is 1.25 to 1.4 times as slow as another.
constexpr double kNoisesLater = 0.7;
// How much shorter every call of the best way must be than each of the others for a verdict after
// the first stage.
constexpr double kFar = 1.5;
// Likewise of calls that take milliseconds, which stray less and whose second stage costs more.
constexpr double kFarOfLong = 1.2;
// A way that takes so many times as long as the usual one in three calls may still be faster.
constexpr double kNear = 1.5;
// Likewise in as many calls as long blocks have. With 1.5 measuring costs a tenth more and finds no
// more.
constexpr double kNearLong = 1.1;
// More is not believed of one block that something may have disturbed.
constexpr double kMostOfOneBlock = 2;
// One that had a bad moment may be tried again.
constexpr double kMostRatio = 100;
// Later calls may seem to gain more than the call itself takes.
constexpr double kLeastRatio = 0.01;

}  // namespace

Trial::Trial(const Terms& terms)
    : begins_(static_cast<std::uint64_t>(terms.quiet)),
      ways_(terms.ways),
      ranks_(std::max(terms.ranks, 1)),
      first_(terms.first),
      rival_(terms.rival),
      ends_(terms.ends),
      long_calls_(terms.long_calls) {
  plan_first();
  if (terms.calls == 0) return;
  calls_ = terms.calls;
  winner_ = std::clamp(first_, 0, ways_ - 1);
  judged_ = true;
  phase_ = Phase::later;
  // Nothing is known of what the ways take, so all take part.
  pick_ways();
}

void Trial::plan_first() {
  ways_ = std::clamp(ways_, 2, kMostWays);
  ratios_.fill(1);
  shape_blocks(0);
  blocks_ = 0;
  for (int way = 0; way < ways_; ++way) add_block(way);
}

void Trial::begin_anew(int ways, bool long_calls) {
  ways_ = ways;
  long_calls_ = long_calls;
  plan_first();
  begin_stage(1, calls_);
}

void Trial::add_block(int way) {
  order_[static_cast<std::size_t>(blocks_++)] = static_cast<std::uint8_t>(way);
}

bool Trial::takes_part(int way) const {
  return std::find(order_.begin(), order_.begin() + blocks_, way) != order_.begin() + blocks_;
}

bool Trial::took(std::uint64_t ns) {
  const bool measured = measuring();
  const bool in_stage = calls_ >= begins_;
  ++calls_;
  open_ = false;
  if (!measured) {
    if (std::exchange(aside_, false) && in_stage) ++begins_;
    return false;
  }
  if (const auto sample = last_sample()) {
    samples_[*sample] += std::max<std::int64_t>(1, static_cast<std::int64_t>(ns));
    open_ = follows();
  }
  return !follows() && due();
}

void Trial::awaited(std::uint64_t ns) {
  if (const auto sample = last_sample()) samples_[*sample] += static_cast<std::int64_t>(ns);
}

std::optional<std::size_t> Trial::last_sample() const {
  const int at = position() - 1;
  const int in_block = at % block_calls() - skipped_;
  if (in_block < 0) return std::nullopt;
  return static_cast<std::size_t>(at / block_calls() * measured_ + in_block / group_);
}

void Trial::followed(std::uint64_t ns) {
  if (!open_) return;
  const int last = position() - 1;
  const int sample = last / kBlock * kMeasured + last % kBlock - 1;
  samples_[static_cast<std::size_t>(count() + sample)] += static_cast<std::int64_t>(ns);
}

void Trial::together() {
  together_ = true;
  // Those who have no verdict yet come first. The first call of a block is not measured.
  if (phase_ != Phase::apart || stage_ != 1 || position() != 1 || delays_ == kMostDelays) return;
  ++delays_;
  begin_stage(1, calls_ + kQuiet);
}

Trial::Times Trial::times_of(int way, bool own, bool after) const {
  std::array<double, kMostBlocks * kMostMeasured> values{};
  std::size_t count = 0;
  const auto later = static_cast<std::size_t>(this->count());
  for (std::size_t block = 0; block < static_cast<std::size_t>(blocks_); ++block) {
    if (order_[block] != way) continue;
    const auto measured = static_cast<std::size_t>(measured_);
    for (std::size_t i = block * measured; i < (block + 1) * measured; ++i) {
      const std::int64_t ns = (own ? samples_[i] : 0) + (after ? samples_[later + i] : 0);
      values[count++] = static_cast<double>(ns) / group_;
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
  // Of two long samples the smaller one: what disturbs them only adds to them.
  times.median = ends_ == Ends::apart && count == 2 ? values[0] : at(0.5);
  times.smallest = values[0];
  times.largest = values[count - 1];
  // Of a normal distribution: the quartiles are 1.35 deviations apart, the median of n values
  // strays by 1.25 deviations over the root of n.
  times.error = (at(0.75) - at(0.25)) * 1.25 / 1.35 / std::sqrt(static_cast<double>(count));
  return times;
}

Trial::AllFound Trial::find() const {
  AllFound all{};
  for (int way = 0; way < ways_; ++way) {
    Found& found = all[static_cast<std::size_t>(way)];
    found.own = found.whole = times_of(way, true, false);
    if (!follows()) continue;
    found.after = times_of(way, false, true);
    found.whole = times_of(way, true, true);
  }
  const Found& usual = all[static_cast<std::size_t>(winner_)];
  for (int way = 0; way < ways_; ++way) {
    Found& found = all[static_cast<std::size_t>(way)];
    found.cost = found.own.median;
    found.error = found.own.error;
    if (way == winner_ || !follows() || !takes_part(way)) continue;
    // What a call does to later ones is hardly more than it takes itself; so the difference is
    // believed as far as that is more than its noise. Nobody wins by what he seems to spare others
    // if that is not sure.
    const double error = std::hypot(usual.after.error, found.after.error);
    const double noise = kNoises * error / std::max(usual.own.median, found.own.median);
    const double belief = 1 / (1 + noise * noise);
    const double later = belief * (found.after.median - usual.after.median);
    found.cost += later;
    if (later < 0) found.error = std::hypot(found.error, belief * error);
  }
  return all;
}

int Trial::best_of(const AllFound& found) const {
  const Found& usual = found[static_cast<std::size_t>(winner_)];
  const double noises = follows() ? kNoises : (judged_ ? kNoisesLater : 0);
  int best = winner_;
  double least = 1;
  for (int way = 0; way < ways_; ++way) {
    const Found& other = found[static_cast<std::size_t>(way)];
    if (way == winner_ || !takes_part(way)) continue;
    const double noise = noises * std::hypot(usual.error, other.error) / usual.cost;
    // Not the clamped one where later calls belong to it, which may gain more than it takes.
    const double ratio =
        follows() ? other.cost / usual.cost : ratios_[static_cast<std::size_t>(way)];
    const double gain =
        rival_ == Rival::first_arrival && way == kRival ? kLeastGainOfFirst : kLeastGain;
    if (1 - ratio <= std::max(gain, noise) || ratio >= least) continue;
    least = ratio;
    best = way;
  }
  return best;
}

void Trial::remember(const AllFound& found) {
  const double weight = stage_ == 1 ? 0.5 : 1;
  const double usual = found[static_cast<std::size_t>(winner_)].cost;
  for (int way = 0; way < ways_; ++way) {
    if (way == winner_ || !takes_part(way)) continue;
    const auto at = static_cast<std::size_t>(way);
    const double ratio = std::clamp(found[at].cost / usual, kLeastRatio, kMostRatio);
    if (follows()) {
      // What calls do to later ones depends on what serves those: only the last look counts.
      ratios_[at] = ratio;
      continue;
    }
    Memory& memory = memories_[at];
    Memory now = memory;
    now.add(ratio, weight);
    ratios_[at] = now.ratio();
    if (stage_ != 1) {
      memory = now;
    } else if (long_) {
      memory.add(std::clamp(ratio, 1 / kMostOfOneBlock, kMostOfOneBlock), weight);
    }
  }
}

bool Trial::judge() {
  const QuietFloats quiet;
  const AllFound found = find();
  remember(found);
  for (int block = 0; block < blocks_; ++block) {
    const auto way = static_cast<std::size_t>(order_[static_cast<std::size_t>(block)]);
    ns_[way] = found[way].own.median;
    ns_after_[way] = found[way].after.median;
    if (phase_ == Phase::later) spent_ += block_calls() * std::max(ratios_[way] - 1, 0.0);
  }
  if (stage_ == 1) return !begin_final(found);
  const int best = best_of(found);
  if (stage_ == 2 && judged_ && best != winner_) {
    blocks_ = 0;
    for (const int way : {winner_, best, best, winner_}) add_block(way);
    begin_stage(3, calls_);
    return false;
  }
  end(best);
  return true;
}

bool Trial::clear(const AllFound& found, int best) const {
  const Found& it = found[static_cast<std::size_t>(best)];
  for (int way = 0; way < ways_; ++way) {
    if (way == best || !takes_part(way)) continue;
    const Found& other = found[static_cast<std::size_t>(way)];
    if (it.own.largest * (few() ? kFarOfLong : kFar) >= other.own.smallest) return false;
    if (it.whole.largest >= other.whole.smallest) return false;
  }
  return true;
}

bool Trial::begin_final(const AllFound& found) {
  std::array<int, kMostWays> able{};
  int count = 0;
  for (int way = 0; way < ways_; ++way) {
    if (takes_part(way)) able[static_cast<std::size_t>(count++)] = way;
  }
  const auto ratio = [&](int way) { return ratios_[static_cast<std::size_t>(way)]; };
  std::stable_sort(able.begin(), able.begin() + count,
                   [&](int a, int b) { return ratio(a) < ratio(b); });
  const int best = able[0];
  // Something that disturbs one whole block looks the same, so a verdict that stands is not undone,
  // and one sample makes none.
  if (!one_sample() && clear(found, best) && (best == winner_ || !judged_)) {
    end(best);
    return false;
  }
  std::array<int, kFinalists> finalists{winner_};
  std::size_t chosen = 1;
  // One sample may have been disturbed, and the rival's calls take no longer than without us.
  const bool keeps_rival = one_sample() && winner_ != kRival && takes_part(kRival);
  if (keeps_rival) finalists[chosen++] = kRival;
  const double near = one_sample() ? 1 : (long_ ? kNearLong : kNear);
  for (int i = 0; i < count && chosen < kFinalists; ++i) {
    const int way = able[static_cast<std::size_t>(i)];
    if (way == winner_ || ratio(way) > near) continue;
    if (keeps_rival && way == kRival) continue;
    finalists[chosen++] = way;
  }
  if (chosen == 1) {
    end(winner_);
    return false;
  }
  final_blocks(std::span(finalists).first(chosen));
  begin_stage(2, calls_);
  return true;
}

void Trial::final_blocks(std::span<const int> ways) {
  if (one_sample()) {
    const double calls = std::clamp<double>(kFinalNs / usual_ns(), least_calls(), kFinalAwaited);
    shape_samples(1, static_cast<int>(calls));
  }
  blocks_ = 0;
  for (std::size_t i = ways.size(); i-- > 0;) add_block(ways[i]);
  for (const int way : ways) add_block(way);
}

void Trial::begin_stage(int stage, std::uint64_t at) {
  stage_ = stage;
  begins_ = at;
  samples_ = {};
  open_ = false;
}

void Trial::end(int winner) {
  const double ratio = ratios_[static_cast<std::size_t>(winner)];
  if (winner != winner_) {
    for (double& each : ratios_) each /= ratio;
    // From now on all are compared with the new one.
    const Memory gained = std::exchange(memories_[static_cast<std::size_t>(winner)], {});
    for (Memory& each : memories_) each = each.divided_by(gained.ratio());
    memories_[static_cast<std::size_t>(winner_)] = gained.inverse();
  }
  winner_ = winner;
  judged_ = true;
  if (phase_ == Phase::first && together_) {
    plan_apart();
  } else {
    phase_ = Phase::later;
    plan();
  }
  together_ = false;
}

void Trial::plan_apart() {
  phase_ = Phase::apart;
  blocks_ = 0;
  add_block(winner_);
  for (int way = 0; way < ways_; ++way) {
    if (way != winner_) add_block(way);
  }
  begin_stage(1, calls_ + kQuiet);
}

double Trial::usual_ns() const {
  return std::max(ns_[static_cast<std::size_t>(winner_)] / ranks_, 1.0);
}

void Trial::shape_samples(int samples, int calls) {
  skipped_ = samples * calls / kMeasured;
  if (ends_ == Ends::apart) {
    calls *= samples;
    samples = 1;
  }
  measured_ = samples;
  group_ = calls;
}

void Trial::shape_blocks(std::uint64_t call) {
  const double calls = static_cast<double>(kSampleNs) / usual_ns();
  // What an earlier run has found says nothing of how long calls are.
  const bool known = ns_[static_cast<std::size_t>(winner_)] > 0;
  long_ = call >= kAgain && rival_ == Rival::host && known && calls > 1;
  if (long_) {
    shape_samples(kMostMeasured,
                  static_cast<int>(std::min(calls, static_cast<double>(kMostGroup))));
  } else if (ends_ == Ends::apart) {
    shape_samples(1, least_calls());
  } else {
    shape_samples(few() ? kFewCalls : kMeasured, 1);
  }
}

void Trial::plan() {
  const bool were_long = long_;
  pick_ways();
  // Short blocks say too much of the others, and of long calls few tell enough.
  for (Memory& each : memories_) each = were_long && long_ ? each.faded() : Memory{};
}

void Trial::renew(int way, double expected_ratio) {
  const auto at = static_cast<std::size_t>(way);
  ways_ = std::max(ways_, way + 1);
  ratios_[at] = expected_ratio;
  memories_[at] = {};
  ns_[at] = ns_after_[at] = 0;
  pick_ways();
}

void Trial::pick_ways() {
  std::uint64_t at = calls_ + kQuiet <= kEarly ? kEarly : kAgain;
  while (at < calls_ + kQuiet) at *= 2;
  for (;; at *= 2) {
    blocks_ = 0;
    shape_blocks(at);
    add_block(winner_);
    double left = kShare * static_cast<double>(at) - spent_;
    if (long_) left += kAllowance * measured_ * group_ / kMostMeasured;
    // The nearest first.
    std::array<bool, kMostWays> seen{};
    seen[static_cast<std::size_t>(winner_)] = true;
    for (int i = 1; i < ways_; ++i) {
      std::size_t next = 0;
      for (std::size_t way = 0; way < static_cast<std::size_t>(ways_); ++way) {
        if (!seen[way] && (seen[next] || ratios_[way] < ratios_[next])) next = way;
      }
      seen[next] = true;
      const double price = block_calls() * std::max(ratios_[next] - 1, 0.0);
      if (price > left) break;
      left -= price;
      add_block(static_cast<int>(next));
    }
    if (blocks_ > 1) break;
  }
  begin_stage(1, at);
}

}  // namespace od
