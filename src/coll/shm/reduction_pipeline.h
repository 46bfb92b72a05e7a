// The order of the exchanges of a long reduction: segments one after the other, each in phases,
// several of them under way as in a pipeline: phase 0 of segment t, phase 1 of segment t - 1, ...
#ifndef OVERDRIVE_COLL_SHM_REDUCTION_PIPELINE_H_
#define OVERDRIVE_COLL_SHM_REDUCTION_PIPELINE_H_

#include <cstdint>

namespace od::coll::shm {

struct ReductionPipeline {
  struct Stage {
    std::uint32_t segment;
    std::uint32_t phase;
  };

  std::uint32_t segments = 1;
  std::uint32_t phases = 1;

  std::uint32_t exchanges() const { return segments * phases; }
  // Which exchange of the sequence a stage is.
  std::uint32_t index(Stage stage) const {
    const std::uint32_t turn = stage.segment + stage.phase;
    return before(turn) + stage.phase - first_phase(turn);
  }
  Stage at(std::uint32_t index) const {
    // At most `phases` exchanges in a turn, fewer at both ends only.
    std::uint32_t turn = index / phases;
    while (before(turn + 1) <= index) ++turn;
    const std::uint32_t phase = index - before(turn) + first_phase(turn);
    return {turn - phase, phase};
  }

 private:
  // Exchanges in the turns before this one.
  std::uint32_t before(std::uint32_t turn) const {
    std::uint32_t sum = 0;
    for (std::uint32_t phase = 0; phase < phases && phase < turn; ++phase) {
      sum += turn - phase < segments ? turn - phase : segments;
    }
    return sum;
  }
  std::uint32_t first_phase(std::uint32_t turn) const {
    return turn < segments ? 0 : turn - segments + 1;
  }
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_REDUCTION_PIPELINE_H_
