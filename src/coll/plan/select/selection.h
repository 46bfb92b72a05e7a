// Chooses the algorithm of a call: environment, then tuning file, then the cost model.
//
// Selection holds the rules of a process. For a communicator it makes a Table per collective (and
// per kind of operation) at first use: ranges of message sizes in ascending order, and what serves
// them as soon as one of that size has been asked for. Looking up a call is then one search in a
// few numbers. Everything that decides is the same on all ranks: they read the same environment and
// file, and see the same layout and size.
//
// What cannot serve (Algorithm::needs) is passed over and the next rule, in the end the model,
// decides; with `strict` that is an error.
#ifndef OVERDRIVE_COLL_PLAN_SELECT_SELECTION_H_
#define OVERDRIVE_COLL_PLAN_SELECT_SELECTION_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coll/plan/model/machine.h"
#include "coll/plan/registry.h"
#include "coll/plan/select/rules.h"
#include "coll/plan/shape.h"

namespace od::coll {

struct Decision {
  const Algorithm* algorithm = nullptr;
  Mode mode = Mode::kFlat;  // never kAuto
  Parameters parameters;    // effective ones

  bool operator==(const Decision&) const = default;
};

// The host's own, which all ranks call and which knows no parameters of ours.
inline Decision host_decision(Collective collective) {
  return {&host_algorithm(collective), Mode::kFlat, {}};
}

// Why: one line per rule that was looked at, and what the model says.
struct Explanation {
  struct Line {
    std::string origin;
    std::string rule;     // algorithm and conditions
    std::string verdict;  // "fires", "does not match", "matches but needs ..."
  };
  struct Candidate {
    Decision decision;
    double cost_ns = 0;
    std::string why_not;  // not empty: cannot serve, or excluded
  };
  std::vector<Line> lines;
  std::vector<Candidate> candidates;  // cheapest first, those that cannot serve at the end
  std::string origin;                 // of the decision
};

class Selection;

// Not for several threads at once. The Selection that made it must outlive it.
class Table {
 public:
  // `bytes` is the message size as the collective defines it.
  const Decision& at(std::uint64_t bytes) {
    const std::size_t range = range_of(bytes);
    if (decisions_[range].algorithm == nullptr) decide(range);
    return decisions_[range];
  }
  // Where the ranges end, ascending; the last one at the largest number.
  const std::vector<std::uint64_t>& last_bytes() const { return last_bytes_; }
  // Which range holds that size, and whether a rule of the user's decides there.
  std::size_t range_of(std::uint64_t bytes) const {
    // Calls of the same size follow each other.
    if (bytes <= last_bytes_[newest_] && (newest_ == 0 || bytes > last_bytes_[newest_ - 1])) {
      return newest_;
    }
    const auto found = std::lower_bound(last_bytes_.begin(), last_bytes_.end(), bytes);
    newest_ = static_cast<std::size_t>(found - last_bytes_.begin());
    return newest_;
  }
  bool ruled(std::size_t range) const { return ruled_[range]; }
  // The size by which a range is decided: its end; of the last one, which has none, its beginning.
  std::uint64_t bytes_of(std::size_t range) const {
    const std::uint64_t last = last_bytes_[range];
    if (last != std::numeric_limits<std::uint64_t>::max()) return last;
    return range == 0 ? 0 : last_bytes_[range - 1] + 1;
  }
  // With `strict`: what cannot be done as demanded; empty otherwise.
  const std::string& error() const { return error_; }

 private:
  friend class Selection;
  void decide(std::size_t range);

  const Selection* selection_ = nullptr;
  Collective collective_ = Collective::kBarrier;
  Layout layout_;
  bool commutative_ = true;
  std::vector<std::uint64_t> last_bytes_;
  mutable std::size_t newest_ = 0;   // range that was looked up last
  std::vector<Decision> decisions_;  // without an algorithm: not yet decided
  std::vector<bool> ruled_;          // of those decided
  std::string error_;
};

class Selection {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  struct Options {
    bool strict = false;
    bool accept_intel = false;  // also read I_MPI_ADJUST_<COLLECTIVE>
    std::string tuning_file;    // empty: none
    std::string fingerprint;    // of this machine; a file for another one is not used
    // The file's text where it has been read already; the path is for messages then.
    std::optional<std::string> tuning_text{};
    // What an earlier run has learnt (learnt.h), and the file for messages; empty: nothing.
    std::string learnt_text;
    std::string learnt_file;
  };

