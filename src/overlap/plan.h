// What is sent in which order by a collective that goes on after its call has returned.
//
// Pages that a receive buffer covers only in part cannot be guarded: what lies there has to arrive
// before the call returns. So every block is cut into pieces, the first and the last page's worth
// of it first, and those travel before everything else. The rest is cut into a few pieces, because
// a program that reads them in order then waits for less. How a block is cut depends on its length
// alone, which sender and receiver both know.
//
// Broadcasts go along the nodes, one leader each, then to the ranks of a node; allgathers around a
// ring that visits node by node; in an all-to-all every rank sends to every other.
#ifndef OVERDRIVE_OVERLAP_PLAN_H_
#define OVERDRIVE_OVERLAP_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "coll/plan/hierarchy/nodes.h"
#include "coll/plan/schedule.h"

namespace od::overlap {

// A part of the output that is written, or read, as a whole.
struct Piece {
  coll::Place place;
  std::int64_t bytes = 0;
};

struct Plan {
  static constexpr std::int32_t kNoPiece = -1;

  coll::Schedule schedule;
  std::vector<Piece> pieces;
  std::vector<std::int32_t> piece_of_step;  // which piece of the output a step touches
};

// The pieces of a block: offset and length, in the order in which they travel.
struct Cut {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};
std::vector<Cut> cut(std::int64_t bytes);

Plan plan_broadcast(const coll::Nodes& nodes, int rank, int root, std::int64_t bytes);
// `bytes` of each rank's block. With `blocks` they are blocks of the output, else they follow each
// other in one.
Plan plan_allgather(const coll::Nodes& nodes, int rank, std::span<const std::int64_t> bytes,
                    bool blocks, bool in_place);
// Bytes to and from each rank.
Plan plan_alltoall(int rank, std::span<const std::int64_t> sent,
                   std::span<const std::int64_t> received, bool blocks);

}  // namespace od::overlap

#endif  // OVERDRIVE_OVERLAP_PLAN_H_
