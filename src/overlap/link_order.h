// In which order a collective's pieces travel, from the order in which programs need them.
//
// All ranks have to know the same order: sender and receiver of a message take pieces in the same
// one, and ranks of a node that share a link take turns by it. So it is made of figures that have
// been added up over all ranks, or read from a file whose text they share.
//
// Within a block the pieces between its ends are sent as they are needed. In an all-to-all the
// ranks of a node send to other nodes one after the other: whose data is needed first comes first,
// so that it is there after its own time on the link and not after that of all. Nodes do not wait
// for each other, so different ones send different ranks' data at the same time.
#ifndef OVERDRIVE_OVERLAP_LINK_ORDER_H_
#define OVERDRIVE_OVERLAP_LINK_ORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/plan/hierarchy/nodes.h"

namespace od::overlap {

// When the parts of a message were touched first after a call, added up over calls and ranks. A
// plain block of numbers, so that ranks can add it up.
struct Accesses {
  // Blocks of more ranks share a place; pieces are those between the ends of a block.
  static constexpr std::size_t kBlocks = 64;
  static constexpr std::size_t kPieces = 20;

  std::array<std::int64_t, kBlocks> block_us{};
  std::array<std::int64_t, kBlocks> block_count{};
  std::array<std::int64_t, kPieces> piece_us{};  // since the block's first touch
  std::array<std::int64_t, kPieces> piece_count{};

  static std::size_t place_of(int block, int ranks) {
    return ranks <= static_cast<int>(kBlocks)
               ? static_cast<std::size_t>(block)
               : static_cast<std::size_t>(block) * kBlocks / static_cast<std::size_t>(ranks);
  }
  void add(const Accesses& other);
  bool any() const;
};

struct Order {
  // Whose data is needed how early: the rank's place among all, by rank; empty: nothing is known.
  std::vector<std::int32_t> turn_of_rank;
  // The pieces between the ends of a block, by number; empty: as they lie.
  std::vector<std::uint8_t> pieces;

  bool known() const { return !turn_of_rank.empty() || !pieces.empty(); }
  bool operator==(const Order&) const = default;
};

// Places that were never touched come last; what is not told apart stays as it is.
Order order_of(const Accesses& accesses, int ranks);

// The ranks of a node in the order in which they have the link. One or none: nobody takes turns.
std::vector<int> link_turns(const Order& order, const coll::Nodes& nodes, int node);

}  // namespace od::overlap

#endif  // OVERDRIVE_OVERLAP_LINK_ORDER_H_
