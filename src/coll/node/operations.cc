// Collectives as sequences of exchanges.
//
// Long reductions are cut into slices, one per member: each combines its slice of all
// contributions, then the slices are collected. With several segments both parts run as a pipeline:
// slices 0, slices 1, collect 0, slices 2, collect 1, ... The sequence is the same on all members;
// collecting begins on a member when its own slice of that segment is combined.

#include <algorithm>

#include "coll/node/team.h"

namespace od::coll::shm {

namespace {

const std::byte* bytes_of(const void* address) { return static_cast<const std::byte*>(address); }
std::byte* bytes_of(void* address) { return static_cast<std::byte*>(address); }
// Sources are not written, but one type serves both directions.
std::byte* source_of(const void* address) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(address));
}

Blocks one_block(std::byte* base, std::uint64_t bytes) {
  Blocks blocks;
  blocks.base = base;
  blocks.each = blocks.total = bytes;
  return blocks;
}

// Elements of a slice when `bytes` are divided among `members`; whole lines if elements permit.
std::uint64_t slice_of(std::uint64_t bytes, std::uint64_t extent, std::uint64_t members) {
  const std::uint64_t elements = bytes / extent;
  std::uint64_t slice = (elements + members - 1) / members;
  constexpr std::uint64_t kLine = od::node::kFalseSharingBytes;
  if (kLine % extent == 0)
    slice = (slice + kLine / extent - 1) / (kLine / extent) * (kLine / extent);
  return slice * extent;
}

// Position of a segment's two exchanges in the sequence of `segments` segments.
std::uint32_t slices_index(std::uint32_t segment) { return segment == 0 ? 0 : 2 * segment - 1; }
std::uint32_t collect_index(std::uint32_t segment, std::uint32_t segments) {
  return segment + 1 == segments ? 2 * segments - 1 : 2 * segment + 2;
}

}  // namespace

// How much of a block one round moves. Blocks for each reader share a cell.
std::uint64_t Team::piece_bytes(Content content, std::uint64_t unit_bytes) const {
  std::uint64_t piece = tuning_.piece_bytes;
  if (content == Content::each) {
    const auto members = static_cast<std::uint64_t>(size_);
    piece = std::min(piece,
                     ring_.bytes() / (4 * members) / od::node::kLineBytes * od::node::kLineBytes);
  }
  return std::max(unit_bytes, piece / unit_bytes * unit_bytes);
}

void Team::start(Operation& op, Operation::Plan plan, std::uint32_t exchanges) {
  ++counters_.operations;
  op.plan_ = plan;
  op.exchanges_ = exchanges;
  op.begun_ = op.finished_ = 0;
  op.next_ = nullptr;
  op.lengths_agree_ = true;
  op.first_number_ = reserved_;
  reserved_ += exchanges;
  if (exchanges == 0) return;
  if (last_open_ == nullptr) {
    first_open_ = &op;
  } else {
    last_open_->next_ = &op;
  }
  last_open_ = &op;
}

void Team::barrier(Operation& op) {
  op.single_ = {};
  start(op, Operation::Plan::single, size_ > 1 ? 1 : 0);
}

void Team::signal_to(Operation& op, int root) {
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::to_root;
  x.root = root;
  start(op, Operation::Plan::single, 1);
}

void Team::signal_from(Operation& op, int root) {
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::from_root;
  x.root = root;
  start(op, Operation::Plan::single, 1);
}

void Team::bcast(Operation& op, int root, void* data, std::uint64_t bytes) {
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::from_root;
  x.content = Content::same;
  x.use = Use::copy;
  x.root = root;
  x.piece_bytes = piece_bytes(x.content, 1);
  (me_ == root ? x.out : x.in) = one_block(bytes_of(data), bytes);
  start(op, Operation::Plan::single, size_ > 1 && bytes != 0 ? 1 : 0);
}

