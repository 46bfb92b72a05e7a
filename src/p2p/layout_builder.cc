// The algebra of Flats: repeat, shift, append, and the array constructors written with them.
#include "p2p/layout_builder.h"

#include <algorithm>
#include <limits>

namespace od::p2p {

Flat Flat::run(std::int64_t offset, std::int64_t bytes) {
  Flat flat;
  if (bytes > 0) {
    flat.size_ = flat.block_bytes_ = bytes;
    flat.lower_ = offset;
    flat.blocks_ = 1;
  }
  return flat;
}

Flat Flat::opaque() {
  Flat flat;
  flat.opaque_ = true;
  return flat;
}

template <typename Visit>
void Flat::for_each(Visit&& visit) const {
  if (!segments_.empty()) {
    for (const Segment& segment : segments_) visit(segment);
    return;
  }
  for (std::int64_t i = 0; i < blocks_; ++i) visit(Segment{lower_ + i * stride_, block_bytes_});
}

std::int64_t Flat::run_count() const {
  return segments_.empty() ? blocks_ : static_cast<std::int64_t>(segments_.size());
}

std::int64_t Flat::lowest() const {
  if (size_ == 0) return 0;
  if (segments_.empty()) return lower_ + std::min<std::int64_t>(0, (blocks_ - 1) * stride_);
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
  for (const Segment& segment : segments_) lowest = std::min(lowest, segment.offset);
  return lowest;
}

std::int64_t Flat::end() const {
  if (size_ == 0) return 0;
  if (segments_.empty()) {
    return lower_ + std::max<std::int64_t>(0, (blocks_ - 1) * stride_) + block_bytes_;
  }
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const Segment& segment : segments_) end = std::max(end, segment.offset + segment.bytes);
  return end;
}

Flat Flat::shifted(std::int64_t bytes) const {
  Flat flat = *this;
  flat.lower_ += bytes;
  for (Segment& segment : flat.segments_) segment.offset += bytes;
  return flat;
}

void Flat::push(Segment run) {
  size_ += run.bytes;
  if (!segments_.empty() && segments_.back().offset + segments_.back().bytes == run.offset) {
    segments_.back().bytes += run.bytes;
  } else {
    segments_.push_back(run);
  }
}

void Flat::recognise() {
  if (segments_.empty()) return;
  const Segment first = segments_.front();
  const std::int64_t stride = segments_.size() > 1 ? segments_[1].offset - first.offset : 0;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].bytes != first.bytes ||
        segments_[i].offset != first.offset + static_cast<std::int64_t>(i) * stride) {
      return;
    }
  }
  lower_ = first.offset;
  blocks_ = static_cast<std::int64_t>(segments_.size());
  block_bytes_ = first.bytes;
  stride_ = stride;
  segments_.clear();
}

Flat Flat::repeated(std::int64_t count, std::int64_t stride_bytes) const {
  if (opaque_) return *this;
  if (count <= 0 || size_ == 0) return {};
  if (count == 1) return *this;
  Flat flat;
  if (segments_.empty()) {
    flat = *this;
    flat.size_ = size_ * count;
    if (blocks_ == 1 && stride_bytes == block_bytes_) {
      flat.block_bytes_ = block_bytes_ * count;
      return flat;
    }
    if (blocks_ == 1) {
      flat.blocks_ = count;
      flat.stride_ = stride_bytes;
      return flat;
    }
    if (stride_bytes == blocks_ * stride_) {
      flat.blocks_ = blocks_ * count;
      return flat;
    }
    flat = {};
  }
  // Merging can make the list shorter than this, but by no more than one run per copy.
  if (run_count() > 2 * kMostSegments / count) return opaque();
  for (std::int64_t i = 0; i < count; ++i) {
    for_each([&](Segment run) {
      run.offset += i * stride_bytes;
      flat.push(run);
    });
  }
  flat.recognise();
  return flat.run_count() > kMostSegments && !flat.segments_.empty() ? opaque() : flat;
}

bool Flat::continues_pattern(const Flat& other) {
  if (!segments_.empty() || !other.segments_.empty()) return false;
  const std::int64_t distance = other.lower_ - lower_;
  if (blocks_ == 1 && other.blocks_ == 1 && distance == block_bytes_) {
    block_bytes_ += other.block_bytes_;
  } else if (block_bytes_ == other.block_bytes_ &&
             (blocks_ == 1 || distance == blocks_ * stride_) &&
             (other.blocks_ == 1 || other.stride_ == (blocks_ == 1 ? distance : stride_))) {
    if (blocks_ == 1) stride_ = distance;
    blocks_ += other.blocks_;
  } else {
    return false;
  }
  size_ += other.size_;
  return true;
}

void Flat::append(const Flat& other) {
  if (other.size_ == 0 && !other.opaque_) return;
  if (size_ == 0 && !opaque_) {
    *this = other;
    return;
  }
  if (opaque_ || other.opaque_) {
    *this = opaque();
    return;
  }
  if (continues_pattern(other)) return;
  if (run_count() > kMostSegments || other.run_count() > kMostSegments) {
    *this = opaque();
    return;
  }
  if (segments_.empty()) {
    Flat list;
    for_each([&](Segment run) { list.push(run); });
    *this = std::move(list);
  }
  other.for_each([&](Segment run) { push(run); });
  if (run_count() > kMostSegments) *this = opaque();
}

