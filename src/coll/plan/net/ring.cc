// Reduction around the ring.
#include "coll/plan/net/ring.h"

#include <algorithm>

namespace od::coll {

void ring_reduce(Builder& builder, const Shape& shape, Place own, Place result,
                 const Blocks& blocks, std::int64_t segment_bytes) {
  const int ranks = shape.ranks;
  const int me = shape.rank;
  if (ranks == 1) {
    builder.copy(result, own, blocks.size(0));
    return;
  }
  const int left = (me - 1 + ranks) % ranks;
  const int right = (me + 1) % ranks;
  // Neighbours exchange the segments of all blocks.
  const std::int64_t most = std::max<std::int64_t>(1, shape.most_segments / ranks);
  // One area arrives while the one before is on its way out.
  Ring arrivals(builder, blocks.largest(), 3);
  int block = left;  // what goes out
  Place current = own + blocks.begin(block);
  for (int step = 0; step + 1 < ranks; ++step) {
    const int next = (block - 1 + ranks) % ranks;
    const bool last = step + 2 == ranks;
    const Place arrival = arrivals.next();
    const Place mine = own + blocks.begin(next);
    const Place sum = last ? result : arrival;
    const Cut out = segments(shape, blocks.size(block), segment_bytes, most);
    for (std::int64_t i = 0; i < out.parts; ++i) {
      builder.send(right, current + out.begin(i), out.size(i));
    }
    const Cut in = segments(shape, blocks.size(next), segment_bytes, most);
    for (std::int64_t i = 0; i < in.parts; ++i) {
      const std::int64_t at = in.begin(i);
      builder.receive(left, arrival + at, in.size(i));
      builder.reduce(sum + at, arrival + at, mine + at, in.size(i));
    }
    block = next;
    current = sum;
  }
}

}  // namespace od::coll