void Team::gather(Operation& op, int root, const void* send, std::uint64_t send_bytes,
                  const Blocks& recv) {
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::to_root;
  x.content = Content::same;
  x.use = Use::copy;
  x.root = root;
  x.piece_bytes = piece_bytes(x.content, 1);
  if (me_ == root) {
    x.in = recv;
    if (send != nullptr && send != recv.at(me_)) {
      x.own_from = bytes_of(send);
      x.own_to = recv.at(me_);
      x.own_bytes = std::min(send_bytes, recv.size(me_));
    }
  } else {
    x.out = one_block(source_of(send), send_bytes);
  }
  start(op, Operation::Plan::single, 1);
}

void Team::scatter(Operation& op, int root, const Blocks& send, void* recv,
                   std::uint64_t recv_bytes) {
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::from_root;
  x.content = Content::each;
  x.use = Use::copy;
  x.root = root;
  x.piece_bytes = piece_bytes(x.content, 1);
  if (me_ == root) {
    x.out = send;
    x.own_places = send.sizes != nullptr;
    if (recv != nullptr && recv != send.at(me_)) {
      x.own_from = send.at(me_);
      x.own_to = bytes_of(recv);
      x.own_bytes = std::min(recv_bytes, send.size(me_));
    }
  } else {
    x.in = one_block(bytes_of(recv), recv_bytes);
  }
  start(op, Operation::Plan::single, 1);
}

void Team::allgather(Operation& op, const void* send, std::uint64_t send_bytes,
                     const Blocks& recv) {
  Exchange& x = op.single_ = {};
  x.content = Content::same;
  x.use = Use::copy;
  x.piece_bytes = piece_bytes(x.content, 1);
  x.in = recv;
  if (send == nullptr) {
    send = recv.at(me_);
    send_bytes = recv.size(me_);
  }
  x.out = one_block(source_of(send), send_bytes);
  if (send != recv.at(me_)) {
    x.own_from = bytes_of(send);
    x.own_to = recv.at(me_);
    x.own_bytes = std::min(send_bytes, recv.size(me_));
  }
  start(op, Operation::Plan::single, 1);
}

void Team::alltoall(Operation& op, const Blocks& send, const Blocks& recv) {
  Exchange& x = op.single_ = {};
  x.content = Content::each;
  x.use = Use::copy;
  x.piece_bytes = piece_bytes(x.content, 1);
  x.in = recv;
  // Blocks that are all empty may have no address.
  const bool in_place = send.base == nullptr && send.sizes == nullptr;
  x.overwrites = in_place || (send.base != nullptr && send.base == recv.base);
  x.out = in_place ? recv : send;
  x.own_places = x.out.sizes != nullptr;
  if (!x.overwrites) {
    x.own_from = x.out.at(me_);
    x.own_to = recv.at(me_);
    x.own_bytes = std::min(x.out.size(me_), recv.size(me_));
  }
  start(op, Operation::Plan::single, 1);
}

void Team::reduce_scatter(Operation& op, const Blocks& send, void* recv, const Combiner& combiner) {
  op.combiner_ = combiner;
  Exchange& x = op.single_ = {};
  x.content = Content::each;
  x.use = Use::combine;
  x.piece_bytes = piece_bytes(x.content, combiner.extent_bytes);
  x.combiner = &op.combiner_;
  x.own_operand = true;
  x.out = send;
  x.overwrites = send.base == nullptr || send.base == recv;
  if (send.base == nullptr) x.out.base = bytes_of(recv);
  x.in = one_block(bytes_of(recv), send.size(me_));
  start(op, Operation::Plan::single, 1);
}

void Team::scan(Operation& op, const void* send, void* recv, std::uint64_t count,
                const Combiner& combiner) {
  op.combiner_ = combiner;
  const std::uint64_t bytes = count * combiner.extent_bytes;
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::before;
  x.content = Content::same;
  x.use = Use::combine;
  x.piece_bytes = piece_bytes(x.content, combiner.extent_bytes);
  x.combiner = &op.combiner_;
  x.own_operand = true;
  if (send == nullptr) send = recv;
  x.overwrites = send == recv;
  x.out = one_block(source_of(send), bytes);
  x.in = one_block(bytes_of(recv), bytes);
  start(op, Operation::Plan::single, bytes != 0 ? 1 : 0);
}

