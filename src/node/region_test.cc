// Checks the planning of regions and what map_peer_region refuses.
#include "node/region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace od::node {
namespace {

constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

void expect_sound(const RegionLayout& layout, const RegionRequest& request, std::uint32_t ranks) {
  EXPECT_GE(layout.boxes_offset, sizeof(RegionHeader));
  EXPECT_GE(layout.box_bytes, request.box_bytes);
  EXPECT_EQ(layout.box_count, ranks);
  EXPECT_GE(layout.releases_offset, layout.boxes_offset + layout.box_bytes * ranks);
  EXPECT_GE(layout.envelopes_offset, layout.releases_offset + layout.release_count);
  EXPECT_GE(layout.pool_offset,
            layout.envelopes_offset + layout.envelope_count * request.envelope_bytes);
  EXPECT_EQ(layout.frames_offset, layout.pool_offset + layout.pool_bytes);
  EXPECT_EQ(layout.slots_offset,
            layout.frames_offset + layout.frame_count * (kFrameHeadBytes + layout.frame_bytes));
  EXPECT_EQ(layout.buffers_offset, layout.slots_offset + layout.slot_count * layout.slot_bytes);
  EXPECT_EQ(layout.slots_offset % kPageBytes, 0u);
  EXPECT_EQ(layout.slot_bytes % kPageBytes, 0u);
  EXPECT_LE(layout.slot_count * layout.slot_bytes * ranks, request.node_slots_bytes);
  EXPECT_EQ(layout.total_bytes, layout.buffers_offset + layout.buffers_bytes);
  EXPECT_EQ(layout.total_bytes % kPageBytes, 0u);
  EXPECT_EQ(layout.pool_offset % kPageBytes, 0u);
  EXPECT_EQ(layout.boxes_offset % kPageBytes, 0u);
}

TEST(Plan, EverythingThatWasAskedFor) {
  RegionRequest request;
  request.node_slots_bytes = 64 * request.slot_count * request.slot_bytes;
  for (const std::uint32_t ranks : {1u, 2u, 7u, 64u}) {
    const auto layout = plan_region(request, ranks, kNoLimit, kNoLimit);
    ASSERT_TRUE(layout);
    expect_sound(*layout, request, ranks);
    EXPECT_EQ(layout->buffers_bytes, request.buffers_bytes);
    EXPECT_EQ(layout->pool_bytes, request.pool_bytes);
    EXPECT_EQ(layout->frame_bytes, request.frame_bytes);
    EXPECT_EQ(layout->frame_count, std::min(ranks - 1, request.frame_count));
    EXPECT_EQ(layout->slot_count, ranks > 1 ? request.slot_count : 0);
    EXPECT_EQ(layout->slot_bytes, ranks > 1 ? request.slot_bytes : 0);
  }
}

TEST(Plan, ManyRanksGetSmallerSlotsThenFewer) {
  RegionRequest request;
  request.node_slots_bytes = 1u << 30;
  std::uint64_t last_bytes = kNoLimit, last_count = kNoLimit;
  for (const std::uint32_t ranks : {2u, 16u, 64u, 256u, 1024u}) {
    const auto layout = plan_region(request, ranks, kNoLimit, kNoLimit);
    ASSERT_TRUE(layout);
    expect_sound(*layout, request, ranks);
    EXPECT_GT(layout->slot_count, 0u);
    EXPECT_GE(layout->slot_bytes, 64u << 10);
    EXPECT_LE(layout->slot_bytes, last_bytes);
    EXPECT_LE(layout->slot_count, last_count);
    last_bytes = layout->slot_bytes;
    last_count = layout->slot_count;
  }
  EXPECT_LT(last_count, request.slot_count);
}

TEST(Plan, ManyRanksGetLessEach) {
  const auto layout = plan_region({}, 1024, kNoLimit, kNoLimit);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->buffers_bytes, std::uint64_t{64} << 20);
}

