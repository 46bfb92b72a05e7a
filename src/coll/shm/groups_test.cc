// Groups of members and the order of exchanges, without processes.
#include "coll/shm/groups.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "coll/shm/reduction_pipeline.h"

namespace od::coll::shm {
namespace {

std::vector<CacheClaim> claims(const std::vector<int>& groups) {
  std::vector<CacheClaim> result;
  for (const int group : groups) result.push_back({group, 2 << 20, 64 << 20});
  return result;
}

TEST(Groups, MembersThatNameTheSameCacheAreTogether) {
  const Groups groups(claims({8, 3, 8, 3, 3}));
  ASSERT_EQ(groups.count(), 2);
  EXPECT_EQ(groups.members(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(groups.members(1), (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(groups.place(4), 2);
  EXPECT_EQ(groups.smallest(), 2u);
  EXPECT_EQ(groups.largest(), 3u);
  EXPECT_TRUE(groups.worth_it());
  EXPECT_FALSE(groups.in_order());
  EXPECT_TRUE(Groups(claims({8, 8, 3, 3, 3})).in_order());
}

TEST(Groups, OneOfAllWhereAnybodyIsUnknown) {
  const Groups groups(claims({0, 0, CacheClaim::kUnknown, 1}));
  EXPECT_EQ(groups.count(), 1);
  EXPECT_FALSE(groups.worth_it());
  EXPECT_TRUE(groups.in_order());
  EXPECT_FALSE(Groups(3).worth_it());
  EXPECT_FALSE(Groups(claims({0, 1, 2})).worth_it()) << "nobody shares a cache";
}

TEST(Groups, SlicesFitTheCaches) {
  constexpr std::uint64_t kLeast = 16 << 10, kMost = 256 << 10;
  EXPECT_EQ(Groups(2).slice_bytes(kLeast, kMost), kMost) << "nothing is known";
  EXPECT_EQ(Groups(7).slice_bytes(kLeast, kMost), 128u << 10) << "nothing is known";
  // 2 MiB for two contributions and a result is more than the limit.
  EXPECT_EQ(Groups(claims({0, 0})).slice_bytes(kLeast, kMost), kMost);
  // Fifteen contributions and a result in 2 MiB; together 15 * 16 slices in 32 MiB.
  EXPECT_EQ(Groups(claims(std::vector<int>(15))).slice_bytes(kLeast, kMost), 128u << 10);
  std::vector<CacheClaim> small = claims({0, 0, 0, 0, 1, 1, 1, 1});
  small[2].shared_bytes = 4 << 20;  // the least counts: 2 MiB / 5 / 8, in pages
  EXPECT_EQ(Groups(small).slice_bytes(kLeast, kMost), 48u << 10);
  small[7].private_bytes = 64 << 10;
  EXPECT_EQ(Groups(small).slice_bytes(kLeast, kMost), kLeast);
}

TEST(GroupSlices, EveryByteHasOneHolderInEachGroup) {
  const Groups groups(claims({0, 1, 1, 1, 0, 2}));
  for (const std::uint64_t total : {12u, 120u, 4092u, 100008u}) {
    const GroupSlices parts{&groups, 12, total};
    for (int group = 0; group < groups.count(); ++group) {
      std::uint64_t sum = 0;
      for (const int i : groups.members(group)) {
        sum += parts.bytes(i);
        EXPECT_EQ(parts.bytes(i) % 12, 0u);
      }
      EXPECT_EQ(sum, total);
      for (std::uint64_t at = 0; at < total; at += 12) {
        const int i = parts.holder(group, at);
        EXPECT_EQ(groups.group_of(i), group);
        EXPECT_TRUE(parts.holds(i, at, at + 12));
      }
    }
  }
}

TEST(ReductionPipeline, EveryStageHasOneTurnAfterTheOneBefore) {
  for (const std::uint32_t phases : {1u, 2u, 3u}) {
    for (const std::uint32_t segments : {1u, 2u, 3u, 10u}) {
      const ReductionPipeline pipeline{segments, phases};
      std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
      for (std::uint32_t i = 0; i < pipeline.exchanges(); ++i) {
        const ReductionPipeline::Stage stage = pipeline.at(i);
        ASSERT_LT(stage.segment, segments);
        ASSERT_LT(stage.phase, phases);
        EXPECT_EQ(pipeline.index(stage), i);
        if (stage.phase > 0) {
          EXPECT_TRUE(seen.contains({stage.segment, stage.phase - 1}));
        }
        if (stage.segment > 0) {
          EXPECT_TRUE(seen.contains({stage.segment - 1, stage.phase}));
        }
        EXPECT_TRUE(seen.insert({stage.segment, stage.phase}).second);
      }
      EXPECT_EQ(seen.size(), segments * phases);
    }
  }
}

}  // namespace
}  // namespace od::coll::shm
