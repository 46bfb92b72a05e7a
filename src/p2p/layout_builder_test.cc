// Compares every constructor with a typemap that is expanded byte by byte.
#include "p2p/layout_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace od::p2p {
namespace {

using Offsets = std::vector<std::int64_t>;
using Numbers = std::vector<std::int64_t>;

// A part together with its typemap: the offset of every byte, in order.
struct Known {
  Part part;
  Offsets bytes;
};

Known known_run(std::int64_t bytes, std::int64_t extent, std::int64_t offset = 0) {
  Known known;
  known.part = {Flat::run(offset, bytes), extent};
  for (std::int64_t i = 0; i < bytes; ++i) known.bytes.push_back(offset + i);
  return known;
}

void add_copies(const Known& known, std::int64_t count, std::int64_t displacement, Offsets* bytes) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (const std::int64_t byte : known.bytes) {
      bytes->push_back(displacement + i * known.part.extent + byte);
    }
  }
}

Offsets bytes_of(const Layout& layout) {
  Offsets bytes;
  const auto add = [&](std::int64_t offset, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) bytes.push_back(offset + i);
  };
  if (layout.shape == Shape::contiguous) add(layout.lower, layout.size);
  if (layout.shape == Shape::strided) {
    for (std::int64_t i = 0; i < layout.block_count; ++i) {
      add(layout.lower + i * layout.stride, layout.block_bytes);
    }
  }
  if (layout.shape == Shape::segments) {
    for (const Segment& segment : layout.segments) add(segment.offset, segment.bytes);
  }
  return bytes;
}

void expect_same(const Flat& flat, const Offsets& expected, std::int64_t extent) {
  ASSERT_FALSE(flat.is_opaque());
  ASSERT_EQ(flat.size(), static_cast<std::int64_t>(expected.size()));
  Layout layout;
  flat.finish(extent, &layout);
  ASSERT_NE(layout.shape, Shape::opaque);
  EXPECT_EQ(layout.size, flat.size());
  EXPECT_EQ(layout.extent, extent);
  ASSERT_EQ(bytes_of(layout), expected);
  if (!expected.empty()) {
    EXPECT_EQ(flat.lowest(), *std::min_element(expected.begin(), expected.end()));
    EXPECT_EQ(flat.end(), *std::max_element(expected.begin(), expected.end()) + 1);
  }
  // As few runs as possible: no two neighbours are adjacent.
  for (std::size_t i = 1; i < layout.segments.size(); ++i) {
    EXPECT_NE(layout.segments[i - 1].offset + layout.segments[i - 1].bytes,
              layout.segments[i].offset);
  }
  if (layout.shape == Shape::contiguous && !expected.empty()) {
    EXPECT_EQ(layout.size, extent);
    EXPECT_EQ(expected.back() - expected.front() + 1, extent);
  }
}

TEST(Builder, ShapesAreRecognised) {
  const Part eight{Flat::run(0, 8), 8};
  Layout layout;
  flat_vector(eight, 1, 10, 0).finish(80, &layout);
  EXPECT_EQ(layout.shape, Shape::contiguous);
  flat_vector(eight, 5, 2, 16).finish(80, &layout);
  EXPECT_EQ(layout.shape, Shape::contiguous);
  flat_vector(eight, 5, 2, 24).finish(112, &layout);
  EXPECT_EQ(layout.shape, Shape::strided);
  EXPECT_EQ(layout.block_count, 5);
  EXPECT_EQ(layout.block_bytes, 16);
  EXPECT_EQ(layout.stride, 24);
  eight.flat.finish(24, &layout);
  EXPECT_EQ(layout.shape, Shape::strided);
  EXPECT_EQ(layout.block_count, 1);
  flat_indexed_block(eight, 1, Numbers{0, 8, 16}).finish(24, &layout);
  EXPECT_EQ(layout.shape, Shape::contiguous);
  flat_indexed_block(eight, 1, Numbers{4, 24, 44, 64}).finish(80, &layout);
  EXPECT_EQ(layout.shape, Shape::strided);
  flat_indexed_block(eight, 1, Numbers{4, 24, 44, 65}).finish(80, &layout);
  EXPECT_EQ(layout.shape, Shape::segments);
  Flat().finish(16, &layout);
  EXPECT_EQ(layout.size, 0);
  EXPECT_NE(layout.shape, Shape::opaque);
}

