// Checks that the judgement about stores changes after several alike copies, and not before.
#include "p2p/store_speed.h"

#include <gtest/gtest.h>

namespace od::p2p {
namespace {

int asked_until_wanted(StoreSpeed& speed) {
  int asked = 1;
  while (!speed.wants_sample()) ++asked;
  return asked;
}

TEST(StoreSpeed, ThreeSlowCopiesInARowCount) {
  StoreSpeed speed;
  speed.assume(false);
  EXPECT_EQ(asked_until_wanted(speed), 1);
  speed.sample(16384, 8000);
  speed.sample(16384, 8000);
  EXPECT_FALSE(speed.slow());
  speed.sample(16384, 400);  // so it was an interruption
  speed.sample(16384, 8000);
  speed.sample(16384, 8000);
  EXPECT_FALSE(speed.slow());
  EXPECT_EQ(asked_until_wanted(speed), 1) << "a doubt is settled at once";
  speed.sample(16384, 8000);
  EXPECT_TRUE(speed.slow());
}

TEST(StoreSpeed, SlowStoresAreTriedAgainNowAndThen) {
  StoreSpeed speed;
  speed.assume(true);
  EXPECT_EQ(asked_until_wanted(speed), 1);
  speed.sample(16384, 8000);
  EXPECT_EQ(asked_until_wanted(speed), 64);
  speed.sample(16384, 400);
  EXPECT_TRUE(speed.slow());
  EXPECT_EQ(asked_until_wanted(speed), 1);
  speed.sample(16384, 400);
  EXPECT_FALSE(speed.slow());
  speed.sample(16384, 0);  // the clock did not move: says nothing
  EXPECT_FALSE(speed.slow());
}

TEST(StoreSpeed, WhatIsSlowDependsOnTheMemory) {
  StoreSpeed cells;
  StoreSpeed buffers(StoreSpeed::kSlowInBuffers);
  for (StoreSpeed* speed : {&cells, &buffers}) {
    speed->assume(true);
    EXPECT_TRUE(speed->due());
    speed->sample(16384, 2700);  // 6 bytes per ns
    speed->sample(16384, 2700);
  }
  EXPECT_FALSE(cells.slow());
  EXPECT_TRUE(buffers.slow());
  EXPECT_FALSE(buffers.due());
  EXPECT_EQ(asked_until_wanted(buffers), 64);
}

}  // namespace
}  // namespace od::p2p
