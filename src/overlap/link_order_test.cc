// What is needed first comes first, and ties leave everything where it is.
#include "overlap/link_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace od::overlap {
namespace {

Accesses touched(const std::vector<std::int64_t>& blocks, const std::vector<std::int64_t>& pieces) {
  Accesses accesses;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] < 0) continue;
    accesses.block_us[i] = 2 * blocks[i];
    accesses.block_count[i] = 2;
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    accesses.piece_us[i] = pieces[i];
    accesses.piece_count[i] = 1;
  }
  return accesses;
}

TEST(LinkOrderTest, NothingIsKnownWithoutATouch) { EXPECT_FALSE(order_of(Accesses{}, 4).known()); }

TEST(LinkOrderTest, BlocksAndPiecesByNeed) {
  const Order order = order_of(touched({30, 10, -1, 20}, {5, 9, 1}), 4);
  EXPECT_EQ(order.turn_of_rank, (std::vector<std::int32_t>{2, 0, 3, 1}));
  EXPECT_EQ(order.pieces, (std::vector<std::uint8_t>{2, 0, 1}));
}

TEST(LinkOrderTest, TiesStay) {
  const Order order = order_of(touched({7, 7, 7, 7}, {0, 0, 0, 0}), 4);
  EXPECT_EQ(order.turn_of_rank, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(order.pieces, (std::vector<std::uint8_t>{0, 1, 2, 3}));
}

TEST(LinkOrderTest, ManyRanksShareAPlace) {
  constexpr int kRanks = 256;
  Accesses accesses;
  for (std::size_t i = 0; i < Accesses::kBlocks; ++i) {
    accesses.block_us[i] = static_cast<std::int64_t>(Accesses::kBlocks - i);
    accesses.block_count[i] = 1;
  }
  const Order order = order_of(accesses, kRanks);
  ASSERT_EQ(order.turn_of_rank.size(), std::size_t{kRanks});
  EXPECT_EQ(order.turn_of_rank.back(), 3);
  EXPECT_EQ(order.turn_of_rank[252], 0);
  EXPECT_EQ(order.turn_of_rank.front(), 252);
}

TEST(LinkOrderTest, RanksOfANodeTakeTurns) {
  const std::vector<int> placement = {0, 1, 0, 1, 2};
  const coll::Nodes nodes(placement);
  const Order order = order_of(touched({50, 10, 20, 30, 0}, {}), 5);
  EXPECT_EQ(link_turns(order, nodes, 0), (std::vector<int>{2, 0}));
  EXPECT_EQ(link_turns(order, nodes, 1), (std::vector<int>{1, 3}));
  EXPECT_TRUE(link_turns(order, nodes, 2).empty());
  EXPECT_TRUE(link_turns(Order{}, nodes, 0).empty());
  // Of a communicator of another size.
  EXPECT_TRUE(link_turns(order_of(touched({1, 2}, {}), 2), nodes, 0).empty());
}

}  // namespace
}  // namespace od::overlap