TEST(Builder, PatternsOfAnyLengthStaySmall) {
  const Part eight{Flat::run(0, 8), 8};
  Layout layout;
  flat_vector(eight, 100'000'000, 1, 16).finish(1'600'000'000, &layout);
  EXPECT_EQ(layout.shape, Shape::strided);
  EXPECT_EQ(layout.block_count, 100'000'000);
  const DistributedDimension cyclic{1'000'003, Distribution::cyclic, 1, 4};
  flat_darray(eight, 1, std::vector{cyclic}, ArrayOrder::c).finish(8'000'024, &layout);
  EXPECT_EQ(layout.shape, Shape::strided);
  EXPECT_EQ(layout.block_count, 250'001);
}

TEST(Builder, TooManyRunsBecomeOpaque) {
  const Part gap{flat_struct(std::vector<Part>{{Flat::run(0, 4), 4}, {Flat::run(0, 8), 8}},
                             Numbers{1, 1}, Numbers{0, 8}),
                 16};
  Layout layout;
  flat_vector(gap, 1, kMostSegments - 1, 0).finish(16 * kMostSegments, &layout);
  EXPECT_EQ(layout.shape, Shape::segments);  // the runs of neighbours merge
  const Part loose{gap.flat, 24};
  EXPECT_FALSE(flat_vector(loose, 1, kMostSegments / 2, 0).is_opaque());
  const Flat many = flat_vector(loose, 1, kMostSegments, 0);
  EXPECT_TRUE(many.is_opaque());
  EXPECT_TRUE(many.repeated(3, 5).is_opaque());
  Flat sum = Flat::run(0, 4);
  sum.append(many);
  EXPECT_TRUE(sum.is_opaque());
  sum.finish(5, &layout);
  EXPECT_EQ(layout.shape, Shape::opaque);
}

class RandomTypes {
 public:
  explicit RandomTypes(unsigned seed) : random_(seed) {}

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  Known make(int depth) {
    if (depth == 0) {
      const std::int64_t bytes = pick(0, 9);
      return known_run(bytes, pick(0, 2) == 0 ? bytes + pick(-2, 5) : bytes,
                       pick(0, 1) * pick(-4, 4));
    }
    const Known inner = make(depth - 1);
    Known made;
    switch (pick(0, 6)) {
      case 0: {  // vector
        const std::int64_t count = pick(0, 4), blocklength = pick(0, 3);
        const std::int64_t stride = pick(0, 1) ? pick(-60, 60) : blocklength * inner.part.extent;
        made.part.flat = flat_vector(inner.part, count, blocklength, stride);
        for (std::int64_t i = 0; i < count; ++i) {
          add_copies(inner, blocklength, i * stride, &made.bytes);
        }
        break;
      }
      case 1: {  // indexed
        Numbers lengths, displacements;
        for (std::int64_t i = pick(0, 4); i > 0; --i) {
          lengths.push_back(pick(0, 3));
          displacements.push_back(pick(-80, 80));
          add_copies(inner, lengths.back(), displacements.back(), &made.bytes);
        }
        made.part.flat = flat_indexed(inner.part, lengths, displacements);
        break;
      }
      case 2: {  // indexed block
        Numbers displacements;
        const std::int64_t length = pick(0, 3);
        const std::int64_t step = pick(0, 30);
        for (std::int64_t i = pick(0, 5); i > 0; --i) {
          displacements.push_back(pick(0, 3) ? i * step : pick(-80, 80));
          add_copies(inner, length, displacements.back(), &made.bytes);
        }
        made.part.flat = flat_indexed_block(inner.part, length, displacements);
        break;
      }
      case 3: {  // struct
        std::vector<Part> parts;
        Numbers lengths, displacements;
        for (std::int64_t i = pick(1, 3); i > 0; --i) {
          const Known part = make(depth - 1);
          parts.push_back(part.part);
          lengths.push_back(pick(0, 2));
          displacements.push_back(pick(-80, 80));
          add_copies(part, lengths.back(), displacements.back(), &made.bytes);
        }
        made.part.flat = flat_struct(parts, lengths, displacements);
        break;
      }
      case 4:
      case 5: {  // subarray
        const auto dimensions = static_cast<std::size_t>(pick(1, 3));
        const ArrayOrder order = pick(0, 1) ? ArrayOrder::c : ArrayOrder::fortran;
        Numbers sizes, subsizes, starts;
        for (std::size_t d = 0; d < dimensions; ++d) {
          sizes.push_back(pick(1, 4));
          subsizes.push_back(pick(1, sizes[d]));
          starts.push_back(pick(0, sizes[d] - subsizes[d]));
        }
        made.part.flat = flat_subarray(inner.part, sizes, subsizes, starts, order);
        add_array(inner, sizes, order, &made.bytes, [&](std::size_t d, std::int64_t index) {
          return index >= starts[d] && index < starts[d] + subsizes[d];
        });
        break;
      }
      default: {  // darray
        const auto count = static_cast<std::size_t>(pick(1, 3));
        const ArrayOrder order = pick(0, 1) ? ArrayOrder::c : ArrayOrder::fortran;
        std::vector<DistributedDimension> dimensions(count);
        Numbers sizes;
        std::int64_t processes = 1;
        for (DistributedDimension& d : dimensions) {
          d.size = pick(1, 7);
          d.distribution = static_cast<Distribution>(pick(0, 2));
          d.processes = d.distribution == Distribution::none ? 1 : pick(1, 3);
          if (d.distribution == Distribution::cyclic) d.argument = pick(0, 3);
          if (d.distribution == Distribution::block && pick(0, 1)) {
            d.argument = (d.size + d.processes - 1) / d.processes + pick(0, 1);
          }
          processes *= d.processes;
          sizes.push_back(d.size);
        }
        const std::int64_t rank = pick(0, processes - 1);
        Numbers coordinates(count);
        std::int64_t rest = rank;
        for (std::size_t d = count; d-- > 0;) {
          coordinates[d] = rest % dimensions[d].processes;
          rest /= dimensions[d].processes;
        }
        made.part.flat = flat_darray(inner.part, rank, dimensions, order);
        add_array(inner, sizes, order, &made.bytes, [&](std::size_t d, std::int64_t index) {
          const DistributedDimension& dimension = dimensions[d];
          switch (dimension.distribution) {
            case Distribution::none:
              return true;
            case Distribution::block: {
              const std::int64_t block =
                  dimension.argument
                      ? dimension.argument
                      : (dimension.size + dimension.processes - 1) / dimension.processes;
              return index / block == coordinates[d];
            }
            case Distribution::cyclic:
              return index / std::max<std::int64_t>(1, dimension.argument) % dimension.processes ==
                     coordinates[d];
          }
          return false;
        });
        break;
      }
    }
    made.part.extent = pick(0, 3) ? made.part.flat.end() - made.part.flat.lowest() : pick(-90, 90);
    return made;
  }

 private:
  // Adds the elements of an array whose index passes `wanted` in every dimension, in memory order.
  template <typename Wanted>
  static void add_array(const Known& inner, const Numbers& sizes, ArrayOrder order, Offsets* bytes,
                        Wanted&& wanted) {
    std::int64_t total = 1;
    for (const std::int64_t size : sizes) total *= size;
    for (std::int64_t linear = 0; linear < total; ++linear) {
      std::int64_t rest = linear;
      bool all = true;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::size_t d = order == ArrayOrder::fortran ? i : sizes.size() - 1 - i;
        all = all && wanted(d, rest % sizes[d]);
        rest /= sizes[d];
      }
      if (all) add_copies(inner, 1, linear * inner.part.extent, bytes);
    }
  }

  std::mt19937 random_;
};

TEST(Builder, RandomTypesAgreeWithTheirTypemaps) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    RandomTypes types(seed);
    const Known known = types.make(1 + static_cast<int>(seed % 3));
    expect_same(known.part.flat, known.bytes, known.part.extent);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace od::p2p
