// Tests of the lookup of own ranges in the reach file.
#include "memory/reach.h"

#include <gtest/gtest.h>

namespace od::memory {
namespace {

class Reach : public ::testing::Test {
 protected:
  void TearDown() override { use_reach_map(nullptr); }
  static const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }
};

TEST_F(Reach, NothingIsReachableAtFirst) {
  int local = 0;
  EXPECT_EQ(reach_offset(&local, sizeof local), kUnreachable);
  EXPECT_EQ(reach_offset(nullptr, 0), kUnreachable);
}

TEST_F(Reach, RangesOfTheArena) {
  ReachMap map = {};
  map.arena_start = 0x10000;
  map.arena_bytes = 0x4000;
  map.file_bytes = 0x4000;
  use_reach_map(&map);
  EXPECT_EQ(reach_offset(at(0x10000), 0x4000), 0u);
  EXPECT_EQ(reach_offset(at(0x10010), 16), 16u);
  EXPECT_EQ(reach_offset(at(0x13fff), 1), 0x3fffu);
  EXPECT_EQ(reach_offset(at(0x13fff), 2), kUnreachable) << "one byte too many";
  EXPECT_EQ(reach_offset(at(0x14000), 1), kUnreachable);
  EXPECT_EQ(reach_offset(at(0xffff), 2), kUnreachable) << "begins before";
  EXPECT_EQ(reach_offset(at(0x10010), ~std::uint64_t{0}), kUnreachable) << "would overflow";
}

TEST_F(Reach, RangesOfStaticData) {
  ReachMap map = {};
  map.arena_start = 0x10000;
  map.arena_bytes = 0x4000;
  map.file_bytes = 0x8000;
  map.segment_count = 2;
  map.segments[0] = {0x1000, 0x1000, 0x4000};
  map.segments[1] = {0x2000, 0x2000, 0x6000};
  use_reach_map(&map);
  EXPECT_EQ(reach_offset(at(0x1000), 0x1000), 0x4000u);
  EXPECT_EQ(reach_offset(at(0x1ffe), 2), 0x4ffeu);
  EXPECT_EQ(reach_offset(at(0x1ffe), 3), kUnreachable)
      << "neighbours in memory need not be neighbours in the file";
  EXPECT_EQ(reach_offset(at(0x3fff), 1), 0x7fffu);
  EXPECT_EQ(reach_offset(at(0x4000), 1), kUnreachable);
  EXPECT_EQ(reach_offset(at(0xfff), 1), kUnreachable);
}

}  // namespace
}  // namespace od::memory
