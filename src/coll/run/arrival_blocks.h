// What gathers and scatters of blocks of different lengths share, which start with whoever comes
// first to each node, or end with whoever comes last.
//
// Only the root knows the lengths of all blocks, so nothing that ranks decide alike may depend on
// them. Each member of a node has the same share of the node's area, whatever its block is (where
// all ranks know how long blocks are, they agree about the share: relay_gather.h). A block
// that fits goes through the area (*short*); a longer one goes straight between its rank and the
// root (*long*), for which its rank waits alone. All blocks are cut in the same way on both sides:
//
//   share of a member   [ word | room ... ] [ room ... ] ...    cells of the area
//   pieces of a block             0             1
//
// The word says how long the block is, of a long one the negative of that, less one. It is
// published by what publishes the cells (coll/shm/arrival_area.h).
#ifndef OVERDRIVE_COLL_RUN_ARRIVAL_BLOCKS_H_
#define OVERDRIVE_COLL_RUN_ARRIVAL_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "coll/run/arrival_call.h"
#include "host/host_table.h"

namespace od {

class ArrivalBlocks : public ArrivalCall {
 public:
  // Whether it can serve calls on the communicator, whatever the lengths; the same on all ranks.
  static bool fits(const ArrivalComm& shared) { return shared.cells_per_rank() > 0; }

 protected:
  // In the place of a segment's length, in what a rank with a long block says.
  static constexpr std::int32_t kLongBlock = -1;

  struct Piece {
    char* at;
    std::int64_t bytes;
  };
  // Pieces on their way to or from one rank, in order.
  struct Stream {
    int peer = kNobody;
    Tag tag = kData;
    std::vector<Piece> pieces;
    std::size_t begun = 0;
    std::size_t done = 0;
    std::vector<host::Handle> open;
    std::vector<std::unique_ptr<char[]>> aside;  // blocks that do not fit
    bool complete() const { return done == pieces.size(); }
  };

  ArrivalBlocks(ArrivalComm& shared, int root);

  bool advance_outgoing(Stream& stream);
  bool advance_incoming(Stream& stream);

  // Whether a block is short on a node of so many ranks.
  bool is_short(std::int64_t bytes, std::size_t members) const;
  // The word that says so.
  std::int64_t word_of(std::int64_t bytes, std::size_t members) const {
    return is_short(bytes, members) ? bytes : -bytes - 1;
  }
  static std::int64_t bytes_of(std::int64_t word) { return word < 0 ? -word - 1 : word; }
  static std::size_t pieces_of(std::int64_t bytes);
  static std::int64_t piece_bytes(std::int64_t bytes, std::size_t piece);
  static std::int64_t piece_offset(std::size_t piece);
  // Adds the pieces of a block in this rank's memory.
  static void add_block(Stream& stream, char* block, std::int64_t bytes);
  // Likewise of one in the area.
  void add_share(Stream& stream, std::size_t member, std::int64_t bytes) const;
  // Likewise of one that comes, for which there is a block of another length: then it is kept
  // aside, which this rank is told as an error.
  void add_incoming(Stream& stream, char* block, std::int64_t block_bytes, std::int64_t bytes);

  // In the area of this rank's node.
  std::uint64_t share() const { return share_; }
  void set_share(std::uint64_t cells) { share_ = cells; }
  std::uint64_t area_bytes() const;
  // Where a member's word lies.
  char* head_of(std::size_t member) const;
  char* place_of(std::size_t member, std::size_t piece) const;
  void set_word(std::size_t member, std::int64_t word) const;
  std::int64_t word(std::size_t member) const;
  void copy_into_area(std::size_t member, const char* block, std::int64_t bytes) const;
  void copy_from_area(std::size_t member, char* block, std::int64_t bytes) const;

 private:
  // Notes the pieces that are through, in order, and begins others as far as the window permits.
  template <typename Begin>
  bool advance_stream(Stream& stream, Begin begin);

  std::uint64_t share_;  // cells of each member
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_ARRIVAL_BLOCKS_H_
