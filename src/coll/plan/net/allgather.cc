// All ranks get everyone's block.
//
// allgather and allgatherv share their algorithms. The blocks of an allgather are one piece in the
// output; those of an allgatherv lie anywhere, so that algorithms which move several blocks in one
// message collect them in scratch memory first.
#include <algorithm>

#include "coll/plan/net/algorithms.h"
#include "coll/plan/net/parts.h"
#include "coll/plan/net/spread.h"
#include "coll/plan/net/trees.h"

namespace od::coll {
namespace {

bool irregular(const Shape& shape) { return shape.counts != nullptr && !shape.one_piece; }

Place block_place(const Shape& shape, const Blocks& blocks, int rank) {
  if (irregular(shape)) return {0, rank, Buffer::kOutput};
  return output(blocks.begin(rank));
}

// This rank's contribution.
Place own_block(const Shape& shape, const Blocks& blocks) {
  return shape.in_place ? block_place(shape, blocks, shape.rank) : Place{};
}

// After the first messages, which do not need it: they are under way meanwhile.
void copy_own(Builder& builder, const Shape& shape, const Blocks& blocks) {
  builder.copy(block_place(shape, blocks, shape.rank), own_block(shape, blocks),
               blocks.size(shape.rank));
}

// Where all blocks are one piece; own is put there already.
Place collected(Builder& builder, const Shape& shape, const Blocks& blocks) {
  const Place all = irregular(shape) ? builder.scratch(blocks.total()) : output();
  builder.copy(all + blocks.begin(shape.rank), own_block(shape, blocks), blocks.size(shape.rank));
  return all;
}

void hand_out(Builder& builder, const Shape& shape, const Blocks& blocks, Place all) {
  if (!irregular(shape)) return;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    builder.copy(block_place(shape, blocks, rank), all + blocks.begin(rank), blocks.size(rank));
  }
}

}  // namespace

void allgather_recursive_doubling(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  const Fold fold(shape.ranks);
  const Place all = collected(builder, shape, blocks);
  if (fold.aside(shape.rank)) {
    builder.send(shape.rank + 1, all + blocks.begin(shape.rank), blocks.size(shape.rank));
    builder.receive(shape.rank + 1, all, blocks.total());
    hand_out(builder, shape, blocks, all);
    return;
  }
  if (fold.doubled(shape.rank)) {
    builder.receive(shape.rank - 1, all + blocks.begin(shape.rank - 1),
                    blocks.size(shape.rank - 1));
  }
  const auto begin = [&](int member) {
    return member == fold.members ? blocks.total() : blocks.begin(fold.first(member));
  };
  const int me = fold.member(shape.rank);
  for (int distance = 1; distance < fold.members; distance *= 2) {
    const int mine = me & -distance;
    const int other = mine ^ distance;
    const int peer = fold.rank(me ^ distance);
    builder.send(peer, all + begin(mine), begin(mine + distance) - begin(mine));
    builder.receive(peer, all + begin(other), begin(other + distance) - begin(other));
  }
  if (fold.doubled(shape.rank)) builder.send(shape.rank - 1, all, blocks.total());
  hand_out(builder, shape, blocks, all);
}

// In each round a rank gets blocks from ranks at k times the distance; the blocks are in order,
// beginning with its own, and are put into their places at the end.
void allgather_bruck(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  const int ranks = shape.ranks;
  const int radix = std::max(2, shape.parameters.radix);
  const auto owner = [&](int i) { return (shape.rank + i) % ranks; };
  // Where the i-th block is in the scratch memory.
  const auto begin = [&](int i) {
    const int end = shape.rank + i;
    const std::int64_t wrapped =
        end >= ranks ? blocks.total() + blocks.begin(end - ranks) : blocks.begin(end);
    return wrapped - blocks.begin(shape.rank);
  };
  const Place held = builder.scratch(blocks.total());
  builder.copy(held, own_block(shape, blocks), blocks.size(shape.rank));
  for (std::int64_t known = 1; known < ranks; known *= radix) {
    for (int i = 1; i < radix && i * known < ranks; ++i) {
      const auto distance = static_cast<int>(i * known);
      const auto count = static_cast<int>(std::min<std::int64_t>(known, ranks - distance));
      builder.send((shape.rank - distance + ranks) % ranks, held, begin(count));
      builder.receive(owner(distance), held + begin(distance),
                      begin(distance + count) - begin(distance));
    }
  }
  for (int i = 0; i < ranks; ++i) {
    builder.copy(block_place(shape, blocks, owner(i)), held + begin(i), blocks.size(owner(i)));
  }
}

