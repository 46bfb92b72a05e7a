// What may be under way follows the rate of the last calls.
#include "overlap/pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace od::overlap {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

TEST(PaceTest, FollowsTheRate) {
  Pace pace;
  EXPECT_EQ(pace.under_way_bytes(), 0);
  pace.took(1 << 20, 0);
  pace.took(4096, kMs);  // mostly latency
  EXPECT_EQ(pace.under_way_bytes(), 0);
  pace.took(125'000, kMs);
  EXPECT_EQ(pace.under_way_bytes(), 125'000);
  // One that was slow, as the machine was busy, does not count for much.
  pace.took(125'000, 100 * kMs);
  EXPECT_GT(pace.under_way_bytes(), 90'000);
  for (int i = 0; i < 40; ++i) pace.took(500'000, kMs);
  EXPECT_NEAR(static_cast<double>(pace.under_way_bytes()), 500'000, 1000);
}

// Where what is under way holds the rate down, it grows until the link does.
TEST(PaceTest, GrowsToWhatTheLinkCarries) {
  constexpr double kLinkPerMs = 500'000, kAnswerMs = 0.5, kFewBytes = 4 * 28'672;
  Pace pace;
  double rate = 0;
  for (int call = 0; call < 60; ++call) {
    const double under_way = std::max(kFewBytes, static_cast<double>(pace.under_way_bytes()));
    rate = std::min(kLinkPerMs, under_way / kAnswerMs);
    pace.took(1 << 20, static_cast<std::uint64_t>((1 << 20) / rate * kMs));
  }
  EXPECT_DOUBLE_EQ(rate, kLinkPerMs);
  EXPECT_NEAR(static_cast<double>(pace.under_way_bytes()), kLinkPerMs, 1000);
}

TEST(PaceTest, WithoutALinkThereIsAnEnd) {
  Pace pace;
  pace.took(std::int64_t{1} << 40, 1);
  EXPECT_LE(pace.under_way_bytes(), std::int64_t{1} << 30);
}

}  // namespace
}  // namespace od::overlap
