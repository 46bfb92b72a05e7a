// Checks which slots are handed out when, and where payload is put in a slot.
#include "coll/shm/slots.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "coll/shm/slot_layout.h"
#include "coll/shm/slot_ring.h"

namespace od::coll::shm {
namespace {

class SlotsTest : public testing::Test {
 protected:
  SlotsTest() {
    layout_.slots_offset = 0;
    layout_.slot_bytes = 64 << 10;
    layout_.slot_count = 3;
    memory_ = static_cast<std::byte*>(std::aligned_alloc(4096, 3 * (64 << 10)));
    std::memset(memory_, 0, 3 * (64 << 10));
  }
  ~SlotsTest() override { std::free(memory_); }
  od::node::RegionLayout layout_;
  std::byte* memory_;
};

TEST_F(SlotsTest, AreUsedOnceAtATime) {
  Slots slots(memory_, layout_);
  const SlotLease a = slots.allocate(), b = slots.allocate(), c = slots.allocate();
  EXPECT_EQ(a.slot + b.slot + c.slot, 0u + 1 + 2);
  EXPECT_EQ(slots.allocate().slot, SlotLease::kNone);
  slots.release(b, 5, {});
  const SlotLease again = slots.allocate();
  EXPECT_EQ(again.slot, b.slot);
  EXPECT_EQ(again.base, b.base + 5);
  EXPECT_EQ(slots.in_use(), 3u);
}

TEST_F(SlotsTest, AreUsedAgainWhenAllHaveAcknowledged) {
  Slots slots(memory_, layout_);
  std::atomic<std::uint64_t> first{10}, second{7};
  const SlotLease a = slots.allocate();
  slots.release(a, 8, {{&first, 8}, {&second, 8}});
  EXPECT_NE(slots.allocate().slot, a.slot);
  second = 8;
  const SlotLease again = slots.allocate();
  EXPECT_EQ(again.slot, a.slot);
  EXPECT_EQ(again.base, a.base + 8);
}

// A page and a page of the page table for each slot would be half a millisecond of MPI_Init.
TEST_F(SlotsTest, AreNotTouchedBeforeTheyAreHandedOut) {
  const std::size_t slot_bytes = layout_.slot_bytes;
  slot_control(memory_, layout_, 0)->completed = 4;
  ASSERT_EQ(mprotect(memory_, 3 * slot_bytes, PROT_NONE), 0);
  Slots slots(memory_, layout_);
  ASSERT_EQ(mprotect(memory_, slot_bytes, PROT_READ | PROT_WRITE), 0);
  SlotLease lease = slots.allocate();
  EXPECT_EQ(lease.slot, 0u);
  EXPECT_EQ(lease.base, 4u);
  slots.release(lease, 2, {});
  lease = slots.allocate();
  EXPECT_EQ(lease.slot, 0u);
  EXPECT_EQ(lease.base, 6u);
  ASSERT_EQ(mprotect(memory_, 3 * slot_bytes, PROT_READ | PROT_WRITE), 0);
}

// Pieces never overlap others that are kept, and everything fits again once all are released.
TEST(SlotRing, KeepsPiecesApart) {
  for (const std::uint64_t size : {60u << 10, 1u << 20}) {
    SlotRing ring(size);
    std::mt19937 random(7);
    struct Piece {
      std::uint64_t at, bytes, exchange;
    };
    std::deque<Piece> kept;
    std::uint64_t exchange = 0;
    int refused = 0;
    for (int i = 0; i < 200000; ++i) {
      const std::uint64_t bytes = 1 + random() % (random() % 4 == 0 ? size / 4 : 5000);
      const std::uint64_t at = ring.reserve(bytes, exchange);
      if (at == SlotRing::kNoRoom) {
        ++refused;
        ASSERT_FALSE(kept.empty());
        ASSERT_EQ(ring.oldest(), kept.front().exchange);
      } else {
        ASSERT_EQ(at % 128, 0u);
        ASSERT_LE(at + bytes, size);
        for (const Piece& piece : kept) {
          ASSERT_TRUE(at + bytes <= piece.at || piece.at + piece.bytes <= at);
        }
        kept.push_back({at, bytes, exchange++});
      }
      if (at == SlotRing::kNoRoom || random() % 3 == 0) {
        const std::uint64_t until = kept.front().exchange + 1 + random() % 3;
        ring.release(until);
        while (!kept.empty() && kept.front().exchange < until) kept.pop_front();
      }
    }
    EXPECT_GT(refused, 0);
  }
}

// Little traffic stays in a few pages, and short exchanges stay where caches keep them.
TEST(SlotRing, GrowsWithItsTraffic) {
  SlotRing ring(4 << 20);
  std::uint64_t furthest = 0;
  std::uint64_t exchange = 0;
  const auto pass = [&](std::uint64_t bytes, std::uint64_t each) {
    for (std::uint64_t done = 0; done < bytes; done += each) {
      const std::uint64_t at = ring.reserve(each, exchange++);
      ASSERT_NE(at, SlotRing::kNoRoom);
      furthest = std::max(furthest, at + each);
      ring.release(exchange);
    }
  };
  pass(200 << 10, 4096);
  EXPECT_LE(furthest, 64u << 10);
  pass(64 << 20, 4096);
  EXPECT_EQ(furthest, 512u << 10);
  pass(256 << 20, 512 << 10);
  EXPECT_EQ(furthest, 4u << 20);
}

}  // namespace
}  // namespace od::coll::shm
