// Checks who owns an entry, that cells serve again only when all have taken them, and that what
// threads read is what the owner wrote.
#include "coll/shm/arrival_area.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "coll/shm/slot_layout.h"

namespace od::coll::shm {
namespace {

using Claim = ArrivalArea::Claim;

class ArrivalAreaTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kSegment = 1000;

  ArrivalAreaTest() {
    layout_.slots_offset = 0;
    layout_.slot_bytes = 512 << 10;
    layout_.slot_count = 3;
    const std::size_t bytes = layout_.slot_count * layout_.slot_bytes;
    memory_ = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
    std::memset(memory_, 0xa5, bytes);  // what another communicator has left
    lease_.count = 2;
    lease_.slots = {2, 0};
    ArrivalArea::clear(memory_, layout_, lease_);
  }
  ~ArrivalAreaTest() override { std::free(memory_); }

  ArrivalArea area(std::uint32_t members) { return {memory_, layout_, lease_, members}; }

  od::node::RegionLayout layout_;
  std::byte* memory_;
  ArrivalArea::Lease lease_;
};

TEST_F(ArrivalAreaTest, HasOneOwner) {
  ArrivalArea a = area(2), b = area(2);
  EXPECT_EQ(a.claim(0), Claim::mine);
  EXPECT_EQ(b.claim(0), Claim::others);
  EXPECT_FALSE(b.look(0).placed);
  ASSERT_TRUE(a.place(0, 2500, kSegment));
  const ArrivalArea::Seen seen = b.look(0);
  EXPECT_TRUE(seen.placed);
  EXPECT_EQ(seen.segments, 0u);
  EXPECT_EQ(seen.bytes, 2500u);
  EXPECT_EQ(seen.segment_bytes, kSegment);
  a.publish(0, 3);
  EXPECT_EQ(b.look(0).segments, 3u);
  EXPECT_FALSE(b.look(ArrivalArea::kEntries).placed);
}

TEST_F(ArrivalAreaTest, EntriesServeAgainWhenAllHaveTakenThem) {
  ArrivalArea a = area(2), b = area(2);
  for (std::uint64_t number = 0; number < ArrivalArea::kEntries; ++number) {
    ASSERT_EQ(a.claim(number), Claim::mine);
    ASSERT_TRUE(a.place(number, 1, kSegment));
    a.publish(number, 1);
    a.took(number);
  }
  const std::uint64_t next = ArrivalArea::kEntries;
  EXPECT_EQ(a.claim(next), Claim::wait);
  b.took(0);
  EXPECT_EQ(a.claim(next), Claim::mine);
  EXPECT_EQ(a.claim(next + 1), Claim::wait);
}

TEST_F(ArrivalAreaTest, CellsServeAgainWhenAllHaveTakenThem) {
  ArrivalArea a = area(2), b = area(2);
  const std::uint64_t cells = a.cells();
  EXPECT_EQ(cells, ArrivalArea::cells_in(layout_, 2));
  ASSERT_GE(cells, 8u);
  ASSERT_EQ(a.claim(0), Claim::mine);
  ASSERT_TRUE(a.place(0, (cells - 2) * kSegment, kSegment));
  std::byte* const first = a.segment(0, 0);
  a.took(0);
  ASSERT_EQ(a.claim(1), Claim::mine);
  EXPECT_FALSE(a.place(1, 3 * kSegment, kSegment));
  b.took(0);
  ASSERT_TRUE(a.place(1, 3 * kSegment, kSegment));
  // All were free: it begins with those that have been touched.
  EXPECT_EQ(a.segment(1, 0), first);
  a.took(1);
  ASSERT_EQ(a.claim(2), Claim::mine);
  EXPECT_FALSE(a.place(2, (cells - 2) * kSegment, kSegment));
  EXPECT_TRUE(a.place(2, (cells - 3) * kSegment, kSegment));
}

// Wherever the first one begins: in one slot each, none over another, and all of a ring's.
TEST_F(ArrivalAreaTest, LongSegmentsLieInOneSlotEach) {
  constexpr std::uint64_t kCells = 3;
  constexpr std::uint64_t kLong = (kCells - 1) * ArrivalArea::kCellBytes + 100;
  const std::uint64_t most = ArrivalArea::segments_in(layout_, 2, kLong);
  ASSERT_GE(most, 2u);
  EXPECT_EQ(ArrivalArea::segments_in(layout_, 2, kSegment), ArrivalArea::cells_in(layout_, 2));
  const auto slot_of = [&](const std::byte* at) {
    return static_cast<std::uint64_t>(at - memory_) / layout_.slot_bytes;
  };
  for (std::uint64_t before = 0; before <= 3; ++before) {
    ArrivalArea::clear(memory_, layout_, lease_);
    ArrivalArea a = area(1);
    ASSERT_EQ(a.claim(0), Claim::mine);
    ASSERT_TRUE(a.place(0, before * kSegment, kSegment));
    ASSERT_EQ(a.claim(1), Claim::mine);
    // What lies before it leaves the less room, until that is taken.
    std::uint64_t segments = most;
    while (!a.place(1, segments * kLong, kLong)) --segments;
    EXPECT_GE(segments, before == 0 ? most : most - 1);
    std::vector<const std::byte*> begins;
    for (std::uint64_t i = 0; i < before; ++i) begins.push_back(a.segment(0, i));
    for (std::uint64_t i = 0; i < segments; ++i) {
      const std::byte* const begin = a.segment(1, i);
      EXPECT_EQ(slot_of(begin), slot_of(begin + kCells * ArrivalArea::kCellBytes - 1));
      for (const std::byte* other : begins) {
        EXPECT_TRUE(begin + kCells * ArrivalArea::kCellBytes <= other ||
                    begin >= other + ArrivalArea::kCellBytes);
      }
      for (std::uint64_t cell = 0; cell < kCells; ++cell) {
        begins.push_back(begin + cell * ArrivalArea::kCellBytes);
      }
    }
    a.took(0);
    ASSERT_EQ(a.claim(2), Claim::mine);
    a.took(1);
    EXPECT_TRUE(a.place(2, most * kLong, kLong));
    EXPECT_FALSE(a.claim(3) == Claim::mine && a.place(3, kLong, kLong));
  }
}

TEST_F(ArrivalAreaTest, CountsWhoHasGivenInEachCallAnew) {
  ArrivalArea a = area(2), b = area(2);
  for (std::uint64_t number = 0; number < 2 * ArrivalArea::kEntries; ++number) {
    ASSERT_EQ(a.claim(number), Claim::mine);
    ASSERT_TRUE(a.place(number, 2 * kSegment, kSegment));
    EXPECT_EQ(b.given(number), 0u);
    EXPECT_EQ(a.give(number), 1u);
    EXPECT_EQ(b.given(number), 1u);
    EXPECT_EQ(b.give(number), 2u);
    a.took(number);
    b.took(number);
  }
}

TEST_F(ArrivalAreaTest, OneAtATimePassesOnAndNobodyIsForgotten) {
  ArrivalArea a = area(2), b = area(2);
  ASSERT_EQ(a.claim(0), Claim::mine);
  ASSERT_TRUE(a.reserve(0, 2 * kSegment, kSegment));
  EXPECT_FALSE(b.look(0).placed);
  a.publish(0, 0);
  EXPECT_TRUE(b.look(0).placed);
  EXPECT_TRUE(a.carry(0));
  EXPECT_FALSE(b.carry(0));
  EXPECT_EQ(a.given(0), 0u);
  b.give(0);
  EXPECT_EQ(a.given(0), 1u);
  EXPECT_FALSE(a.stop_carrying(0, 0));
  EXPECT_FALSE(b.carry(0));
  EXPECT_TRUE(a.stop_carrying(0, 1));
  EXPECT_EQ(b.given(0), 1u);
  EXPECT_TRUE(b.carry(0));
}

TEST_F(ArrivalAreaTest, LeavesTheSlotsHeadsAlone) {
  ArrivalArea a = area(1);
  for (std::uint64_t number = 0; number < 100; ++number) {
    ASSERT_EQ(a.claim(number), Claim::mine);
    ASSERT_TRUE(a.place(number, a.cells() * kSegment, kSegment));
    for (std::uint64_t i = 0; i < a.cells(); ++i) {
      std::memset(a.segment(number, i), 1, ArrivalArea::kCellBytes);
    }
    a.took(number);
  }
  a.leave();
  for (const std::uint32_t slot : {0u, 1u, 2u}) {
    const std::byte* const start = slot_start(memory_, layout_, slot);
    for (std::size_t i = 0; i < kControlBytes; ++i) ASSERT_EQ(start[i], std::byte{0xa5}) << slot;
  }
  EXPECT_EQ(ArrivalArea::left(memory_, layout_, 0).load(), 1u);
  EXPECT_EQ(ArrivalArea::left(memory_, layout_, 2).load(), 1u);
}

// Members that come in any order; each claims, and who is first writes.
TEST_F(ArrivalAreaTest, ThreadsReadWhatTheOwnerWrote) {
  constexpr std::uint32_t kMembers = 3;
  constexpr std::uint64_t kNumbers = 400;
  std::atomic<std::uint64_t> owned{0}, wrong{0};
  const auto member = [&](std::uint32_t me) {
    ArrivalArea mine = area(kMembers);
    std::mt19937 random(me);
    for (std::uint64_t number = 0; number < kNumbers; ++number) {
      const std::uint64_t bytes = 1 + number * 7919 % (mine.cells() * kSegment);
      const std::uint64_t segments = (bytes + kSegment - 1) / kSegment;
      const auto value = [&](std::uint64_t i) { return static_cast<int>((number + i) % 251); };
      for (unsigned i = random() % 64; i != 0; --i) std::this_thread::yield();
      Claim claim;
      while ((claim = mine.claim(number)) == Claim::wait) std::this_thread::yield();
      if (claim == Claim::mine) {
        owned.fetch_add(1, std::memory_order_relaxed);
        while (!mine.place(number, bytes, kSegment)) std::this_thread::yield();
        for (std::uint64_t i = 0; i < segments; ++i) {
          std::memset(mine.segment(number, i), value(i), kSegment);
          mine.publish(number, i + 1);
        }
      }
      std::uint64_t there = 0;
      while (there < segments) {
        const ArrivalArea::Seen seen = mine.look(number);
        if (!seen.placed || seen.segments == there) {
          std::this_thread::yield();
          continue;
        }
        if (seen.bytes != bytes) wrong.fetch_add(1, std::memory_order_relaxed);
        for (; there < seen.segments; ++there) {
          const std::byte* const data = mine.segment(number, there);
          for (std::uint64_t i = 0; i < kSegment; i += 37) {
            if (data[i] != static_cast<std::byte>(value(there))) {
              wrong.fetch_add(1, std::memory_order_relaxed);
            }
          }
        }
      }
      mine.took(number);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kMembers; ++i) threads.emplace_back(member, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(owned.load(), kNumbers);
  EXPECT_EQ(wrong.load(), 0u);
}

// Members come in any order; one after the other passes on what it finds, and what each has given
// is passed on once.
TEST_F(ArrivalAreaTest, ThreadsPassOnWhatEachHasGiven) {
  constexpr std::uint32_t kMembers = 3;
  constexpr std::uint64_t kNumbers = 400;
  std::atomic<std::uint64_t> passed{0}, wrong{0};
  const auto value = [](std::uint64_t number, std::uint32_t member) {
    return static_cast<std::byte>((number + member) % 250 + 1);
  };
  const auto member = [&](std::uint32_t me) {
    ArrivalArea mine = area(kMembers);
    std::mt19937 random(me);
    for (std::uint64_t number = 0; number < kNumbers; ++number) {
      for (unsigned i = random() % 64; i != 0; --i) std::this_thread::yield();
      Claim claim;
      while ((claim = mine.claim(number)) == Claim::wait) std::this_thread::yield();
      if (claim == Claim::mine) {
        while (!mine.reserve(number, kMembers * kSegment, kSegment)) std::this_thread::yield();
        for (std::uint32_t i = 0; i < kMembers; ++i) *mine.segment(number, i) = std::byte{0};
        mine.publish(number, 0);
      }
      while (!mine.look(number).placed) std::this_thread::yield();
      // Each has a byte of its own, which who passes it on clears.
      const std::atomic_ref<std::byte> own(*mine.segment(number, me));
      own.store(value(number, me), std::memory_order_release);
      mine.give(number);
      if (mine.carry(number)) {
        std::uint64_t seen = 0;
        do {
          seen = mine.given(number);
          for (std::uint32_t i = 0; i < kMembers; ++i) {
            const std::atomic_ref<std::byte> left(*mine.segment(number, i));
            const std::byte found = left.load(std::memory_order_acquire);
            if (found == std::byte{0}) continue;
            if (found != value(number, i)) wrong.fetch_add(1, std::memory_order_relaxed);
            left.store(std::byte{0}, std::memory_order_relaxed);
            passed.fetch_add(1, std::memory_order_relaxed);
          }
        } while (!mine.stop_carrying(number, seen));
      }
      mine.took(number);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kMembers; ++i) threads.emplace_back(member, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(passed.load(), kNumbers * kMembers);
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace od::coll::shm
