// How a long reduction is made: slices, segments, groups, and the exchanges that follow from them.
//
// The vector is cut into slices, one per member: each combines its slice of all contributions, then
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
#ifndef OVERDRIVE_COLL_SHM_REDUCTION_PLAN_H_
#define OVERDRIVE_COLL_SHM_REDUCTION_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "coll/shm/exchange_spec.h"
#include "coll/shm/reduction_pipeline.h"
#include "coll/shm/team_shape.h"

namespace od::coll::shm {

// A vector to be reduced, as one member has it.
struct ReducedVector {
  static constexpr int kEverybody = -1;
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;  // null where this member gets no result
  std::uint64_t bytes = 0;
  int root = kEverybody;  // who gets the result
  const Combiner* combiner = nullptr;
  ReductionForm form = ReductionForm::automatic;
};

// Must stay where it is until the operation is over.
class ReductionPlan {
 public:
  // For the members of `shape`, which outlives it.
  void make(const TeamShape& shape, const ReducedVector& vector);

  std::uint32_t exchanges() const { return pipeline_.exchanges(); }
  bool in_groups() const { return pipeline_.phases == 3; }
  std::uint64_t segment_bytes() const { return segment_bytes_; }
  const ReductionPipeline& pipeline() const { return pipeline_; }
  // The exchange of the sequence whose result this one needs.
  std::optional<std::uint32_t> needs(std::uint32_t index) const;
  // An exchange of the sequence; to be called when what it needs is there.
  PlannedExchange describe(std::uint32_t index);

 private:
  using Stage = ReductionPipeline::Stage;

  Blocks final_slices(std::uint32_t segment) const;
  std::uint64_t& result_of(Stage stage);
  void place_final_slice(Stage stage, const Blocks& slices, ExchangePart& part);
  void keep_result(Stage stage, ExchangePart& part);
  void show_result(Stage stage, ExchangePart& part);
  void combine_slices(Stage stage, PlannedExchange& x);
  void combine_across(Stage stage, PlannedExchange& x);
  void collect(Stage stage, PlannedExchange& x);

  const TeamShape* shape_ = nullptr;
  ReducedVector vector_;
  std::uint64_t segment_bytes_ = 0;
  ReductionPipeline pipeline_;
  // Where results of the own slot lie that others are going to read, by phase and segment.
  static constexpr std::uint32_t kSegmentsUnderWay = 4;
  std::array<std::array<std::uint64_t, kSegmentsUnderWay>, 2> result_at_{};
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_REDUCTION_PLAN_H_
