// Checks how times of clocks that differ, and drift, are put side by side.
#include "engine/clock_comparison.h"

#include <gtest/gtest.h>

namespace od {
namespace {

TEST(CommonClock, DriftsBetweenTwoReadings) {
  const CommonClock clock({5000, 100, 1'000'000}, {7000, 200, 3'000'000});
  EXPECT_EQ(clock(1'000'000), 995'000);
  EXPECT_EQ(clock(2'000'000), 1'994'000);
  EXPECT_EQ(clock(3'000'000), 2'993'000);
  EXPECT_EQ(clock.error_ns(), 200u);
}

TEST(CommonClock, DifferencesWithinTheErrorAreNone) {
  const CommonClock clock({-90, 100, 1000}, {150, 200, 3000});
  EXPECT_EQ(clock(2000), 2000);
  EXPECT_EQ(CommonClock()(77), 77);
}

TEST(CommonClock, OneReadingIsEnough) {
  const CommonClock clock({-9000, 100, 1000}, {-9000, 100, 1000});
  EXPECT_EQ(clock(2000), 11'000);
}

}  // namespace
}  // namespace od
