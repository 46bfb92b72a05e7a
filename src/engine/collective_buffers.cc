// Finds, packs and unpacks the memory of a collective call.

#include "engine/collective_buffers.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "memory/copy.h"

namespace od {

using coll::Buffer;
using coll::Collective;
using host::kSuccess;

namespace {

// What is kept from call to call; larger blocks are allocated anew, which costs little beside them.
constexpr std::size_t kKeepBytes = 1 << 20;
// Copies between two places of one shape go through so much of the stack.
constexpr std::size_t kChunkBytes = 4096;

// Where the data of one element begins and ends, relative to its address.
struct Bounds {
  std::int64_t lower = 0;
  std::int64_t end = 0;
};

int bounds_of(const host::HostTable& host, const p2p::Layout& layout, host::Handle type,
              Bounds* bounds) {
  switch (layout.shape) {
    case p2p::Shape::contiguous:
      *bounds = {layout.lower, layout.lower + layout.size};
      return kSuccess;
    case p2p::Shape::strided: {
      const std::int64_t last = (layout.block_count - 1) * layout.stride;
      *bounds = {layout.lower + std::min<std::int64_t>(0, last),
                 layout.lower + std::max<std::int64_t>(0, last) + layout.block_bytes};
      return kSuccess;
    }
    case p2p::Shape::segments:
      *bounds = {std::numeric_limits<std::int64_t>::max(),
                 std::numeric_limits<std::int64_t>::min()};
      for (const p2p::Segment& run : layout.segments) {
        bounds->lower = std::min(bounds->lower, run.offset);
        bounds->end = std::max(bounds->end, run.offset + run.bytes);
      }
      if (layout.segments.empty()) *bounds = {};
      return kSuccess;
    case p2p::Shape::opaque:
      break;
  }
  std::int64_t extent = 0;
  const int error = host.type_true_extent(type, &bounds->lower, &extent);
  bounds->end = bounds->lower + extent;
  return error;
}

}  // namespace

char* GrowingMemory::get(std::size_t bytes) {
  if (bytes > bytes_ || memory_ == nullptr) {
    // Whole lines: vector kernels like aligned operands.
    const std::size_t rounded = (std::max<std::size_t>(bytes, 64) + 63) / 64 * 64;
    memory_.reset();
    memory_.reset(static_cast<char*>(std::aligned_alloc(64, rounded)));
    bytes_ = memory_ != nullptr ? rounded : 0;
  }
  return memory_.get();
}

void GrowingMemory::trim() {
  if (bytes_ <= kKeepBytes) return;
  memory_.reset();
  bytes_ = 0;
}

const p2p::LayoutRef& CollectiveBuffers::byte_layout() {
  static const p2p::LayoutRef layout = [] {
    auto* made = new p2p::Layout;
    made->size = made->extent = made->block_bytes = 1;
    made->immortal = true;
    return p2p::LayoutRef(made);
  }();
  return layout;
}

int CollectiveBuffers::begin(const host::HostTable& host, const CollectiveCall& call, int ranks,
                             int rank) {
  host_ = &host;
  reduction_ = call.reduction;
  reduces_ = coll::info(call.collective).reduces;
  copied_input_ = false;
  needs_host_ = false;
  units_per_unit_ = 1;
  unpack_.clear();
  for (Side& side : sides_) {
    side.base = nullptr;
    side.blocks.clear();
    side.block_units.clear();
  }
  if (reduces_) return begin_reduction(call);
  unit_layout_ = byte_layout();
  contiguous_ = true;
  extent_ = size_ = step_bytes_ = 1;
  const bool at_root = rank == call.root;
  switch (call.collective) {
    case Collective::kBarrier:
      return kSuccess;
    case Collective::kBcast:
      return place_vector(Buffer::kOutput, call.recv, call.recv_count, call.recv_type, at_root,
                          !at_root);
    case Collective::kAllgatherv:
    case Collective::kAlltoallv:
    case Collective::kAlltoallw:
    case Collective::kGatherv:
    case Collective::kScatterv:
      return begin_blocks(call, ranks);
    default:
      return begin_vector(call, ranks);
  }
}

int CollectiveBuffers::begin_reduction(const CollectiveCall& call) {
  unit_layout_ = call.recv_type;
  const p2p::Layout& layout = *unit_layout_;
  extent_ = step_bytes_ = layout.extent;
  size_ = layout.size;
  contiguous_ = layout.shape == p2p::Shape::contiguous;
  needs_host_ = reduction_.kernel == nullptr || layout.shape == p2p::Shape::opaque;
  sides_[static_cast<std::size_t>(Buffer::kInput)].base =
      static_cast<char*>(const_cast<void*>(call.send));
  sides_[static_cast<std::size_t>(Buffer::kOutput)].base = static_cast<char*>(call.recv);
  return kSuccess;
}

// Gather, scatter, allgather, alltoall: one vector of equal blocks on one side at least.
int CollectiveBuffers::begin_vector(const CollectiveCall& call, int ranks) {
  const bool gathers = call.collective == Collective::kGather ||
                       call.collective == Collective::kAllgather ||
                       call.collective == Collective::kAlltoall;
  const bool scatters =
      call.collective == Collective::kScatter || call.collective == Collective::kAlltoall;
  if (call.send_type) {
    const int error =
        place_vector(Buffer::kInput, const_cast<void*>(call.send),
                     call.send_count * (scatters ? ranks : 1), call.send_type, true, false);
    if (error != kSuccess) return error;
  }
  if (!call.recv_type) return kSuccess;
  return place_vector(Buffer::kOutput, call.recv, call.recv_count * (gathers ? ranks : 1),
                      call.recv_type, call.in_place, true);
}

int CollectiveBuffers::begin_blocks(const CollectiveCall& call, int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  const bool both =
      call.collective == Collective::kAlltoallv || call.collective == Collective::kAlltoallw;
  int error = kSuccess;
  if (call.recv_blocks.size() == size) {
    error = place_blocks(Buffer::kOutput, call.recv, call.recv_blocks, call.recv_type,
                         call.recv_types, call.in_place && !both, true);
  } else if (call.recv_type) {
    error = place_vector(Buffer::kOutput, call.recv, call.recv_count, call.recv_type, false, true);
    // The only block that this rank has is its own, whatever its number.
    Side& side = sides_[static_cast<std::size_t>(Buffer::kOutput)];
    side.blocks.assign(size, side.base);
    side.block_units.assign(size, call.recv_count * call.recv_type->size);
  }
  if (error != kSuccess) return error;
  if (both && call.in_place) {
    copied_input_ = true;
    return place_blocks(Buffer::kInput, call.recv, call.recv_blocks, call.recv_type,
                        call.recv_types, true, false);
  }
  if (call.send_blocks.size() == size) {
    return place_blocks(Buffer::kInput, const_cast<void*>(call.send), call.send_blocks,
                        call.send_type, call.send_types, true, false);
  }
  if (!call.send_type) return kSuccess;
  error = place_vector(Buffer::kInput, const_cast<void*>(call.send), call.send_count,
                       call.send_type, true, false);
  Side& side = sides_[static_cast<std::size_t>(Buffer::kInput)];
  side.blocks.assign(size, side.base);
  side.block_units.assign(size, call.send_count * call.send_type->size);
  return error;
}

int CollectiveBuffers::place_vector(Buffer buffer, void* address, std::int64_t count,
                                    const p2p::LayoutRef& layout, bool read, bool written) {
  Side& side = sides_[static_cast<std::size_t>(buffer)];
  if (p2p::is_contiguous(*layout, address, count, &side.base)) return kSuccess;
  const std::int64_t bytes = count * layout->size;
  side.base = packed_[static_cast<std::size_t>(buffer)].get(static_cast<std::size_t>(bytes));
  if (side.base == nullptr) return host_->err_no_mem;
  const Piece piece{address, count, &layout, side.base, bytes};
  if (written) unpack_.push_back(piece);
  return read ? pack(piece) : kSuccess;
}

int CollectiveBuffers::place_blocks(Buffer buffer, void* address,
                                    const std::vector<BlockPlace>& blocks,
                                    const p2p::LayoutRef& layout,
                                    const std::vector<p2p::LayoutRef>& layouts, bool read,
                                    bool written) {
  Side& side = sides_[static_cast<std::size_t>(buffer)];
  const bool copies = buffer == Buffer::kInput && copied_input_;
  const auto layout_of = [&](std::size_t i) -> const p2p::LayoutRef& {
    return layouts.empty() ? layout : layouts[i];
  };
  const auto at = [&](std::size_t i) -> void* {
    return static_cast<char*>(address) + blocks[i].offset_bytes;
  };
  std::int64_t packed_bytes = 0;
  side.blocks.resize(blocks.size());
  side.block_units.resize(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    side.block_units[i] = blocks[i].count * layout_of(i)->size;
    if (copies || !p2p::is_contiguous(*layout_of(i), at(i), blocks[i].count, &side.blocks[i])) {
      packed_bytes += side.block_units[i];
    }
  }
  if (packed_bytes == 0) return kSuccess;
  char* packed =
      packed_[static_cast<std::size_t>(buffer)].get(static_cast<std::size_t>(packed_bytes));
  if (packed == nullptr) return host_->err_no_mem;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!copies && p2p::is_contiguous(*layout_of(i), at(i), blocks[i].count, &side.blocks[i])) {
      continue;
    }
    const Piece piece{at(i), blocks[i].count, &layout_of(i), packed, side.block_units[i]};
    side.blocks[i] = packed;
    packed += piece.bytes;
    if (written) unpack_.push_back(piece);
    if (!read) continue;
    const int error = pack(piece);
    if (error != kSuccess) return error;
  }
  return kSuccess;
}