  // The variables of this process that may be rules.
  static Environment environment();

  Selection() = default;
  // Problems are added to `issues`; what has one is left out.
  static Selection load(const Environment& environment, const Options& options,
                        std::vector<std::string>& issues);

  Decision decide(Collective collective, const Layout& layout, bool commutative,
                  std::uint64_t bytes, Explanation* explanation = nullptr,
                  std::string* error = nullptr, bool* ruled = nullptr) const;
  // What the model chooses whatever the rules say, except for lists of what may be chosen. The
  // host's algorithm if nothing else can serve.
  Decision own_choice(Collective collective, const Layout& layout, bool commutative,
                      std::uint64_t bytes) const {
    return by_model(collective, layout, commutative, bytes, nullptr);
  }
  // What else Overdrive could take instead of `usual`, by the model at most `most_times` as slow as
  // the best: cheapest first, at most `most`. None of them needs more than messages and shared
  // memory, and between two nodes none sends the same messages as another one. Before them, of long
  // messages, the usual algorithm with long segments, or if it has none the cheapest that has. One
  // is of another algorithm than the usual one, if there is one at most `most_of_another` times as
  // slow as the best (`most_times` or more): what the model gets wrong about the usual one it gets
  // wrong in its other forms, too.
  std::vector<Decision> alternatives(const Decision& usual, const Layout& layout, bool commutative,
                                     std::uint64_t bytes, double most_times, double most_of_another,
                                     std::size_t most) const;
  // What an earlier run has learnt about such calls, and by how many, if it can serve them.
  struct Learnt {
    Decision decision;
    std::uint64_t calls = 0;
  };
  std::optional<Learnt> learnt(Collective collective, const Layout& layout, bool commutative,
                               std::uint64_t bytes) const;
  // Whether the user has listed what may be chosen.
  bool has_list(Collective collective) const { return !family(collective).list.empty(); }
  // The decision for an algorithm, with `parameters` where they are not 0. kAuto: in two levels
  // where that can be done.
  Decision complete(const Algorithm& algorithm, Mode mode, const Parameters& parameters,
                    const Layout& layout, bool commutative) const;
  // Nanoseconds by the model; not for the host's algorithm.
  double cost(const Decision& decision, const Layout& layout, std::uint64_t bytes) const;
  Table compile(Collective collective, const Layout& layout, bool commutative) const;

  const Machine& machine() const { return machine_; }
  void set_machine(const Machine& machine) { machine_ = machine; }
  // Whether the tuning file says what messages cost.
  bool machine_is_given() const { return machine_is_given_; }

 private:
  struct Family {
    std::vector<Rule> environment;
    std::vector<Rule> file;
    std::vector<Rule> learnt;
    // For every algorithm, and for some by themselves.
    Parameters common;
    std::vector<std::pair<const Algorithm*, Parameters>> special;
    std::vector<const Algorithm*> list;  // what the model may choose; empty: everything
  };

  const Family& family(Collective collective) const {
    return families_[static_cast<std::size_t>(collective)];
  }
  // The decision of a rule, and why it cannot be; null: it can.
  std::pair<Decision, const char*> obey(const Rule& rule, const Layout& layout,
                                        bool commutative) const;
  Decision by_model(Collective collective, const Layout& layout, bool commutative,
                    std::uint64_t bytes, Explanation* explanation) const;
  void read_variable(const std::string& variable, const std::string& value, std::string_view rest,
                     std::vector<std::string>& issues);

  std::array<Family, kCollectives> families_;
  Machine machine_;
  bool machine_is_given_ = false;
  bool strict_ = false;
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_SELECT_SELECTION_H_
