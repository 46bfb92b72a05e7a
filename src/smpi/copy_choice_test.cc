// The choice between views in place and copies, against made-up costs.
#include "smpi/copy_choice.h"

#include <gtest/gtest.h>

namespace od::smpi {
namespace {

std::uint64_t g_now_ns;

// A rank that sends new data and gets an answer before the next.
class Program {
 public:
  // Sends once; what it takes depends on how the data is lent. Returns whether as a copy.
  bool send(std::uint64_t bytes, std::uint64_t in_place_ns, std::uint64_t copied_ns,
            bool far = false) {
    const bool copied = choice.copied(bytes, far, ++received_, false);
    g_now_ns += copied ? copied_ns : in_place_ns;
    return copied;
  }
  int copies(int sends, std::uint64_t bytes, std::uint64_t in_place_ns, std::uint64_t copied_ns,
             bool far = false) {
    int copies = 0;
    for (int i = 0; i < sends; ++i) copies += send(bytes, in_place_ns, copied_ns, far);
    return copies;
  }
  CopyChoice choice{[] { return g_now_ns; }};

 private:
  std::uint64_t received_ = 0;
};

TEST(CopyChoice, BeginsWithCopiesNearAndInPlaceFar) {
  Program program;
  EXPECT_TRUE(program.send(4096, 1000, 1000));
  EXPECT_FALSE(program.send(4096, 1000, 1000, true));
}

TEST(CopyChoice, FindsWhatTakesLess) {
  Program program;
  program.copies(200, 32768, 1400, 2200);
  EXPECT_LT(program.copies(1000, 32768, 1400, 2200), 40);
  // The same viewer reads all of it now.
  program.copies(600, 32768, 5400, 3200);
  EXPECT_GT(program.copies(1000, 32768, 5400, 3200), 960);
}

TEST(CopyChoice, LengthsAndDistancesAreLearntApart) {
  Program program;
  program.copies(200, 32768, 1400, 2200);
  EXPECT_TRUE(program.send(4096, 1400, 2200));
  EXPECT_FALSE(program.send(300000, 1400, 2200, true));
  program.copies(200, 300000, 9000, 3000, true);
  EXPECT_GT(program.copies(1000, 300000, 9000, 3000, true), 960);
  EXPECT_LT(program.copies(200, 32768, 1400, 2200), 40);
}

TEST(CopyChoice, TakesEveryLength) {
  Program program;
  for (std::uint64_t bytes = 1; bytes <= std::uint64_t{1} << 40; bytes *= 2) {
    program.copies(100, bytes, 5000, 3000);
    EXPECT_GT(program.copies(100, bytes, 5000, 3000), 80) << bytes;
  }
}

// What could not be had says nothing of the way that was wanted.
TEST(CopyChoice, WhatWasNotToBeHadIsNotJudged) {
  Program program;
  int copies = 0;
  for (int i = 0; i < 2000; ++i) {
    copies += program.send(32768, 1000, 1000);
    program.choice.spoil_last();
  }
  EXPECT_EQ(copies, 2000);
  EXPECT_FALSE(program.choice.trying());
}

}  // namespace
}  // namespace od::smpi
