// What is said about a job at its end, and the file of a rank for `overdrive report`.
#ifndef OVERDRIVE_ENGINE_RUN_RECORD_H_
#define OVERDRIVE_ENGINE_RUN_RECORD_H_

#include "engine/rank_state.h"
#include "observe/stats.h"

namespace od {

// Without what is gathered or asked for separately.
observe::JobFacts job_facts(const RankState& s);

// Writes the rank's file into the folder that the setting `record` names; errors are logged.
void write_record(const RankState& s, observe::JobFacts facts);

}  // namespace od

#endif  // OVERDRIVE_ENGINE_RUN_RECORD_H_