int CollectiveBuffers::pack(const Piece& piece) {
  if (piece.bytes == 0) return kSuccess;
  const p2p::Layout& layout = **piece.layout;
  if (layout.shape == p2p::Shape::opaque) {
    needs_host_ = true;
    return host_->pack(piece.address, piece.count, layout.host_type, piece.packed, piece.bytes);
  }
  p2p::Cursor cursor(piece.address, piece.count, layout);
  cursor.pack(piece.packed, static_cast<std::size_t>(piece.bytes), memory::copy_ordinary);
  return kSuccess;
}

int CollectiveBuffers::unpack(const Piece& piece) {
  if (piece.bytes == 0) return kSuccess;
  const p2p::Layout& layout = **piece.layout;
  if (layout.shape == p2p::Shape::opaque) {
    return host_->unpack(piece.packed, piece.bytes, piece.address, piece.count, layout.host_type);
  }
  p2p::Cursor cursor(piece.address, piece.count, layout);
  cursor.unpack(piece.packed, static_cast<std::size_t>(piece.bytes), memory::copy_ordinary);
  return kSuccess;
}

int CollectiveBuffers::begin_scratch(std::int64_t units, std::int64_t units_per_unit) {
  units_per_unit_ = units_per_unit;
  step_bytes_ = extent_ * units_per_unit;
  for (const Piece& piece : unpack_) {
    if ((*piece.layout)->shape == p2p::Shape::opaque) needs_host_ = true;
  }
  const std::int64_t count = units * units_per_unit;
  if (count == 0) return kSuccess;
  Bounds bounds{0, 1};
  if (reduces_) {
    const int error = bounds_of(*host_, *unit_layout_, reduction_.type, &bounds);
    if (error != kSuccess) return error;
  }
  // Elements lie at multiples of the extent, which may be negative.
  const std::int64_t last = (count - 1) * extent_;
  const std::int64_t lower = bounds.lower + std::min<std::int64_t>(0, last);
  const std::int64_t end = bounds.end + std::max<std::int64_t>(0, last);
  char* const memory =
      scratch_.get(static_cast<std::size_t>(std::max<std::int64_t>(0, end - lower)));
  if (memory == nullptr) return host_->err_no_mem;
  sides_[static_cast<std::size_t>(Buffer::kScratch)].base = memory - lower;
  return kSuccess;
}

