// Near or far: a change is believed when it has been seen twice in a row, and soon then.
#include "p2p/distance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace od::p2p {
namespace {

constexpr std::uint64_t kFarNs = 100;
constexpr int kVerdict = 4;  // lines that are judged together

void lines(Distance& distance, std::uint64_t ns, int count) {
  for (int i = 0; i < count; ++i) distance.sample_line(ns, kFarNs);
}

TEST(Distance, OneVerdictThatDisagreesChangesNothing) {
  Distance distance;
  distance.set(true);
  for (int i = 0; i < 100; ++i) {
    lines(distance, 20, kVerdict);  // a prefetcher has been there
    EXPECT_TRUE(distance.far());
    lines(distance, 250, kVerdict);
    EXPECT_TRUE(distance.far());
  }
}

TEST(Distance, FollowsAChangeAfterTwoVerdicts) {
  Distance distance;
  distance.set(false);
  lines(distance, 250, 2 * kVerdict - 1);
  EXPECT_FALSE(distance.far());
  lines(distance, 250, 1);
  EXPECT_TRUE(distance.far());
  lines(distance, 50, 2 * kVerdict);
  EXPECT_FALSE(distance.far());
}

TEST(Distance, InterruptionsOnlyAdd) {
  Distance distance;
  for (int i = 0; i < 100; ++i) {
    lines(distance, 30'000, kVerdict - 1);
    lines(distance, 50, 1);
  }
  EXPECT_FALSE(distance.far());
}

TEST(Distance, AnswersTellItTooUnlessNobodyWaited) {
  Distance distance;
  for (int i = 0; i < 16; ++i) distance.sample_answer(400, kFarNs);
  EXPECT_TRUE(distance.far());
  for (int i = 0; i < 160; ++i) distance.sample_answer(5'000, kFarNs);
  EXPECT_TRUE(distance.far());
  for (int i = 0; i < 16; ++i) distance.sample_answer(120, kFarNs);
  EXPECT_FALSE(distance.far());
}

TEST(Distance, AFixedOneStays) {
  Distance distance;
  distance.fix(true);
  lines(distance, 20, 100);
  EXPECT_TRUE(distance.far());
}

TEST(TimeLine, OfALineInTheOwnCacheIsShort) {
  // The reading of the clock is left out: hundreds of nanoseconds would be another line's.
  alignas(64) char line[64] = {};
  std::uint64_t quickest = ~std::uint64_t{0};
  for (int i = 0; i < 1000; ++i) quickest = std::min(quickest, time_line(line));
  EXPECT_LT(quickest, 50u);
}

}  // namespace
}  // namespace od::p2p
