// Compares Cursor with a byte-by-byte walk of the typemap, for every shape and every split point.
#include "p2p/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace od::p2p {
namespace {

using Bytes = std::vector<char>;

// The typemap of one element as runs, whatever its shape.
std::vector<Segment> runs_of(const Layout& layout) {
  std::vector<Segment> runs;
  switch (layout.shape) {
    case Shape::contiguous:
      runs.push_back({layout.lower, layout.size});
      break;
    case Shape::strided:
      for (std::int64_t i = 0; i < layout.block_count; ++i) {
        runs.push_back({layout.lower + i * layout.stride, layout.block_bytes});
      }
      break;
    case Shape::segments:
      runs = layout.segments;
      break;
    case Shape::opaque:
      break;
  }
  return runs;
}

// Offsets, relative to the base address, of all bytes of `count` elements in stream order.
std::vector<std::int64_t> byte_offsets(const Layout& layout, std::int64_t count) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t e = 0; e < count; ++e) {
    for (const Segment& run : runs_of(layout)) {
      for (std::int64_t b = 0; b < run.bytes; ++b) {
        offsets.push_back(e * layout.extent + run.offset + b);
      }
    }
  }
  return offsets;
}

int kernel_calls = 0;
void counting_copy(void* to, const void* from, std::size_t bytes) {
  ++kernel_calls;
  EXPECT_GE(bytes, 64u);
  std::memcpy(to, from, bytes);
}

// Room before and after the base address, for negative offsets.
constexpr std::int64_t kReachBytes = 6000;

struct Buffer {
  Bytes bytes = Bytes(2 * kReachBytes);
  char* base() { return bytes.data() + kReachBytes; }
};

void check_split(const Layout& layout, std::int64_t count, const std::vector<std::size_t>& pieces) {
  const std::vector<std::int64_t> offsets = byte_offsets(layout, count);
  std::mt19937 random(7);
  Buffer source;
  for (char& byte : source.bytes) byte = static_cast<char>(random());
  Bytes expected;
  for (const std::int64_t offset : offsets) expected.push_back(source.base()[offset]);

  Bytes stream(offsets.size() + 1, 'g');
  Cursor packer(source.base(), count, layout);
  std::size_t done = 0;
  std::size_t next = 0;
  while (packer.remaining() > 0) {
    ASSERT_EQ(packer.remaining(), static_cast<std::int64_t>(offsets.size() - done));
    const std::size_t piece = next < pieces.size() ? pieces[next++] : offsets.size();
    const std::size_t moved = packer.pack(stream.data() + done, piece, counting_copy);
    ASSERT_EQ(moved, std::min(piece, offsets.size() - done));
    done += moved;
  }
  ASSERT_EQ(done, offsets.size());
  ASSERT_EQ(stream.back(), 'g');
  stream.pop_back();
  ASSERT_EQ(stream, expected);
  ASSERT_EQ(packer.pack(stream.data(), 10, counting_copy), 0u);

  Buffer target;
  Bytes reference(target.bytes.size(), 0);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    reference[static_cast<std::size_t>(kReachBytes + offsets[i])] = stream[i];
  }
  Cursor unpacker(target.base(), count, layout);
  done = 0;
  next = 0;
  while (unpacker.remaining() > 0) {
    const std::size_t piece = next < pieces.size() ? pieces[next++] : offsets.size();
    done += unpacker.unpack(stream.data() + done, piece, counting_copy);
  }
  ASSERT_EQ(done, offsets.size());
  ASSERT_EQ(target.bytes, reference);
}

void check(const Layout& layout, std::int64_t count) {
  const std::size_t total = byte_offsets(layout, count).size();
  ASSERT_EQ(total, static_cast<std::size_t>(count * layout.size));
  check_split(layout, count, {});
  for (std::size_t split = 1; split < total; ++split) check_split(layout, count, {split});
  check_split(layout, count, std::vector<std::size_t>(total, 1));
  check_split(layout, count, std::vector<std::size_t>(total, 7));
}

Layout strided(std::int64_t blocks, std::int64_t block_bytes, std::int64_t stride,
               std::int64_t extent, std::int64_t lower = 0) {
  return Layout{.shape = Shape::strided,
                .size = blocks * block_bytes,
                .extent = extent,
                .lower = lower,
                .block_count = blocks,
                .block_bytes = block_bytes,
                .stride = stride,
                .segments = {},
                .in_host_memory = {}};
}

Layout contiguous(std::int64_t bytes, std::int64_t lower = 0) {
  return Layout{.size = bytes,
                .extent = bytes,
                .lower = lower,
                .block_bytes = bytes,
                .segments = {},
                .in_host_memory = {}};
}

