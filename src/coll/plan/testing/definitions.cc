// The definitions of all collectives.
#include "coll/plan/testing/definitions.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace od::coll::testing {
namespace {

// What a rank contributes, if nothing is done in place; and the size of its output.
struct Plan {
  std::vector<std::int64_t> input;
  std::vector<std::int64_t> output;
};

Plan plan_of(const Case& test, int rank) {
  const CollectiveInfo& kind = info(test.algorithm->collective);
  const bool root = rank == test.root;
  const bool listed = kind.counts != Counts::kSame;
  // Units that the rank has for another, or from it.
  const auto block = [&](int other, bool sends) {
    if (!listed) return test.count;
    if (kind.input == kind.output) {
      return sends ? test.irregular(rank, other) : test.irregular(other, rank);
    }
    return test.irregular(other, 0);
  };
  // Blocks of equal size, and those that are combined, are one vector.
  const auto side = [&](Part part, bool sends) -> std::vector<std::int64_t> {
    if (part == Part::kNone) return {0};
    if (part == Part::kOne) return {block(rank, sends)};
    std::vector<std::int64_t> each;
    for (int other = 0; other < test.ranks; ++other) each.push_back(block(other, sends));
    if (listed && !kind.reduces) return each;
    return {std::accumulate(each.begin(), each.end(), std::int64_t{0})};
  };
  Plan plan;
  plan.input = kind.has_input(root) ? side(kind.input, true) : std::vector<std::int64_t>{0};
  plan.output = kind.has_output(root) ? side(kind.output, false) : std::vector<std::int64_t>{0};
  if (test.in_place && kind.reduces && kind.input == Part::kEach) plan.output = plan.input;
  return plan;
}

bool in_place_at(const Case& test, int rank) {
  return test.in_place && (!info(test.algorithm->collective).rooted() || rank == test.root);
}

}  // namespace

Element apply(const Case& test, const Element& left, const Element& right) {
  if (test.commutative) return {left.hash + right.hash, left.factor + right.factor};
  return {left.hash * right.factor + right.hash, left.factor * right.factor};
}

std::vector<Buffers> before(const Case& test) {
  std::mt19937_64 random(test.seed);
  // Never 0, which stands for "anything"; odd, so that products never become 0.
  const auto element = [&] { return Element{random() >> 1, (random() >> 8) | 1}; };
  const CollectiveInfo& kind = info(test.algorithm->collective);
  const auto n = static_cast<std::size_t>(test.count);
  std::vector<Buffers> result;
  for (int rank = 0; rank < test.ranks; ++rank) {
    const Plan plan = plan_of(test, rank);
    Buffers buffers;
    for (const std::int64_t size : plan.input) {
      buffers.input.emplace_back(static_cast<std::size_t>(size));
      for (Element& e : buffers.input.back()) e = element();
    }
    for (const std::int64_t size : plan.output) {
      buffers.output.emplace_back(static_cast<std::size_t>(size));
      for (Element& e : buffers.output.back()) e = element();
    }
    if (in_place_at(test, rank) && kind.input != Part::kNone && !kind.scatters()) {
      const auto mine = static_cast<std::size_t>(rank);
      if (kind.reduces || kind.input == kind.output) {
        buffers.output = buffers.input;
      } else if (kind.counts != Counts::kSame) {
        buffers.output[mine] = buffers.input[0];
      } else {
        std::copy(buffers.input[0].begin(), buffers.input[0].end(),
                  buffers.output[0].begin() + static_cast<std::ptrdiff_t>(mine * n));
      }
    }
    result.push_back(std::move(buffers));
  }
  return result;
}

std::vector<std::vector<Block>> after(const Case& test, const std::vector<Buffers>& start) {
  const auto ranks = static_cast<std::size_t>(test.ranks);
  const auto root = static_cast<std::size_t>(test.root);
  const auto n = static_cast<std::size_t>(test.count);
  std::vector<std::vector<Block>> result;
  for (const Buffers& buffers : start) result.push_back(buffers.output);
  // Sum of unit `unit` over ranks [0, end).
  const auto sum = [&](std::size_t end, std::size_t unit) {
    Element total = start[0].input[0][unit];
    for (std::size_t i = 1; i < end; ++i) total = apply(test, total, start[i].input[0][unit]);
    return total;
  };
  const CollectiveInfo& kind = info(test.algorithm->collective);
  const bool listed = kind.counts != Counts::kSame;
  const std::vector<std::int64_t> counts = test.counts();
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<Block>& out = result[r];
    std::size_t begin = 0;
    for (std::size_t i = 0; i < r; ++i) begin += static_cast<std::size_t>(counts[i]);
    if (!kind.has_output(r == root)) continue;
    if (kind.reduces) {
      const std::size_t end = kind.flow == Flow::kPrefix ? r + (kind.takes_self ? 1 : 0) : ranks;
      if (end == 0) continue;  // nobody comes before the first rank of an exscan
      const bool scatters = kind.input == Part::kEach;
      const std::size_t size = scatters && listed ? static_cast<std::size_t>(counts[r]) : n;
      const std::size_t first = scatters ? (listed ? begin : r * n) : 0;
      for (std::size_t u = 0; u < out[0].size(); ++u) {
        out[0][u] = u < size ? sum(end, first + u) : Element{};
      }
    } else if (kind.input == Part::kNone) {
      out[0] = start[root].output[0];
    } else if (kind.output == Part::kEach) {
      // From every rank its block, or the one that it has for this rank.
      const bool picks = kind.input == Part::kEach;
      for (std::size_t i = 0; i < ranks; ++i) {
        if (listed) {
          out[i] = start[i].input[picks ? r : 0];
          continue;
        }
        const Element* from = start[i].input[0].data() + (picks ? r * n : 0);
        std::copy(from, from + n, out[0].data() + i * n);
      }
    } else if (!in_place_at(test, static_cast<int>(r))) {
      const Block& from = start[root].input[listed ? r : 0];
      const auto at = from.begin() + static_cast<std::ptrdiff_t>(listed ? 0 : r * n);
      std::copy(at, at + static_cast<std::ptrdiff_t>(out[0].size()), out[0].begin());
    }
  }
  return result;
}

void join_members(const Case& test, NodeWork work, std::size_t leader, std::int64_t count,
                  const std::vector<const Element*>& sources,
                  const std::vector<Element*>& targets) {
  Block sum;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (work == NodeWork::kGather) {
      Element* to = targets[leader] + static_cast<std::int64_t>(i) * count;
      if (sources[i] != to) std::copy(sources[i], sources[i] + count, to);
      continue;
    }
    const Block before = sum;
    if (sum.empty()) sum.resize(static_cast<std::size_t>(count));
    for (std::size_t u = 0; u < sum.size(); ++u) {
      sum[u] = i == 0 ? sources[i][u] : apply(test, sum[u], sources[i][u]);
    }
    if (work == NodeWork::kScan) std::copy(sum.begin(), sum.end(), targets[i]);
    if (work == NodeWork::kExscan && i > 0) std::copy(before.begin(), before.end(), targets[i]);
  }
  if (work == NodeWork::kReduce) std::copy(sum.begin(), sum.end(), targets[leader]);
}

}  // namespace od::coll::testing
