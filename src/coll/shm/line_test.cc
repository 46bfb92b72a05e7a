// Lines and operations of the same collectives, mixed by chance: every member takes the way it
// likes, with random delays, sleeping ranks and little patience.

#include "coll/shm/line.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <atomic>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "coll/ops/kernels.h"
#include "coll/shm/test_mixed_lines.h"
#include "coll/shm/test_team.h"

namespace od::coll::shm {
namespace {

using od::node::Exchange;
using od::node::run_forked_job;

enum class Kind {
  barrier,
  bcast,
  reduce,
  allreduce,
  allgather,
  scan,
  exscan,
  alltoall,
  reduce_scatter,
  uneven_reduce_scatter,
  gather,
  scatter
};
constexpr unsigned kKinds = 12;

// One collective of the plan, alike on all ranks; small numbers, so that sums are exact.
struct Case {
  Kind kind;
  int root;
  std::uint64_t count;
  std::uint64_t number;

  std::int32_t value(int rank, std::uint64_t i) const {
    return static_cast<std::int32_t>(number * 131 + static_cast<std::uint64_t>(rank) * 17 + i);
  }
  bool scatters_a_sum() const {
    return kind == Kind::reduce_scatter || kind == Kind::uneven_reduce_scatter;
  }
  // Elements of a block of a sum that is scattered: many are empty, now and then all but one.
  std::uint64_t block(int rank) const {
    if (kind != Kind::uneven_reduce_scatter) return count;
    if (number % 4 == 0) return rank == root ? count : 0;
    return (number + static_cast<std::uint64_t>(rank)) % 3 * count / 2;
  }
  // Where it begins; of a rank after the last one: how many elements there are.
  std::uint64_t begin(int rank) const {
    std::uint64_t at = 0;
    for (int i = 0; i < rank; ++i) at += block(i);
    return at;
  }
};

class Member : public LineMember {
 public:
  Member(Team& team, TestNode& node) : LineMember(team, node) {
    combiner_.kernel = ops::find_kernel(ops::Op::sum, ops::Kind::int32);
    combiner_.extent_bytes = sizeof(std::int32_t);
  }

  // `patience` < 0: as an operation from the start.
  void run(const Case& one, int patience) {
    const auto ranks = static_cast<std::uint64_t>(team_.size());
    const bool blocks = one.kind == Kind::alltoall || one.kind == Kind::scatter;
    const int me = team_.position();
    in_.resize(one.count * (blocks ? ranks : 1));
    if (one.scatters_a_sum()) in_.resize(one.begin(team_.size()));
    for (std::uint64_t i = 0; i < in_.size(); ++i) in_[i] = one.value(me, i);
    out_.assign(one.count * ranks, -1);
    if (one.kind == Kind::bcast && me == one.root) {
      for (std::uint64_t i = 0; i < one.count; ++i) out_[i] = one.value(me, i);
    }
    // Of a sum without elements there is nothing to show.
    const bool may_be_line = !one.scatters_a_sum() || !in_.empty();
    serve(
        patience, may_be_line, [&] { return team_.serve_line(line(one), {patience}); },
        [&](Operation& op) { start(one, op); });
    check(one);
  }

 private:
  Line line(const Case& one) {
    const auto me = static_cast<std::uint64_t>(team_.position());
    Line line;
    if (one.kind == Kind::barrier) return line;
    line.bytes = line.taken_bytes = one.count * sizeof(std::int32_t);
    line.content = Content::same;
    line.use = Use::copy;
    line.root = one.root;
    line.combiner = combiner_;
    line.shown = line.own = reinterpret_cast<const std::byte*>(in_.data());
    line.into = reinterpret_cast<std::byte*>(out_.data());
    if (one.kind == Kind::bcast) {
      line.pattern = Pattern::from_root;
      line.shown = line.into;
    }
    if (one.kind == Kind::reduce) line.pattern = Pattern::to_root;
    if (one.kind == Kind::reduce || one.kind == Kind::allreduce) line.use = Use::combine;
    if (one.kind == Kind::scan || one.kind == Kind::exscan) {
      line.use = Use::combine;
      line.pattern = Pattern::before;
      if (one.kind == Kind::exscan) line.own = nullptr;
    }
    const bool root = team_.position() == one.root;
    if (one.kind == Kind::gather) {
      line.pattern = Pattern::to_root;
      if (!root) line.into = nullptr;
    }
    const bool pair = team_.size() == 2;
    if (one.kind == Kind::uneven_reduce_scatter || (one.scatters_a_sum() && !pair)) {
      line.use = Use::combine;
      line.bytes = in_.size() * sizeof(std::int32_t);
      line.taken_at = one.begin(team_.position()) * sizeof(std::int32_t);
      line.taken_bytes = one.block(team_.position()) * sizeof(std::int32_t);
      line.own += line.taken_at;
      return line;
    }
    if (one.kind == Kind::scatter || one.kind == Kind::alltoall || one.scatters_a_sum()) {
      line.content = Content::each;
      if (pair) line.shown += (1 - me) * line.bytes;
      if (one.kind == Kind::scatter) line.pattern = Pattern::from_root;
      const bool has_own = root || one.kind != Kind::scatter;
      line.own = has_own ? line.own + me * line.bytes : nullptr;
      if (one.scatters_a_sum()) line.use = Use::combine;
      if (!pair) {
        line.taken_at = me * line.bytes;
        line.bytes *= static_cast<std::uint64_t>(team_.size());
      }
    }
    return line;
  }

