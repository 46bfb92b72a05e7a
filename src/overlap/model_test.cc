// The model at its corners: limited by the communication, by unrelated and by related computation.
#include "overlap/model.h"

#include <gtest/gtest.h>

namespace od::overlap {
namespace {

TEST(ModelTest, AllIsHiddenBehindEnoughComputation) {
  EXPECT_DOUBLE_EQ(overlap_ns({.comm_ns = 100, .init_ns = 20, .unrelated_ns = 200, .bytes = 1000}),
                   80);
}

TEST(ModelTest, NoMoreThanThereIsToCompute) {
  EXPECT_DOUBLE_EQ(overlap_ns({.comm_ns = 100, .init_ns = 20, .unrelated_ns = 30, .bytes = 1000}),
                   30);
}

TEST(ModelTest, RelatedComputationByItsRate) {
  // Half of the data was used up in 10: all of it takes 20.
  EXPECT_DOUBLE_EQ(overlap_ns({.comm_ns = 100,
                               .init_ns = 20,
                               .unrelated_ns = 5,
                               .related_bytes = 500,
                               .related_ns = 10,
                               .bytes = 1000}),
                   25);
}

TEST(ModelTest, ACallThatWaitsForAllHidesNothing) {
  EXPECT_DOUBLE_EQ(overlap_ns({.comm_ns = 100, .init_ns = 120, .unrelated_ns = 50}), 0);
}

}  // namespace
}  // namespace od::overlap
