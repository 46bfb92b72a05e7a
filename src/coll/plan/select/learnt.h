// What programs have learnt about which way serves calls of one kind, for the next run.
//
// The file is a tuning file (tuning_file.h) whose rules are choices: each holds for a range of
// sizes on communicators of one layout, and says by how many calls it was found ("calls"). To a
// job that is told of it by `learn_file` they are no rules: it begins with them, and goes on to
// measure where the program before has stopped. As `tuning` the same file fixes them.
#ifndef OVERDRIVE_COLL_PLAN_SELECT_LEARNT_H_
#define OVERDRIVE_COLL_PLAN_SELECT_LEARNT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "coll/plan/select/rules.h"
#include "coll/plan/select/selection.h"
#include "coll/plan/select/tuning_file.h"

namespace od::coll {

// The way in the notation of rules: "knomial/hierarchical".
std::string way_name(const Decision& decision);

class LearntChoices {
 public:
  // For people: what a call of each way took on a rank, in nanoseconds.
  using Times = std::vector<std::pair<std::string, std::uint64_t>>;

  // `rule` has one condition. Of several about the same calls the one by most calls counts.
  void add(Collective collective, Rule rule, Times times);
  // What an earlier file says about other calls stays; at most so many that the file can be read.
  void keep(const TuningFile& earlier);
  bool empty() const { return choices_.empty(); }
  // A whole file. `fingerprint`: of this machine; `host`: the MPI library; `date`: today.
  std::string text(std::string_view fingerprint, std::string_view host,
                   std::string_view date) const;

 private:
  struct Choice {
    Rule rule;
    Times times;
  };
  // Which calls: collective, nodes, ranks, ranks per node and bytes, each first to last, and
  // whether the operation commutes (2: all).
  using Calls =
      std::tuple<Collective, int, int, int, int, int, int, std::uint64_t, std::uint64_t, int>;
  static Calls calls_of(Collective collective, const Condition& condition);

  std::map<Calls, Choice> choices_;
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_SELECT_LEARNT_H_