  void start(const Case& one, Operation& op) {
    const std::uint64_t bytes = one.count * sizeof(std::int32_t);
    const auto all = [&](std::vector<std::int32_t>& vector) {
      Blocks blocks;
      blocks.base = reinterpret_cast<std::byte*>(vector.data());
      blocks.each = bytes;
      blocks.total = bytes * static_cast<std::uint64_t>(team_.size());
      return blocks;
    };
    switch (one.kind) {
      case Kind::barrier:
        return team_.barrier(op);
      case Kind::bcast:
        return team_.bcast(op, one.root, out_.data(), bytes);
      case Kind::reduce:
        return team_.reduce(op, one.root, in_.data(), out_.data(), one.count, combiner_);
      case Kind::allreduce:
        return team_.allreduce(op, in_.data(), out_.data(), one.count, combiner_);
      case Kind::allgather:
        return team_.allgather(op, in_.data(), bytes, all(out_));
      case Kind::alltoall:
        return team_.alltoall(op, all(in_), all(out_));
      case Kind::reduce_scatter:
        return team_.reduce_scatter(op, all(in_), out_.data(), combiner_);
      case Kind::uneven_reduce_scatter: {
        Blocks blocks = all(in_);
        offsets_.clear();
        sizes_.clear();
        for (int i = 0; i < team_.size(); ++i) {
          offsets_.push_back(static_cast<std::int64_t>(one.begin(i) * sizeof(std::int32_t)));
          sizes_.push_back(static_cast<std::int64_t>(one.block(i) * sizeof(std::int32_t)));
        }
        blocks.offsets = offsets_.data();
        blocks.sizes = sizes_.data();
        return team_.reduce_scatter(op, blocks, out_.data(), combiner_);
      }
      case Kind::scan:
        return team_.scan(op, in_.data(), out_.data(), one.count, combiner_);
      case Kind::exscan:
        return team_.exscan(op, in_.data(), out_.data(), one.count, combiner_);
      case Kind::gather:
        return team_.gather(op, one.root, in_.data(), bytes, all(out_));
      case Kind::scatter:
        return team_.scatter(op, one.root, all(in_), out_.data(), bytes);
    }
  }

  void check(const Case& one) const {
    const auto me = static_cast<std::uint64_t>(team_.position());
    const bool root = team_.position() == one.root;
    const std::uint64_t first = one.scatters_a_sum() ? one.begin(team_.position()) : 0;
    const std::uint64_t end = one.block(team_.position());
    REQUIRE(end == out_.size() || !one.scatters_a_sum() || out_[end] == -1);
    for (std::uint64_t i = 0; i < end; ++i) {
      std::int32_t sum = 0;
      const std::uint64_t at = first + i;
      for (int rank = 0; rank < team_.size(); ++rank) sum += one.value(rank, at);
      for (int rank = 0; rank < team_.size(); ++rank) {
        const std::int32_t block = out_[static_cast<std::uint64_t>(rank) * one.count + i];
        if (one.kind == Kind::allgather || (one.kind == Kind::gather && root)) {
          REQUIRE(block == one.value(rank, i));
        }
        if (one.kind == Kind::alltoall) REQUIRE(block == one.value(rank, me * one.count + i));
      }
      if (one.kind == Kind::bcast) REQUIRE(out_[i] == one.value(one.root, i));
      if (one.kind == Kind::scan || one.kind == Kind::exscan) {
        const int last = team_.position() + (one.kind == Kind::scan ? 1 : 0);
        std::int32_t before = last == 0 ? -1 : 0;  // an exscan leaves the first one's as it was
        for (int rank = 0; rank < last; ++rank) before += one.value(rank, i);
        REQUIRE(out_[i] == before);
      }
      if (one.kind == Kind::scatter) REQUIRE(out_[i] == one.value(one.root, me * one.count + i));
      if (one.kind == Kind::reduce && root) REQUIRE(out_[i] == sum);
      if (one.kind == Kind::allreduce || one.scatters_a_sum()) REQUIRE(out_[i] == sum);
    }
  }

