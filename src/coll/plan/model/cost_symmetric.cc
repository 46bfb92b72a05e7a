// Costs of collectives without a root.
#include "coll/plan/model/cost_parts.h"

namespace od::coll {
namespace cost {
namespace {

// Sending a segment and adding the next: beside each other where a network sends, one after the
// other where the processor does.
double beside(const Estimate& e, double send, double add) {
  return e.nodes() > 1 ? std::max(send, add) : send + add;
}

}  // namespace

double allreduce_recursive_doubling(const Estimate& e, double n, const Parameters&) {
  double total = folded(e) ? 2 * e.exchange(n, 1) + e.add(n) : 0;
  for (double d = 1; 2 * d <= e.ranks(); d *= 2) total += e.exchange(n, d) + e.add(n);
  return total;
}
double allreduce_rabenseifner(const Estimate& e, double n, const Parameters&) {
  const double extra = folded(e) ? 2 * e.exchange(n, 1) + e.add(n) : 0;
  return halving(e, n) + halves(e, n) + extra;
}
double allreduce_knomial(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  const double add = e.add(pipeline.segment) * (p.radix - 1);
  const double levels = levels_of(e, p.radix);
  return pipeline.time(2 * knomial_depth(e, pipeline.segment, p.radix) + levels * add,
                       2 * knomial_width(e, pipeline.segment, p.radix) + levels * add);
}
double allreduce_reduce_bcast(const Estimate& e, double n, const Parameters& p) {
  Parameters binomial = p;
  binomial.radix = 2;
  return allreduce_knomial(e, n, binomial);
}
double allreduce_gather_scatter(const Estimate& e, double n, const Parameters&) {
  return blocks_up(e, n, 2) + (e.ranks() - 1) * e.add(n) + knomial_depth(e, n, 2);
}
double allreduce_shumilin_ring(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  const double add = e.add(pipeline.segment);
  return pipeline.time(2 * line(e, pipeline.segment, e.ranks() - 1) + (e.ranks() - 1) * add,
                       2 * e.ring_gap(pipeline.segment) + add);
}
double allreduce_ring(const Estimate& e, double n, const Parameters&) {
  const double block = n / e.ranks();
  return (e.ranks() - 1) * (2 * e.ring(block) + e.add(block));
}
double allreduce_segmented_ring(const Estimate& e, double n, const Parameters& p) {
  const double block = n / e.ranks();
  const Pipeline pipeline(block, p.segment_bytes);
  // Adding overlaps with sending but for the last segment of a block.
  const double segment = e.ring(pipeline.segment) + e.add(pipeline.segment);
  const double next = beside(e, e.ring_gap(pipeline.segment), e.add(pipeline.segment));
  return (e.ranks() - 1) * (pipeline.time(segment, next) + e.ring(block));
}
double allreduce_double_binary_tree(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n / 2, p.segment_bytes);
  const double add = 2 * e.add(pipeline.segment);
  return pipeline.time(2 * binary_depth(e, pipeline.segment) + levels_of(e, 2) * add,
                       2 * binary_width(e, pipeline.segment) + add);
}

double scan_linear(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  const double add = e.add(pipeline.segment);
  return pipeline.time(line(e, pipeline.segment, e.ranks() - 1) + (e.ranks() - 1) * add,
                       e.ring_gap(pipeline.segment) + add);
}
double scan_recursive_doubling(const Estimate& e, double n, const Parameters&) {
  double total = 0;
  for (double d = 1; d < e.ranks(); d *= 2) total += shift(e, n, d) + 2 * e.add(n);
  return total;
}
double scan_binomial(const Estimate& e, double n, const Parameters&) {
  double total = 0;
  for (double d = 1; d < e.ranks(); d *= 2) total += shift(e, n, d) + e.add(n);
  return total;
}
double exscan_linear(const Estimate& e, double n, const Parameters& p) {
  return scan_linear(e, n, p);
}
double exscan_recursive_doubling(const Estimate& e, double n, const Parameters& p) {
  return scan_recursive_doubling(e, n, p);
}
double exscan_binomial(const Estimate& e, double n, const Parameters& p) {
  // Of two the second gets what the first one has, and nothing is added.
  return e.ranks() == 2 ? e.hop(n, 1, 1) : scan_binomial(e, n, p) + e.exchange(n, 1);
}

double reduce_scatter_halving(const Estimate& e, double n, const Parameters&) {
  double total = folded(e) ? e.exchange(n, 1) + e.add(n) + e.exchange(n / e.ranks(), 1) : 0;
  for (double d = power_below(e) / 2, part = n / 2; d >= 1; d /= 2, part /= 2) {
    total += e.exchange(part, d) + e.add(part);
  }
  return total;
}
double reduce_scatter_pairwise(const Estimate& e, double n, const Parameters&) {
  return all_to_all(e, n / e.ranks()) + e.add(n);
}
double reduce_scatter_ring(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n / e.ranks(), p.segment_bytes);
  const double segment = e.ring(pipeline.segment) + e.add(pipeline.segment);
  const double next = beside(e, e.ring_gap(pipeline.segment), e.add(pipeline.segment));
  return (e.ranks() - 1) * pipeline.time(segment, next);
}
double reduce_scatter_doubling(const Estimate& e, double n, const Parameters& p) {
  return allreduce_recursive_doubling(e, n, p) + e.copy(n / e.ranks());
}
double reduce_scatter_nonoverlapping(const Estimate& e, double n, const Parameters& p) {
  const Pipeline pipeline(n, p.segment_bytes);
  const double add = e.add(pipeline.segment);
  const double levels = levels_of(e, 2);
  return pipeline.time(knomial_depth(e, pipeline.segment, 2) + levels * add,
                       knomial_width(e, pipeline.segment, 2) + levels * add) +
         blocks_down(e, n / e.ranks(), 2);
}

