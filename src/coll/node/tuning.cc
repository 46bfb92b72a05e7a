// Rows of thresholds for processors on which those of tuning.h do not fit.
#include "coll/node/tuning.h"

namespace od::coll::shm {

Tuning Tuning::built_in() {
  Tuning tuning;
#if defined(__x86_64__) || defined(__i386__)
  // The rows of tuning.h were measured on AMD EPYC, whose stores into cells are quick. On Intel
  // Xeon (Ice Lake) they are not: whoever waits for others anyway reads a rewritten buffer where it
  // lies in 0.5 (line 60 ns) to 0.9 (110 ns) of the time from a few KiB on; docs/design has the
  // figures. Only where the same rank shows, or reads, call after call, do cells let the others run
  // ahead (rewritten_rooted, the fourth).
  if (__builtin_cpu_is("intel") != 0) {
    tuning.near_row = {2 << 10, 2 << 10, 2 << 10, 256 << 10, 2 << 10, 2 << 10, 2 << 10, 8 << 10};
    tuning.far_row = {2 << 10, 2 << 10, 2 << 10, 4 << 20, 2 << 10, 2 << 10, 2 << 10, 8 << 10};
  }
#endif
  return tuning;
}

}  // namespace od::coll::shm