void allgather_ring(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  const int ranks = shape.ranks;
  const int left = (shape.rank - 1 + ranks) % ranks;
  const int right = (shape.rank + 1) % ranks;
  for (int step = 0; step + 1 < ranks; ++step) {
    const int out = (shape.rank - step + ranks) % ranks;
    const int in = (left - step + ranks) % ranks;
    const Place source = step == 0 ? own_block(shape, blocks) : block_place(shape, blocks, out);
    builder.send(right, source, blocks.size(out));
    builder.receive(left, block_place(shape, blocks, in), blocks.size(in));
  }
  copy_own(builder, shape, blocks);
}

// Ranks exchange with their left and right neighbours in turn, two blocks each time after the
// first.
void allgather_neighbour_exchange(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  const int ranks = shape.ranks;
  const int pairs = ranks / 2;
  const bool even = shape.rank % 2 == 0;
  // A pair of blocks as one message where they are one piece.
  const auto move_pair = [&](int peer, int pair, bool out) {
    const int first = 2 * pair;
    if (!irregular(shape)) {
      const Place place = block_place(shape, blocks, first);
      const std::int64_t size = blocks.size(first) + blocks.size(first + 1);
      out ? builder.send(peer, place, size) : builder.receive(peer, place, size);
      return;
    }
    for (int rank = first; rank < first + 2; ++rank) {
      const Place place = block_place(shape, blocks, rank);
      const std::int64_t size = blocks.size(rank);
      out ? builder.send(peer, place, size) : builder.receive(peer, place, size);
    }
  };
  const int left = (shape.rank - 1 + ranks) % ranks;
  const int right = (shape.rank + 1) % ranks;
  const int partner = even ? right : left;
  builder.send(partner, own_block(shape, blocks), blocks.size(shape.rank));
  builder.receive(partner, block_place(shape, blocks, partner), blocks.size(partner));
  copy_own(builder, shape, blocks);
  const int pair = shape.rank / 2;
  // An even rank gets, in turn, pairs from its left and right; what it got last goes on.
  int out = pair;
  for (int step = 1; step < pairs; ++step) {
    const bool to_left = even == (step % 2 == 1);
    const int peer = to_left ? left : right;
    // The peer is in the next pair; it sends what it got in the step before from the other side.
    const int reach = (step + 1) / 2;
    const int in = to_left ? (pair - reach + pairs) % pairs : (pair + reach) % pairs;
    move_pair(peer, out, true);
    move_pair(peer, in, false);
    out = in;
  }
}

void allgather_gather_bcast(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  const int radix = std::max(2, shape.parameters.radix);
  const Placement placement{shape.ranks, 0};
  const Place all = collected(builder, shape, blocks);
  gather_up(builder, placement, shape.rank, all, blocks, radix);
  send_down(builder, knomial_tree(shape.ranks, shape.rank, radix), placement, all,
            segments(shape, blocks.total()), 0);
  hand_out(builder, shape, blocks, all);
}

// Every rank sends its block to every other one.
void allgather_linear(Builder& builder, const Shape& shape) {
  const Blocks blocks(shape);
  const int ranks = shape.ranks;
  Window receives(builder, shape.parameters.window);
  Window sends(builder, shape.parameters.window);
  for (int step = 1; step < ranks; ++step) {
    const int from = (shape.rank - step + ranks) % ranks;
    receives.add(builder.receive(from, block_place(shape, blocks, from), blocks.size(from)));
    sends.add(builder.send((shape.rank + step) % ranks, own_block(shape, blocks),
                           blocks.size(shape.rank)));
  }
  copy_own(builder, shape, blocks);
}

}  // namespace od::coll