TEST(Plan, LimitsShrinkBuffersThenThePoolThenNothingIsLeft) {
  const RegionRequest request;
  std::uint64_t last_total = kNoLimit;
  bool refused = false;
  for (std::uint64_t limit = std::uint64_t{4} << 30; limit > 4096; limit /= 2) {
    const auto layout = plan_region(request, 2, limit, kNoLimit);
    const auto mapped = plan_region(request, 2, kNoLimit, 2 * limit);
    ASSERT_EQ(layout.has_value(), mapped.has_value());
    if (!layout) {
      refused = true;
      continue;
    }
    EXPECT_FALSE(refused);
    EXPECT_EQ(layout->total_bytes, mapped->total_bytes);
    expect_sound(*layout, request, 2);
    EXPECT_LE(layout->total_bytes, limit);
    EXPECT_LE(layout->total_bytes, last_total);
    EXPECT_GE(layout->buffers_bytes, 1u << 20);
    EXPECT_GE(layout->pool_bytes, 256u << 10);
    last_total = layout->total_bytes;
  }
  EXPECT_TRUE(refused);
  EXPECT_LE(last_total, 4u << 20);
}

class RegionTest : public testing::Test {
 protected:
  RegionTest() : layout_(*plan_region({}, 2, 8 << 20, kNoLimit)), fd_(create_region_file()) {
    owner_.world_rank = 3;
    owner_.pid = 99;
    owner_.nonce[0] = 0x1234;
    owner_.nonce[1] = 0x5678;
  }
  ~RegionTest() override {
    unmap_region(own_, layout_);
    unmap_region(peer_, layout_);
    if (fd_ >= 0) close(fd_);
  }
  void make() { ASSERT_NE(own_ = make_region(fd_, layout_, owner_, &why_), nullptr) << why_; }
  MapResult map() { return map_peer_region(fd_, layout_, owner_, &peer_, &why_); }

  RegionLayout layout_;
  RegionOwner owner_;
  int fd_;
  std::byte* own_ = nullptr;
  std::byte* peer_ = nullptr;
  std::string why_;
};

TEST_F(RegionTest, BothMappingsShowTheSameMemory) {
  ASSERT_GE(fd_, 0);
  EXPECT_EQ(map(), MapResult::not_yet) << "an empty file is not finished";
  make();
  ASSERT_EQ(map(), MapResult::ok) << why_;
  EXPECT_NE(own_, peer_);
  peer_[layout_.total_bytes - 1] = std::byte{42};
  EXPECT_EQ(own_[layout_.total_bytes - 1], std::byte{42});
}

TEST_F(RegionTest, TheSizeIsSealed) {
  make();
  EXPECT_NE(ftruncate(fd_, 4096), 0);
  EXPECT_NE(ftruncate(fd_, static_cast<off_t>(layout_.total_bytes * 2)), 0);
}

TEST_F(RegionTest, AnUnsealedFileIsNotFinished) {
  ASSERT_EQ(ftruncate(fd_, static_cast<off_t>(layout_.total_bytes)), 0);
  EXPECT_EQ(map(), MapResult::not_yet);
}

TEST_F(RegionTest, OthersAreRefused) {
  make();
  const RegionOwner right = owner_;
  owner_.nonce[1] ^= 1;
  EXPECT_EQ(map(), MapResult::failed);
  owner_ = right;
  owner_.world_rank = 4;
  EXPECT_EQ(map(), MapResult::failed);
  owner_ = right;
  ++owner_.version;
  EXPECT_EQ(map(), MapResult::failed);
  owner_ = right;
  const RegionLayout right_layout = layout_;
  layout_.pool_bytes -= kPageBytes;
  EXPECT_EQ(map(), MapResult::failed);
  layout_ = right_layout;
  layout_.total_bytes -= kPageBytes;
  EXPECT_EQ(map(), MapResult::failed);
  layout_ = right_layout;
  EXPECT_EQ(map(), MapResult::ok);
}

TEST_F(RegionTest, AFileThatIsNoMemfdIsRefused) {
  char name[] = "/tmp/region_test_XXXXXX";
  const int file = mkstemp(name);
  ASSERT_GE(file, 0);
  unlink(name);
  close(fd_);
  fd_ = file;
  ASSERT_EQ(ftruncate(fd_, static_cast<off_t>(layout_.total_bytes)), 0);
  EXPECT_NE(map(), MapResult::ok);
  EXPECT_EQ(peer_, nullptr);
}

}  // namespace
}  // namespace od::node
