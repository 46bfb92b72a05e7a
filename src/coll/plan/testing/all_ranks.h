// Test support: runs the schedules of all ranks in one process and compares with the definition of
// the collective.
//
// Steps start, messages arrive and local work ends in random order (by seed). Sends are synchronous
// or buffered, at random; what a member of a node hands over is taken at once or later. Found are:
// wrong results, deadlocks, messages that nobody receives or whose lengths differ, members of a
// node that do not do the same, accesses outside a buffer, writes to the input, steps that run at
// the same time and touch the same units.
#ifndef OVERDRIVE_COLL_PLAN_TESTING_ALL_RANKS_H_
#define OVERDRIVE_COLL_PLAN_TESTING_ALL_RANKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "coll/plan/hierarchy/hierarchy.h"
#include "coll/plan/registry.h"
#include "coll/plan/schedule.h"
#include "coll/plan/shape.h"

namespace od::coll::testing {

// A text, as its hash and what its length multiplies by: joining them is associative and does not
// commute. The commuting operation adds componentwise.
struct Element {
  std::uint64_t hash = 0;
  std::uint64_t factor = 0;
  bool operator==(const Element&) const = default;
};

struct Case {
  const Algorithm* algorithm = nullptr;
  int ranks = 1;
  int root = 0;
  std::int64_t count = 0;
  std::int64_t unit_bytes = 1;
  bool commutative = true;
  bool in_place = false;
  Parameters parameters;
  std::vector<int> node_of;  // each rank's node for the hierarchical form; empty: flat
  std::uint64_t seed = 0;    // of contents, order of events and irregular counts

  // Units that rank `from` has for rank `to` (collectives with counts).
  std::int64_t irregular(int from, int to) const;
  std::vector<std::int64_t> counts() const;
  // Which way a node goes; different ones may go different ways.
  NodeDriver driver(int node) const;
  // Null if the algorithm, or its hierarchical form, can serve the case.
  const char* why_not() const;
  Shape shape(int rank, const std::vector<std::int64_t>& counts) const;
  std::string text() const;
};

// Empty if all is well, else what went wrong.
std::string run_case(const Case& test);

// The smallest case found that still goes wrong.
Case shrink(Case failing);

}  // namespace od::coll::testing

#endif  // OVERDRIVE_COLL_PLAN_TESTING_ALL_RANKS_H_
