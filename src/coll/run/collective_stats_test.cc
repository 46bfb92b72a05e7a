// Rows of calls are joined by collective, algorithm and way, and come out complete.

#include "coll/run/collective_stats.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace od {
namespace {

using coll::Collective;
using Way = CollectiveStats::Way;

CollectiveStats::Call call(Collective collective, Way way, int algorithm, std::uint64_t ns) {
  CollectiveStats::Call made;
  made.collective = collective;
  made.way = way;
  made.algorithm = algorithm;
  made.bytes = 100;
  made.ns = ns;
  return made;
}

TEST(CollectiveStats, OneRowPerCollectiveAlgorithmAndWay) {
  CollectiveStats stats;
  stats.add(call(Collective::kBcast, Way::messages, 101, 1000));
  stats.add(call(Collective::kBcast, Way::messages, 101, 3000));
  stats.add(call(Collective::kBcast, Way::messages, 102, 1));
  stats.add(call(Collective::kBcast, Way::both_levels, 101, 1));
  stats.add(call(Collective::kReduce, Way::messages, 101, 1));
  ASSERT_EQ(stats.rows().size(), 4u);
  EXPECT_EQ(stats.rows()[0].calls, 2u);
  EXPECT_EQ(stats.rows()[0].bytes, 200u);
  EXPECT_EQ(stats.rows()[0].ns, 4000u);
  EXPECT_EQ(stats.rows()[0].longest_ns, 3000u);
}

TEST(CollectiveStats, SharedMemoryHasNoAlgorithm) {
  CollectiveStats stats;
  stats.add(call(Collective::kBarrier, Way::shared, 101, 1));
  stats.add(call(Collective::kBarrier, Way::shared, 102, 1));
  EXPECT_EQ(stats.rows().size(), 1u);
}

TEST(CollectiveStats, RanksAreJoinedAndUnusedRowsLeftOut) {
  CollectiveStats stats;
  CollectiveStats::Call apart = call(Collective::kAllreduce, Way::shared, 0, 2000);
  apart.arrivals_known = true;
  apart.apart_ns = 500;
  stats.add(apart);
  apart.apart_ns = 1500;
  stats.add(apart);
  std::vector<CollectiveStats::Row> all = stats.rows();
  all.push_back({});
  all.insert(all.end(), stats.rows().begin(), stats.rows().end());
  const auto joined = CollectiveStats::join(all);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined[0].calls, 4u);
  EXPECT_EQ(joined[0].arrivals, 4u);
  EXPECT_EQ(joined[0].apart_ns, 4000u);
  EXPECT_EQ(joined[0].longest_apart_ns, 1500u);
  const std::string text = CollectiveStats::table(joined, 2);
  EXPECT_NE(text.find("allreduce"), std::string::npos);
  EXPECT_NE(text.find("shared memory"), std::string::npos);
  EXPECT_NE(CollectiveStats::json(joined).find("\"longest_apart_ns\": 1500"), std::string::npos)
      << CollectiveStats::json(joined);
}

TEST(CollectiveStats, NothingMeansNoTable) { EXPECT_EQ(CollectiveStats::table({}, 2), ""); }

}  // namespace
}  // namespace od
