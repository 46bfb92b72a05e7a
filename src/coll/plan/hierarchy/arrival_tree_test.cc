// Who takes the data from whom, against trees that can be worked out by hand.
#include "coll/plan/hierarchy/arrival_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace od::coll {
namespace {

// The parents of members 1, 2 ... that come before anything has been sent.
std::vector<std::size_t> together(std::uint64_t segments, std::size_t members) {
  ArrivalTree tree(segments);
  std::vector<std::size_t> parents;
  for (std::size_t i = 1; i < members; ++i) parents.push_back(tree.add(0));
  return parents;
}

using Parents = std::vector<std::size_t>;

TEST(ArrivalTree, LongMessagesRunAlongAChain) {
  EXPECT_EQ(together(16, 6), (Parents{0, 1, 2, 3, 4}));
}

TEST(ArrivalTree, ShortMessagesFanOut) {
  EXPECT_EQ(together(1, 4), (Parents{0, 0, 0}));
  EXPECT_EQ(together(1, 8), (Parents{0, 0, 0, 1, 0, 1, 2}));
  EXPECT_EQ(together(2, 4), (Parents{0, 0, 1}));
}

TEST(ArrivalTree, ALongChainIsJoinedByOthers) {
  // A segment is at the ninth node after 18 steps, when the root has sent all 16 of them.
  const Parents parents = together(16, 12);
  EXPECT_EQ(std::count(parents.begin(), parents.end(), 0u), 2);
  EXPECT_EQ(parents[8], 0u);
}

TEST(ArrivalTree, HundredsOfNodesAreReachedInFewerStepsThanThereAreNodes) {
  constexpr std::uint64_t kSegments = 16;
  const Parents parents = together(kSegments, 256);
  // Each member's children one after the other, and everybody as soon as it can.
  std::vector<std::uint64_t> begins(256), children(256);
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < parents.size(); ++i) {
    const std::size_t parent = parents[i];
    ASSERT_LE(parent, i);
    begins[i + 1] = begins[parent] + children[parent]++ * kSegments + 2;
    last = std::max(last, begins[i + 1]);
  }
  EXPECT_LT(last, 80u);
}

TEST(ArrivalTree, TheRootServesWhoComesWhenItHasNothingElseToDo) {
  ArrivalTree tree(16);
  EXPECT_EQ(tree.add(0), 0u);
  EXPECT_EQ(tree.add(5), 1u);  // as long as the root is sending, the end of the chain does
  EXPECT_EQ(tree.add(16), 0u);
}

TEST(ArrivalTree, WhoHasBeenToldThatNobodyComesServesNobody) {
  ArrivalTree tree(16);
  tree.add(0);
  tree.add(0);
  EXPECT_EQ(tree.first_open(), 1u);
  tree.close();
  EXPECT_EQ(tree.first_open(), 3u);
  EXPECT_EQ(tree.add(10), 0u);
  EXPECT_EQ(tree.add(10), 3u);
}

}  // namespace
}  // namespace od::coll
