// Turns, measurements and verdicts: see automatic.h.
#include "overlap/automatic.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/quiet_floats.h"

namespace od::overlap {
namespace {

constexpr double kLeastGain = 0.03;
constexpr std::uint64_t kBlock = 4;

struct Times {
  double median = 0;
  double noise = 0;  // half of what lies between the smallest and the largest
};

Times times_of(std::span<const std::int64_t> samples) {
  std::vector<double> values;
  for (const std::int64_t sample : samples) {
    if (sample > 0) values.push_back(static_cast<double>(sample));
  }
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, (values.back() - values.front()) / 2};
}

}  // namespace

bool Automatic::agreement_due() const {
  const std::uint64_t next = calls_ + 1;
  return next >= kFirstWindow && std::has_single_bit(next) && agreed_at_ != next;
}

std::span<std::int64_t> Automatic::offer() {
  numbers_.missing = expected_ - taken_;
  return {reinterpret_cast<std::int64_t*>(&numbers_), sizeof(Numbers) / sizeof(std::int64_t)};
}

Automatic::Verdict Automatic::judge(int ranks) {
  const QuietFloats quiet;
  const Numbers all = numbers_;
  numbers_ = {};
  expected_ = taken_ = 0;
  agreed_at_ = calls_ + 1;
  const bool was_on = on_;
  if (agreed_at_ == kFirstWindow) order_ = order_of(all.accesses, ranks);
  const Times off = times_of(all.off);
  const Times on = times_of(all.on);
  if (all.missing != 0 || off.median == 0) {
    // On some rank calls can neither be measured nor, then, return early.
    on_ = worth_trying_ = false;
  } else {
    if (on.median != 0) {
      const double gain = off.median - on.median;
      const double least = std::max(kLeastGain * off.median, off.noise + on.noise);
      on_ = was_on ? gain > 0 : gain > least;
    }
    const auto calls = static_cast<double>(
        std::count_if(all.off.begin(), all.off.end(), [](std::int64_t ns) { return ns > 0; }));
    worth_trying_ = on_ || static_cast<double>(all.hidden) > kLeastGain * off.median * calls;
  }
  if (on_ != was_on) return on_ ? Verdict::kTurnedOn : Verdict::kTurnedOff;
  return on.median != 0 ? Verdict::kSame : Verdict::kNone;
}

void Automatic::plan_call(std::uint64_t call) {
  turn_ = on_ ? Turn::kOn : Turn::kOff;
  sample_ = -1;
  sample_is_on_ = on_;
  if (call < kFirstWindow) {
    if (call == kTracedCall) turn_ = Turn::kTrace;
    if (call >= kBlock) sample_ = static_cast<int>(call - kBlock);
    return;
  }
  const std::uint64_t left = 2 * std::bit_floor(call) - call;
  if (left > 2 * kBlock) return;
  const bool other = left > kBlock;
  if (other && worth_trying_) {
    sample_is_on_ = !on_;
    turn_ = on_ ? Turn::kOff : Turn::kOn;
  }
  // What may not overlap is measured once: to see whether it might.
  if (other && !worth_trying_) return;
  const int at = static_cast<int>(kBlock - 1 - (left - 1) % kBlock);
  sample_ = at > 0 ? at : -1;
}

Automatic::Turn Automatic::next() {
  plan_call(++calls_);
  if (sample_ >= 0) ++expected_;
  return turn_;
}

void Automatic::took(std::uint64_t whole_ns, std::uint64_t hidden_ns) {
  if (sample_ < 0) return;
  const auto at = static_cast<std::size_t>(std::exchange(sample_, -1));
  (sample_is_on_ ? numbers_.on : numbers_.off)[at] =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(whole_ns));
  if (!sample_is_on_) numbers_.hidden += static_cast<std::int64_t>(hidden_ns);
  ++taken_;
}

}  // namespace od::overlap
