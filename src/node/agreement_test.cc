// Checks that survivors have all mapped each other and that one bad candidate costs only itself.
#include "node/agreement.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace od::node {
namespace {

std::vector<MapReport> reports_of(const std::vector<std::set<int>>& failures) {
  std::vector<MapReport> reports;
  for (const std::set<int>& failed : failures) {
    MapReport report = {};
    report.took_part = 1;
    report.failures = static_cast<std::uint16_t>(failed.size());
    int named = 0;
    for (const int position : failed) {
      if (named < MapReport::kMostNamed) {
        report.positions[named++] = static_cast<std::uint16_t>(position);
      }
    }
    reports.push_back(report);
  }
  return reports;
}

using Flags = std::vector<bool>;

TEST(Survivors, EverybodyStaysWhenAllIsWell) {
  EXPECT_EQ(survivors(reports_of({{}, {}, {}})), (Flags{true, true, true}));
  EXPECT_EQ(survivors({}), Flags{});
}

TEST(Survivors, WhoNobodyCouldMapLeavesAlone) {
  EXPECT_EQ(survivors(reports_of({{2}, {2}, {}, {2}})), (Flags{true, true, false, true}));
  EXPECT_EQ(survivors(reports_of({{}, {}, {0, 1, 3}, {}})), (Flags{true, true, false, true}));
}

TEST(Survivors, OfABadPairTheHigherLeaves) {
  EXPECT_EQ(survivors(reports_of({{}, {2}, {}})), (Flags{true, true, false}));
  EXPECT_EQ(survivors(reports_of({{}, {}, {1}})), (Flags{true, true, false}));
}

TEST(Survivors, WhoDidNotTakePartOrFailedWithManyLeaves) {
  std::vector<std::set<int>> failures(20);
  for (int i = 0; i < 19; ++i) failures[19].insert(i);
  std::vector<MapReport> reports = reports_of(failures);
  reports[3] = {};
  Flags expected(20, true);
  expected[19] = expected[3] = false;
  EXPECT_EQ(survivors(reports), expected);
}

TEST(Survivors, NoFailedPairRemains) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const int count = 2 + static_cast<int>(random() % 12);
    std::vector<std::set<int>> failures(static_cast<std::size_t>(count));
    for (int k = static_cast<int>(random() % 10); k > 0; --k) {
      const int a = static_cast<int>(random()) & 0xff;
      const int b = static_cast<int>(random()) & 0xff;
      if (a % count != b % count) failures[static_cast<std::size_t>(a % count)].insert(b % count);
    }
    const Flags stays = survivors(reports_of(failures));
    for (std::size_t i = 0; i < failures.size(); ++i) {
      for (const int other : failures[i]) {
        EXPECT_FALSE(stays[i] && stays[static_cast<std::size_t>(other)]);
      }
    }
  }
}

}  // namespace
}  // namespace od::node