  Combiner combiner_;
  std::vector<std::int32_t> in_, out_;
  std::vector<std::int64_t> offsets_, sizes_;
};

void mixed(int ranks, unsigned seed, bool delays, bool fences) {
  const int rounds = delays ? 3000 : 6000;
  mixed_lines<Member>(ranks, seed, delays, fences, rounds, [&](std::mt19937& plan, int number) {
    Case one{};
    one.kind = static_cast<Kind>(plan() % kKinds);
    one.root = static_cast<int>(plan() % static_cast<unsigned>(ranks));
    constexpr auto kMost = static_cast<unsigned>(kLinesBytes / sizeof(std::int32_t));
    one.count = 1 + plan() % (plan() % 2 == 0 ? 12 : kMost);
    one.number = static_cast<std::uint64_t>(number);
    return one;
  });
}

TEST(Line, OfTwo) { mixed(2, 1, false, false); }
TEST(Line, OfTwoThatGiveUp) { mixed(2, 2, true, false); }
TEST(Line, OfThreeThatGiveUp) { mixed(3, 3, true, false); }
TEST(Line, OfFourThatWait) { mixed(4, 5, false, true); }
TEST(Line, OfFiveWithMoreRanksThanCores) { mixed(5, 4, true, true); }

// Another thread wants to do something: the line is shown, and the rest is done as an operation.
TEST(Line, GivesUpWhenItIsInterrupted) {
  const std::vector<int> codes = run_forked_job(2, [](int me, const Exchange& exchange) {
    TestNode node(exchange, {});
    auto team = node.make_team();
    REQUIRE(team);
    std::int64_t data[2] = {me == 0 ? 5 : 1, me == 0 ? 6 : 2};
    Line line;
    line.pattern = Pattern::from_root;
    line.content = Content::same;
    line.use = Use::copy;
    line.shown = line.into = reinterpret_cast<std::byte*>(data);
    line.bytes = line.taken_bytes = sizeof(data);
    const std::atomic<std::uint32_t> waiters{1};
    if (me == 1) {
      // Rank 0 has shown nothing yet: this would look for a very long time.
      REQUIRE(!team->serve_line(line, {1 << 30, &waiters}));
      exchange.barrier();
      Operation op;
      team->bcast(op, 0, data, sizeof(data));
      node.wait_for(*team, op);
      REQUIRE(op.lengths_agree() && data[0] == 5 && data[1] == 6);
    } else {
      exchange.barrier();
      REQUIRE(team->serve_line(line, {1 << 30, &waiters}));
    }
    exchange.barrier();
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>({0, 0}));
}

// Whoever waits is asked what to do meanwhile once its looks are used up, and told who is missing:
// for a line, and for room to show its own.
TEST(Line, DoesSomethingElseMeanwhile) {
  const std::vector<int> codes = run_forked_job(2, [](int me, const Exchange& exchange) {
    TestNode node(exchange, {});
    auto team = node.make_team();
    REQUIRE(team);
    std::int64_t data = me == 0 ? 5 : 0;
    Line line;
    line.pattern = Pattern::from_root;
    line.content = Content::same;
    line.use = Use::copy;
    line.shown = line.into = reinterpret_cast<std::byte*>(&data);
    line.bytes = line.taken_bytes = sizeof(data);
    struct Meanwhile {
      const Exchange& exchange;
      const std::atomic<std::uint32_t>& expected;
      int asked;
    } meanwhile{exchange, node.node().member(1 - me).header->away, 0};
    Patience patience;
    patience.context = &meanwhile;
    patience.meanwhile = [](void* context, const std::atomic<std::uint32_t>& away) {
      auto& self = *static_cast<Meanwhile*>(context);
      REQUIRE(&away == &self.expected);
      if (self.asked++ == 0) self.exchange.barrier();
      return true;
    };
    if (me == 0) {
      exchange.barrier();
      for (std::uint32_t i = 0; i < kLanes; ++i) REQUIRE(team->serve_line(line, {}));
      // The other takes the first one, and no more before the next barrier.
      REQUIRE(team->serve_line(line, {1 << 30}));
      REQUIRE(meanwhile.asked == 0);
      REQUIRE(!team->serve_line(line, {}));
      REQUIRE(team->serve_line(line, patience));
      REQUIRE(meanwhile.asked > 0);
      exchange.barrier();
      return 0;
    }
    REQUIRE(team->serve_line(line, patience));
    REQUIRE(meanwhile.asked > 0 && data == 5);
    exchange.barrier();
    for (std::uint32_t i = 0; i <= kLanes; ++i) REQUIRE(team->serve_line(line, {1 << 30}));
    exchange.barrier();
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>({0, 0}));
}

// A contribution of another length than expected: what an operation reports.
TEST(Line, LengthsThatDisagree) {
  const std::vector<int> codes = run_forked_job(2, [](int me, const Exchange& exchange) {
    TestNode node(exchange, {});
    auto team = node.make_team();
    REQUIRE(team);
    std::int64_t data[4] = {1, 2, 3, 4};
    Line line;
    line.pattern = Pattern::from_root;
    line.content = Content::same;
    line.use = Use::copy;
    line.into = reinterpret_cast<std::byte*>(data);
    line.shown = line.into;
    line.bytes = line.taken_bytes = me == 0 ? 8 : 16;
    const bool served = team->serve_line(line, {1 << 30});
    REQUIRE(served == (me == 0));
    if (!served) {
      Operation op;
      team->bcast(op, 0, data, 16);
      node.wait_for(*team, op);
      REQUIRE(!op.lengths_agree());
    }
    exchange.barrier();
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>({0, 0}));
}

}  // namespace
}  // namespace od::coll::shm