TEST(Cursor, ContiguousAtEverySplit) {
  check(contiguous(1), 1);
  check(contiguous(8), 5);
  check(contiguous(24), 9);
  check(contiguous(12, -36), 4);
}

TEST(Cursor, LongRunsUseTheKernelThatWasChosen) {
  kernel_calls = 0;
  check_split(contiguous(8), 100, {});
  EXPECT_EQ(kernel_calls, 2);
}

TEST(Cursor, StridedBlocksOfEverySmallSize) {
  for (std::int64_t block = 1; block <= 40; ++block) {
    check_split(strided(5, block, block + 3, 6 * (block + 3)), 3, {3, 5, 1, 17});
    check_split(strided(5, block, block + 3, 5 * (block + 3)), 3, {2, 30, 1, 17});
  }
  for (const std::int64_t block : {1, 2, 4, 8, 16, 24, 63, 64, 65}) {
    check(strided(3, block, block + 5, 4 * block + 11), 2);
  }
}

TEST(Cursor, NegativeStrideAndExtent) {
  check(strided(4, 8, -16, 8), 3);
  check(strided(4, 8, -16, -72), 3);
  check(strided(4, 3, -16, -64), 3);
  check(strided(1, 8, 0, -24), 5);
  check(strided(3, 4, 12, -40, -100), 4);
}

TEST(Cursor, OneBlockPerElementWithGapsAndWithZeroExtentReads) {
  check(strided(1, 12, 0, 16, 4), 6);
  // Overlapping elements are legal in a send buffer.
  const Layout layout = strided(1, 8, 0, 0);
  Buffer source;
  std::memcpy(source.base(), "abcdefgh", 8);
  Bytes stream(24);
  EXPECT_EQ(Cursor(source.base(), 3, layout).pack(stream.data(), 100, nullptr), 24u);
  EXPECT_EQ(std::string(stream.begin(), stream.end()), "abcdefghabcdefghabcdefgh");
}

TEST(Cursor, NothingToMove) {
  Buffer buffer;
  char byte = 0;
  const Layout nothing = contiguous(0);
  const Layout gap = strided(0, 0, 0, 16);
  const Layout eight = contiguous(8);
  for (const Layout* layout : {&nothing, &gap, &eight}) {
    Cursor cursor(buffer.base(), layout->size == 0 ? 5 : 0, *layout);
    EXPECT_EQ(cursor.remaining(), 0);
    EXPECT_EQ(cursor.pack(&byte, 1, counting_copy), 0u);
    EXPECT_EQ(cursor.unpack(&byte, 1, counting_copy), 0u);
  }
  Layout empty;
  empty.shape = Shape::segments;
  empty.extent = 4;
  EXPECT_EQ(Cursor(buffer.base(), 7, empty).remaining(), 0);
}

TEST(Cursor, RandomSegmentsAgreeWithTheTypemap) {
  std::mt19937 random(20240611);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 60; ++round) {
    Layout layout;
    layout.shape = Shape::segments;
    std::int64_t at = pick(-50, 50);
    const std::int64_t first = at;
    for (std::int64_t i = pick(1, 6); i > 0; --i) {
      const std::int64_t bytes = pick(1, 5) == 1 ? pick(60, 90) : pick(1, 20);
      layout.segments.push_back({at, bytes});
      layout.size += bytes;
      at += bytes + pick(0, 9);
    }
    std::shuffle(layout.segments.begin(), layout.segments.end(), random);
    const std::int64_t span = at - first;
    layout.extent = pick(0, 1) ? span + pick(0, 20) : -span - pick(0, 20);
    const std::int64_t count = pick(1, 4);
    check_split(layout, count, {});
    std::vector<std::size_t> pieces;
    for (int i = 0; i < 40; ++i) pieces.push_back(static_cast<std::size_t>(pick(0, 33)));
    check_split(layout, count, pieces);
    if (round < 10) check(layout, count);
  }
}

TEST(LayoutRef, LastOwnerFreesTheHostType) {
  static host::Handle disposed;
  disposed = 0;
  auto* layout = new Layout;
  layout->shape = Shape::opaque;
  layout->host_type = 77;
  layout->dispose = [](host::Handle type) { disposed = type; };
  LayoutRef first(layout);
  {
    LayoutRef second = first;
    LayoutRef third(std::move(second));
    EXPECT_EQ(layout->references.load(std::memory_order_relaxed), 2u);
    first = LayoutRef();
    EXPECT_EQ(disposed, 0u);
    EXPECT_EQ(third->host_type, 77u);
  }
  EXPECT_EQ(disposed, 77u);
}

}  // namespace
}  // namespace od::p2p