void Team::exscan(Operation& op, const void* send, void* recv, std::uint64_t count,
                  const Combiner& combiner) {
  scan(op, send, recv, count, combiner);
  op.single_.own_operand = false;
}

void Team::reduce(Operation& op, int root, const void* send, void* recv, std::uint64_t count,
                  const Combiner& combiner) {
  op.combiner_ = combiner;
  op.root_ = root;
  const std::uint64_t extent = combiner.extent_bytes;
  const std::uint64_t bytes = count * extent;
  if (send == nullptr) send = recv;
  const std::uint64_t limit =
      tuning_.crowded ? tuning_.crowded_reduce_whole_max_bytes : tuning_.reduce_whole_max_bytes;
  // Two members: the root reads the other's contribution instead of its half of the result.
  if (size_ <= 2 || bytes * static_cast<std::uint64_t>(size_) <= limit) {
    Exchange& x = op.single_ = {};
    x.pattern = Pattern::to_root;
    x.content = Content::same;
    x.use = Use::combine;
    x.root = root;
    x.piece_bytes = piece_bytes(x.content, extent);
    x.combiner = &op.combiner_;
    x.own_operand = true;
    x.out = one_block(source_of(send), bytes);
    if (me_ == root) x.in = one_block(bytes_of(recv), bytes);
    start(op, Operation::Plan::single, bytes != 0 ? 1 : 0);
    return;
  }
  // Slices wait in the slots for the root.
  start_slices(op, Operation::Plan::reduce_slices, send, recv, bytes, result_bytes_);
}

void Team::allreduce(Operation& op, const void* send, void* recv, std::uint64_t count,
                     const Combiner& combiner) {
  op.combiner_ = combiner;
  const std::uint64_t extent = combiner.extent_bytes;
  const std::uint64_t bytes = count * extent;
  if (send == nullptr) send = recv;
  const std::uint64_t limit = size_ <= 2        ? 2 * tuning_.whole_max_pair_bytes
                              : tuning_.crowded ? tuning_.crowded_allreduce_whole_max_bytes
                                                : tuning_.allreduce_whole_max_bytes;
  const bool whole = bytes * static_cast<std::uint64_t>(size_) <= limit;
  if (whole) {
    Exchange& x = op.single_ = {};
    x.content = Content::same;
    x.use = Use::combine;
    x.piece_bytes = piece_bytes(x.content, extent);
    x.combiner = &op.combiner_;
    x.own_operand = true;
    x.overwrites = send == recv;
    x.out = one_block(source_of(send), bytes);
    x.in = one_block(bytes_of(recv), bytes);
    start(op, Operation::Plan::single, bytes != 0 ? 1 : 0);
    return;
  }
  start_slices(op, Operation::Plan::allreduce_slices, send, recv, bytes, ~std::uint64_t{0});
}

void Team::start_slices(Operation& op, Operation::Plan plan, const void* send, void* recv,
                        std::uint64_t bytes, std::uint64_t slice_limit_bytes) {
  const std::uint64_t extent = op.combiner_.extent_bytes;
  const auto members = static_cast<std::uint64_t>(size_);
  op.send_ = bytes_of(send);
  op.recv_ = bytes_of(recv);
  op.bytes_ = bytes;
  std::uint64_t slice = slice_limit_bytes;
  if (tuning_.driver == Driver::segmented) slice = std::min(slice, tuning_.segment_slice_bytes);
  // slice_of() may round up to whole lines.
  slice = slice / od::node::kFalseSharingBytes * od::node::kFalseSharingBytes;
  slice = std::max<std::uint64_t>(1, slice / extent) * extent;
  op.segment_bytes_ = slice > bytes / members ? bytes : slice * members;
  const std::uint64_t segments = (bytes + op.segment_bytes_ - 1) / op.segment_bytes_;
  start(op, plan, static_cast<std::uint32_t>(2 * segments));
}

