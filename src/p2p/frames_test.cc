// Checks which ranks share which frame, and who holds it.
#include "p2p/frames.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <set>
#include <vector>

namespace od::p2p {
namespace {

constexpr std::uint64_t kRegionBytes = 1 << 20;

node::RegionLayout layout_with(std::uint64_t frames) {
  node::RegionLayout layout;
  layout.frames_offset = 4096;
  layout.frame_bytes = 4096;
  layout.frame_count = frames;
  return layout;
}

TEST(Frames, EveryPairHasTwoWhenThereAreEnough) {
  constexpr std::uint32_t kRanks = 7;
  const node::RegionLayout layout = layout_with(kRanks - 1);
  std::vector<std::byte> memory(1);
  std::set<std::byte*> all;
  for (std::uint32_t owner = 0; owner < kRanks; ++owner) {
    std::byte* const base = memory.data() + owner * kRegionBytes;
    for (std::uint32_t peer = 0; peer < kRanks; ++peer) {
      if (peer == owner) continue;
      std::byte* const frame = frame_at(base, layout, owner, peer, kRanks);
      ASSERT_NE(frame, nullptr);
      EXPECT_TRUE(all.insert(frame).second) << "two peers share a frame of " << owner;
      EXPECT_GE(frame, base + layout.frames_offset);
      const std::uint64_t each = node::kFrameHeadBytes + layout.frame_bytes;
      EXPECT_LE(frame + each, base + layout.frames_offset + layout.frame_count * each);
    }
  }
}

TEST(Frames, NeighboursComeFirst) {
  constexpr std::uint32_t kRanks = 10;
  const node::RegionLayout layout = layout_with(2);
  std::byte memory{};
  for (std::uint32_t owner = 0; owner < kRanks; ++owner) {
    for (std::uint32_t ahead = 1; ahead < kRanks; ++ahead) {
      const bool has =
          frame_at(&memory, layout, owner, (owner + ahead) % kRanks, kRanks) != nullptr;
      EXPECT_EQ(has, ahead <= 2) << owner << " and " << ahead;
    }
  }
  EXPECT_EQ(frame_at(&memory, layout_with(0), 0, 1, 2), nullptr);
}

// Two ranks' views of the same two frames.
class FramePair : public testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = node::kFrameHeadBytes + 4096;
  FramePair() : memory_(new (std::align_val_t{4096}) std::byte[2 * kBytes]()) {
    a_ = FrameSet(memory_, memory_ + kBytes);
    b_ = FrameSet(memory_ + kBytes, memory_);
  }
  ~FramePair() override { ::operator delete[](memory_, std::align_val_t{4096}); }

  static void send(FrameSet& from, int tag, BoxCount box_before = {}) {
    MessageHeader header;
    header.kind = Kind::inline_data;
    header.tag = tag;
    const std::vector<unsigned char> data(static_cast<std::size_t>(tag % 700),
                                          static_cast<unsigned char>(tag));
    const unsigned frame = from.held();
    ASSERT_NE(frame, FrameSet::kNone);
    const auto bytes = static_cast<std::uint32_t>(data.size());
    if (tag % 3 == 1 && bytes >= kPrefixBytes) {
      const std::vector<unsigned char> rest(data.begin() + kPrefixBytes, data.end());
      from.put_behind(frame, header, data.data(), rest.data(), bytes - kPrefixBytes, box_before);
    } else {
      from.put(frame, header, data.data(), bytes, box_before);
    }
  }
  // The tag of the oldest message that waits, or -1; the frame is kept.
  static int receive(FrameSet& to, BoxCount* box_before = nullptr) {
    FrameControl control{};
    const unsigned frame = to.ready(&control);
    if (frame == FrameSet::kNone) return -1;
    if (box_before != nullptr) *box_before = control.box_before();
    MessageHeader header;
    to.take(frame, control, &header);
    EXPECT_EQ(header.inline_bytes, static_cast<std::uint32_t>(header.tag % 700));
    std::vector<unsigned char> joined(header.inline_bytes + 1, 0);
    const unsigned char* data = joined.data();
    if (header.kind == Kind::split) {
      // In part: what is beyond stays as it is.
      to.copy_split(frame, joined.data(), kPrefixBytes - 5);
      EXPECT_EQ(joined[kPrefixBytes - 5], 0);
      to.copy_split(frame, joined.data(), header.inline_bytes);
      EXPECT_EQ(joined[header.inline_bytes], 0);
    } else {
      data = to.short_payload(frame, header.inline_bytes);
    }
    for (std::uint32_t i = 0; i < header.inline_bytes; ++i) {
      EXPECT_EQ(data[i], static_cast<unsigned char>(header.tag));
    }
    to.keep(frame);
    return header.tag;
  }

