// What is given ahead on credit, and to whom.
#include "memory/heap/touch_history.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "memory/heap/arena.h"
#include "memory/heap/size_classes.h"

namespace od::memory::heap {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;

class TouchHistoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* why = "";
    ASSERT_TRUE(arena_.create(std::uint64_t{256} << 20, HugePages::kNone, &why)) << why;
    ASSERT_TRUE(arena_.open(arena_.start(), arena_.bytes()));
  }
  void TearDown() override { arena_.destroy(); }
  char* block(unsigned i) { return arena_.start() + i * kBlockBytes; }
  void touch(unsigned i) { std::memset(block(i), 1, kBlockBytes); }

  Arena arena_;
  TouchHistory history_;
};

TEST_F(TouchHistoryTest, SamplesTellFullFromEmptyAndFromPartly) {
  EXPECT_TRUE(has_no_memory(block(0), kBlockBytes));
  EXPECT_FALSE(has_memory(block(0), kBlockBytes));
  std::memset(block(0), 1, kBlockBytes / 2);
  EXPECT_FALSE(has_no_memory(block(0), kBlockBytes));
  EXPECT_FALSE(has_memory(block(0), kBlockBytes));
  touch(0);
  EXPECT_TRUE(has_memory(block(0), kBlockBytes));
  EXPECT_FALSE(has_no_memory(block(0), kBlockBytes));
  EXPECT_TRUE(has_memory(block(0), kPageBytes));
}

TEST_F(TouchHistoryTest, WhatIsNotMappedIsNeitherFullNorEmpty) {
  void* const hole = mmap(nullptr, kBlockBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  ASSERT_EQ(munmap(hole, kBlockBytes), 0);
  EXPECT_FALSE(has_memory(static_cast<char*>(hole), kBlockBytes));
  EXPECT_FALSE(has_no_memory(static_cast<char*>(hole), kBlockBytes));
}

TEST_F(TouchHistoryTest, EachThirdBlockShowsWhatTheProgramDoes) {
  unsigned ahead = 0;
  for (unsigned i = 0; i < 30; ++i) {
    if (history_.foresees_touch(block(i), kBlockBytes)) ++ahead;
    touch(i);
  }
  EXPECT_EQ(ahead, 20u);
}

TEST_F(TouchHistoryTest, WhoOnlyReservesGetsNothing) {
  for (unsigned i = 0; i < 30; ++i) EXPECT_FALSE(history_.foresees_touch(block(i), kBlockBytes));
}

TEST_F(TouchHistoryTest, WhoStopsTouchingLosesTheCredit) {
  EXPECT_FALSE(history_.foresees_touch(block(0), kBlockBytes));
  touch(0);
  // Less than a whole credit is used up by small blocks; nothing of them is touched.
  std::uint64_t given = 0;
  for (unsigned i = 1; i < 40; ++i) {
    if (history_.foresees_touch(block(i), kBlockBytes)) given += kBlockBytes;
  }
  EXPECT_EQ(given, TouchHistory::kTrust * kBlockBytes);
  EXPECT_EQ(history_.credit_bytes(), 0u);
}

TEST_F(TouchHistoryTest, BlocksThatAreTouchedLaterCount) {
  for (unsigned i = 0; i < TouchHistory::kWatched; ++i) {
    EXPECT_FALSE(history_.foresees_touch(block(i), kBlockBytes));
  }
  for (unsigned i = 0; i < TouchHistory::kWatched; ++i) touch(i);
  EXPECT_TRUE(history_.foresees_touch(block(20), 8 * kBlockBytes));
}

}  // namespace
}  // namespace od::memory::heap
