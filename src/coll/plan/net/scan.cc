// Prefix reductions; operands are always joined in rank order.
#include <algorithm>

#include "coll/plan/net/algorithms.h"
#include "coll/plan/net/parts.h"

namespace od::coll {
namespace {

// An exclusive scan reads its contribution after parts of the result are there.
Place exscan_input(Builder& builder, const Shape& shape) {
  if (!shape.in_place) return Place{};
  const Place own = builder.scratch(shape.count);
  builder.copy(own, output(), shape.count);
  return own;
}

// Ranks first .. ranks-1 have `current`; then each has the sum over first .. rank in `result`.
void doubling_prefix(Builder& builder, const Shape& shape, int first, Place current, Place result) {
  Ring arrivals(builder, shape.count, 2);
  for (int distance = 1; distance < shape.ranks - first; distance *= 2) {
    if (shape.rank + distance < shape.ranks) {
      builder.send(shape.rank + distance, current, shape.count);
    }
    if (shape.rank - distance < first) continue;
    const Place arrival = arrivals.next();
    builder.receive(shape.rank - distance, arrival, shape.count);
    builder.reduce(result, arrival, current, shape.count);
    current = result;
  }
  builder.copy(result, current, shape.count);
}

}  // namespace

void scan_linear(Builder& builder, const Shape& shape) {
  const Cut cut = segments(shape, shape.count);
  Ring arrivals(builder, shape.rank > 0 ? cut.largest() : 0, 4);
  for (std::int64_t segment = 0; segment < cut.parts; ++segment) {
    const std::int64_t at = cut.begin(segment);
    const std::int64_t size = cut.size(segment);
    if (shape.rank > 0) {
      const Place arrival = arrivals.next();
      builder.receive(shape.rank - 1, arrival, size);
      builder.reduce(output(at), arrival, input(shape) + at, size);
    } else {
      builder.copy(output(at), input(shape) + at, size);
    }
    if (shape.rank + 1 < shape.ranks) builder.send(shape.rank + 1, output(at), size);
  }
}

void exscan_linear(Builder& builder, const Shape& shape) {
  const Place own = exscan_input(builder, shape);
  const Cut cut = segments(shape, shape.count);
  Ring sums(builder, cut.largest(), 4);
  for (std::int64_t segment = 0; segment < cut.parts; ++segment) {
    const std::int64_t at = cut.begin(segment);
    const std::int64_t size = cut.size(segment);
    Place sum = own + at;
    if (shape.rank > 0) builder.receive(shape.rank - 1, output(at), size);
    if (shape.rank + 1 == shape.ranks) continue;
    if (shape.rank > 0) {
      sum = sums.next();
      builder.reduce(sum, output(at), own + at, size);
    }
    builder.send(shape.rank + 1, sum, size);
  }
}

namespace {

// Groups of neighbours double in size; each rank knows the sum of its group and the sum of those in
// it that are below. `has_result` says whether `result` has been written yet.
void group_doubling(Builder& builder, const Shape& shape, Place own, Place result,
                    bool has_result) {
  const Place group_sum = builder.scratch(shape.count);
  Ring arrivals(builder, shape.count, 2);
  Place group = own;
  for (int distance = 1; distance < shape.ranks; distance *= 2) {
    const int peer = shape.rank ^ distance;
    if (peer >= shape.ranks) continue;
    const Place arrival = arrivals.next();
    builder.send(peer, group, shape.count);
    builder.receive(peer, arrival, shape.count);
    const bool left = peer < shape.rank;
    if (left) {
      if (has_result) {
        builder.reduce(result, arrival, result, shape.count);
      } else {
        builder.copy(result, arrival, shape.count);
        has_result = true;
      }
    }
    if (2 * distance >= shape.ranks) break;  // no one needs a larger group
    builder.reduce(group_sum, left ? arrival : group, left ? group : arrival, shape.count);
    group = group_sum;
  }
}

}  // namespace

void scan_recursive_doubling(Builder& builder, const Shape& shape) {
  Place own = input(shape);
  if (shape.in_place) {
    own = builder.scratch(shape.count);
    builder.copy(own, output(), shape.count);
  } else {
    builder.copy(output(), own, shape.count);
  }
  group_doubling(builder, shape, own, output(), true);
}

void exscan_recursive_doubling(Builder& builder, const Shape& shape) {
  group_doubling(builder, shape, exscan_input(builder, shape), output(), false);
}

void scan_binomial(Builder& builder, const Shape& shape) {
  doubling_prefix(builder, shape, 0, input(shape), output());
}

// The contributions move one rank up; then it is an inclusive scan over ranks 1 and above.
void exscan_binomial(Builder& builder, const Shape& shape) {
  const Place own = exscan_input(builder, shape);
  if (shape.rank + 1 < shape.ranks) builder.send(shape.rank + 1, own, shape.count);
  if (shape.rank == 0) return;
  builder.receive(shape.rank - 1, output(), shape.count);
  doubling_prefix(builder, shape, 1, output(), output());
}

}  // namespace od::coll
