// Finds, packs and unpacks the memory of a collective call.

#include "coll/run/buffers.h"

#include "coll/run/neighbourhood.h"
#include "memory/copy.h"
#include "p2p/staging.h"

namespace od {

using coll::Buffer;
using coll::Part;
using host::kSuccess;

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
                             int rank, bool aside) {
  host_ = &host;
  aside_ = aside;
  copied_input_ = false;
  computes_in_host_ = unpacks_in_host_ = false;
  units_per_unit_ = 1;
  unpack_.clear();
  for (Side& side : sides_) {
    side.base = nullptr;
    side.blocks.clear();
    side.block_units.clear();
  }
  if (call.neighbours != nullptr) return begin_neighbours(call);
  const coll::CollectiveInfo& info = coll::info(call.collective);
  if (info.reduces) return begin_reduction(call, ranks, rank);
  unit_bytes_ = step_bytes_ = 1;
  if (info.output == Part::kNone) return kSuccess;
  if (info.input == Part::kNone) {
    const bool at_root = rank == call.root;
    return place_vector(Buffer::kOutput, call.recv, call.recv_count, call.recv_type, at_root,
                        !at_root);
  }
  return info.counts == coll::Counts::kSame ? begin_vector(call, ranks) : begin_blocks(call, ranks);
}

void CollectiveBuffers::write_through(char* (*shadow)(const void* address, std::uint64_t bytes)) {
  Side& side = sides_[static_cast<std::size_t>(Buffer::kOutput)];
  if (side.base != nullptr) side.base = shadow(side.base, 1);
  for (std::size_t i = 0; i < side.blocks.size(); ++i) {
    if (side.block_units[i] != 0) side.blocks[i] = shadow(side.blocks[i], 1);
  }
}

int CollectiveBuffers::begin_reduction(const CollectiveCall& call, int ranks, int rank) {
  const p2p::LayoutRef& layout = call.recv_type;
  unit_bytes_ = step_bytes_ = layout->size;
  computes_in_host_ = call.reduction.kernel == nullptr;
  // Elements are combined in host memory, wherever the buffers are.
  int error = combiner_.begin(*host_, call.reduction, p2p::in_host_memory(layout));
  if (error != kSuccess) return error;
  const coll::CollectiveInfo& info = coll::info(call.collective);
  // Elements that this rank contributes, and those of its result.
  std::int64_t input = call.recv_count;
  std::int64_t output = call.recv_count;
  if (info.has_counts()) {
    output = call.recv_blocks[static_cast<std::size_t>(rank)].count;
    input = 0;
    for (const BlockPlace& block : call.recv_blocks) input += block.count;
  } else if (info.input == Part::kEach) {
    input *= ranks;
  }
  if (!call.in_place) {
    error = place_vector(Buffer::kInput, const_cast<void*>(call.send), input,
                         call.send_type ? call.send_type : layout, true, false);
    if (error != kSuccess) return error;
  }
  if (!info.has_output(rank == call.root)) return kSuccess;
  // The first rank of an exscan has no result.
  const bool written = info.flow != coll::Flow::kPrefix || info.takes_self || rank != 0;
  error = place_vector(Buffer::kOutput, call.recv, call.in_place ? input : output, layout,
                       call.in_place, written);
  if (!unpack_.empty()) {
    unpack_.back().count = output;
    unpack_.back().bytes = output * layout->size;
  }
  return error;
}

// Gather, scatter, allgather, alltoall: one vector of equal blocks on one side at least.
int CollectiveBuffers::begin_vector(const CollectiveCall& call, int ranks) {
  const coll::CollectiveInfo& info = coll::info(call.collective);
  const auto blocks = [&](Part part) { return part == Part::kEach ? ranks : 1; };
  if (call.send_type) {
    const int error =
        place_vector(Buffer::kInput, const_cast<void*>(call.send),
                     call.send_count * blocks(info.input), call.send_type, true, false);
    if (error != kSuccess) return error;
  }
  if (!call.recv_type) return kSuccess;
  return place_vector(Buffer::kOutput, call.recv, call.recv_count * blocks(info.output),
                      call.recv_type, call.in_place, true);
}

