// Tries factors on a coarse grid, goes on from the best as long as that helps, and then in ever
// smaller steps.
#include "coll/plan/model/network_fit.h"

#include <limits>

namespace od::coll {
namespace {

// From a 256th to 256 times in steps of 4; then by 2 as often as a better one is found, because the
// best may lie between two of these; then by its root and the root of that.
constexpr double kCoarse = 4;
constexpr int kCoarseSteps = 4;
constexpr double kMiddle = 2;
constexpr int kMostMoves = 8;
constexpr double kFine[] = {1.4142135623730951, 1.189207115002721};
// How much it counts that a factor is far from 1, beside one way that is seen to take another time
// than the model says. A way strays by a fifth, which counts 0.01.
constexpr double kPrior = 0.02;

// How far one is from the other, as a share of both: -1 to 1.
double apart(double a, double b) { return (a - b) / (a + b); }

struct Fit {
  double messages = 1;
  double bytes = 1;
  double error = std::numeric_limits<double>::infinity();
};

class Search {
 public:
  Search(const Machine& machine, std::span<const Seen> seen) : machine_(machine), seen_(seen) {}

  // Tries the factors around the best ones, so many steps of that size in each direction.
  // True: there is a better one.
  bool around(double step, int steps) {
    const Fit center = best_;
    double least = 1;
    for (int i = 0; i < steps; ++i) least /= step;
    double messages = center.messages * least;
    for (int i = -steps; i <= steps; ++i, messages *= step) {
      double bytes = center.bytes * least;
      for (int j = -steps; j <= steps; ++j, bytes *= step) try_factors(messages, bytes);
    }
    return best_.error < center.error;
  }
  Machine machine() const { return with_network(machine_, best_.messages, best_.bytes); }

 private:
  void try_factors(double messages, double bytes) {
    const Machine other = with_network(machine_, messages, bytes);
    const double far_messages = apart(messages, 1);
    const double far_bytes = apart(bytes, 1);
    double error = kPrior * (far_messages * far_messages + far_bytes * far_bytes);
    for (const Seen& each : seen_) {
      const double off = apart(each.cost_ns(other), each.ns);
      error += off * off;
    }
    if (error < best_.error) best_ = {messages, bytes, error};
  }

  const Machine& machine_;
  std::span<const Seen> seen_;
  Fit best_;
};

}  // namespace

Machine with_network(const Machine& machine, double messages, double bytes) {
  Machine other = machine;
  other.far.latency_ns *= messages;
  other.far.overhead_ns *= messages;
  other.far.gap_ns *= messages;
  other.far.byte_ns *= bytes;
  return other;
}

Machine fit_network(const Machine& machine, std::span<const Seen> seen) {
  if (seen.empty()) return machine;
  Search search(machine, seen);
  search.around(kCoarse, kCoarseSteps);
  for (int move = 0; move < kMostMoves && search.around(kMiddle, 1); ++move) {
  }
  for (const double step : kFine) search.around(step, 1);
  return search.machine();
}

}  // namespace od::coll
