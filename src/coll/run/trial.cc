// Judges the times of Overdrive and of the host.
#include "coll/run/trial.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/quiet_floats.h"

namespace od {
namespace {

constexpr double kLeastGain = 0.03;

struct Times {
  double median = 0;
  double smallest = 0;
  double largest = 0;
  double error = 0;  // of the median, from the distance of the quartiles
};

Times times_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t count = values.size();
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(count - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, count - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  Times times;
  times.median = at(0.5);
  times.smallest = values.front();
  times.largest = values.back();
  // Of a normal distribution: the quartiles are 1.35 deviations apart, the median of n values
  // strays by 1.25 deviations over the root of n.
  times.error = (at(0.75) - at(0.25)) * 1.25 / 1.35 / std::sqrt(static_cast<double>(count));
  return times;
}

}  // namespace

bool Trial::took(std::uint64_t ns) {
  const bool measured = measuring();
  const int at = position();
  ++calls_;
  if (!measured) return false;
  const int block = at / kBlock;
  const int in_block = at % kBlock;
  if (in_block > 0) {
    samples_[static_cast<std::size_t>(block * kMeasured + in_block - 1)] =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(ns));
  }
  return at == 2 * kBlock - 1 || at == kBlocks * kBlock - 1;
}

bool Trial::judge() {
  const QuietFloats quiet;
  const bool all = position() == kBlocks * kBlock;
  std::vector<double> own;
  std::vector<double> host;
  for (std::size_t i = 0; i < (all ? samples_.size() : samples_.size() / 2); ++i) {
    const std::size_t block = i / kMeasured;
    (block == 0 || block == 3 ? own : host).push_back(static_cast<double>(samples_[i]));
  }
  const Times ours = times_of(own);
  const Times theirs = times_of(host);
  const bool clear = ours.largest * 1.1 < theirs.smallest || theirs.largest * 1.1 < ours.smallest;
  if (!all && !clear) return false;
  const bool host_serves = winner_ == Turn::host;
  const double now = host_serves ? theirs.median : ours.median;
  const double other = host_serves ? ours.median : theirs.median;
  const double noise = 2 * std::hypot(ours.error, theirs.error);
  if (now - other > std::max(kLeastGain * now, noise)) {
    winner_ = host_serves ? Turn::own : Turn::host;
  }
  judged_ = true;
  begins_ = calls_ + apart_;
  apart_ *= 16;
  samples_ = {};
  return true;
}

}  // namespace od
