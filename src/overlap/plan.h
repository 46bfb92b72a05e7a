// What is sent in which order by a collective that goes on after its call has returned.
//
// Pages that a receive buffer covers only in part cannot be guarded: what lies there has to arrive
// before the call returns. So every block is cut into pieces, the first and the last page's worth
// of it first, and those travel before everything else. The rest is cut into a few pieces, because
// a program that reads them in order then waits for less. How a block is cut depends on its length
// alone, which sender and receiver both know. If they do not agree about it, the receiver learns
// from the length of the first piece how many there are.
//
// Broadcasts go along the nodes, one leader each, then to the ranks of a node; allgathers around a
// ring that visits node by node; in an all-to-all every rank sends to every other. Where it is
// known in which order programs need what they get, that order counts (link_order.h).
#ifndef OVERDRIVE_OVERLAP_PLAN_H_
#define OVERDRIVE_OVERLAP_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "coll/plan/hierarchy/nodes.h"
#include "coll/plan/schedule.h"
#include "overlap/link_order.h"

namespace od::overlap {

// A part of the output that is written, or read, as a whole.
struct Piece {
  static constexpr std::int32_t kEnd = -1;

  coll::Place place;
  std::int64_t bytes = 0;
  std::int32_t source = 0;   // the rank whose data it is
  std::int32_t part = kEnd;  // its number between the ends of the block
};

// The step that receives the first piece of a block.
struct First {
  std::uint32_t step = 0;
  std::uint32_t pieces = 0;     // of the block
  std::int64_t room_bytes = 0;  // for a first piece that says something else
};

struct Plan {
  static constexpr std::int32_t kNoPiece = -1;

  coll::Schedule schedule;
  std::vector<Piece> pieces;
  std::vector<std::int32_t> piece_of_step;  // which piece of the output a step touches
  std::vector<First> firsts;
};

// The pieces of a block: offset and length, in the order in which they travel.
struct Cut {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::int32_t part = Piece::kEnd;
};
std::vector<Cut> cut(std::int64_t bytes, const Order& order = {});
// No piece at an end is longer.
inline constexpr std::int64_t kMostEndBytes = 4096 + 8 * 130;
// How many pieces there are when the first one has so many bytes.
std::uint32_t pieces_told(std::int64_t first_bytes);

Plan plan_broadcast(const coll::Nodes& nodes, int rank, int root, std::int64_t bytes,
                    const Order& order = {});
// `bytes` of each rank's block. With `blocks` they are blocks of the output, else they follow each
// other in one.
Plan plan_allgather(const coll::Nodes& nodes, int rank, std::span<const std::int64_t> bytes,
                    bool blocks, bool in_place, const Order& order = {});
// Bytes to and from each rank.
Plan plan_alltoall(const coll::Nodes& nodes, int rank, std::span<const std::int64_t> sent,
                   std::span<const std::int64_t> received, bool blocks, const Order& order = {});

}  // namespace od::overlap

#endif  // OVERDRIVE_OVERLAP_PLAN_H_
