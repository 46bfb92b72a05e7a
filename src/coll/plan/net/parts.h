// Small arithmetic that algorithms share: cutting vectors, numbering ranks.
#ifndef OVERDRIVE_COLL_PLAN_NET_PARTS_H_
#define OVERDRIVE_COLL_PLAN_NET_PARTS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/plan/builder.h"
#include "coll/plan/shape.h"

namespace od::coll {

inline Place output(std::int64_t offset = 0) { return {offset, 0, Buffer::kOutput}; }

// This rank's contribution; with MPI_IN_PLACE it lies in the output buffer at `in_place_offset`.
inline Place input(const Shape& shape, std::int64_t in_place_offset = 0) {
  if (shape.in_place) return output(in_place_offset);
  return {0, 0, Buffer::kInput};
}

// A vector cut into `parts` pieces whose lengths differ by at most 1.
struct Cut {
  std::int64_t count;
  std::int64_t parts;

  std::int64_t begin(std::int64_t part) const {
    return part * (count / parts) + std::min(part, count % parts);
  }
  std::int64_t size(std::int64_t part) const { return begin(part + 1) - begin(part); }
  std::int64_t largest() const { return (count + parts - 1) / parts; }
};

// A vector that consists of one block per rank, one after the other.
class Blocks {
 public:
  Blocks(Cut cut) : cut_(cut) {}  // NOLINT(google-explicit-constructor): a cut is one kind of it
  // The blocks of all ranks, as the shape says.
  explicit Blocks(const Shape& shape) : cut_{shape.count * shape.ranks, shape.ranks} {
    if (shape.counts == nullptr) return;
    begins_.assign(1, 0);
    for (int i = 0; i < shape.ranks; ++i) begins_.push_back(begins_.back() + shape.counts[i]);
    cut_.count = begins_.back();
  }

  std::int64_t parts() const { return cut_.parts; }
  std::int64_t total() const { return cut_.count; }
  std::int64_t begin(std::int64_t part) const {
    return begins_.empty() ? cut_.begin(part) : begins_[static_cast<std::size_t>(part)];
  }
  std::int64_t size(std::int64_t part) const { return begin(part + 1) - begin(part); }
  std::int64_t largest() const {
    if (begins_.empty()) return cut_.largest();
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < cut_.parts; ++i) most = std::max(most, size(i));
    return most;
  }

 private:
  Cut cut_;
  std::vector<std::int64_t> begins_;
};

// Cuts `count` units into segments of about `segment_bytes` (<= 0: one segment), at most `most`.
inline Cut segments(const Shape& shape, std::int64_t count, std::int64_t segment_bytes,
                    std::int64_t most) {
  if (segment_bytes <= 0 || count == 0) return {count, 1};
  const std::int64_t units = std::max<std::int64_t>(1, segment_bytes / shape.unit_bytes);
  return {count, std::min((count + units - 1) / units, most)};
}
inline Cut segments(const Shape& shape, std::int64_t count) {
  return segments(shape, count, shape.parameters.segment_bytes, shape.most_segments);
}

// Ranks counted from the root: the root is 0.
inline int from_root(const Shape& shape, int rank) {
  return (rank - shape.root + shape.ranks) % shape.ranks;
}
inline int to_rank(const Shape& shape, int from_root) {
  return (from_root + shape.root) % shape.ranks;
}

// Makes the number of ranks a power of two. Of the first 2*rest ranks the even ones hand their part
// to their right neighbour and stand aside; the others are numbered anew, in the same order.
struct Fold {
  explicit Fold(int ranks)
      : members(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        rest(ranks - members) {}

  bool aside(int rank) const { return rank < 2 * rest && rank % 2 == 0; }
  // Has a left neighbour that stands aside.
  bool doubled(int rank) const { return rank < 2 * rest && rank % 2 == 1; }
  int member(int rank) const { return rank < 2 * rest ? rank / 2 : rank - rest; }
  int rank(int member) const { return member < rest ? 2 * member + 1 : member + rest; }
  // The lowest rank whose part a member holds.
  int first(int member) const { return member < rest ? 2 * member : member + rest; }

  int members;
  int rest;
};

// Several areas of scratch memory, used in turn: a step may fill one while others are still read.
class Ring {
 public:
  Ring(Builder& builder, std::int64_t units, int areas) : units_(units), areas_(areas) {
    first_ = builder.scratch(units * areas);
  }
  Place next() { return first_ + units_ * (used_++ % areas_); }

 private:
  Place first_;
  std::int64_t units_;
  std::int64_t areas_;
  std::int64_t used_ = 0;
};

// Keeps at most `limit` things under way: each one added waits for the one `limit` before it.
class Window {
 public:
  Window(Builder& builder, int limit)
      : builder_(builder), limit_(limit <= 0 ? 0 : static_cast<std::size_t>(limit)) {}

  void add(Builder::StepId step) {
    if (limit_ == 0 || step == Builder::kNoStep) return;
    if (steps_.size() < limit_) {
      steps_.push_back(step);
      return;
    }
    builder_.order(steps_[next_], step);
    steps_[next_] = step;
    next_ = (next_ + 1) % limit_;
  }

 private:
  Builder& builder_;
  std::size_t limit_;
  std::size_t next_ = 0;
  std::vector<Builder::StepId> steps_;
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_NET_PARTS_H_
