// The file in which programs keep what they have learnt about their collectives, for the next run
// (setting `learn_file`).
//
// Rank 0 reads it inside MPI_Init and hands it round with the job's terms, adds what its
// communicators have found when they are freed and inside MPI_Finalize, and then writes it anew, in
// one go. What others have written meanwhile about other calls stays. A file with a mistake, or one
// that was written over another MPI library or on another machine, is neither used nor changed.
#ifndef OVERDRIVE_ENGINE_LEARNT_FILE_H_
#define OVERDRIVE_ENGINE_LEARNT_FILE_H_

#include <string>
#include <string_view>

#include "coll/plan/select/tuning_file.h"
#include "config/settings.h"

namespace od {

class RankState;

// Whether the job keeps what it learns.
bool keeps_learnt(const config::Settings& settings);

struct LearntFile {
  std::string text;  // empty: there is none, or it is refused
  coll::TuningFile content;
  std::string issue;  // why it is refused, and what to do; empty: it is not
};
// `host_version`: of the MPI library.
LearntFile read_learnt(const std::string& path, std::string_view host_version);

// At the end of a rank: rank 0 writes the file.
void keep_learnt(RankState& s);

}  // namespace od

#endif  // OVERDRIVE_ENGINE_LEARNT_FILE_H_
