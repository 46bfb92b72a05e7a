// Gathers between nodes whose blocks leave a node as they come.
//
//   carrier  The first rank of a node that comes while nobody of it sends: it sends its own block
//            to the root, and whatever others leave in the node's area meanwhile, and returns when
//            there is nothing left. So a node has several carriers, one after the other, where its
//            ranks come far apart.
//   giver    Finds a carrier at work, leaves its block in the area (coll/shm/arrival_area.h) and
//            returns. If the carrier has gone meanwhile it becomes one.
//   root     Is told of each block and from whom it comes (*ready*), and takes it; the blocks of
//            its own node it takes from the area.
//
// So the network is busy from the first rank on, the root ends soon after the last one has come,
// and on each node one rank at most waits for a root that is late.
//
// In the place of a word (arrival_blocks.h) the block of a member has a *mark*, which several ranks
// look at and change: not there, or left, and how long it is, or with a carrier. How marks and the
// order in which carriers follow each other fit together:
//
//   giver    copies, marks, counts itself (ArrivalArea::give, release); no carrier then: tries to
//            become one.
//   carrier  looks at all marks, takes what has been left, and when all that is sent asks to stop
//            (stop_carrying): refused if somebody has counted himself since it last looked.
//
// So of a giver and a carrier that stops, one sees the other, and no block is left behind.
#ifndef OVERDRIVE_COLL_RUN_RELAY_GATHER_H_
#define OVERDRIVE_COLL_RUN_RELAY_GATHER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coll/run/arrival_blocks.h"
#include "coll/run/buffers.h"
#include "coll/run/call.h"

namespace od {

class RelayGather : public ArrivalBlocks {
 public:
  // Whether it can serve a call with blocks of so many bytes; the same on all ranks.
  static bool fits(const ArrivalComm& shared, std::int64_t bytes);

  RelayGather(ArrivalComm& shared, const CollectiveCall& call, CollectiveBuffers& buffers,
              std::int64_t bytes);

  std::string describe() const override;

 private:
  enum class Role : std::uint8_t { unknown, root, carrier };
  // Below the length of a block.
  enum Mark : std::uint64_t { kNotThere, kLeft, kCarried };
  static constexpr unsigned kMarkBits = 2;

  bool advance() override;
  void prepare_area() override;
  bool find_place();
  bool give();
  void leave_own();
  // How long the block is that a member has left and nobody has taken; it counts as taken now.
  std::optional<std::int64_t> pick_up(std::size_t member) const;
  void become_carrier();
  // Begins to send a member's block of so many bytes, from this rank's buffer or from the area.
  void carry(std::size_t member, std::int64_t bytes, bool own);
  void carry_what_was_left();
  void take_what_was_left();
  bool advance_carrier();
  bool advance_root();
  void take_in(const Ready& ready) override;

  std::atomic<std::uint64_t>& mark(std::size_t member) const;

  const std::int64_t bytes_;     // of each rank
  const char* input_ = nullptr;  // null: the root's own block is where it belongs
  char* output_ = nullptr;       // of the root

  Role role_ = Role::unknown;
  std::uint64_t seen_ = 0;  // blocks that had been left when the marks were last looked at
  Stream outgoing_;         // carrier

  // Root.
  std::map<int, Stream> incoming_;  // by rank of the carrier
  std::size_t own_node_left_ = 0;   // blocks of its node that it has not taken
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_RELAY_GATHER_H_
