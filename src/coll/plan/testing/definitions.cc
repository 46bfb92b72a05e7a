// The definitions of all collectives.
#include "coll/plan/testing/definitions.h"

#include <algorithm>
#include <random>

namespace od::coll::testing {
namespace {

using enum Collective;

// What a rank contributes, if nothing is done in place; and the size of its output.
struct Plan {
  std::vector<std::int64_t> input;
  std::vector<std::int64_t> output;
};

Plan plan_of(const Case& test, int rank) {
  const std::int64_t n = test.count;
  const std::int64_t all = n * test.ranks;
  const bool root = rank == test.root;
  const std::vector<std::int64_t> counts = test.counts();
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  std::vector<std::int64_t> to;
  std::vector<std::int64_t> from;
  for (int other = 0; other < test.ranks; ++other) {
    to.push_back(test.irregular(rank, other));
    from.push_back(test.irregular(other, rank));
  }
  const auto mine = static_cast<std::size_t>(rank);
  switch (test.algorithm->collective) {
    case kBarrier:
      return {{0}, {0}};
    case kBcast:
      return {{0}, {n}};
    case kReduce:
      return {{n}, {root ? n : 0}};
    case kAllreduce:
    case kScan:
    case kExscan:
      return {{n}, {n}};
    case kAllgather:
      return {{n}, {all}};
    case kAllgatherv:
      return {{counts[mine]}, counts};
    case kAlltoall:
      return {{all}, {all}};
    case kAlltoallv:
    case kAlltoallw:
      return {to, from};
    case kGather:
      return {{n}, {root ? all : 0}};
    case kGatherv:
      return {{test.irregular(rank, 0)}, root ? counts : std::vector<std::int64_t>{0}};
    case kScatter:
      return {{root ? all : 0}, {n}};
    case kScatterv:
      return {root ? counts : std::vector<std::int64_t>{0}, {test.irregular(rank, 0)}};
    case kReduceScatter:
      return {{total}, {test.in_place ? total : counts[mine]}};
    case kReduceScatterBlock:
      return {{all}, {test.in_place ? all : n}};
  }
  return {};
}

bool in_place_at(const Case& test, int rank) {
  return test.in_place && (!info(test.algorithm->collective).rooted || rank == test.root);
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
    if (in_place_at(test, rank)) {
      const auto mine = static_cast<std::size_t>(rank);
      const std::size_t n = static_cast<std::size_t>(test.count);
      switch (test.algorithm->collective) {
        case kAllgather:
        case kGather:
          std::copy(buffers.input[0].begin(), buffers.input[0].end(),
                    buffers.output[0].begin() + static_cast<std::ptrdiff_t>(mine * n));
          break;
        case kAllgatherv:
        case kGatherv:
          buffers.output[mine] = buffers.input[0];
          break;
        case kScatter:
        case kScatterv:
        case kBcast:
        case kBarrier:
          break;
        default:
          buffers.output = buffers.input;
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
  const std::vector<std::int64_t> counts = test.counts();
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<Block>& out = result[r];
    std::size_t begin = 0;
    for (std::size_t i = 0; i < r; ++i) begin += static_cast<std::size_t>(counts[i]);
    switch (test.algorithm->collective) {
      case kBarrier:
        break;
      case kBcast:
        out[0] = start[root].output[0];
        break;
      case kReduce:
        if (r == root) {
          for (std::size_t u = 0; u < n; ++u) out[0][u] = sum(ranks, u);
        }
        break;
      case kAllreduce:
        for (std::size_t u = 0; u < n; ++u) out[0][u] = sum(ranks, u);
        break;
      case kScan:
        for (std::size_t u = 0; u < n; ++u) out[0][u] = sum(r + 1, u);
        break;
      case kExscan:
        for (std::size_t u = 0; u < n && r > 0; ++u) out[0][u] = sum(r, u);
        break;
      case kAllgather:
        for (std::size_t i = 0; i < ranks; ++i) {
          for (std::size_t u = 0; u < n; ++u) out[0][i * n + u] = start[i].input[0][u];
        }
        break;
      case kAllgatherv:
        for (std::size_t i = 0; i < ranks; ++i) out[i] = start[i].input[0];
        break;
      case kAlltoall:
        for (std::size_t i = 0; i < ranks; ++i) {
          for (std::size_t u = 0; u < n; ++u) out[0][i * n + u] = start[i].input[0][r * n + u];
        }
        break;
      case kAlltoallv:
      case kAlltoallw:
        for (std::size_t i = 0; i < ranks; ++i) out[i] = start[i].input[r];
        break;
      case kGather:
        for (std::size_t i = 0; i < ranks && r == root; ++i) {
          for (std::size_t u = 0; u < n; ++u) out[0][i * n + u] = start[i].input[0][u];
        }
        break;
      case kGatherv:
        for (std::size_t i = 0; i < ranks && r == root; ++i) out[i] = start[i].input[0];
        break;
      case kScatter:
        if (in_place_at(test, static_cast<int>(r))) break;
        for (std::size_t u = 0; u < n; ++u) out[0][u] = start[root].input[0][r * n + u];
        break;
      case kScatterv:
        if (!in_place_at(test, static_cast<int>(r))) out[0] = start[root].input[r];
        break;
      case kReduceScatter:
      case kReduceScatterBlock: {
        const bool regular = test.algorithm->collective == kReduceScatterBlock;
        const std::size_t size = regular ? n : static_cast<std::size_t>(counts[r]);
        for (std::size_t u = 0; u < out[0].size(); ++u) {
          out[0][u] = u < size ? sum(ranks, (regular ? r * n : begin) + u) : Element{};
        }
        break;
      }
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
