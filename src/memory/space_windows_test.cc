// Windows of peers' address spaces: which are attached, found again, given up; refusals; fork.
#include "memory/space_windows.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>

namespace od::memory {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// A peer is an address space that nothing is ever loaded from: windows lie at address plus a
// constant for each attachment.
struct Fake {
  struct Range {
    std::int64_t handle;
    std::uint64_t start;
    std::uint64_t bytes;
  };
  static inline std::map<std::byte*, Range> attached;
  static inline std::uint64_t attempts = 0;
  static inline std::uint64_t end_of_peers = ~std::uint64_t{0};
  static inline bool refuses = false;

  static void reset() {
    attached.clear();
    attempts = 0;
    end_of_peers = ~std::uint64_t{0};
    refuses = false;
  }
  static std::byte* here(std::uint64_t start) {
    return reinterpret_cast<std::byte*>(start + (attempts << 50));
  }
  static std::byte* attach(std::int64_t handle, std::uint64_t start, std::uint64_t bytes) {
    ++attempts;
    if (refuses || start + bytes > end_of_peers) {
      errno = ENOMEM;
      return nullptr;
    }
    attached[here(start)] = {handle, start, bytes};
    return here(start);
  }
  static void detach(std::byte* start) {
    if (attached.erase(start) != 1) std::abort();
  }
  static constexpr SpaceCalls kCalls = {.expose = nullptr,
                                        .withdraw = nullptr,
                                        .open = nullptr,
                                        .close = nullptr,
                                        .attach = attach,
                                        .detach = detach};
};

class SpaceWindowsTest : public testing::Test {
 protected:
  void SetUp() override { Fake::reset(); }
  void start(std::size_t peers, const SpaceWindows::Limits& limits) {
    windows_.emplace(peers, limits, counters_);
    windows_->use(&Fake::kCalls);
    for (std::size_t i = 0; i < peers; ++i) windows_->open(i, static_cast<std::int64_t>(10 + i));
  }
  // Whether the range is found, and at the right place of what is attached.
  bool found(std::size_t peer, std::uint64_t address, std::uint64_t bytes) {
    std::byte* const at = windows_->at(peer, address, bytes);
    for (const auto& [here, range] : Fake::attached) {
      if (at < here || at >= here + range.bytes) continue;
      return range.handle == static_cast<std::int64_t>(10 + peer) &&
             range.start + static_cast<std::uint64_t>(at - here) == address &&
             address + bytes <= range.start + range.bytes;
    }
    return false;
  }
  observe::Counters counters_;
  std::optional<SpaceWindows> windows_;
};

TEST_F(SpaceWindowsTest, LargeAlignedAndFoundAgain) {
  start(2, {.unit_bytes = 2 * kMiB});
  EXPECT_TRUE(found(0, 5 * kMiB + 123, 1000));
  EXPECT_EQ(Fake::attached.begin()->second.start, 4 * kMiB);
  EXPECT_EQ(Fake::attached.begin()->second.bytes, 2 * kMiB);
  EXPECT_TRUE(found(0, 4 * kMiB, 2 * kMiB));
  EXPECT_TRUE(found(0, 6 * kMiB - 1, 1));
  EXPECT_EQ(Fake::attempts, 1u);
  EXPECT_TRUE(found(1, 4 * kMiB, 2 * kMiB)) << "another peer, another window";
  EXPECT_EQ(Fake::attempts, 2u);
  EXPECT_EQ(counters_.xpmem_attached, 2u);
  EXPECT_EQ(counters_.xpmem_detached, 0u);
}

TEST_F(SpaceWindowsTest, ARangeAcrossTheEdgeGetsAWindowThatTakesTheOthersPlace) {
  start(1, {.unit_bytes = 2 * kMiB});
  EXPECT_TRUE(found(0, 4 * kMiB, 100));
  EXPECT_TRUE(found(0, 9 * kMiB, 100));
  EXPECT_TRUE(found(0, 5 * kMiB, 2 * kMiB));
  // 4 to 8 covers the first; the one from 8 on stays.
  EXPECT_EQ(Fake::attached.size(), 2u);
  EXPECT_TRUE(found(0, 4 * kMiB, 4 * kMiB));
  EXPECT_TRUE(found(0, 9 * kMiB, 100));
  EXPECT_EQ(Fake::attempts, 3u);
}

TEST_F(SpaceWindowsTest, TheLeastRecentlyUsedOfAPeerMakesRoom) {
  start(2, {.unit_bytes = kMiB, .per_peer = 3});
  for (const std::uint64_t at : {1, 2, 3}) EXPECT_TRUE(found(0, at * kMiB, 10));
  EXPECT_TRUE(found(1, kMiB, 10));
  EXPECT_TRUE(found(0, kMiB, 10));  // now 2 is the oldest
  EXPECT_TRUE(found(0, 7 * kMiB, 10));
  EXPECT_EQ(Fake::attached.size(), 4u);
  const std::uint64_t before = Fake::attempts;
  for (const std::uint64_t at : {1, 3, 7}) EXPECT_TRUE(found(0, at * kMiB, 10));
  EXPECT_TRUE(found(1, kMiB, 10));
  EXPECT_EQ(Fake::attempts, before);
  EXPECT_TRUE(found(0, 2 * kMiB, 10));
  EXPECT_EQ(Fake::attempts, before + 1);
}

TEST_F(SpaceWindowsTest, TheAddressSpaceOfAllIsLimited) {
  start(3, {.unit_bytes = kMiB, .per_peer = 100, .total_bytes = 4 * kMiB});
  for (std::size_t peer = 0; peer < 3; ++peer) EXPECT_TRUE(found(peer, kMiB, 10));
  EXPECT_TRUE(found(0, 8 * kMiB, 2 * kMiB));  // the window of the first peer goes
  EXPECT_EQ(Fake::attached.size(), 3u);
  const std::uint64_t before = Fake::attempts;
  EXPECT_TRUE(found(1, kMiB, 10));
  EXPECT_TRUE(found(2, kMiB, 10));
  EXPECT_EQ(Fake::attempts, before);
  EXPECT_TRUE(found(2, 20 * kMiB, 4 * kMiB));
  EXPECT_EQ(Fake::attached.size(), 1u);
  EXPECT_EQ(windows_->at(0, kMiB, 4 * kMiB + 1), nullptr) << "more than there may be";
  EXPECT_EQ(counters_.xpmem_refused, 1u);
}

TEST_F(SpaceWindowsTest, AtTheEndOfThePeersSpaceExactlyThePages) {
  start(1, {.unit_bytes = 64 * kMiB});
  Fake::end_of_peers = 100 * kMiB;
  EXPECT_TRUE(found(0, 99 * kMiB + 5000, 3000));
  EXPECT_EQ(Fake::attached.begin()->second.start, 99 * kMiB + 4096);
  EXPECT_EQ(Fake::attached.begin()->second.bytes, 4096u);
  EXPECT_EQ(counters_.xpmem_refused, 0u);
}

TEST_F(SpaceWindowsTest, WhatIsRefusedAgainAndAgainIsGivenUp) {
  start(2, {.unit_bytes = kMiB});
  Fake::refuses = true;
  EXPECT_EQ(windows_->at(0, kMiB, 10), nullptr);
  Fake::refuses = false;
  EXPECT_TRUE(found(0, kMiB, 10)) << "once does not count";
  Fake::refuses = true;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(windows_->at(0, 5 * kMiB, 10), nullptr);
  EXPECT_FALSE(windows_->open(0));
  EXPECT_TRUE(windows_->open(1));
  Fake::refuses = false;
  EXPECT_EQ(windows_->at(0, 5 * kMiB, 10), nullptr);
  EXPECT_TRUE(found(0, kMiB, 10)) << "what is attached can be used";
  EXPECT_EQ(counters_.xpmem_refused, 4u);
}

TEST_F(SpaceWindowsTest, NothingWithoutAHandle) {
  start(1, {});
  windows_->open(0, 0);
  EXPECT_EQ(windows_->at(0, kMiB, 10), nullptr);
  EXPECT_EQ(Fake::attempts, 0u);
}

TEST_F(SpaceWindowsTest, ClosedAllIsDetachedAndStaysSo) {
  start(2, {});
  EXPECT_TRUE(found(0, kMiB, 10));
  EXPECT_TRUE(found(1, kMiB, 10));
  windows_->close();
  EXPECT_TRUE(Fake::attached.empty());
  EXPECT_EQ(windows_->at(0, kMiB, 10), nullptr);
  EXPECT_EQ(counters_.xpmem_detached, 2u);
}

TEST_F(SpaceWindowsTest, AForkedChildDetachesNothing) {
  start(1, {});
  EXPECT_TRUE(found(0, kMiB, 10));
  const pid_t child = fork();
  if (child == 0) {
    windows_.reset();
    _exit(Fake::attached.size() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  windows_.reset();
  EXPECT_TRUE(Fake::attached.empty());
}

}  // namespace
}  // namespace od::memory
