// How the clocks of a job's nodes differ, by messages to and fro: for statistics that put times of
// several nodes side by side.
//
// Each node's lowest rank is asked by another one, in a binomial tree from rank 0's node; the
// quickest of some questions counts, and may be wrong by half of what it took. Two comparisons, at
// the beginning and at the end, show how clocks drift; between them times are interpolated.
#ifndef OVERDRIVE_ENGINE_CLOCK_COMPARISON_H_
#define OVERDRIVE_ENGINE_CLOCK_COMPARISON_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "host/host_table.h"

namespace od {

// What one comparison finds.
struct ClockReading {
  std::int64_t ahead_ns = 0;   // of this rank's clock before rank 0's
  std::uint64_t error_ns = 0;  // how wrong that may be
  std::uint64_t at_ns = 0;     // on this rank's clock
};

// Collective over the job, blocking; `node_of_world` names each rank's node by its lowest rank.
// False when the host failed.
bool compare_clocks(const host::HostTable& host, const std::vector<int>& node_of_world,
                    ClockReading* reading);

// From this rank's clock to rank 0's, by two readings. Clocks that differ by no more than the error
// are one: those of virtual nodes.
class CommonClock {
 public:
  CommonClock() = default;
  CommonClock(const ClockReading& begin, const ClockReading& end) : begin_(begin), end_(end) {
    const auto within = [](const ClockReading& of) {
      return static_cast<std::uint64_t>(of.ahead_ns < 0 ? -of.ahead_ns : of.ahead_ns) <=
             of.error_ns;
    };
    same_ = within(begin) && within(end);
  }

  std::uint64_t error_ns() const { return std::max(begin_.error_ns, end_.error_ns); }
  std::int64_t operator()(std::uint64_t ns) const {
    const auto own = static_cast<std::int64_t>(ns);
    if (same_) return own;
    if (end_.at_ns <= begin_.at_ns) return own - begin_.ahead_ns;
    const double along = static_cast<double>(own - static_cast<std::int64_t>(begin_.at_ns)) /
                         static_cast<double>(end_.at_ns - begin_.at_ns);
    return own - begin_.ahead_ns -
           static_cast<std::int64_t>(along * static_cast<double>(end_.ahead_ns - begin_.ahead_ns));
  }

 private:
  ClockReading begin_, end_;
  bool same_ = true;
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_CLOCK_COMPARISON_H_
