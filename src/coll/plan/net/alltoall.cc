// Every rank has a block for every other one.
//
// In alltoallv and alltoallw whole blocks move; an executor that is called with MPI_IN_PLACE copies
// the blocks aside first and runs the schedule as if they had been the input.
#include <algorithm>

#include "coll/plan/net/algorithms.h"
#include "coll/plan/net/parts.h"

namespace od::coll {
namespace {

// Blocks that go out; with MPI_IN_PLACE a copy, because blocks come in meanwhile.
Place outgoing(Builder& builder, const Shape& shape) {
  if (!shape.in_place) return Place{};
  const std::int64_t all = shape.count * shape.ranks;
  const Place copy = builder.scratch(all);
  builder.copy(copy, output(), all);
  return copy;
}

// Partners in step 1 .. ranks-1: the same one in both directions where ranks are a power of two.
struct Partners {
  int to;
  int from;
};
Partners partners(const Shape& shape, int step, bool pairs) {
  if (pairs && (shape.ranks & (shape.ranks - 1)) == 0) {
    return {shape.rank ^ step, shape.rank ^ step};
  }
  return {(shape.rank + step) % shape.ranks, (shape.rank - step + shape.ranks) % shape.ranks};
}

// Step by step, with at most `limit` steps under way (<= 0: all). In pairs, a step begins when both
// directions of the one before are complete.
template <class Outgoing, class Incoming>
void exchange(Builder& builder, const Shape& shape, bool pairs, int limit, std::int64_t count,
              Outgoing outgoing_place, Incoming incoming_place) {
  Window receives(builder, limit);
  Window sends(builder, limit);
  Builder::StepId last_receive = Builder::kNoStep;
  Builder::StepId last_send = Builder::kNoStep;
  for (int step = 1; step < shape.ranks; ++step) {
    const Partners peer = partners(shape, step, pairs);
    const auto receive = builder.receive(peer.from, incoming_place(peer.from), count);
    receives.add(receive);
    if (pairs) builder.order(last_send, receive);
    const auto send = builder.send(peer.to, outgoing_place(peer.to), count);
    sends.add(send);
    if (pairs) builder.order(last_receive, send);
    last_receive = receive;
    last_send = send;
  }
  // Last: messages are under way meanwhile.
  builder.copy(incoming_place(shape.rank), outgoing_place(shape.rank), count);
}

void regular(Builder& builder, const Shape& shape, bool pairs, int limit) {
  const Place out = outgoing(builder, shape);
  exchange(
      builder, shape, pairs, limit, shape.count, [&](int rank) { return out + rank * shape.count; },
      [&](int rank) { return output(rank * shape.count); });
}

void whole_blocks(Builder& builder, const Shape& shape, bool pairs, int limit) {
  exchange(
      builder, shape, pairs, limit, kWholeBlock,
      [](int rank) {
        return Place{0, rank, Buffer::kInput};
      },
      [](int rank) {
        return Place{0, rank, Buffer::kOutput};
      });
}

}  // namespace

void alltoall_linear(Builder& builder, const Shape& shape) {
  regular(builder, shape, false, shape.parameters.window);
}

void alltoall_pairwise(Builder& builder, const Shape& shape) { regular(builder, shape, true, 1); }

void alltoallv_linear(Builder& builder, const Shape& shape) {
  whole_blocks(builder, shape, false, shape.parameters.window);
}

void alltoallv_pairwise(Builder& builder, const Shape& shape) {
  whole_blocks(builder, shape, true, 1);
}

// Blocks are numbered by how far they have to go. In the round of each digit of that number (base
// radix) all blocks that have the digit d travel d times the digit's place together.
void alltoall_bruck(Builder& builder, const Shape& shape) {
  const int ranks = shape.ranks;
  const int radix = std::max(2, shape.parameters.radix);
  const std::int64_t count = shape.count;
  const Place own = shape.in_place ? output() : Place{};
  const Place held = builder.scratch(count * ranks);
  for (int i = 0; i < ranks; ++i) {
    builder.copy(held + i * count, own + (shape.rank + i) % ranks * count, count);
  }
  for (std::int64_t place = 1; place < ranks; place *= radix) {
    for (int digit = 1; digit < radix && digit * place < ranks; ++digit) {
      const auto moves = [&](int i) { return i / place % radix == digit; };
      std::int64_t moving = 0;
      for (int i = 0; i < ranks; ++i) moving += moves(i) ? 1 : 0;
      const Place packed = builder.scratch(moving * count);
      const Place arrived = builder.scratch(moving * count);
      std::int64_t at = 0;
      for (int i = 0; i < ranks; ++i) {
        if (moves(i)) builder.copy(packed + at++ * count, held + i * count, count);
      }
      const auto distance = static_cast<int>(digit * place);
      builder.send((shape.rank + distance) % ranks, packed, moving * count);
      builder.receive((shape.rank - distance + ranks) % ranks, arrived, moving * count);
      at = 0;
      for (int i = 0; i < ranks; ++i) {
        if (moves(i)) builder.copy(held + i * count, arrived + at++ * count, count);
      }
    }
  }
  for (int i = 0; i < ranks; ++i) {
    builder.copy(output((shape.rank - i + ranks) % ranks * count), held + i * count, count);
  }
}

}  // namespace od::coll
