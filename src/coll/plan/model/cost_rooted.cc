// Costs of barriers and of collectives with a root.
#include "coll/plan/model/cost_parts.h"

namespace od::coll::cost {

double barrier_dissemination(const Estimate& e, double, const Parameters& p) {
  double total = 0;
  for (double known = 1; known < e.ranks(); known *= p.radix) {
    total += shift(e, 0, known) + (p.radix - 2) * e.gap(0, known);
  }
  return total;
}
double barrier_recursive_doubling(const Estimate& e, double, const Parameters&) {
  double total = folded(e) ? 2 * e.exchange(0, 1) : 0;
  for (double d = 1; 2 * d <= e.ranks(); d *= 2) total += e.exchange(0, d);
  return total;
}
double barrier_tree(const Estimate& e, double, const Parameters& p) {
  return 2 * knomial_depth(e, 0, p.radix);
}
double barrier_linear(const Estimate& e, double, const Parameters&) { return 2 * from_all(e, 0); }
double barrier_ring(const Estimate& e, double, const Parameters&) {
  return 2 * line(e, 0, e.ranks());
}
double barrier_tournament(const Estimate& e, double, const Parameters&) {
  return 2 * knomial_depth(e, 0, 2);
}

double bcast_linear(const Estimate& e, double n, const Parameters&) { return from_all(e, n); }
double bcast_knomial(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  return pipeline.time(knomial_depth(e, pipeline.segment, p.radix),
                       knomial_width(e, pipeline.segment, p.radix));
}
double bcast_chain(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  return pipeline.time(line(e, pipeline.segment, e.ranks() / p.radix),
                       p.radix * e.ring_gap(pipeline.segment));
}
double bcast_binary(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  return pipeline.time(binary_depth(e, pipeline.segment), binary_width(e, pipeline.segment));
}
double bcast_double_binary_tree(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n / 2, p.segment_bytes);
  return pipeline.time(binary_depth(e, pipeline.segment), binary_width(e, pipeline.segment));
}
double bcast_split_binary(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n / 2, p.segment_bytes);
  return pipeline.time(binary_depth(e, pipeline.segment), binary_width(e, pipeline.segment)) +
         e.exchange(n / 2, e.ranks() / 2);
}
double bcast_scatter_ring(const Estimate& e, double n, const Parameters&) {
  return blocks_down(e, n / e.ranks(), 2) + (e.ranks() - 1) * e.ring(n / e.ranks());
}
double bcast_scatter_doubling(const Estimate& e, double n, const Parameters&) {
  const double extra = folded(e) ? e.exchange(n, power_below(e)) : 0;
  return blocks_down(e, n / e.ranks(), 2) + doubling(e, n / e.ranks()) + extra;
}

double reduce_linear(const Estimate& e, double n, const Parameters&) {
  return from_all(e, n) + (e.ranks() - 1) * e.add(n);
}
double reduce_knomial(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  const double add = e.add(pipeline.segment) * (p.radix - 1);
  const double levels = levels_of(e, p.radix);
  return pipeline.time(knomial_depth(e, pipeline.segment, p.radix) + levels * add,
                       knomial_width(e, pipeline.segment, p.radix) + levels * add);
}
double reduce_chain(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  const double add = e.add(pipeline.segment);
  const double length = static_cast<double>(e.ranks()) / p.radix;
  return pipeline.time(line(e, pipeline.segment, length) + length * add,
                       p.radix * (e.ring_gap(pipeline.segment) + add));
}
double reduce_binary(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  const double add = 2 * e.add(pipeline.segment);
  return pipeline.time(binary_depth(e, pipeline.segment) + levels_of(e, 2) * add,
                       binary_width(e, pipeline.segment) + add);
}
double reduce_double_binary_tree(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n / 2, p.segment_bytes);
  const double add = 2 * e.add(pipeline.segment);
  // Half of the connections carry sums both ways. (A reduce of 1 MiB on 4x2 over 1 Gbit/s takes
  // 10.7 to 11.3 ms, along a chain 9.3; a broadcast down such trees 11.2, along a chain 12.6.)
  const double back = e.both_ways(n / 2, e.per_node(), 1) / pipeline.count;
  return pipeline.time(binary_depth(e, pipeline.segment) + levels_of(e, 2) * add,
                       binary_width(e, pipeline.segment) + add + back);
}
double reduce_rabenseifner(const Estimate& e, double n, const Parameters&) {
  const double extra = folded(e) ? e.exchange(n, 1) + e.add(n) : 0;
  return halving(e, n) + halves(e, n) + extra;
}
double reduce_shumilin(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  const double add = e.add(pipeline.segment);
  const double length = e.ranks() / 2.0;
  return pipeline.time(line(e, pipeline.segment, length) + length * add,
                       2 * (e.ring_gap(pipeline.segment) + add));
}

double gather_linear(const Estimate& e, double n, const Parameters&) { return from_all(e, n); }
double gather_knomial(const Estimate& e, double n, const Parameters& p) {
  return blocks_up(e, n, p.radix) + e.copy(n);
}
double gather_linear_sync(const Estimate& e, double n, const Parameters& p) {
  return from_all(e, n) + e.ranks() * e.hop(0, e.ranks() - 1, 1) / std::max(1, p.window);
}
// Sizes are not known: what distinguishes the algorithms is the number of messages.
double gatherv_linear(const Estimate& e, double, const Parameters& p) {
  return gather_linear(e, kTypicalBlock, p);
}
double gatherv_linear_sync(const Estimate& e, double, const Parameters& p) {
  return gather_linear_sync(e, kTypicalBlock, p);
}
double scatter_linear(const Estimate& e, double n, const Parameters& p) {
  const double waits = p.window > 0 ? e.ranks() * e.link(e.ranks()).latency_ns / p.window : 0;
  return from_all(e, n) + 0.1 * waits;
}
double scatter_knomial(const Estimate& e, double n, const Parameters& p) {
  return blocks_down(e, n, p.radix) + e.copy(n);
}
double scatterv_linear(const Estimate& e, double, const Parameters& p) {
  return scatter_linear(e, kTypicalBlock, p);
}

}  // namespace od::coll::cost
