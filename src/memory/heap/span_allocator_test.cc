// Tests of the span allocator on plain memory: sizes, reuse, joining, limits, threads.
#include "memory/heap/span_allocator.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace od::memory::heap {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST(SizeClasses, HoldWhatIsAskedForWithLittleWaste) {
  for (std::uint32_t pages = 1; pages < 70'000; ++pages) {
    const unsigned above = class_above(pages);
    ASSERT_GE(class_pages(above), pages);
    ASSERT_LE(class_pages(above), pages + pages / 8) << pages;
    ASSERT_LE(class_pages(class_below(pages)), pages);
    ASSERT_GT(class_pages(class_below(pages) + 1), pages);
  }
  ASSERT_LT(class_above(kMostPages), kClassCount);
  ASSERT_EQ(class_pages(class_above(kMostPages)), kMostPages);
}

class Spans : public ::testing::Test {
 protected:
  void SetUp() override { make(64 * kMiB, 8 * kMiB); }
  void TearDown() override { drop(); }

  void make(std::uint64_t bytes, std::uint64_t keep_bytes) {
    drop();
    bytes_ = bytes;
    mapped_bytes_ = bytes + 2 * kBaseUnit;
    mapped_ =
        mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(mapped_, MAP_FAILED);
    // As the arena: a multiple of a huge page, and of nothing larger.
    const auto address = reinterpret_cast<std::uintptr_t>(mapped_);
    base_ = static_cast<char*>(mapped_) + (kBaseUnit - address % kBaseUnit) + 2 * kMiB;
    // As in the process: zero memory, no constructor needed.
    spans_.reset(new SpanAllocator());
    const SpanAllocator::System system = {
        .open =
            [](void* self, char* start, std::uint64_t opened) {
              static_cast<Spans*>(self)->opened_bytes_ += opened;
              return mprotect(start, opened, PROT_READ | PROT_WRITE) == 0;
            },
        .give_back =
            [](void* self, char* start, std::uint64_t given) {
              static_cast<Spans*>(self)->given_bytes_ += given;
              return madvise(start, given, MADV_DONTNEED) == 0;
            },
        .fill =
            [](void* self, char* start, std::uint64_t bytes) {
              auto* spans = static_cast<Spans*>(self);
              spans->filled_.emplace_back(start - spans->base_, bytes);
              // The part is open, but below the top it may belong to others, who write to it while
              // this runs: only what nobody has got yet may be read.
              const char* const end = start + bytes;
              if (end > spans->base_ + spans->opened_bytes_) ++spans->not_open_;
              const char* const top = spans->base_ + spans->spans_->top_bytes();
              for (const char* at = std::max<const char*>(start, top); at < end; ++at) {
                if (*at != 0) ++spans->not_zero_;
              }
            },
        .context = this};
    ASSERT_TRUE(spans_->init(base_, bytes, keep_bytes, system));
  }
  void drop() {
    if (spans_ != nullptr) spans_->destroy();
    spans_.reset();
    if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
    mapped_ = nullptr;
  }
  char* allocate(std::uint64_t bytes, std::uint64_t alignment = 0) {
    return static_cast<char*>(spans_->allocate(bytes, alignment, &zero_));
  }
  bool inside(const char* block, std::uint64_t bytes) const {
    return block >= base_ + kPageBytes && block + bytes <= base_ + bytes_;
  }

  static constexpr std::uint64_t kBaseUnit = 64 * kMiB;
  void* mapped_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
  char* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::unique_ptr<SpanAllocator> spans_;
  std::atomic<std::uint64_t> opened_bytes_{0};
  std::atomic<std::uint64_t> given_bytes_{0};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> filled_;
  std::uint64_t not_open_ = 0;
  std::uint64_t not_zero_ = 0;
  bool zero_ = false;
};

