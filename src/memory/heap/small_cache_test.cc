// The cache of small blocks, on blocks with a header as the C library writes it.
#include "memory/heap/small_cache.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace od::memory::heap {
namespace {

std::vector<void*>& Released() {
  static std::vector<void*> released;
  return released;
}

// Blocks as the C library makes them: the word before says how large they are.
class SmallCacheTest : public testing::Test {
 protected:
  void SetUp() override { Released().clear(); }
  void* Block(std::size_t bytes) {
    const std::size_t chunk = SmallCache::chunk_for(bytes);
    memory_.emplace_back(chunk / 8 + 4);
    std::size_t* words = memory_.back().data();
    if (reinterpret_cast<std::uintptr_t>(words + 1) % 16 != 0) ++words;
    words[0] = chunk | 1;  // the flag of a used neighbour
    return words + 1;
  }
  bool Put(void* block) {
    return cache_.put(block, SmallCache::bin_of(SmallCache::chunk_of(block)));
  }
  SmallCache cache_ = {};

 private:
  std::vector<std::vector<std::size_t>> memory_;
};

TEST_F(SmallCacheTest, EverySizeFindsTheBinOfItsBlocks) {
  cache_.open();
  for (std::size_t bytes = 0; bytes <= SmallCache::kMostBytes; ++bytes) {
    void* const block = Block(bytes);
    ASSERT_LT(SmallCache::bin_of(SmallCache::chunk_of(block)), SmallCache::kBins) << bytes;
    ASSERT_TRUE(Put(block)) << bytes;
    ASSERT_EQ(cache_.take(bytes), block) << bytes;
    ASSERT_EQ(cache_.take(bytes), nullptr) << bytes;
  }
}

TEST_F(SmallCacheTest, ABlockIsNeverTooSmall) {
  cache_.open();
  ASSERT_TRUE(Put(Block(24)));
  EXPECT_EQ(cache_.take(25), nullptr);
  void* const middle = Block(2000);
  EXPECT_EQ(cache_.put_middle(middle, SmallCache::chunk_of(middle)), nullptr);
  for (std::size_t bytes = 1033; bytes <= SmallCache::kMostMiddleBytes; bytes += 8) {
    if (SmallCache::chunk_for(bytes) == SmallCache::chunk_for(2000)) continue;
    ASSERT_EQ(cache_.take_middle(bytes), nullptr) << bytes;
  }
  EXPECT_EQ(cache_.take_middle(2000), middle);
  EXPECT_EQ(cache_.take_middle(2000), nullptr);
}

TEST_F(SmallCacheTest, ABlockMappedByItselfIsKnown) {
  auto* const block = static_cast<std::size_t*>(Block(5000));
  EXPECT_FALSE(SmallCache::is_mapped(block));
  block[-1] = 8192 | SmallCache::kMapped;
  EXPECT_TRUE(SmallCache::is_mapped(block));
}

TEST_F(SmallCacheTest, ASlotGivesUpWhatItHadBefore) {
  cache_.open();
  void* const one = Block(5000);
  void* const two = Block(5000);
  EXPECT_EQ(cache_.put_middle(one, SmallCache::chunk_of(one)), nullptr);
  EXPECT_EQ(cache_.put_middle(two, SmallCache::chunk_of(two)), one);
  EXPECT_EQ(cache_.take_middle(5000), two);
}

TEST_F(SmallCacheTest, KeepsAFewOfEachSizeAndLastInFirstOut) {
  cache_.open();
  std::vector<void*> blocks;
  for (unsigned i = 0; i < SmallCache::kRoom; ++i) {
    blocks.push_back(Block(100));
    ASSERT_TRUE(Put(blocks.back()));
  }
  EXPECT_FALSE(Put(Block(100)));
  for (; !blocks.empty(); blocks.pop_back()) EXPECT_EQ(cache_.take(100), blocks.back());
  EXPECT_TRUE(Put(Block(100)));
}

TEST_F(SmallCacheTest, SeesABlockThatIsFreedTwice) {
  cache_.open();
  void* const block = Block(64);
  void* const other = Block(64);
  const unsigned bin = SmallCache::bin_of(SmallCache::chunk_of(block));
  EXPECT_FALSE(SmallCache::may_be_here(other, &cache_));
  ASSERT_TRUE(Put(block));
  ASSERT_TRUE(Put(other));
  EXPECT_TRUE(SmallCache::may_be_here(block, &cache_));
  EXPECT_TRUE(cache_.is_here(block, bin));
  EXPECT_EQ(cache_.take(64), other);
  EXPECT_FALSE(cache_.is_here(other, bin));
  EXPECT_FALSE(SmallCache::may_be_here(other, &cache_));
}

TEST_F(SmallCacheTest, AClosedOneTakesNothing) {
  EXPECT_FALSE(Put(Block(64))) << "not yet open";
  cache_.open();
  void* const block = Block(64);
  void* const middle = Block(3000);
  ASSERT_TRUE(Put(block));
  cache_.put_middle(middle, SmallCache::chunk_of(middle));
  cache_.close([](void* released) { Released().push_back(released); });
  EXPECT_EQ(Released(), (std::vector<void*>{block, middle}));
  EXPECT_FALSE(Put(Block(64)));
  EXPECT_EQ(cache_.take(64), nullptr);
  EXPECT_EQ(cache_.take_middle(3000), nullptr);
  EXPECT_EQ(cache_.state, SmallCache::kClosed);
}

TEST_F(SmallCacheTest, ADifferentHeaderIsNoticed) {
  // Blocks with the size in bytes before them, and others with nothing there.
  const auto allocate = [](std::size_t bytes) -> void* {
    auto* const words = static_cast<std::size_t*>(std::aligned_alloc(16, (bytes + 47) / 16 * 16));
    words[1] = bytes;
    return words + 2;
  };
  const auto release = [](void* block) { std::free(static_cast<std::size_t*>(block) - 2); };
  const auto usable = [](void* block) { return static_cast<std::size_t*>(block)[-1]; };
  EXPECT_FALSE(SmallCache::works(allocate, release, usable));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_TRUE(SmallCache::works(std::malloc, std::free, malloc_usable_size));
#endif
}

}  // namespace
}  // namespace od::memory::heap
