// Packs, unpacks and combines elements of any datatype.

#include "coll/run/elements.h"

#include <algorithm>
#include <limits>

#include "memory/copy.h"
#include "p2p/opaque.h"

namespace od {

using host::kSuccess;

namespace {

// Where the data of one element begins and ends, relative to its address.
int bounds_of(const host::HostTable& host, const p2p::Layout& layout, host::Handle type,
              std::int64_t* lower, std::int64_t* end) {
  switch (layout.shape) {
    case p2p::Shape::contiguous:
      *lower = layout.lower;
      *end = layout.lower + layout.size;
      return kSuccess;
    case p2p::Shape::strided: {
      const std::int64_t last = (layout.block_count - 1) * layout.stride;
      *lower = layout.lower + std::min<std::int64_t>(0, last);
      *end = layout.lower + std::max<std::int64_t>(0, last) + layout.block_bytes;
      return kSuccess;
    }
    case p2p::Shape::segments:
      *lower = *end = layout.segments.empty() ? 0 : layout.segments.front().offset;
      for (const p2p::Segment& run : layout.segments) {
        *lower = std::min(*lower, run.offset);
        *end = std::max(*end, run.offset + run.bytes);
      }
      return kSuccess;
    case p2p::Shape::opaque:
      break;
  }
  std::int64_t extent = 0;
  const int error = host.type_true_extent(type, lower, &extent);
  *end = *lower + extent;
  return error;
}

// How many packed bytes are combined at a time.
constexpr std::int64_t kChunkBytes = 16 << 10;

}  // namespace

int pack_elements(const host::HostTable& host, const p2p::Layout& layout, const void* address,
                  std::int64_t count, char* packed) {
  const std::int64_t bytes = count * layout.size;
  if (bytes == 0) return kSuccess;
  if (layout.shape == p2p::Shape::opaque) {
    return p2p::pack_opaque(host, layout, address, count, packed, bytes);
  }
  p2p::Cursor cursor(const_cast<void*>(address), count, layout);
  cursor.pack(packed, static_cast<std::size_t>(bytes), memory::copy_ordinary);
  return kSuccess;
}

int unpack_elements(const host::HostTable& host, const p2p::Layout& layout, const char* packed,
                    void* address, std::int64_t count) {
  const std::int64_t bytes = count * layout.size;
  if (bytes == 0) return kSuccess;
  if (layout.shape == p2p::Shape::opaque) {
    return p2p::unpack_opaque(host, layout, packed, bytes, address);
  }
  p2p::Cursor cursor(address, count, layout);
  cursor.unpack(packed, static_cast<std::size_t>(bytes), memory::copy_ordinary);
  return kSuccess;
}

int ElementCombiner::begin(const host::HostTable& host, const Reduction& reduction,
                           const p2p::LayoutRef& layout) {
  host_ = &host;
  reduction_ = reduction;
  layout_ = layout;
  error_ = kSuccess;
  combiner_ = {};
  combiner_.extent_bytes = static_cast<std::uint64_t>(layout->size);
  combiner_.commutative = reduction.commutative;
  combiner_.context = this;
  if (layout->shape == p2p::Shape::contiguous) {
    combiner_.kernel = reduction.kernel;
    if (reduction.kernel == nullptr) combiner_.function = join_runs;
    return kSuccess;
  }
  combiner_.joiner = join_packed;
  return bounds_of(host, *layout, reduction.type, &lower_, &end_);
}

void ElementCombiner::release() {
  reduction_ = {};
  layout_ = p2p::LayoutRef();
  error_ = kSuccess;
}

void ElementCombiner::join_here(const void* left, void* inout, std::int64_t count) {
  // The host computes inout = in op inout.
  note(host_->reduce_local(left, inout, count, reduction_.type, reduction_.op));
}

// Elements without gaps are used where they are.
void ElementCombiner::join_runs(void* context, const void* left, void* inout, std::size_t count) {
  auto& self = *static_cast<ElementCombiner*>(context);
  const std::int64_t lower = self.layout_->lower;
  self.join_here(static_cast<const char*>(left) - lower, static_cast<char*>(inout) - lower,
                 static_cast<std::int64_t>(count));
}

char* ElementCombiner::elements(int which, std::int64_t count) {
  // Elements lie at multiples of the extent, which may be negative.
  const std::int64_t last = (count - 1) * layout_->extent;
  const std::int64_t lower = lower_ + std::min<std::int64_t>(0, last);
  const std::int64_t end = end_ + std::max<std::int64_t>(0, last);
  char* const memory = elements_[static_cast<std::size_t>(which)].get(
      static_cast<std::size_t>(std::max<std::int64_t>(0, end - lower)));
  return memory == nullptr ? nullptr : memory - lower;
}

void ElementCombiner::join_packed(void* context, std::byte* dest, const std::byte* const* source,
                                  std::size_t sources, std::size_t count) {
  auto& self = *static_cast<ElementCombiner*>(context);
  const auto elements = static_cast<std::int64_t>(count);
  char* const sum = self.elements(0, elements);
  char* const other = self.elements(1, elements);
  if (sum == nullptr || other == nullptr) {
    self.note(self.host_->err_no_mem);
    return;
  }
  const auto unpack = [&](std::size_t i, char* to) {
    self.note(unpack_elements(*self.host_, *self.layout_, reinterpret_cast<const char*>(source[i]),
                              to, elements));
  };
  // Kernels join from left to right, the host from right to left (combiner.h).
  if (self.reduction_.kernel != nullptr) {
    unpack(0, sum);
    for (std::size_t i = 1; i < sources; ++i) {
      unpack(i, other);
      coll::ops::combine(self.reduction_.kernel, sum, sum, other, count);
    }
  } else {
    unpack(sources - 1, sum);
    for (std::size_t i = sources - 1; i-- > 0;) {
      unpack(i, other);
      self.join_here(other, sum, elements);
    }
  }
  self.note(
      pack_elements(*self.host_, *self.layout_, sum, elements, reinterpret_cast<char*>(dest)));
}

void ElementCombiner::combine(char* target, const char* left, const char* right,
                              std::int64_t count) {
  if (count == 0) return;
  const auto bytes = static_cast<std::int64_t>(combiner_.extent_bytes);
  const std::int64_t most = std::max<std::int64_t>(1, bytes == 0 ? count : kChunkBytes / bytes);
  char* const aside = aside_.get(static_cast<std::size_t>(std::min(most, count) * bytes));
  if (aside == nullptr) {
    note(host_->err_no_mem);
    return;
  }
  for (std::int64_t at = 0; at < count; at += most) {
    const std::byte* const source[] = {reinterpret_cast<const std::byte*>(left + at * bytes),
                                       reinterpret_cast<const std::byte*>(right + at * bytes)};
    combiner_.combine(reinterpret_cast<std::byte*>(target + at * bytes), source, 2,
                      static_cast<std::size_t>(std::min(most, count - at)),
                      reinterpret_cast<std::byte*>(aside));
  }
}

}  // namespace od
