// A histogram of times with a relative error of at most 1/8, in constant memory.
//
// Buckets are those of a floating-point number with three bits of mantissa: values up to 7 exactly,
// then eight buckets per power of two.
#ifndef OVERDRIVE_SWITCH_HISTOGRAM_H_
#define OVERDRIVE_SWITCH_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace od::fabric {

class Histogram {
 public:
  void add(std::uint64_t value) {
    ++buckets_[index(value)];
    ++count_;
    sum_ += value;
    largest_ = std::max(largest_, value);
  }
  std::uint64_t count() const { return count_; }
  std::uint64_t sum() const { return sum_; }
  std::uint64_t largest() const { return largest_; }

  // The smallest bucket bound that at least `share` (0 to 1) of the values do not exceed.
  std::uint64_t quantile(double share) const {
    std::uint64_t wanted = static_cast<std::uint64_t>(share * static_cast<double>(count_));
    wanted = std::clamp<std::uint64_t>(wanted, 1, std::max<std::uint64_t>(count_, 1));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen >= wanted) return std::min(upper(i), largest_);
    }
    return largest_;
  }

 private:
  static constexpr int kMantissaBits = 3;
  static constexpr std::size_t kSub = 1 << kMantissaBits;

  static std::size_t index(std::uint64_t value) {
    if (value < kSub) return static_cast<std::size_t>(value);
    const int shift = static_cast<int>(std::bit_width(value)) - 1 - kMantissaBits;
    return (static_cast<std::size_t>(shift) + 1) * kSub +
           static_cast<std::size_t>(value >> shift & (kSub - 1));
  }
  static std::uint64_t upper(std::size_t i) {
    if (i < kSub) return i;
    const std::size_t shift = i / kSub - 1;
    return ((kSub + i % kSub + 1) << shift) - 1;
  }

  std::array<std::uint64_t, 62 * kSub> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t largest_ = 0;
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_HISTOGRAM_H_
