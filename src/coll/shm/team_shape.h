// What is fixed about a team: how many members it has, how they share caches, how large the parts
// of their slots are, and how blocks and long vectors are cut for them. It is the same for all
// members but for `me` and those thresholds of tuning.h that need not be alike.
#ifndef OVERDRIVE_COLL_SHM_TEAM_SHAPE_H_
#define OVERDRIVE_COLL_SHM_TEAM_SHAPE_H_

#include <cstdint>
#include <vector>

#include "coll/shm/exchange_spec.h"
#include "coll/shm/groups.h"
#include "coll/shm/tuning.h"

namespace od::coll::shm {

// Places for results that wait to be shown by an exchange to come, in the last quarter of a slot:
// used in turn.
inline constexpr std::uint32_t kResults = 4;
inline constexpr std::uint64_t kResultShare = 16;  // of a slot's bytes, each

struct TeamShape {
  TeamShape(int size_in, int me_in, std::uint64_t slot_bytes, const Tuning& tuning_in,
            const std::vector<CacheClaim>& caches);

  int size;
  int me;
  Tuning tuning;
  Groups groups;
  std::uint64_t result_bytes;  // of each place for results
  std::uint64_t ring_bytes;
  // Elements larger than this cannot be reduced here.
  std::uint64_t largest_element_bytes;
  // How much each member combines per segment of a long reduction, unless slots are smaller.
  std::uint64_t segment_slice_bytes;

  // How much of a block one round moves, where `members` take part. Blocks for each reader share a
  // cell.
  std::uint64_t piece_bytes(Content content, int members, std::uint64_t unit_bytes) const {
    return cut_piece(tuning.piece_bytes, content, members, unit_bytes);
  }
  // The same where bytes are copied. Long pieces need a ring that holds some of them.
  std::uint64_t copied_piece_bytes(Pattern pattern, Content content) const {
    const std::uint64_t longer = tuning.everyones_piece_bytes;
    const bool longer_ones = pattern == Pattern::everyone && 8 * longer <= ring_bytes;
    return cut_piece(longer_ones ? longer : tuning.piece_bytes, content, size, 1);
  }
  // Whether whoever wants the result of a reduction combines all of it from all contributions.
  bool reduces_whole(std::uint64_t bytes, ReductionForm form) const;
  bool allreduces_whole(std::uint64_t bytes, ReductionForm form) const;
  bool segmented(ReductionForm form) const {
    return form == ReductionForm::automatic ? tuning.driver == Driver::segmented
                                            : form >= ReductionForm::segments;
  }
  // Bytes of a slice per member and segment when groups combine first, at most `most`; 0: they do
  // not.
  std::uint64_t slice_in_groups(const Combiner& combiner, std::uint64_t bytes, std::uint64_t most,
                                ReductionForm form) const;

 private:
  std::uint64_t cut_piece(std::uint64_t piece, Content content, int members,
                          std::uint64_t unit_bytes) const;
  bool groups_allowed(ReductionForm form) const;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_TEAM_SHAPE_H_
