// Huge pages in memory that others use at the same time, and have protected.
#include "memory/heap/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

#include "base/test_emulator.h"
#include "memory/heap/size_classes.h"

namespace od::memory::heap {
namespace {

class ArenaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* why = "";
    ASSERT_TRUE(arena_.create(128 << 20, HugePages::kNone, &why)) << why;
    ASSERT_TRUE(arena_.open(arena_.start(), 4 * kHugeBytes));
    unit_ = arena_.start() + kHugeBytes;
  }
  void TearDown() override { arena_.destroy(); }
  // Whether the kernel collapses pages of a memfd at all.
  bool possible() { return collapse(arena_.start() + 3 * kHugeBytes, kHugeBytes); }
  std::ptrdiff_t sevens() const { return std::count(unit_, unit_ + kHugeBytes, 7); }

  Arena arena_;
  char* unit_ = nullptr;
};

TEST_F(ArenaTest, AUnitThatIsAllHoleIsCollapsed) {
  if (!possible()) GTEST_SKIP() << "not here: " << std::strerror(errno);
  EXPECT_TRUE(collapse(unit_, kHugeBytes));
  EXPECT_EQ(std::count(unit_, unit_ + kHugeBytes, 0), static_cast<std::ptrdiff_t>(kHugeBytes));
  EXPECT_FALSE(collapse(unit_ + kPageBytes, kHugeBytes)) << "no whole unit";
}

// The end of a large block lies in the unit, and its owner has protected it.
TEST_F(ArenaTest, WhatIsProtectedIsLeftAlone) {
  if (under_emulator()) GTEST_SKIP() << "an emulator says yes to every advice";
  std::memset(unit_, 7, kHugeBytes);
  for (const int protection : {PROT_NONE, PROT_READ}) {
    ASSERT_EQ(mprotect(unit_, kPageBytes, protection), 0);
    EXPECT_FALSE(collapse(unit_, kHugeBytes));
    ASSERT_EQ(mprotect(unit_, kPageBytes, PROT_READ | PROT_WRITE), 0);
    EXPECT_EQ(sevens(), static_cast<std::ptrdiff_t>(kHugeBytes));
  }
}

TEST_F(ArenaTest, WritesOfOthersAreNotLost) {
  if (!possible()) GTEST_SKIP() << "not here: " << std::strerror(errno);
  for (int round = 0; round < 5; ++round) {
    std::atomic<bool> begun{false};
    std::thread owner([&] {
      for (std::uint64_t at = 0; at < kHugeBytes; at += 64) {
        std::memset(unit_ + at, 7, 64);
        // Relaxed: the two are to meet, nothing is handed over.
        begun.store(true, std::memory_order_relaxed);
      }
    });
    while (!begun.load(std::memory_order_relaxed)) std::this_thread::yield();
    // May be refused while the pages are in use.
    collapse(unit_, kHugeBytes);
    owner.join();
    EXPECT_EQ(sevens(), static_cast<std::ptrdiff_t>(kHugeBytes));
    ASSERT_TRUE(arena_.give_back(unit_, kHugeBytes));
  }
}

}  // namespace
}  // namespace od::memory::heap
