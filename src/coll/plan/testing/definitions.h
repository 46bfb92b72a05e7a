// Test support: what each collective means, written as plainly as possible.
#ifndef OVERDRIVE_COLL_PLAN_TESTING_DEFINITIONS_H_
#define OVERDRIVE_COLL_PLAN_TESTING_DEFINITIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/plan/hierarchy/node_steps.h"
#include "coll/plan/testing/all_ranks.h"

namespace od::coll::testing {

using Block = std::vector<Element>;

// Buffers of one rank by block; what a rank does not have is empty.
struct Buffers {
  std::vector<Block> input;
  std::vector<Block> output;
};

Element apply(const Case& test, const Element& left, const Element& right);

// Input of all ranks, and outputs as they are before (with MPI_IN_PLACE that is the contribution).
std::vector<Buffers> before(const Case& test);

// How `output` of each rank must look afterwards; elements with factor 0 may be anything.
std::vector<std::vector<Block>> after(const Case& test, const std::vector<Buffers>& start);

// What the members of a node do in a step that needs all of them
// (coll/plan/hierarchy/node_steps.h): sources and targets by position.
void join_members(const Case& test, NodeWork work, std::size_t leader, std::int64_t count,
                  const std::vector<const Element*>& sources, const std::vector<Element*>& targets);

}  // namespace od::coll::testing

#endif  // OVERDRIVE_COLL_PLAN_TESTING_DEFINITIONS_H_
