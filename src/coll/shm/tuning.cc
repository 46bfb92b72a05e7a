// Rows of thresholds for processors on which those of tuning.h do not fit.
#include "coll/shm/tuning.h"

namespace od::coll::shm {

Tuning Tuning::built_in() {
  Tuning tuning;
#if defined(__x86_64__) || defined(__i386__)
  // The rows of tuning.h were measured on AMD EPYC, whose stores into cells are quick. On Intel
  // Xeon (Ice Lake) they are not: whoever waits for others anyway reads a rewritten buffer where it
  // lies in 0.5 (line 60 ns) to 0.9 (110 ns) of the time from a few KiB on; the figures are in
  // docs/measurements/design-figures.md. Only where the same rank shows, or reads, call after call,
  // do cells let the others run ahead (rewritten_rooted).
  if (__builtin_cpu_is("intel") != 0) {
    tuning.near_row = {
        .direct_everyone = 2 << 10,
        .direct_rooted = 2 << 10,
        .direct_rooted_pair = 2 << 10,
        .rewritten_everyone = 2 << 10,
        .rewritten_rooted = 256 << 10,
        .rewritten_turning = 2 << 10,
        .rewritten_before = 256 << 10,
        .rewritten_whole = 2 << 10,
        .rewritten_slices = 2 << 10,
        .results = 8 << 10,
    };
    tuning.far_row = tuning.near_row;
    tuning.far_row.rewritten_rooted = tuning.far_row.rewritten_before = 4 << 20;
    tuning.whole_max_pair_bytes = 32 << 10;  // longer ones were not measured there
  }
#endif
  return tuning;
}

}  // namespace od::coll::shm