int CollectiveBuffers::begin_blocks(const CollectiveCall& call, int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  const coll::CollectiveInfo& info = coll::info(call.collective);
  const bool both = info.input == info.output;
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

// Each edge has a block, but for allgathers, which send one to all. Nobody's have no elements, so
// that the program's memory stays as it is.
int CollectiveBuffers::begin_neighbours(const CollectiveCall& call) {
  unit_bytes_ = step_bytes_ = 1;
  const auto blocks_of = [&](const std::vector<Neighbourhood::Edge>& edges, std::int64_t count,
                             const p2p::LayoutRef& layout) -> const std::vector<BlockPlace>& {
    neighbour_blocks_.clear();
    for (const Neighbourhood::Edge& edge : edges) {
      const auto at = static_cast<std::int64_t>(neighbour_blocks_.size());
      neighbour_blocks_.push_back({edge.is_nobody() ? 0 : count, at * count * layout->extent});
    }
    return neighbour_blocks_;
  };
  const Neighbourhood& around = *call.neighbours;
  void* const send = const_cast<void*>(call.send);
  int error = kSuccess;
  if (coll::info(call.collective).input == Part::kOne) {
    neighbour_blocks_.assign(1, {call.send_count, 0});
    error = place_blocks(Buffer::kInput, send, neighbour_blocks_, call.send_type, {}, true, false);
  } else {
    const bool own_places = call.send_blocks.size() == around.out().size();
    error = place_blocks(
        Buffer::kInput, send,
        own_places ? call.send_blocks : blocks_of(around.out(), call.send_count, call.send_type),
        call.send_type, call.send_types, true, false);
  }
  if (error != kSuccess) return error;
  const bool own_places = call.recv_blocks.size() == around.in().size();
  return place_blocks(
      Buffer::kOutput, call.recv,
      own_places ? call.recv_blocks : blocks_of(around.in(), call.recv_count, call.recv_type),
      call.recv_type, call.recv_types, false, true);
}

int CollectiveBuffers::place_vector(Buffer buffer, void* address, std::int64_t count,
                                    const p2p::LayoutRef& layout, bool read, bool written) {
  Side& side = sides_[static_cast<std::size_t>(buffer)];
  const bool copies = aside_ && read && !written;
  if (!copies && p2p::is_contiguous(*layout, address, count, &side.base)) return kSuccess;
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
  const bool copies = (buffer == Buffer::kInput && copied_input_) || (aside_ && read && !written);
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
  const p2p::Layout& layout = **piece.layout;
  return pack_elements(*host_, layout, piece.address, piece.count, piece.packed);
}

int CollectiveBuffers::begin_scratch(std::int64_t units, std::int64_t units_per_unit) {
  units_per_unit_ = units_per_unit;
  step_bytes_ = unit_bytes_ * units_per_unit;
  for (const Piece& piece : unpack_) {
    if ((*piece.layout)->shape == p2p::Shape::opaque) unpacks_in_host_ = true;
  }
  if (units == 0) return kSuccess;
  char* const memory = scratch_.get(static_cast<std::size_t>(units * step_bytes_));
  if (memory == nullptr) return host_->err_no_mem;
  sides_[static_cast<std::size_t>(Buffer::kScratch)].base = memory;
  return kSuccess;
}

int CollectiveBuffers::copy(char* target, const char* source, std::int64_t units) const {
  if (units == 0) return kSuccess;  // there may be no address either
  memory::copy_ordinary(target, source, static_cast<std::size_t>(units * unit_bytes_));
  return kSuccess;
}

int CollectiveBuffers::reduce(char* target, const char* left, const char* right,
                              std::int64_t units) {
  if (units == 0) return kSuccess;
  const coll::shm::Combiner& combiner = combiner_.get();
  if (combiner.kernel != nullptr) {
    coll::ops::combine(combiner.kernel, target, left, right, static_cast<std::size_t>(units));
    return kSuccess;
  }
  combiner_.combine(target, left, right, units);
  return combiner_.error();
}

int CollectiveBuffers::finish() {
  const int combined = combiner_.error();
  for (const Piece& piece : unpack_) {
    const int error =
        unpack_elements(*host_, **piece.layout, piece.packed, piece.address, piece.count);
    if (error != kSuccess) return error;
  }
  return combined;
}

void CollectiveBuffers::release() {
  combiner_.release();
  unpack_.clear();
  scratch_.trim();
  for (GrowingMemory& packed : packed_) packed.trim();
}

}  // namespace od