TEST_F(Spans, BlocksAreUsablePagesOfTheRange) {
  char* first = allocate(100'000);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(inside(first, 100'000));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % kPageBytes, 0u);
  EXPECT_TRUE(zero_);
  std::memset(first, 1, spans_->usable_bytes(first));
  char* second = allocate(100'000);
  EXPECT_GE(second, first + 100'000);
  std::memset(second, 2, spans_->usable_bytes(second));
  EXPECT_EQ(first[99'999], 1);
  spans_->free(first);
  spans_->free(second);
}

TEST_F(Spans, FreedBlocksAreUsedAgainAtOnce) {
  char* block = allocate(kMiB);
  block[0] = 1;
  spans_->free(block);
  EXPECT_EQ(allocate(kMiB), block);
  EXPECT_FALSE(zero_) << "it was written to";
  EXPECT_EQ(block[0], 1) << "and kept";
  EXPECT_EQ(given_bytes_, 0u);
}

TEST_F(Spans, SmallSpansAreFilledAheadByUnits) {
  using Parts = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  // The first unit is not filled; 2 MiB less a page fit into it.
  for (int i = 0; i < 31; ++i) ASSERT_NE(allocate(64 << 10), nullptr);
  EXPECT_EQ(filled_, Parts{});
  ASSERT_NE(allocate(64 << 10), nullptr) << "ends in the second";
  EXPECT_EQ(filled_, (Parts{{2 * kMiB, 2 * kMiB}}));
  ASSERT_NE(allocate(kMiB), nullptr);
  EXPECT_EQ(filled_.size(), 1u) << "still within it";
  // Large ones are up to the caller; what comes after them begins anew where they end.
  char* large = allocate(8 * kMiB, 2 * kMiB);
  ASSERT_EQ(large - base_, static_cast<std::ptrdiff_t>(4 * kMiB));
  ASSERT_NE(allocate(1'900'000), nullptr);
  ASSERT_NE(allocate(64 << 10), nullptr);
  EXPECT_EQ(filled_, (Parts{{2 * kMiB, 2 * kMiB}, {12 * kMiB, 2 * kMiB}}));
  while (allocate(300'000) != nullptr) continue;
  EXPECT_LE(filled_.back().first + filled_.back().second, bytes_);
  EXPECT_EQ(not_open_, 0u);
  EXPECT_EQ(not_zero_, 0u);
}

// The unit that a small span shares with the end of a large one is filled while the large one's
// owner works; the thread sanitizer watches.
TEST_F(Spans, FillingGoesOnBesideTheOwnersOfOtherSpans) {
  constexpr std::uint64_t kLargeBytes = 3 * kMiB;
  std::atomic<char*> large{nullptr};
  std::thread owner([this, &large] {
    bool zero = false;
    auto* const mine = static_cast<char*>(spans_->allocate(kLargeBytes, 2 * kMiB, &zero));
    std::memset(mine, 7, kLargeBytes);
    // Relaxed: whoever fills must not need to know what the owner wrote.
    large.store(mine, std::memory_order_relaxed);
    while (large.load(std::memory_order_relaxed) != nullptr) mine[kLargeBytes - 1] = 7;
    EXPECT_EQ(std::count(mine, mine + kLargeBytes, 7), static_cast<std::ptrdiff_t>(kLargeBytes));
    spans_->free(mine);
  });
  const char* theirs = nullptr;
  while ((theirs = large.load(std::memory_order_relaxed)) == nullptr) std::this_thread::yield();
  const auto half_unit = static_cast<std::uint64_t>(theirs - base_) + 2 * kMiB;
  // The free space before the large one goes first.
  for (int i = 0; i < 8 && filled_.empty(); ++i) EXPECT_NE(allocate(512 << 10), nullptr);
  large.store(nullptr, std::memory_order_relaxed);
  owner.join();
  EXPECT_EQ(filled_, (std::vector{std::make_pair(half_unit, 2 * kMiB)}));
  EXPECT_EQ(not_open_, 0u);
  EXPECT_EQ(not_zero_, 0u);
}

TEST_F(Spans, NeighboursAreJoined) {
  // Fills the range with blocks of 1 MiB, and needs it in one piece afterwards.
  make(64 * kMiB, 64 * kMiB);
  std::vector<char*> blocks;
  while (char* block = allocate(kMiB)) blocks.push_back(block);
  EXPECT_GE(blocks.size(), 60u);
  std::mt19937 random(1);
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (char* block : blocks) spans_->free(block);
  EXPECT_NE(allocate(48 * kMiB), nullptr);
}

TEST_F(Spans, MemoryBeyondTheLimitIsGivenBack) {
  std::vector<char*> blocks;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(allocate(kMiB));
    std::memset(blocks.back(), 1, kMiB);
  }
  for (char* block : blocks) spans_->free(block);
  const SpanAllocator::Usage usage = spans_->usage();
  EXPECT_EQ(usage.used_bytes, 0u);
  EXPECT_LE(usage.cached_bytes, 8 * kMiB);
  EXPECT_LE(usage.dirty_free_bytes, 8 * kMiB);
  EXPECT_GE(given_bytes_, 24 * kMiB);
  // What says to be zero is.
  for (int i = 0; i < 40; ++i) {
    char* block = allocate(kMiB);
    ASSERT_NE(block, nullptr);
    if (!zero_) continue;
    for (std::uint64_t at = 0; at < kMiB; at += kPageBytes) ASSERT_EQ(block[at], 0);
  }
}

TEST_F(Spans, WhatWasNeverUsedIsNotOpened) {
  char* block = allocate(kMiB);
  EXPECT_LE(opened_bytes_, 8 * kMiB);
  EXPECT_EQ(spans_->top_bytes(), kPageBytes + spans_->usable_bytes(block));
}

TEST_F(Spans, Alignment) {
  for (std::uint64_t alignment = kPageBytes; alignment <= 32 * kMiB; alignment *= 2) {
    char* block = allocate(50'000, alignment);
    ASSERT_NE(block, nullptr) << alignment;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0u) << alignment;
    allocate(10'000);
  }
  // Out of free spans.
  char* const room = allocate(20 * kMiB);
  ASSERT_NE(room, nullptr);
  allocate(10'000);
  const std::uint64_t top = spans_->top_bytes();
  spans_->free(room);
  char* const block = allocate(70'000, 16 * kMiB);
  EXPECT_LE(spans_->top_bytes(), top);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (16 * kMiB), 0u);
  EXPECT_EQ(allocate(50'000, std::uint64_t{1} << 40), nullptr);
}

TEST_F(Spans, ResizeInPlace) {
  char* block = allocate(kMiB);
  block[kMiB - 1] = 3;
  ASSERT_TRUE(spans_->resize(block, 3 * kMiB)) << "nothing lies behind it";
  EXPECT_GE(spans_->usable_bytes(block), 3 * kMiB);
  block[3 * kMiB - 1] = 4;
  char* wall = allocate(kMiB);
  EXPECT_GE(wall, block + 3 * kMiB);
  EXPECT_FALSE(spans_->resize(block, 5 * kMiB));
  ASSERT_TRUE(spans_->resize(block, kMiB));
  EXPECT_LE(spans_->usable_bytes(block), 2 * kMiB);
  EXPECT_EQ(block[kMiB - 1], 3);
  EXPECT_TRUE(spans_->resize(block, 2 * kMiB)) << "the space that was just left";
  spans_->free(block);
  spans_->free(wall);
  EXPECT_EQ(spans_->usage().used_bytes, 0u);
}

// There everything above what was in use has been mapped anew, without access.
TEST_F(Spans, TheLastBlockGrowsInAForkedChild) {
  char* const block = allocate(kMiB);
  const std::uint64_t top = spans_->top_bytes();
  ASSERT_EQ(mprotect(base_ + top, bytes_ - top, PROT_NONE), 0);
  spans_->lock_all();
  spans_->begin_in_child();
  ASSERT_TRUE(spans_->resize(block, 3 * kMiB));
  std::memset(block, 1, 3 * kMiB);
  spans_->free(block);
}

TEST_F(Spans, ExhaustionIsNoDisaster) {
  EXPECT_EQ(allocate(65 * kMiB), nullptr);
  EXPECT_EQ(allocate(~std::uint64_t{0}), nullptr);
  char* most = allocate(60 * kMiB);
  ASSERT_NE(most, nullptr);
  EXPECT_EQ(allocate(8 * kMiB), nullptr);
  spans_->free(most);
  EXPECT_NE(allocate(8 * kMiB), nullptr);
}

TEST_F(Spans, UsedBlocksAreFound) {
  char* a = allocate(100'000);
  char* b = allocate(200'000);
  char* c = allocate(300'000);
  spans_->free(b);
  std::set<char*> found;
  spans_->lock_all();
  spans_->for_each_used([](void* into, char* start,
                           std::uint64_t) { static_cast<std::set<char*>*>(into)->insert(start); },
                        &found);
  spans_->unlock_all();
  EXPECT_EQ(found, (std::set<char*>{a, c}));
}

using SpansDeathTest = Spans;

TEST_F(SpansDeathTest, WrongPointersEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "fast";
  char* block = allocate(kMiB);
  EXPECT_DEATH(spans_->free(block + 16), "invalid pointer");
  EXPECT_DEATH(spans_->free(block + kPageBytes), "invalid pointer");
  spans_->free(block);
  EXPECT_DEATH(spans_->free(block), "double free");
}

// Random work in several threads; blocks wander between them. Every block carries its own mark at
// both ends, so that two owners of a page would be seen.
TEST_F(Spans, ThreadsUnderStress) {
  make(512 * kMiB, 4 * kMiB);
  constexpr int kThreads = 6;
  constexpr int kSlots = 64;
  struct Block {
    char* start;
    std::uint64_t bytes;
    std::uint64_t mark;
  };
  std::atomic<Block*> slots[kSlots] = {};
  std::atomic<int> wrong{0};
  const auto write_marks = [](const Block& block) {
    std::memcpy(block.start, &block.mark, 8);
    std::memcpy(block.start + block.bytes - 8, &block.mark, 8);
  };
  const auto check = [&wrong](const Block& block) {
    std::uint64_t ends[2];
    std::memcpy(&ends[0], block.start, 8);
    std::memcpy(&ends[1], block.start + block.bytes - 8, 8);
    if (ends[0] != block.mark || ends[1] != block.mark) wrong.fetch_add(1);
  };
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      std::mt19937_64 random(id);
      for (int i = 0; i < 4000; ++i) {
        const int slot = static_cast<int>(random() % kSlots);
        Block* mine = slots[slot].exchange(nullptr);
        if (mine != nullptr) {
          check(*mine);
          if (random() % 4 == 0) {
            const std::uint64_t bytes = 4096 + random() % (2 * kMiB);
            if (spans_->resize(mine->start, bytes)) {
              std::uint64_t begin;
              std::memcpy(&begin, mine->start, 8);
              if (begin != mine->mark) wrong.fetch_add(1);
              mine->bytes = bytes;
              write_marks(*mine);
              mine = slots[slot].exchange(mine);
              if (mine == nullptr) continue;
            }
          }
          spans_->free(mine->start);
          delete mine;
          continue;
        }
        const std::uint64_t exponent = 12 + random() % 10;
        auto* block =
            new Block{nullptr, (std::uint64_t{1} << exponent) + random() % 9999, random()};
        bool zero = false;
        const std::uint64_t alignment = random() % 8 == 0 ? 1 << (12 + random() % 6) : 0;
        block->start = static_cast<char*>(spans_->allocate(block->bytes, alignment, &zero));
        if (block->start == nullptr) {
          delete block;
          continue;
        }
        if (zero && (block->start[0] != 0 || block->start[block->bytes - 1] != 0)) {
          wrong.fetch_add(1);
        }
        write_marks(*block);
        block = slots[slot].exchange(block);
        if (block != nullptr) {
          check(*block);
          spans_->free(block->start);
          delete block;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& slot : slots) {
    Block* block = slot.load();
    if (block == nullptr) continue;
    check(*block);
    spans_->free(block->start);
    delete block;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(not_open_, 0u);
  EXPECT_EQ(not_zero_, 0u);
  EXPECT_EQ(spans_->usage().used_bytes, 0u);
}

}  // namespace
}  // namespace od::memory::heap
