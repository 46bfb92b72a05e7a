// Collectives of leaders that something between them does, such as a switch that adds.
//
// What is done otherwise, where there is no such thing or it has failed in the middle, is part of
// the same schedule: an ordinary algorithm, of whose steps each waits for the outcome.
#include "coll/plan/net/algorithms.h"
#include "coll/plan/net/parts.h"

namespace od::coll {

void barrier_in_network(Builder& builder, const Shape& shape) {
  if (shape.ranks > 1) builder.elsewhere(Elsewhere::kMeet, {}, {}, 0);
  barrier_dissemination(builder, shape);
  builder.end_otherwise();
}

void bcast_in_network(Builder& builder, const Shape& shape) {
  if (shape.ranks > 1 && shape.count > 0) {
    const bool shows = shape.rank == shape.root;
    builder.elsewhere(shows ? Elsewhere::kShow : Elsewhere::kTake, output(), output(), shape.count);
  }
  bcast_knomial(builder, shape);
  builder.end_otherwise();
}

// All get the sum; those that are not the root have no use for it.
void reduce_in_network(Builder& builder, const Shape& shape) {
  if (shape.ranks > 1 && shape.count > 0) {
    const bool at_root = shape.rank == shape.root;
    const Place target = at_root ? output() : builder.scratch(shape.count);
    const Place own = at_root && shape.in_place ? output() : Place{};
    builder.elsewhere(Elsewhere::kCombine, target, own, shape.count);
  }
  reduce_knomial(builder, shape);
  builder.end_otherwise();
}

void allreduce_in_network(Builder& builder, const Shape& shape) {
  if (shape.ranks > 1 && shape.count > 0) {
    builder.elsewhere(Elsewhere::kCombine, output(), input(shape), shape.count);
  }
  allreduce_recursive_doubling(builder, shape);
  builder.end_otherwise();
}

}  // namespace od::coll
