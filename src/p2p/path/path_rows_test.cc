// The table of copy paths: rows stand where their numbers say, name every value of `copy_path`, and
// hold together.

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "p2p/copy_plan.h"
#include "p2p/path/path.h"

namespace od::p2p {
namespace {

using config::CopyPath;

TEST(PathRows, StandWhereTheirNumbersSay) {
  // The numbers are in shared memory: other ranks of the job read them.
  EXPECT_STREQ(name_of(Path::cells), "cells");
  EXPECT_STREQ(name_of(Path::pull), "pull");
  EXPECT_STREQ(name_of(Path::cooperative), "cooperative");
  EXPECT_STREQ(name_of(Path::push), "push");
  EXPECT_STREQ(name_of(Path::kernel), "kernel");
  EXPECT_EQ(static_cast<int>(Path::cells), 0);
  EXPECT_EQ(static_cast<int>(Path::kernel), 4);
}

TEST(PathRows, EveryValueOfCopyPathForcesItsRow) {
  std::set<CopyPath> seen;
  for (const PathRow& row : kPathRows) {
    EXPECT_TRUE(seen.insert(row.forced).second) << row.words.name;
    config::Settings settings;
    settings.copy_path = row.forced;
    const CopyPlan plan(settings);
    EXPECT_STREQ(name_of(plan.choose(1u << 20, false, true, true)), row.words.name);
    // What has to be mapped cannot be taken out of reach.
    EXPECT_STREQ(name_of(plan.choose(1u << 20, false, false, true)),
                 row.mapped ? "cells" : row.words.name);
  }
  EXPECT_EQ(seen.size(), std::size(config::ChoiceWords<CopyPath>::kWords) - 1);
}

// Of messages without content nothing can be looked at.
TEST(PathRows, ShortMessagesTakeNoneWhateverTheThresholds) {
  config::Settings settings;
  settings.near_pull_min_bytes = settings.far_pull_min_bytes = 0;
  settings.near_push_min_bytes = settings.far_kernel_min_bytes = 0;
  EXPECT_EQ(CopyPlan(settings).floor_bytes(), 64u);
}

TEST(PathRows, HoldTogether) {
  for (const PathRow& row : kPathRows) {
    const std::string name = row.words.name;
    EXPECT_NE(row.offer, nullptr) << name;
    EXPECT_TRUE(row.offers || !row.mapped) << name;
    // The receiver reads what is offered, and nothing else.
    EXPECT_EQ(row.offers, row.readable != nullptr) << name;
    EXPECT_EQ(row.offers, row.read != nullptr) << name;
    // Both take part: the sender then writes where the receiver has said.
    if (row.share != nullptr) {
      EXPECT_TRUE(row.writes && row.help != nullptr) << name;
    }
    EXPECT_EQ(row.writes, row.help != nullptr) << name;
    EXPECT_EQ(row.min_bytes[0] == nullptr, row.min_bytes[1] == nullptr) << name;
  }
}

TEST(PathRows, AnUnknownNumberOfAPeerIsCells) {
  EXPECT_EQ(&row_named(static_cast<std::uint8_t>(Path::push)), &row_of(Path::push));
  EXPECT_EQ(&row_named(200), &row_of(Path::cells));
}

}  // namespace
}  // namespace od::p2p
