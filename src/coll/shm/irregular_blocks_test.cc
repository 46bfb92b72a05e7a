// Collectives whose blocks differ in length. Lines and operations mixed by chance: every member
// takes the way it likes, with random delays and little patience.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "coll/shm/line.h"
#include "coll/shm/test_mixed_lines.h"
#include "coll/shm/test_team.h"
#include "memory/bump_arena.h"

namespace od::coll::shm {
namespace {

using od::node::Exchange;
using od::node::run_forked_job;

enum class Kind { allgatherv, gatherv, scatterv, alltoallv };
constexpr unsigned kKinds = 4;

// One collective of the plan, alike on all ranks.
struct Case {
  Kind kind;
  int root;
  std::uint64_t most;  // bytes of a block
  std::uint64_t number;

  // Bytes of the block between two ranks: some are empty. Of a contribution to all or to the root
  // it is the same for everyone.
  std::uint64_t bytes(int from, int to) const {
    if (kind != Kind::alltoallv && kind != Kind::scatterv) to = 0;
    const std::uint64_t mixed = number * 2654435761U + static_cast<std::uint64_t>(from) * 40503 +
                                static_cast<std::uint64_t>(to) * 9973;
    return mixed % 5 == 0 ? 0 : mixed / 5 % (most + 1);
  }
  std::uint8_t value(int from, int to, std::uint64_t i) const {
    if (kind != Kind::alltoallv && kind != Kind::scatterv) to = 0;
    const auto f = static_cast<std::uint64_t>(from), t = static_cast<std::uint64_t>(to);
    return static_cast<std::uint8_t>(number * 7 + f * 31 + t * 13 + i);
  }
  bool gets(int me) const { return kind != Kind::gatherv || me == root; }
  bool gives(int me) const { return kind != Kind::scatterv || me == root; }
};

// The blocks that a member sends to, or gets from, each of the others; with gaps between them.
struct Buffer {
  std::vector<std::uint8_t> data;
  std::vector<std::int64_t> offsets, sizes;

  template <typename Bytes>
  void lay_out(int ranks, Bytes&& bytes_of_rank) {
    offsets.clear();
    sizes.clear();
    std::int64_t at = 3;
    for (int i = 0; i < ranks; ++i) {
      offsets.push_back(at);
      sizes.push_back(static_cast<std::int64_t>(bytes_of_rank(i)));
      at += sizes.back() + 5;
    }
    data.assign(static_cast<std::size_t>(at), 0xee);
  }
  Blocks blocks() {
    Blocks found;
    found.base = reinterpret_cast<std::byte*>(data.data());
    found.offsets = offsets.data();
    found.sizes = sizes.data();
    return found;
  }
};

class Member : public LineMember {
 public:
  using LineMember::LineMember;

  // `patience` < 0: as an operation from the start.
  void run(const Case& one, int patience) {
    const int me = team_.position(), ranks = team_.size();
    const bool blocks = one.kind == Kind::alltoallv || one.kind == Kind::scatterv;
    in_.lay_out(blocks ? ranks : 1, [&](int to) { return one.bytes(me, to); });
    for (int to = 0; to < (blocks ? ranks : 1); ++to) {
      for (std::uint64_t i = 0; i < one.bytes(me, to); ++i) {
        in_.data[static_cast<std::size_t>(in_.offsets[static_cast<std::size_t>(to)]) + i] =
            one.value(me, to, i);
      }
    }
    // A scatterv gives one block.
    const bool one_block = one.kind == Kind::scatterv;
    out_.lay_out(one_block ? 1 : ranks,
                 [&](int from) { return one.bytes(one_block ? one.root : from, me); });
    serve(
        patience, may_be_line(one), [&] { return serve_line(one, patience); },
        [&](Operation& op) { start(one, op); });
    check(one);
  }

 private:
  // Between more than two a table of blocks has to fit.
  bool may_be_line(const Case& one) {
    const int ranks = team_.size();
    const bool blocks = one.kind == Kind::alltoallv || one.kind == Kind::scatterv;
    return !blocks || ranks == 2 || !one.gives(team_.position()) ||
           table_bytes(ranks) + static_cast<std::uint64_t>(ranks) * spacing() <= kLinesBytes;
  }
  // Of the blocks that others get.
  std::uint64_t spacing() {
    std::uint64_t longest = 0;
    for (int i = 0; i < team_.size(); ++i) {
      if (i != team_.position()) longest = std::max(longest, in_.blocks().size(i));
    }
    return table_spacing(longest);
  }

  bool serve_line(const Case& one, int patience) {
    const int me = team_.position();
    const Blocks in = in_.blocks(), out = out_.blocks();
    Line line;
    line.use = Use::copy;
    line.root = one.root;
    line.content = Content::same;
    line.shown = line.own = in.at(0);
    line.bytes = in.size(0);
    if (one.kind == Kind::gatherv) line.pattern = Pattern::to_root;
    const bool pair = team_.size() == 2;
    if (one.kind == Kind::alltoallv || one.kind == Kind::scatterv) {
      line.content = Content::each;
      line.own = in.at(me);
      line.tabled = !pair;
      if (pair) {
        line.shown = in.at(1 - me);
        line.bytes = in.size(1 - me);
      } else if (one.gives(me)) {
        line.shown = nullptr;
        line.blocks = &in;
        line.spacing = spacing();
        line.bytes = line.tabled_bytes(team_.size());
      }
    }
    if (one.kind == Kind::scatterv) {
      line.pattern = Pattern::from_root;
      line.into = out.at(0);
      line.taken_bytes = out.size(0);
      if (me != one.root) line.bytes = pair ? line.taken_bytes : 0;
    } else if (one.gets(me)) {
      line.places = &out;
    }
    return team_.serve_line(line, {patience});
  }