  std::byte* memory_;
  FrameSet a_, b_;
};

TEST_F(FramePair, EachSideStartsWithItsOwn) {
  EXPECT_EQ(a_.held(), 0u);
  EXPECT_EQ(b_.held(), 0u);
  EXPECT_FALSE(a_.ready() || b_.ready());
  EXPECT_FALSE(a_.seen(0));
  send(a_, 1);
  EXPECT_EQ(a_.held(), FrameSet::kNone);
  EXPECT_EQ(receive(b_), 1);
  EXPECT_EQ(b_.held(), 1u) << "the one that was read last";
}

TEST_F(FramePair, DialoguesStayInOneFrameForEver) {
  // More turns than the counters hold.
  for (int i = 0; i < 1000; ++i) {
    FrameSet& from = i % 2 == 0 ? a_ : b_;
    FrameSet& to = i % 2 == 0 ? b_ : a_;
    send(from, i);
    EXPECT_FALSE(from.ready());
    ASSERT_EQ(receive(to), i);
    EXPECT_TRUE(to.seen(to.held()));
    EXPECT_EQ(to.payload(to.held()), memory_ + node::kFrameHeadBytes);
  }
}

TEST_F(FramePair, TwoMessagesComeInOrderWhicheverFrameTheyAreIn) {
  for (int i = 0; i < 600; i += 4) {
    send(a_, i);
    ASSERT_EQ(receive(b_), i);
    // Now one side has both.
    send(b_, i + 1);
    send(b_, i + 2);
    EXPECT_EQ(b_.held(), FrameSet::kNone);
    ASSERT_EQ(receive(a_), i + 1);
    ASSERT_EQ(receive(a_), i + 2);
    ASSERT_EQ(receive(a_), -1);
    send(a_, i + 3);
    ASSERT_EQ(receive(b_), i + 3);
    EXPECT_EQ(a_.sent(), b_.received());
    EXPECT_EQ(b_.sent(), a_.received());
  }
}

TEST_F(FramePair, BothSidesMaySendAtOnce) {
  for (int i = 0; i < 600; ++i) {
    // Far apart, so that all bits are used.
    const auto count = static_cast<std::uint32_t>(i) * 41;
    send(a_, 2 * i, BoxCount(count));
    send(b_, 2 * i + 1, BoxCount(count + 7));
    BoxCount box_before;
    ASSERT_EQ(receive(b_, &box_before), 2 * i);
    EXPECT_EQ(box_before, BoxCount(count));
    ASSERT_EQ(receive(a_, &box_before), 2 * i + 1);
    EXPECT_EQ(box_before, BoxCount(count + 7));
  }
}

// The prefix goes where the head line has room, so that the rest takes as many lines as by itself.
TEST_F(FramePair, AMessageOfTwoPartsIsSplitWhereTheHeadLineEnds) {
  for (std::uint32_t bytes = 0; bytes <= kFrameShortBytes; bytes += bytes < 70 ? 1 : 509) {
    std::vector<unsigned char> prefix(kPrefixBytes), rest(bytes);
    for (std::uint32_t i = 0; i < kPrefixBytes; ++i) prefix[i] = static_cast<unsigned char>(i + 1);
    for (std::uint32_t i = 0; i < bytes; ++i) rest[i] = static_cast<unsigned char>(bytes + i);
    MessageHeader header;
    header.kind = Kind::inline_data;
    FrameSet &from = bytes % 2 == 0 ? a_ : b_, &to = bytes % 2 == 0 ? b_ : a_;
    const unsigned held = from.held();
    ASSERT_NE(held, FrameSet::kNone);
    from.put_behind(held, header, prefix.data(), rest.data(), bytes, {});
    FrameControl control{};
    const unsigned frame = to.ready(&control);
    ASSERT_NE(frame, FrameSet::kNone);
    MessageHeader seen;
    to.peek(frame, control, &seen);
    ASSERT_EQ(seen.inline_bytes, kPrefixBytes + bytes);
    ASSERT_EQ(seen.kind,
              kPrefixBytes + bytes <= kHeadPayloadBytes ? Kind::inline_data : Kind::split);
    ASSERT_EQ(to.ready(&control), frame) << "a look takes nothing";
    to.take(frame, control, &seen);
    std::vector<unsigned char> whole(kPrefixBytes + bytes);
    if (seen.kind == Kind::split) {
      to.copy_split(frame, whole.data(), seen.inline_bytes);
      EXPECT_EQ(std::memcmp(to.short_payload(frame, bytes + kHeadPayloadBytes), rest.data(), bytes),
                0);
    } else {
      std::memcpy(whole.data(), to.short_payload(frame, seen.inline_bytes), whole.size());
    }
    EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), whole.begin()));
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + kPrefixBytes));
    to.keep(frame);
  }
}

TEST(Frames, ControlWordsKeepWhatTheyAreGiven) {
  const FrameControl control{FrameControl::pack(kMaxBoxSource, BoxCount(kMostBoxLines),
                                                FrameControl::kMaxBytes, 3, Kind::frame, 200)};
  EXPECT_EQ(control.source(), kMaxBoxSource);
  EXPECT_EQ(control.box_before().value(), kMostBoxLines);
  EXPECT_EQ(control.bytes(), FrameControl::kMaxBytes);
  EXPECT_TRUE(control.odd());
  EXPECT_EQ(control.kind(), Kind::frame);
  EXPECT_TRUE(control.follows(199));
  EXPECT_FALSE(control.follows(200) || control.follows(198));
}

TEST(Frames, APairWithoutFramesHasNone) {
  FrameSet none;
  EXPECT_EQ(none.held(), FrameSet::kNone);
  EXPECT_FALSE(none.ready());
}

}  // namespace
}  // namespace od::p2p