double allgather_recursive_doubling(const Estimate& e, double n, const Parameters&) {
  const double block = e.block(n);
  const double extra = folded(e) ? e.exchange(block, 1) + e.exchange(block * e.ranks(), 1) : 0;
  return doubling(e, block) + extra;
}
double allgather_bruck(const Estimate& e, double n, const Parameters& p) {
  const double block = e.block(n);
  double total = e.copy(block * e.ranks());
  for (double known = 1; known < e.ranks(); known *= p.radix) {
    const double sends = std::min<double>(p.radix - 1, std::ceil(e.ranks() / known) - 1);
    const double blocks = std::min(known, e.ranks() - known);
    total +=
        shift(e, blocks * block, known) + (sends - 1) * e.gap(blocks * block, known, e.per_node());
  }
  return total;
}
double allgather_ring(const Estimate& e, double n, const Parameters&) {
  return (e.ranks() - 1) * e.ring(e.block(n));
}
double allgather_neighbour_exchange(const Estimate& e, double n, const Parameters&) {
  const double blocks = 2 * e.block(n);
  return e.ranks() / 2.0 * (e.ring(blocks) + e.both_ways(blocks, e.per_node(), 1));
}
double allgather_gather_bcast(const Estimate& e, double n, const Parameters& p) {
  const double block = e.block(n);
  const Pipeline pipeline(block * e.ranks(), p.segment_bytes);
  return blocks_up(e, block, p.radix) + pipeline.time(knomial_depth(e, pipeline.segment, p.radix),
                                                      knomial_width(e, pipeline.segment, p.radix));
}
double allgather_linear(const Estimate& e, double n, const Parameters&) {
  const double more = e.both_ways(e.block(n), e.per_node(), e.per_node());
  return all_to_all(e, e.block(n)) + e.far_partners() * more;
}

double alltoall_bruck(const Estimate& e, double n, const Parameters& p) {
  double total = 2 * e.copy(n * e.ranks());
  for (double place = 1; place < e.ranks(); place *= p.radix) {
    const double sends = std::min<double>(p.radix - 1, std::ceil(e.ranks() / place) - 1);
    const double bytes = n * e.ranks() / p.radix;
    total += shift(e, bytes, place) + (sends - 1) * e.gap(bytes, place, e.per_node()) +
             sends * 2 * e.copy(bytes);
  }
  return total;
}
double alltoall_linear(const Estimate& e, double n, const Parameters& p) {
  // Everything at once: receivers look through long queues, senders collide.
  const double limit = p.window > 0 ? p.window : e.ranks();
  const double queue = 4.0 * std::min<double>(limit, e.ranks()) * e.ranks();
  const double waits = p.window > 0 ? e.ranks() * e.link(e.ranks()).latency_ns / limit : 0;
  return all_to_all(e, n) + queue + waits;
}
double alltoall_pairwise(const Estimate& e, double n, const Parameters&) {
  return e.near_partners() * e.all_hop(n, 0) + e.far_partners() * e.all_hop(n, e.per_node());
}
double alltoallv_linear(const Estimate& e, double, const Parameters& p) {
  return alltoall_linear(e, kTypicalBlock, p);
}
double alltoallv_pairwise(const Estimate& e, double, const Parameters& p) {
  return alltoall_pairwise(e, kTypicalBlock, p);
}

}  // namespace cost

}  // namespace od::coll