// Describes an exchange of an operation; false while it needs the result of one that is not ready.
bool Team::prepare(Operation& op, std::uint32_t index, Exchange& x) {
  const std::size_t scratch_bytes = op.combiner_.function != nullptr ? op.single_.piece_bytes : 0;
  if (scratch_.size() < scratch_bytes) scratch_.resize(scratch_bytes);
  if (op.plan_ == Operation::Plan::single) {
    x = op.single_;
    return true;
  }
  const std::uint32_t segments = op.exchanges_ / 2;
  const bool collects = index + 1 == op.exchanges_ || (index != 0 && index % 2 == 0);
  if (!collects) {
    x = {};
    prepare_slices(op, (index + 1) / 2, x);
    return true;
  }
  const std::uint32_t segment = index + 1 == op.exchanges_ ? segments - 1 : index / 2 - 1;
  const std::uint64_t needed = op.first_number_ + slices_index(segment);
  const Exchange& slices = exchanges_[needed % kLanes];
  if (slices.active && slices.number == needed && !slices.drained) return false;
  x = {};
  prepare_collect(op, segment, x);
  return true;
}

void Team::prepare_slices(Operation& op, std::uint32_t segment, Exchange& x) {
  const std::uint64_t extent = op.combiner_.extent_bytes;
  const std::uint64_t start = segment * op.segment_bytes_;
  x.content = Content::each;
  x.use = Use::combine;
  x.piece_bytes = piece_bytes(x.content, extent);
  if (op.combiner_.function != nullptr && scratch_.size() < x.piece_bytes) {
    scratch_.resize(x.piece_bytes);
  }
  x.combiner = &op.combiner_;
  x.own_operand = true;
  x.out.base = source_of(op.send_ + start);
  x.out.total = std::min(op.segment_bytes_, op.bytes_ - start);
  x.out.each = slice_of(x.out.total, extent, static_cast<std::uint64_t>(size_));
  x.in = one_block(nullptr, x.out.size(me_));
  if (op.plan_ == Operation::Plan::reduce_slices && me_ != op.root_) {
    const std::uint32_t segments = op.exchanges_ / 2;
    x.keeps_result = x.in.total != 0;
    x.shown_later = collect_index(segment, segments) - slices_index(segment);
    x.result_at = &op.result_at_[segment % Operation::kSegmentsUnderWay];
  } else {
    x.in.base = op.recv_ + start + x.out.offset(me_);
  }
}

void Team::prepare_collect(Operation& op, std::uint32_t segment, Exchange& x) {
  const std::uint64_t extent = op.combiner_.extent_bytes;
  const std::uint64_t start = segment * op.segment_bytes_;
  Blocks slices;
  slices.base = op.recv_ == nullptr ? nullptr : op.recv_ + start;
  slices.total = std::min(op.segment_bytes_, op.bytes_ - start);
  slices.each = slice_of(slices.total, extent, static_cast<std::uint64_t>(size_));
  x.content = Content::same;
  x.use = Use::copy;
  x.piece_bytes = piece_bytes(x.content, 1);
  if (op.plan_ == Operation::Plan::allreduce_slices) {
    x.in = slices;
    x.out = one_block(slices.at(me_), slices.size(me_));
    x.is_result = true;
    return;
  }
  x.pattern = Pattern::to_root;
  x.root = op.root_;
  // A slice is one piece: it lies in the slot as a whole.
  x.piece_bytes = std::max<std::uint64_t>(1, slices.each);
  if (me_ == op.root_) {
    x.in = slices;
  } else {
    x.out = one_block(nullptr, slices.size(me_));
    x.shows_result = x.out.total != 0;
    x.result_at = &op.result_at_[segment % Operation::kSegmentsUnderWay];
  }
}

}  // namespace od::coll::shm
