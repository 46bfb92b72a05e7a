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
    EXPECT_STREQ(name_of(plan.choose(1u << 20, false, true, memory::BufferUse::rewritten)),
                 row.words.name);
    // What has to be mapped cannot be taken out of reach.
    EXPECT_STREQ(name_of(plan.choose(1u << 20, false, false, memory::BufferUse::rewritten)),
                 row.mapped ? "cells" : row.words.name);
  }
  EXPECT_EQ(seen.size(), std::size(config::ChoiceWords<CopyPath>::kWords) - 1);
}

// Who rewrites a part pays for that part; what is sent first has not been to and fro yet.
TEST(PathRows, TheUseOfABufferChoosesAmongThresholds) {
  using Use = memory::BufferUse;
  config::Settings settings;
  settings.near_pull_min_bytes = 1000;
  settings.near_cooperative_min_bytes = 2500;
  settings.near_pull_rewritten_min_bytes = 3000;
  settings.near_push_min_bytes = config::kTiB;
  const auto path = [&](std::uint64_t bytes, Use use) {
    return CopyPlan(settings).choose(bytes, false, true, use);
  };
  EXPECT_EQ(path(999, Use::unchanged), Path::cells);
  EXPECT_EQ(path(1000, Use::unchanged), Path::pull);
  EXPECT_EQ(path(2500, Use::unchanged), Path::cooperative);
  EXPECT_EQ(path(1999, Use::partly), Path::cells);
  EXPECT_EQ(path(2000, Use::partly), Path::pull);
  EXPECT_EQ(path(2500, Use::partly), Path::cooperative);
  EXPECT_EQ(path(2499, Use::fresh), Path::cells);
  EXPECT_EQ(path(2500, Use::fresh), Path::cooperative);
  for (const Use use : {Use::rewritten, Use::received}) {
    EXPECT_EQ(path(2999, use), Path::cells);
    EXPECT_EQ(path(3000, use), Path::cooperative);
  }
  settings.near_push_min_bytes = settings.far_push_min_bytes = 2000;
  EXPECT_EQ(path(2000, Use::rewritten), Path::push);
  EXPECT_EQ(path(2000, Use::received), Path::cells);
  EXPECT_EQ(CopyPlan(settings).choose(2000, true, true, Use::received), Path::push);
  settings.near_push_min_bytes = config::kTiB;
  settings.near_cooperative_min_bytes = 0;  // what has not been looked at counts as fresh
  EXPECT_EQ(path(999, Use::fresh), Path::cells);
  settings.near_cooperative_min_bytes = config::kTiB;
  EXPECT_EQ(path(3000, Use::fresh), Path::pull);
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