  void start(const Case& one, Operation& op) {
    const Blocks in = in_.blocks(), out = out_.blocks();
    switch (one.kind) {
      case Kind::allgatherv:
        return team_.allgather(op, in.at(0), in.size(0), out);
      case Kind::gatherv:
        return team_.gather(op, one.root, in.at(0), in.size(0), out);
      case Kind::scatterv:
        return team_.scatter(op, one.root, in, out.at(0), out.size(0));
      case Kind::alltoallv:
        return team_.alltoall(op, in, out);
    }
  }

  void check(const Case& one) {
    const int me = team_.position();
    if (!one.gets(me)) return;
    std::vector<std::uint8_t> expected(out_.data.size(), 0xee);
    for (std::size_t i = 0; i < out_.sizes.size(); ++i) {
      const int from = one.kind == Kind::scatterv ? one.root : static_cast<int>(i);
      for (std::uint64_t k = 0; k < one.bytes(from, me); ++k) {
        expected[static_cast<std::size_t>(out_.offsets[i]) + k] = one.value(from, me, k);
      }
    }
    REQUIRE(out_.data == expected);
  }

  Buffer in_, out_;
};

void mixed(int ranks, unsigned seed, bool delays, bool fences,
           std::uint64_t message_min = Tuning::kNever) {
  mixed_lines<Member>(
      ranks, seed, delays, fences, 3000,
      [&](std::mt19937& plan, int number) {
        Case one{};
        one.kind = static_cast<Kind>(plan() % kKinds);
        one.root = static_cast<int>(plan() % static_cast<unsigned>(ranks));
        // Some blocks of a call fit a line, others do not.
        constexpr unsigned kMost[] = {40, 200, kLinesBytes, 2 * kLinesBytes, 40'000};
        one.most = 1 + plan() % kMost[plan() % std::size(kMost)];
        one.number = static_cast<std::uint64_t>(number);
        return one;
      },
      message_min);
}

// Long blocks are read where they lie as long as nobody rewrites them.
TEST(IrregularBlocks, AreReadInPlaceWhileTheyStayTheSame) {
  const std::vector<int> codes = run_forked_job(2, [](int me, const Exchange& exchange) {
    REQUIRE(memory::BumpArena::begin(16u << 20));
    TestTeamOptions options;
    for (Tuning::Row* row : {&options.tuning.near_row, &options.tuning.oversubscribed_row}) {
      row->direct_everyone = 1;
      row->rewritten_everyone = std::uint64_t{1} << 40;
    }
    TestNode node(exchange, options);
    auto team = node.make_team();
    // The block to the other is the longer one of one member, and the only one of the other.
    const std::int64_t sizes[2] = {me == 0 ? 10'000 : 30'000, 30'000 * (1 - me)};
    const std::int64_t offsets[2] = {0, 32'000};
    Blocks in, out;
    in.base = reinterpret_cast<std::byte*>(memory::BumpArena::allocate(64'000).data());
    out.base = reinterpret_cast<std::byte*>(memory::BumpArena::allocate(64'000).data());
    in.offsets = out.offsets = offsets;
    in.sizes = out.sizes = sizes;
    const auto exchange_blocks = [&](int value) {
      std::memset(in.at(1 - me), value, 30'000);
      Operation op;
      team->alltoall(op, in, out);
      node.wait_for(*team, op);
      REQUIRE(out.at(1 - me)[29'999] == static_cast<std::byte>(value));
      return 0;
    };
    for (int i = 0; i < 20; ++i) REQUIRE(exchange_blocks(i) == 0);
    REQUIRE(team->counters().shown_cells == 20);
    for (int i = 0; i < 20; ++i) REQUIRE(exchange_blocks(19) == 0);
    REQUIRE(team->counters().shown_direct >= 15);
    exchange.barrier();
    return 0;
  });
  for (std::size_t rank = 0; rank < codes.size(); ++rank) EXPECT_EQ(codes[rank], 0) << rank;
}

TEST(IrregularLine, OfTwo) { mixed(2, 1, false, false); }
TEST(IrregularLine, OfTwoThatGiveUp) { mixed(2, 2, true, false); }
TEST(IrregularLine, OfTwoWithMessages) { mixed(2, 6, false, false, 5000); }
TEST(IrregularLine, OfTwoThatGiveUpWithMessages) { mixed(2, 7, true, false, 2000); }
TEST(IrregularLine, OfTwoThatWaitForMessages) { mixed(2, 8, true, true, 10'000); }
TEST(IrregularLine, OfThreeThatGiveUp) { mixed(3, 3, true, false); }
TEST(IrregularLine, OfFourThatWait) { mixed(4, 5, false, true); }
TEST(IrregularLine, OfFiveWithMoreRanksThanCores) { mixed(5, 4, true, true); }

}  // namespace
}  // namespace od::coll::shm
