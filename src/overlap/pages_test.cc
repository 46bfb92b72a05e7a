// Which pages wait for which pieces, and which pieces have to come first.
#include "overlap/pages.h"

#include <gtest/gtest.h>

#include <vector>

namespace od::overlap {
namespace {

constexpr std::size_t kPage = 4096;

std::vector<memory::GuardPart*> told;

memory::GuardService service() {
  memory::GuardService made = {};
  made.arrived = [](memory::GuardPart* part) { told.push_back(part); };
  return made;
}

TEST(PagesTest, ThePagesInsideOnly) {
  Pages pages;
  // From within page 1 to within page 11; the ends by themselves.
  ASSERT_TRUE(pages.begin({{kPage + 100, 2 * kPage + 100, 1},
                           {10 * kPage + 5, 11 * kPage + 5, 1},
                           {2 * kPage + 100, 10 * kPage + 5, 1}},
                          kPage));
  EXPECT_TRUE(pages.early_open());
  pages.step_done(1);
  EXPECT_TRUE(pages.early_open());
  pages.step_done(0);
  EXPECT_FALSE(pages.early_open());
  const memory::GuardService told_to = service();
  const std::vector<memory::GuardPart>& parts = pages.guarded(&told_to);
  // Those that the middle shares with the ends wait for the middle, which is all that is open.
  ASSERT_FALSE(parts.empty());
  EXPECT_EQ(parts.front().start, 2 * kPage);
  EXPECT_EQ(parts.back().end, 11 * kPage);
  told.clear();
  pages.step_done(2);
  EXPECT_EQ(told.size(), parts.size());
}

TEST(PagesTest, APageOfSeveralPiecesWaitsForAll) {
  Pages pages;
  ASSERT_TRUE(pages.begin(
      {{0, kPage + 10, 1}, {kPage + 10, kPage + 20, 2}, {kPage + 20, 4 * kPage, 1}}, kPage));
  EXPECT_FALSE(pages.early_open());
  const memory::GuardService told_to = service();
  std::vector<memory::GuardPart>& parts = pages.guarded(&told_to);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].start, kPage);
  EXPECT_EQ(parts[1].end, 2 * kPage);
  told.clear();
  pages.step_done(2);
  EXPECT_EQ(told, std::vector<memory::GuardPart*>{&parts[2]});
  pages.step_done(0);
  pages.step_done(1);
  EXPECT_EQ(told.size(), 2u);
  pages.step_done(1);
  EXPECT_EQ(told.back(), &parts[1]);
  EXPECT_EQ(told.size(), 3u);
}

TEST(PagesTest, WhatHasArrivedIsNotGuarded) {
  Pages pages;
  ASSERT_TRUE(pages.begin({{0, 4 * kPage, 1}, {4 * kPage, 8 * kPage, 1}, {8 * kPage, 9 * kPage, 0}},
                          kPage));
  pages.step_done(0);
  const std::vector<memory::GuardPart>& parts = pages.guarded(nullptr);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].start, 4 * kPage);
  EXPECT_EQ(parts[0].end, 8 * kPage);
  pages.step_done(1);
}

TEST(PagesTest, BlocksWithGapsHaveEdgesEach) {
  Pages pages;
  ASSERT_TRUE(pages.begin({{kPage, 3 * kPage, 1}, {3 * kPage + 8, 6 * kPage, 1}}, kPage));
  // The page with the gap cannot wait.
  EXPECT_TRUE(pages.early_open());
  pages.step_done(1);
  EXPECT_FALSE(pages.early_open());
  EXPECT_EQ(pages.guarded(nullptr).size(), 1u);
}

TEST(PagesTest, BlocksWithoutAWholePageAreEarly) {
  Pages pages;
  ASSERT_TRUE(pages.begin(
      {{10, 200, 1}, {kPage + 1, 2 * kPage - 1, 1}, {3 * kPage - 10, 3 * kPage + 10, 1}}, kPage));
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(pages.early_open());
    pages.step_done(i);
  }
  EXPECT_FALSE(pages.early_open());
  EXPECT_TRUE(pages.guarded(nullptr).empty());
}

TEST(PagesTest, TouchesOfPieces) {
  Pages pages;
  ASSERT_TRUE(pages.begin(
      {{0, 4 * kPage, 0}, {4 * kPage, 6 * kPage + 1, 0}, {6 * kPage + 1, 8 * kPage, 0}}, kPage));
  std::vector<memory::GuardPart>& parts = pages.traced();
  ASSERT_EQ(parts.size(), 4u);
  for (const memory::GuardPart& part : parts) EXPECT_EQ(part.state, memory::GuardPart::kArrived);
  parts[1].touched_ns = 30;
  parts[1].opened_ns = 40;
  parts[2].touched_ns = 20;  // the page of two pieces
  EXPECT_EQ(pages.touch(0).touched_ns, 0u);
  EXPECT_EQ(pages.touch(1).touched_ns, 30u);
  EXPECT_EQ(pages.touch(1).opened_ns, 40u);
  EXPECT_EQ(pages.touch(2).touched_ns, 0u);
  pages.guarded(nullptr);
  EXPECT_EQ(pages.touch(1).touched_ns, 0u);
}

TEST(PagesTest, OverlappingBlocksAreRefused) {
  Pages pages;
  EXPECT_FALSE(pages.begin({{0, 2 * kPage, 1}, {kPage, 3 * kPage, 1}}, kPage));
}

}  // namespace
}  // namespace od::overlap
