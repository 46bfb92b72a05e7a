// Reductions, short and long.
//
// Long ones are cut into slices, one per member: each combines its slice of all contributions, then
// the slices are collected. The segmented driver does that segment by segment, as a pipeline
// (reduction_pipeline.h), and where members share caches in groups it combines in two phases:
// within each group, then across groups (groups.h). The sequence is the same on all members; a
// phase begins on a member when its own part of the one before is done.
//
// What a member may overwrite. An element of a segment is read by the member of each group that
// combines it there, and then, as a result of groups, by the one member whose slice it is in. That
// member has read it, and so has everyone before it, when the final slice is shown: so the final
// slice may lie where contributions were (MPI_IN_PLACE), and collected slices may overwrite them.
// Results of groups lie in slots, which nobody overwrites before all have completed the exchange.

#include <algorithm>

#include "coll/shm/team.h"

namespace od::coll::shm {

// Whether whoever wants the result combines all of it from all contributions.
bool Team::reduces_whole(std::uint64_t bytes) const {
  // Two members: the root reads the other's contribution instead of its half of the result.
  if (size_ <= 2) return true;
  return bytes * static_cast<std::uint64_t>(size_) <=
         (tuning_.oversubscribed ? tuning_.oversubscribed_reduce_whole_max_bytes
                                 : tuning_.reduce_whole_max_bytes);
}
bool Team::allreduces_whole(std::uint64_t bytes) const {
  if (size_ <= 2) return bytes <= tuning_.whole_max_pair_bytes;
  return bytes * static_cast<std::uint64_t>(size_) <=
         (tuning_.oversubscribed ? tuning_.oversubscribed_allreduce_whole_max_bytes
                                 : tuning_.allreduce_whole_max_bytes);
}

// The operation's only exchange: members show all that they contribute, and whoever reads combines.
Exchange& Team::combine_whole(Operation& op, const void* send, std::uint64_t bytes) {
  Exchange& x = op.single_ = {};
  x.content = Content::same;
  x.use = Use::combine;
  x.piece_bytes = piece_bytes(x.content, size_, op.combiner_.extent_bytes);
  x.combiner = &op.combiner_;
  x.own_operand = true;
  x.out = one_block(source_of(send), bytes);
  return x;
}

void Team::reduce(Operation& op, int root, const void* send, void* recv, std::uint64_t count,
                  const Combiner& combiner) {
  op.combiner_ = combiner;
  op.root_ = root;
  const std::uint64_t bytes = count * combiner.extent_bytes;
  if (send == nullptr) send = recv;
  if (reduces_whole(bytes)) {
    Exchange& x = combine_whole(op, send, bytes);
    x.pattern = Pattern::to_root;
    x.root = root;
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
  const std::uint64_t bytes = count * combiner.extent_bytes;
  if (send == nullptr) send = recv;
  if (allreduces_whole(bytes)) {
    Exchange& x = combine_whole(op, send, bytes);
    x.overwrites = send == recv;
    x.in = one_block(bytes_of(recv), bytes);
    start(op, Operation::Plan::single, bytes != 0 ? 1 : 0);
    return;
  }
  start_slices(op, Operation::Plan::allreduce_slices, send, recv, bytes, ~std::uint64_t{0});
}

// Bytes of a slice per member and segment when groups combine first; 0: they do not.
//
// The results of groups have to fit the places for results in the slots. Below the least size the
// additional exchange (two or three cache lines from socket to socket) costs more than the lines
// that it saves; with more ranks than cores it always does (8 ranks on 2 cores: 1.3 to 1.6 times).
std::uint64_t Team::slice_in_groups(const Combiner& combiner, std::uint64_t bytes,
                                    std::uint64_t most) const {
  const auto members = static_cast<std::uint64_t>(size_);
  const std::uint64_t extent = combiner.extent_bytes;
  if (tuning_.driver != Driver::segmented || !groups_.worth_it()) return 0;
  if (tuning_.oversubscribed && !tuning_.oversubscribed_groups) return 0;
  if (!combiner.commutative && !groups_.in_order()) return 0;
  if (bytes < members * tuning_.groups_min_slice_bytes || extent >= result_bytes_) return 0;
  // A slice within a group may be an element longer than its share.
  const std::uint64_t fits = groups_.smallest() * (result_bytes_ - extent) / members;
  const std::uint64_t slice = std::min(most, fits);
  const std::uint64_t least = std::min(tuning_.groups_min_slice_bytes, most);
  return slice >= std::max(least, extent) ? slice : 0;
}

void Team::start_slices(Operation& op, Operation::Plan plan, const void* send, void* recv,
                        std::uint64_t bytes, std::uint64_t slice_limit_bytes) {
  const std::uint64_t extent = op.combiner_.extent_bytes;
  const auto members = static_cast<std::uint64_t>(size_);
  op.send_ = bytes_of(send);
  op.recv_ = bytes_of(recv);
  op.bytes_ = bytes;
  std::uint64_t slice = slice_limit_bytes;
  if (tuning_.driver == Driver::segmented) slice = std::min(slice, segment_slice_bytes_);
  const std::uint64_t in_groups = slice_in_groups(op.combiner_, bytes, slice);
  if (in_groups != 0) slice = in_groups;
  // slice_of() may round up to whole lines.
  slice = slice / kFalseSharingBytes * kFalseSharingBytes;
  slice = std::max<std::uint64_t>(1, slice / extent) * extent;
  op.segment_bytes_ = slice > bytes / members ? bytes : slice * members;
  op.pipeline_.segments =
      static_cast<std::uint32_t>((bytes + op.segment_bytes_ - 1) / op.segment_bytes_);
  op.pipeline_.phases = in_groups != 0 ? 3 : 2;
  if (in_groups != 0) {
    ++counters_.in_groups;
    if (in_groups_ != nullptr) ++*in_groups_;
  }
  start(op, plan, op.pipeline_.exchanges());
}

// Describes an exchange of an operation; false while it needs the result of one that is not ready.
bool Team::prepare(Operation& op, std::uint32_t index, Exchange& x) {
  if (op.plan_ == Operation::Plan::single) {
    x = op.single_;
  } else {
    const ReductionPipeline::Stage stage = op.pipeline_.at(index);
    if (stage.phase != 0) {
      const std::uint64_t needed =
          op.first_number_ + op.pipeline_.index({stage.segment, stage.phase - 1});
      const Exchange& before = exchanges_[needed % kLanes];
      if (before.active && before.number == needed && !before.drained) return false;
    }
    x = {};
    if (stage.phase + 1 == op.pipeline_.phases) {
      prepare_collect(op, stage.segment, x);
    } else if (stage.phase == 0) {
      prepare_slices(op, stage.segment, x);
    } else {
      prepare_across(op, stage.segment, x);
    }
  }
  if (x.use == Use::combine && x.combiner->function != nullptr) {
    const std::uint64_t scratch =
        std::max(x.piece_bytes, piece_bytes(Content::same, size_, x.combiner->extent_bytes)) +
        kLineBytes;
    if (scratch_.size() < scratch) {
      scratch_.resize(scratch);
      const auto start = reinterpret_cast<std::uintptr_t>(scratch_.data());
      aligned_scratch_ = scratch_.data() + (kLineBytes - start % kLineBytes) % kLineBytes;
    }
  }
  return true;
}

// The segment in slices, one for each member of the team.
Blocks Team::final_slices(const Operation& op, std::uint32_t segment) const {
  const std::uint64_t start = segment * op.segment_bytes_;
  Blocks slices;
  slices.base = op.recv_ == nullptr ? nullptr : op.recv_ + start;
  slices.total = std::min(op.segment_bytes_, op.bytes_ - start);
  slices.each =
      slice_of(slices.total, op.combiner_.extent_bytes, static_cast<std::uint64_t>(size_));
  return slices;
}

// Where this member's final slice goes: its place in the result, or, if that is the root's alone,
// the own slot.
void Team::place_final_slice(Operation& op, ReductionPipeline::Stage stage, const Blocks& slices,
                             Exchange& x) {
  x.in = one_block(nullptr, slices.size(me_));
  if (op.plan_ == Operation::Plan::reduce_slices && me_ != op.root_) {
    keep_result(op, stage, x);
  } else {
    x.in.base = slices.at(me_);
  }
}

void Team::keep_result(Operation& op, ReductionPipeline::Stage stage, Exchange& x) {
  x.keeps_result = x.in.total != 0;
  x.shown_later = op.pipeline_.index({stage.segment, stage.phase + 1}) - op.pipeline_.index(stage);
  x.result_at = &op.result_at_[stage.phase][stage.segment % Operation::kSegmentsUnderWay];
}

void Team::show_result(const Operation& op, ReductionPipeline::Stage stage, Exchange& x) {
  x.shows_result = x.out.total != 0;
  x.shown_at = op.result_at_[stage.phase - 1][stage.segment % Operation::kSegmentsUnderWay];
}

// Combining contributions: of the whole team, or of the own group.
void Team::prepare_slices(Operation& op, std::uint32_t segment, Exchange& x) {
  const bool in_groups = op.pipeline_.phases == 3;
  const std::uint64_t extent = op.combiner_.extent_bytes;
  const Blocks slices = final_slices(op, segment);
  const int group = groups_.group_of(me_);
  if (in_groups) x.circle = &groups_.members(group);
  const int members = in_groups ? static_cast<int>(x.circle->size()) : size_;
  x.content = Content::each;
  x.use = Use::combine;
  x.piece_bytes = piece_bytes(x.content, members, extent);
  x.combiner = &op.combiner_;
  x.own_operand = true;
  x.out.base = source_of(op.send_ + segment * op.segment_bytes_);
  x.out.total = slices.total;
  x.out.each = slice_of(slices.total, extent, static_cast<std::uint64_t>(members));
  if (in_groups) {
    x.in = one_block(nullptr, x.out.size(groups_.place(me_)));
    keep_result(op, {segment, 0}, x);
  } else {
    place_final_slice(op, {segment, 0}, slices, x);
  }
}

// Combining the results of groups.
void Team::prepare_across(Operation& op, std::uint32_t segment, Exchange& x) {
  const Blocks slices = final_slices(op, segment);
  x.across = {&groups_, op.combiner_.extent_bytes, slices.total};
  x.content = Content::same;
  x.use = Use::combine;
  // A slice is one piece: it lies in the slot as a whole.
  for (int group = 0; group < groups_.count(); ++group) {
    x.piece_bytes = std::max(x.piece_bytes, x.across.each(group));
  }
  x.combiner = &op.combiner_;
  x.own_operand = true;
  x.out = one_block(nullptr, x.across.bytes(me_));
  show_result(op, {segment, 1}, x);
  place_final_slice(op, {segment, 1}, slices, x);
}

void Team::prepare_collect(Operation& op, std::uint32_t segment, Exchange& x) {
  const Blocks slices = final_slices(op, segment);
  x.content = Content::same;
  x.use = Use::copy;
  x.piece_bytes = piece_bytes(x.content, size_, 1);
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
    show_result(op, {segment, op.pipeline_.phases - 1}, x);
  }
}

}  // namespace od::coll::shm
