// Tests of the suggestion for mistyped names.
#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace od {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "ab"), 2u);
  EXPECT_EQ(edit_distance("stats", "stats"), 0u);
  EXPECT_EQ(edit_distance("stas", "stats"), 1u);
  EXPECT_EQ(edit_distance("statss", "stats"), 1u);
  EXPECT_EQ(edit_distance("stuts", "stats"), 1u);
  EXPECT_EQ(edit_distance("sttas", "stats"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearestName, SuggestsOnlyWhatIsClose) {
  const std::vector<std::string> names = {"VERBOSE", "VERIFY", "WAIT"};
  EXPECT_EQ(nearest_name("VERBOS", names), "VERBOSE");
  EXPECT_EQ(nearest_name("VERFIY", names), "VERIFY");
  EXPECT_EQ(nearest_name("VERBO", names), "VERBOSE") << "two letters too few";
  EXPECT_EQ(nearest_name("VERB", names), "");
  EXPECT_EQ(nearest_name("COLLECTIVES", names), "");
  EXPECT_EQ(nearest_name("X", {}), "");
}

}  // namespace
}  // namespace od
