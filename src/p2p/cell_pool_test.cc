// Tests of the rotation of cells: within what exists at first, and through the whole pool later.
#include "p2p/cell_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace od::p2p {
namespace {

constexpr std::uint64_t kChunk = 1024;
constexpr std::uint32_t kChunks = 16;

struct Pool {
  std::array<std::atomic<std::uint8_t>, 64> releases = {};
  CellPool cells{4096, kChunk* kChunks, kChunk, releases.data(), 64};

  // The chunk of a message of a whole chunk, or kNoChunk.
  std::uint32_t send(std::vector<CellDescriptor>* unread) {
    CellDescriptor cell;
    if (!cells.allocate(kChunk, &cell)) return CellPool::kNoChunk;
    unread->push_back(cell);
    return static_cast<std::uint32_t>((cell.offset - 4096) / kChunk);
  }
  void read(std::vector<CellDescriptor>* unread) {
    for (const CellDescriptor& cell : *unread) release_cell(releases.data(), cell);
    unread->clear();
  }
};

TEST(CellPool, GoesThroughAllChunksInTurn) {
  Pool pool;
  std::vector<CellDescriptor> unread;
  for (std::uint32_t i = 0; i < 3 * kChunks; ++i) {
    EXPECT_EQ(pool.send(&unread), i % kChunks);
    EXPECT_EQ(pool.cells.went_round(), i + 1 >= kChunks);
    pool.read(&unread);
  }
}

TEST(CellPool, BeginsWithinWhatExistsAndTakesOneMoreWithEachRound) {
  Pool pool;
  pool.cells.begin_within(4 * kChunk);
  std::vector<CellDescriptor> unread;
  for (std::uint32_t in_use = 4; in_use < kChunks; ++in_use) {
    for (std::uint32_t i = 0; i < in_use; ++i) {
      EXPECT_EQ(pool.send(&unread), i);
      pool.read(&unread);
    }
    EXPECT_EQ(pool.cells.chunks_in_use(), in_use + 1);
    EXPECT_TRUE(pool.cells.went_round());
  }
  for (std::uint32_t i = 0; i < 2 * kChunks; ++i) {
    EXPECT_EQ(pool.send(&unread), i % kChunks);
    pool.read(&unread);
  }
}

TEST(CellPool, TakesMoreAtOnceWhereAllAreUnread) {
  Pool pool;
  pool.cells.begin_within(4 * kChunk);
  std::vector<CellDescriptor> unread;
  std::set<std::uint32_t> chunks;
  std::uint32_t sent = 0;
  while (pool.send(&unread) != CellPool::kNoChunk) ++sent;
  for (const CellDescriptor& cell : unread) {
    chunks.insert(static_cast<std::uint32_t>((cell.offset - 4096) / kChunk));
  }
  EXPECT_EQ(chunks.size(), sent) << "a chunk was written before it was read";
  EXPECT_EQ(sent, kChunks - 2) << "all but the reserve";
  EXPECT_NE(pool.cells.allocate_chunk(true), CellPool::kNoChunk);
  pool.read(&unread);
  EXPECT_NE(pool.send(&unread), CellPool::kNoChunk);
}

TEST(CellPool, TakesWhatHasBeenTouchedMeanwhile) {
  Pool pool;
  pool.cells.begin_within(4 * kChunk);
  pool.cells.extend_to(8 * kChunk);
  EXPECT_EQ(pool.cells.chunks_in_use(), 8u);
  pool.cells.extend_to(2 * kChunk);
  EXPECT_EQ(pool.cells.chunks_in_use(), 8u);
  pool.cells.extend_to(100 * kChunk);
  EXPECT_EQ(pool.cells.chunks_in_use(), kChunks);
}

}  // namespace
}  // namespace od::p2p