void Flat::finish(std::int64_t extent, Layout* layout) const {
  Flat flat = *this;
  flat.recognise();
  layout->size = flat.size_;
  layout->extent = extent;
  layout->segments.clear();
  if (flat.opaque_ || (!flat.segments_.empty() && flat.run_count() > kMostSegments)) {
    layout->shape = Shape::opaque;
    return;
  }
  if (!flat.segments_.empty()) {
    layout->shape = Shape::segments;
    layout->segments = std::move(flat.segments_);
    return;
  }
  layout->lower = flat.lower_;
  layout->block_count = flat.size_ == 0 ? 1 : flat.blocks_;
  layout->block_bytes = flat.block_bytes_;
  layout->stride = flat.stride_;
  const bool one_run = layout->block_count == 1 && (flat.size_ == extent || flat.size_ == 0);
  layout->shape = one_run ? Shape::contiguous : Shape::strided;
}

namespace {

// Appends repeated parts one after the other.
class Collector {
 public:
  void add(const Part& part, std::int64_t count, std::int64_t displacement_bytes) {
    flat_.append(part.flat.repeated(count, part.extent).shifted(displacement_bytes));
  }
  Flat take() { return std::move(flat_); }

 private:
  Flat flat_;
};

}  // namespace

Flat flat_vector(const Part& part, std::int64_t count, std::int64_t blocklength,
                 std::int64_t stride_bytes) {
  return part.flat.repeated(blocklength, part.extent).repeated(count, stride_bytes);
}

Flat flat_indexed(const Part& part, std::span<const std::int64_t> blocklengths,
                  std::span<const std::int64_t> displacements_bytes) {
  Collector collector;
  for (std::size_t i = 0; i < blocklengths.size(); ++i) {
    collector.add(part, blocklengths[i], displacements_bytes[i]);
  }
  return collector.take();
}

Flat flat_indexed_block(const Part& part, std::int64_t blocklength,
                        std::span<const std::int64_t> displacements_bytes) {
  Collector collector;
  for (const std::int64_t displacement : displacements_bytes) {
    collector.add(part, blocklength, displacement);
  }
  return collector.take();
}

Flat flat_struct(std::span<const Part> parts, std::span<const std::int64_t> blocklengths,
                 std::span<const std::int64_t> displacements_bytes) {
  Collector collector;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    collector.add(parts[i], blocklengths[i], displacements_bytes[i]);
  }
  return collector.take();
}

namespace {

// Position of the i-th dimension in order of memory, fastest first.
std::size_t fastest(std::size_t i, std::size_t dimensions, ArrayOrder order) {
  return order == ArrayOrder::fortran ? i : dimensions - 1 - i;
}

// The indices of one dimension that belong to process `coordinate`.
Flat share_of_dimension(const Flat& inner, const DistributedDimension& dimension,
                        std::int64_t coordinate, std::int64_t stride_bytes) {
  std::int64_t block = dimension.size;
  if (dimension.distribution == Distribution::block) {
    block = dimension.argument > 0
                ? dimension.argument
                : (dimension.size + dimension.processes - 1) / dimension.processes;
  } else if (dimension.distribution == Distribution::cyclic) {
    block = dimension.argument > 0 ? dimension.argument : 1;
  }
  const std::int64_t processes =
      dimension.distribution == Distribution::none ? 1 : dimension.processes;
  const std::int64_t first = dimension.distribution == Distribution::none ? 0 : coordinate * block;
  if (block <= 0 || first >= dimension.size) return {};
  const std::int64_t cycle = block * processes;
  const std::int64_t whole = (dimension.size - first) / cycle;
  const std::int64_t rest = std::min(block, dimension.size - first - whole * cycle);
  Flat share = inner.repeated(block, stride_bytes).repeated(whole, cycle * stride_bytes);
  share.append(inner.repeated(rest, stride_bytes).shifted(whole * cycle * stride_bytes));
  return share.shifted(first * stride_bytes);
}

}  // namespace

Flat flat_subarray(const Part& part, std::span<const std::int64_t> sizes,
                   std::span<const std::int64_t> subsizes, std::span<const std::int64_t> starts,
                   ArrayOrder order) {
  Flat flat = part.flat;
  std::int64_t stride_bytes = part.extent;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t d = fastest(i, sizes.size(), order);
    flat = flat.repeated(subsizes[d], stride_bytes).shifted(starts[d] * stride_bytes);
    stride_bytes *= sizes[d];
  }
  return flat;
}

Flat flat_darray(const Part& part, std::int64_t rank,
                 std::span<const DistributedDimension> dimensions, ArrayOrder order) {
  std::vector<std::int64_t> coordinates(dimensions.size());
  for (std::size_t d = dimensions.size(); d-- > 0;) {
    coordinates[d] = rank % dimensions[d].processes;
    rank /= dimensions[d].processes;
  }
  Flat flat = part.flat;
  std::int64_t stride_bytes = part.extent;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    const std::size_t d = fastest(i, dimensions.size(), order);
    flat = share_of_dimension(flat, dimensions[d], coordinates[d], stride_bytes);
    stride_bytes *= dimensions[d].size;
  }
  return flat;
}

}  // namespace od::p2p
