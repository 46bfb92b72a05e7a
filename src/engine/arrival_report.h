// What statistics and records say about when ranks came to collective calls.
#ifndef OVERDRIVE_ENGINE_ARRIVAL_REPORT_H_
#define OVERDRIVE_ENGINE_ARRIVAL_REPORT_H_

#include <string>

#include "engine/clock_comparison.h"
#include "engine/rank_state.h"
#include "observe/stats.h"

namespace od {

// Whether this rank keeps the times of calls.
bool keeps_arrivals(const config::Settings& settings);

// The clock on which times of all ranks can be compared. Collective where clocks have been compared
// at the beginning.
CommonClock common_clock(const RankState& s);

// Adds the table of arrivals; collective over the job. False when the exchange failed.
bool gather_arrivals(const RankState& s, const CommonClock& clock, observe::JobFacts& facts);

// This rank's arrivals for its file; empty if it has none.
std::string own_arrivals(const RankState& s, const CommonClock& clock);

}  // namespace od

#endif  // OVERDRIVE_ENGINE_ARRIVAL_REPORT_H_
