// What all ranks of a job have to decide alike: the agreed settings (config/settings_table.h), the
// rules that choose algorithms of collectives, the tuning file, what an earlier run has learnt and
// the trace of the program. Rank
// 0's count for all.
//
// Files and environments of ranks differ in practice: another file on another node, another kernel
// in the fingerprint, `mpirun -x` for a part of the ranks. In MPI_Init every rank tells a hash of
// its terms; where one differs from rank 0's, rank 0's terms are handed round.
#ifndef OVERDRIVE_ENGINE_JOB_TERMS_H_
#define OVERDRIVE_ENGINE_JOB_TERMS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coll/plan/select/selection.h"
#include "config/settings.h"

namespace od {

struct JobTerms {
  coll::Selection::Environment rules;  // variables that choose algorithms, sorted
  std::string tuning_text;             // of the tuning file; empty: none or refused
  std::string learnt_text;             // of what an earlier run has learnt; likewise
  std::string trace_text;              // of the program's trace (overlap/trace.h); likewise
  std::vector<std::string> issues;     // with the tuning file
  // Why a file that nobody has named does not count; for rank 0 to tell, not handed round.
  std::vector<std::string> notes;
};

// The tuning file that counts over this MPI library; empty: none. With `auto` it is the one that
// `overdrive tune` writes into the user's configuration folder, if it is there.
std::string tuning_path(const config::Settings& settings, std::string_view host_version);

// The terms of this process. Reads the tuning file; one with a mistake, or one for another machine,
// is refused here.
JobTerms own_terms(const config::Settings& settings, std::string_view host_version = {});

// Terms and agreed settings as one text, the same for the same values; never empty.
std::string terms_text(const config::Settings& settings, const JobTerms& terms);

// Takes over what the text says; returns the names of settings that had another value before, and
// of rules that this rank had and now has not.
std::vector<std::string> take_terms(const std::string& text, config::Settings& settings,
                                    JobTerms& terms);

// What ranks tell each other about their terms.
struct TermsClaim {
  std::uint64_t hash;
  std::uint64_t bytes;
  std::uint64_t complaints;  // how many settings are wrong or unknown
  std::uint64_t fit;         // 0: this rank has to leave everything to the host
};
TermsClaim claim_of(const std::string& text, std::size_t complaints, bool fit);

}  // namespace od

#endif  // OVERDRIVE_ENGINE_JOB_TERMS_H_
