// What is told about collectives that may outlast their calls when a job ends: to users, and to
// later runs of the program.
#ifndef OVERDRIVE_ENGINE_OVERLAP_REPORT_H_
#define OVERDRIVE_ENGINE_OVERLAP_REPORT_H_

#include <vector>

#include "engine/rank_state.h"
#include "overlap/trace.h"

namespace od {

// The records of all ranks, joined; the same on all. All ranks of the job take part; empty where
// nothing may outlast its call, or when the exchange failed.
std::vector<overlap::SiteRecord> gather_overlap(RankState& s);

// Writes the trace where one was made. Rank 0 does.
void write_overlap_trace(const RankState& s, const std::vector<overlap::SiteRecord>& records);

}  // namespace od

#endif  // OVERDRIVE_ENGINE_OVERLAP_REPORT_H_
