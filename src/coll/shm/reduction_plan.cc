// The exchanges of a long reduction.

#include "coll/shm/reduction_plan.h"

#include <algorithm>
#include <limits>

namespace od::coll::shm {

void ReductionPlan::make(const TeamShape& shape, const ReducedVector& vector) {
  shape_ = &shape;
  vector_ = vector;
  const std::uint64_t extent = vector.combiner->extent_bytes;
  const auto members = static_cast<std::uint64_t>(shape.size);
  // Slices that wait for a root do so in the slots.
  std::uint64_t slice = vector.root == ReducedVector::kEverybody
                            ? std::numeric_limits<std::uint64_t>::max()
                            : shape.result_bytes;
  if (shape.segmented(vector.form)) slice = std::min(slice, shape.segment_slice_bytes);
  const std::uint64_t in_groups =
      shape.slice_in_groups(*vector.combiner, vector.bytes, slice, vector.form);
  if (in_groups != 0) slice = in_groups;
  // slice_of() may round up to whole lines.
  slice = slice / kFalseSharingBytes * kFalseSharingBytes;
  slice = std::max<std::uint64_t>(1, slice / extent) * extent;
  segment_bytes_ = slice > vector.bytes / members ? vector.bytes : slice * members;
  pipeline_.segments =
      static_cast<std::uint32_t>((vector.bytes + segment_bytes_ - 1) / segment_bytes_);
  pipeline_.phases = in_groups != 0 ? 3 : 2;
}

std::optional<std::uint32_t> ReductionPlan::needs(std::uint32_t index) const {
  const Stage stage = pipeline_.at(index);
  if (stage.phase == 0) return std::nullopt;
  return pipeline_.index({stage.segment, stage.phase - 1});
}

PlannedExchange ReductionPlan::describe(std::uint32_t index) {
  const Stage stage = pipeline_.at(index);
  PlannedExchange x;
  if (stage.phase + 1 == pipeline_.phases) {
    collect(stage, x);
  } else if (stage.phase == 0) {
    combine_slices(stage, x);
  } else {
    combine_across(stage, x);
  }
  return x;
}

// The segment in slices, one for each member of the team.
Blocks ReductionPlan::final_slices(std::uint32_t segment) const {
  const std::uint64_t start = segment * segment_bytes_;
  Blocks slices;
  slices.base = vector_.recv == nullptr ? nullptr : vector_.recv + start;
  slices.total = std::min(segment_bytes_, vector_.bytes - start);
  slices.each = slice_of(slices.total, vector_.combiner->extent_bytes,
                         static_cast<std::uint64_t>(shape_->size));
  return slices;
}

std::uint64_t& ReductionPlan::result_of(Stage stage) {
  return result_at_[stage.phase][stage.segment % kSegmentsUnderWay];
}

// Where this member's final slice goes: its place in the result, or, if that is the root's alone,
// the own slot.
void ReductionPlan::place_final_slice(Stage stage, const Blocks& slices, ExchangePart& part) {
  part.in = one_block(nullptr, slices.size(shape_->me));
  if (vector_.root != ReducedVector::kEverybody && shape_->me != vector_.root) {
    keep_result(stage, part);
  } else {
    part.in.base = slices.at(shape_->me);
  }
}

void ReductionPlan::keep_result(Stage stage, ExchangePart& part) {
  if (part.in.total == 0) return;
  part.keep.at = &result_of(stage);
  part.keep.shown_later =
      pipeline_.index({stage.segment, stage.phase + 1}) - pipeline_.index(stage);
}

// What the phase before has kept.
void ReductionPlan::show_result(Stage stage, ExchangePart& part) {
  if (part.out.total == 0) return;
  part.origin = Origin::kept_result;
  part.shown_at = result_of({stage.segment, stage.phase - 1});
}

// Combining contributions: of the whole team, or of the own group.
void ReductionPlan::combine_slices(Stage stage, PlannedExchange& x) {
  const Groups& groups = shape_->groups;
  const std::uint64_t extent = vector_.combiner->extent_bytes;
  const Blocks slices = final_slices(stage.segment);
  if (in_groups()) x.spec.circle = &groups.members(groups.group_of(shape_->me));
  const int members = in_groups() ? static_cast<int>(x.spec.circle->size()) : shape_->size;
  x.spec.content = Content::each;
  x.spec.use = Use::combine;
  x.spec.piece_bytes = shape_->piece_bytes(x.spec.content, members, extent);
  x.part.combiner = vector_.combiner;
  x.part.own_operand = true;
  x.part.out.base = source_of(vector_.send + stage.segment * segment_bytes_);
  x.part.out.total = slices.total;
  x.part.out.each = slice_of(slices.total, extent, static_cast<std::uint64_t>(members));
  if (in_groups()) {
    x.part.in = one_block(nullptr, x.part.out.size(groups.place(shape_->me)));
    keep_result(stage, x.part);
  } else {
    place_final_slice(stage, slices, x.part);
  }
}

// Combining the results of groups.
void ReductionPlan::combine_across(Stage stage, PlannedExchange& x) {
  const Groups& groups = shape_->groups;
  const Blocks slices = final_slices(stage.segment);
  x.spec.across = {&groups, vector_.combiner->extent_bytes, slices.total};
  x.spec.content = Content::same;
  x.spec.use = Use::combine;
  // A slice is one piece: it lies in the slot as a whole.
  for (int group = 0; group < groups.count(); ++group) {
    x.spec.piece_bytes = std::max(x.spec.piece_bytes, x.spec.across.each(group));
  }
  x.part.combiner = vector_.combiner;
  x.part.own_operand = true;
  x.part.out = one_block(nullptr, x.spec.across.bytes(shape_->me));
  show_result(stage, x.part);
  place_final_slice(stage, slices, x.part);
}

void ReductionPlan::collect(Stage stage, PlannedExchange& x) {
  const Blocks slices = final_slices(stage.segment);
  const int me = shape_->me;
  x.spec.content = Content::same;
  x.spec.use = Use::copy;
  if (vector_.root == ReducedVector::kEverybody) {
    x.spec.piece_bytes = shape_->piece_bytes(x.spec.content, shape_->size, 1);
    x.part.in = slices;
    x.part.out = one_block(slices.at(me), slices.size(me));
    x.part.origin = Origin::result;
    return;
  }
  x.spec.pattern = Pattern::to_root;
  x.spec.root = vector_.root;
  // A slice is one piece: it lies in the slot as a whole.
  x.spec.piece_bytes = std::max<std::uint64_t>(1, slices.each);
  if (me == vector_.root) {
    x.part.in = slices;
  } else {
    x.part.out = one_block(nullptr, slices.size(me));
    show_result(stage, x.part);
  }
}

}  // namespace od::coll::shm