int CollectiveBuffers::copy(char* target, const char* source, std::int64_t units) {
  if (units == 0) return kSuccess;  // there may be no address either
  const p2p::Layout& layout = *unit_layout_;
  if (contiguous_) {
    const std::int64_t bytes = units * size_;
    memory::copy_ordinary(target + layout.lower, source + layout.lower,
                          static_cast<std::size_t>(bytes));
    return kSuccess;
  }
  if (layout.shape == p2p::Shape::opaque) {
    const std::int64_t bytes = units * size_;
    GrowingMemory staging;
    char* const packed = staging.get(static_cast<std::size_t>(bytes));
    if (packed == nullptr) return host_->err_no_mem;
    const int error = host_->pack(source, units, layout.host_type, packed, bytes);
    if (error != kSuccess) return error;
    return host_->unpack(packed, bytes, target, units, layout.host_type);
  }
  char chunk[kChunkBytes];
  p2p::Cursor from(const_cast<char*>(source), units, layout);
  p2p::Cursor to(target, units, layout);
  while (from.remaining() > 0) {
    const std::size_t bytes = from.pack(chunk, sizeof(chunk), memory::copy_ordinary);
    to.unpack(chunk, bytes, memory::copy_ordinary);
  }
  return kSuccess;
}

int CollectiveBuffers::reduce(char* target, const char* left, const char* right,
                              std::int64_t units) {
  if (units == 0) return kSuccess;
  if (reduction_.kernel != nullptr) {
    coll::ops::combine(reduction_.kernel, target, left, right, static_cast<std::size_t>(units));
    return kSuccess;
  }
  // The host computes inout = in op inout.
  const auto in_host = [&](const char* in, char* inout) {
    return host_->reduce_local(in, inout, units, reduction_.type, reduction_.op);
  };
  if (target == right) return in_host(left, target);
  if (target != left) {
    const int error = copy(target, right, units);
    return error != kSuccess ? error : in_host(left, target);
  }
  Bounds bounds;
  int error = bounds_of(*host_, *unit_layout_, reduction_.type, &bounds);
  if (error != kSuccess) return error;
  const std::int64_t last = (units - 1) * extent_;
  const std::int64_t lower = bounds.lower + std::min<std::int64_t>(0, last);
  const std::int64_t end = bounds.end + std::max<std::int64_t>(0, last);
  GrowingMemory staging;
  char* const memory = staging.get(static_cast<std::size_t>(end - lower));
  if (memory == nullptr) return host_->err_no_mem;
  char* const aside = memory - lower;
  error = copy(aside, right, units);
  if (error == kSuccess) error = in_host(left, aside);
  return error != kSuccess ? error : copy(target, aside, units);
}

int CollectiveBuffers::finish() {
  for (const Piece& piece : unpack_) {
    const int error = unpack(piece);
    if (error != kSuccess) return error;
  }
  return kSuccess;
}

void CollectiveBuffers::release() {
  unit_layout_ = p2p::LayoutRef();
  unpack_.clear();
  scratch_.trim();
  for (GrowingMemory& packed : packed_) packed.trim();
}

}  // namespace od
