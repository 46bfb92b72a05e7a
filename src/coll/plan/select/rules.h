// Rules by which a user, or a tuning file, chooses algorithms.
//
// The text of OVERDRIVE_ADJUST_<COLLECTIVE>, in the notation of Intel MPI's I_MPI_ADJUST family:
//
//   <algorithm>[:<conditions>][;<algorithm>[:<conditions>]]...
//   algorithm    a name or number, optionally followed by /flat or /hierarchical; 0: Overdrive's
//   own
//                choice
//   conditions   separated by commas, one must hold; none: always
//     <bytes>[-[<bytes>]][@<ranks>[-[<ranks>]]][%<ranks per node>[-[...]]]
//                sizes may end in K, M, G or T; a range without its end has none; each of the three
//                parts may be left out
//
// "ring:64K-4M@8-64;rabenseifner:4K-;1" means: ring for 64 KiB to 4 MiB on 8 to 64 ranks, else
// Rabenseifner's from 4 KiB on, else number 1. The first clause that matches and can serve counts.
#ifndef OVERDRIVE_COLL_PLAN_SELECT_RULES_H_
#define OVERDRIVE_COLL_PLAN_SELECT_RULES_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coll/plan/registry.h"
#include "coll/plan/shape.h"

namespace od::coll {

// How a communicator lies on nodes.
struct Layout {
  int ranks = 1;
  int nodes = 1;
  int most_per_node = 1;      // ranks on the fullest node
  bool contiguous = true;     // the ranks of each node follow each other
  bool shares_cores = false;  // of one node: it has more ranks than cores

  bool operator==(const Layout&) const = default;
};

enum class Mode : std::uint8_t {
  kAuto,
  kFlat,          // the algorithm runs between all ranks
  kHierarchical,  // shared memory inside nodes, the algorithm between their leaders
};
const char* mode_name(Mode mode);

template <class T>
struct Interval {
  T min = 0;
  T max = std::numeric_limits<T>::max();
  bool has(T value) const { return min <= value && value <= max; }
  bool operator==(const Interval&) const = default;
};

struct Condition {
  Interval<std::uint64_t> bytes;
  Interval<int> ranks;
  Interval<int> per_node;
  Interval<int> nodes;
  std::optional<bool> commutative;

  bool fits(const Layout& layout, bool commutes) const {
    return ranks.has(layout.ranks) && per_node.has(layout.most_per_node) &&
           nodes.has(layout.nodes) && (!commutative || *commutative == commutes);
  }
  bool operator==(const Condition&) const = default;
};

struct Rule {
  const Algorithm* algorithm = nullptr;  // null: go on as if the rules of this source did not exist
  Mode mode = Mode::kAuto;
  Parameters parameters;              // 0: as set elsewhere
  std::vector<Condition> conditions;  // none: always
  std::string origin;                 // for people: "OVERDRIVE_ADJUST_BCAST, clause 2"
  std::uint64_t calls = 0;  // of what programs have learnt: after so many calls (learnt.h)
};

// An algorithm as users name it: a name, one of our numbers, or one of Intel MPI's.
struct Named {
  const Algorithm* algorithm = nullptr;
  Mode mode = Mode::kAuto;
};
bool parse_algorithm(Collective collective, std::string_view text, Named& named,
                     std::string& reason);

// A parameter as users name it, and the largest number of those that are no sizes: more ranks,
// messages under way or children than any node or job has at once.
enum class ParameterName : std::uint8_t { kRadix, kSegment, kWindow, kLeaders, kPipeline };
inline constexpr int kMostOfParameter = 65536;

// Sets a parameter from text, for `algorithm` or, where that is null, for all of the collective.
// False with a reason that goes on after the value ("must be ...").
bool set_parameter(Collective collective, const Algorithm* algorithm, ParameterName name,
                   std::string_view text, Parameters& parameters, std::string& reason);

// Size with suffix; true if the whole text is one.
bool parse_bytes(std::string_view text, std::uint64_t& bytes);

// Appends the clauses of `text`. False and a reason that names the clause if there is a mistake:
// then nothing is appended.
bool parse_adjust(Collective collective, std::string_view text, std::string_view variable,
                  std::vector<Rule>& rules, std::string& reason);

// A condition in the notation above; empty if it always holds.
std::string condition_text(const Condition& condition);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_SELECT_RULES_H_
