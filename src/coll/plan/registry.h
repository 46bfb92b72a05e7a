// Every algorithm that Overdrive has for every collective: the one table behind dispatch,
// selection, `overdrive info --algorithms`, the manual and the tests.
//
// To add an algorithm write its generator (coll/plan/net/) and one row in registry.cc. A number,
// once given, is never given to another algorithm.
#ifndef OVERDRIVE_COLL_PLAN_REGISTRY_H_
#define OVERDRIVE_COLL_PLAN_REGISTRY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "coll/plan/model/cost.h"
#include "coll/plan/net/algorithms.h"
#include "coll/plan/schedule.h"
#include "coll/plan/shape.h"

namespace od::coll {

// What a call must fulfil so that an algorithm can serve it; the same on all ranks of a call.
enum Need : unsigned {
  kNeedsCommutative = 1u << 0,
  kNeedsEvenRanks = 1u << 1,
};

// Segments of long messages on networks that are faster than processors send messages.
inline constexpr std::int64_t kLongSegmentBytes = 64 << 10;

// Parameters that an algorithm looks at.
enum Takes : unsigned {
  kTakesRadix = 1u << 0,
  kTakesSegment = 1u << 1,
  kTakesWindow = 1u << 2,
  // A switch that adds, where there is one (StepKind::kElsewhere). It is never chosen by the model.
  kTakesSwitch = 1u << 3,
  // Likewise, with a leader for each socket of a node.
  kTakesSockets = 1u << 4,
  // Shared memory inside nodes, where it says how (NodeForm). The model takes it without being told
  // so: by the sizes of coll/shm/tuning.h.
  kTakesNode = 1u << 5,
};

// How the ranks of a node reduce in shared memory (coll/shm/tuning.h, which decides if it is
// automatic).
enum class NodeForm : std::uint8_t {
  automatic,
  whole,     // whoever gets the result adds all contributions
  slices,    // each rank adds a slice of them, then slices are collected
  segments,  // the same segment by segment
  groups,    // the same, first among ranks that share a cache
};

struct Algorithm {
  Collective collective;
  const char* name;
  int number;  // 100: the host's own; ours are above
  unsigned needs;
  unsigned takes;
  Parameters defaults;
  // The schedule for n units is that for one unit with units n times as large: one serves all
  // sizes.
  bool scales;
  Generate* generate;  // null: the host MPI
  Cost* cost;          // null: not known
  const char* doc;
  NodeForm node_form = NodeForm::automatic;

  bool is_host() const { return generate == nullptr; }
  bool works_elsewhere() const { return (takes & kTakesSwitch) != 0; }
  bool shares_memory() const { return (takes & kTakesNode) != 0; }
  bool leads_by_socket() const { return (takes & kTakesSockets) != 0; }
};

std::span<const Algorithm> algorithms();
std::span<const Algorithm> algorithms(Collective collective);
const Algorithm& host_algorithm(Collective collective);

// A name that an algorithm had in earlier versions; it still finds the algorithm.
struct OldName {
  const char* before;
  const char* now;
};
std::span<const OldName> old_names();

// By name (case is ignored; also an old one) or own number; null if there is none.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
const Algorithm* find_algorithm(Collective collective, int number);

// A number of Intel MPI's I_MPI_ADJUST family and what stands for it here.
struct IntelNumber {
  Collective collective;
  int number;
  const char* name;
  bool hierarchical;  // its "topology aware" form: between nodes only, shared memory inside
};
std::span<const IntelNumber> intel_numbers();

struct Call {
  int ranks = 1;
  bool commutative = true;
};
// Null if the algorithm can serve the call, else a reason in words ("needs an even number of ...").
const char* why_not(const Algorithm& algorithm, const Call& call);

// 2 for trees and rounds, whose reach the radix multiplies; 1 where it is a number of lines.
int least_radix(const Algorithm& algorithm);

// What holds in the end: the user's values where the algorithm takes them, else its defaults. A
// radix for all algorithms of a collective that is too small for this one counts as the smallest.
Parameters effective_parameters(const Algorithm& algorithm, const Parameters& chosen);

// One rank's schedule; shape.parameters are the user's. Not for the host's algorithm.
Schedule make_schedule(const Algorithm& algorithm, Shape shape);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_REGISTRY_H_
