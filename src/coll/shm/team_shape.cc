// Sizes of a team's pieces, slices and segments.

#include "coll/shm/team_shape.h"

#include <algorithm>

#include "coll/shm/slot_layout.h"

namespace od::coll::shm {

namespace {

// A slice that is shorter than a piece saves no cache, but costs exchanges.
std::uint64_t slice_by_caches(const Tuning& tuning, const Groups& groups) {
  if (tuning.oversubscribed) return tuning.segment_slice_bytes;
  return groups.slice_bytes(std::min(tuning.piece_bytes, tuning.segment_slice_bytes),
                            tuning.segment_slice_bytes);
}

}  // namespace

TeamShape::TeamShape(int size_in, int me_in, std::uint64_t slot_bytes, const Tuning& tuning_in,
                     const std::vector<CacheClaim>& caches)
    : size(size_in),
      me(me_in),
      tuning(tuning_in),
      groups(caches),
      result_bytes(slot_bytes / kResultShare / kFalseSharingBytes * kFalseSharingBytes),
      ring_bytes(slot_bytes - kControlBytes - kResults * result_bytes),
      largest_element_bytes(
          std::min(result_bytes, ring_bytes / (4 * static_cast<std::uint64_t>(size)))),
      segment_slice_bytes(slice_by_caches(tuning, groups)) {}

std::uint64_t TeamShape::cut_piece(std::uint64_t piece, Content content, int members,
                                   std::uint64_t unit_bytes) const {
  if (content == Content::each) {
    const std::uint64_t cell = ring_bytes / (4 * static_cast<std::uint64_t>(members));
    piece = std::min(piece, cell / kLineBytes * kLineBytes);
  }
  return std::max(unit_bytes, piece / unit_bytes * unit_bytes);
}

bool TeamShape::reduces_whole(std::uint64_t bytes, ReductionForm form) const {
  // Two members: the root reads the other's contribution instead of its half of the result.
  if (size <= 2) return true;
  if (form != ReductionForm::automatic) return form == ReductionForm::whole || bytes == 0;
  return bytes * static_cast<std::uint64_t>(size) <=
         (tuning.oversubscribed ? tuning.oversubscribed_reduce_whole_max_bytes
                                : tuning.reduce_whole_max_bytes);
}

bool TeamShape::allreduces_whole(std::uint64_t bytes, ReductionForm form) const {
  if (form != ReductionForm::automatic) return form == ReductionForm::whole || bytes == 0;
  if (size <= 2) return bytes <= tuning.whole_max_pair_bytes;
  return bytes * static_cast<std::uint64_t>(size) <=
         (tuning.oversubscribed ? tuning.oversubscribed_allreduce_whole_max_bytes
                                : tuning.allreduce_whole_max_bytes);
}

bool TeamShape::groups_allowed(ReductionForm form) const {
  if (form != ReductionForm::automatic) return form == ReductionForm::groups;
  return tuning.driver == Driver::segmented &&
         (!tuning.oversubscribed || tuning.oversubscribed_groups);
}

// The results of groups have to fit the places for results in the slots. Below the least size the
// additional exchange (two or three cache lines from socket to socket) costs more than the lines
// that it saves; with more ranks than cores it always does (8 ranks on 2 cores: 1.3 to 1.6 times).
std::uint64_t TeamShape::slice_in_groups(const Combiner& combiner, std::uint64_t bytes,
                                         std::uint64_t most, ReductionForm form) const {
  const auto members = static_cast<std::uint64_t>(size);
  const std::uint64_t extent = combiner.extent_bytes;
  if (!groups_allowed(form) || !groups.worth_it()) return 0;
  if (!combiner.commutative && !groups.in_order()) return 0;
  if (bytes < members * tuning.groups_min_slice_bytes || extent >= result_bytes) return 0;
  // A slice within a group may be an element longer than its share.
  const std::uint64_t fits = groups.smallest() * (result_bytes - extent) / members;
  const std::uint64_t slice = std::min(most, fits);
  const std::uint64_t least = std::min(tuning.groups_min_slice_bytes, most);
  return slice >= std::max(least, extent) ? slice : 0;
}

}  // namespace od::coll::shm
