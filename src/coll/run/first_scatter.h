// Scatters between nodes that start with whoever comes first on each node.
//
//   winner   The first rank of a node that comes (coll/shm/arrival_area.h) tells the root that it
//            is there: *ready*. The root tells it how long each block is: *part*, and sends the
//            blocks of all ranks of that node, in the order of these. It takes its own where that
//            belongs, and leaves the others in the node's area.
//   root     It sends to each node as soon as somebody is there, and leaves the blocks of its own
//            node in the area.
//   others   They take their block from the area whenever they come, also when the winner has left.
//
// So nobody waits for a rank of its own node that is late, and the root for the first of each.
#ifndef OVERDRIVE_COLL_RUN_FIRST_SCATTER_H_
#define OVERDRIVE_COLL_RUN_FIRST_SCATTER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coll/run/arrival_call.h"
#include "coll/run/buffers.h"
#include "coll/run/call.h"
#include "host/host_table.h"

namespace od {

class FirstScatter : public FirstComers<ArrivalCall> {
 public:
  // Whether it can serve a call with blocks of so many bytes; the same on all ranks.
  static bool fits(const ArrivalComm& shared, std::int64_t bytes);

  FirstScatter(ArrivalComm& shared, const CollectiveCall& call, CollectiveBuffers& buffers,
               std::int64_t bytes);

  std::string describe() const override;

 private:
  struct Part {
    std::uint64_t number;
    std::int64_t bytes;  // of each block; where they differ from the winner's, nothing follows
  };
  // The blocks of a node on their way to its winner.
  struct Stream {
    int to = kNobody;
    std::span<const int> ranks;
    std::uint64_t sent = 0;
    std::vector<host::Handle> open;
  };

  void find_role() override;
  bool advance_root() override;
  bool advance_winner() override;
  bool advance_reader() override;

  void take_in(const Ready& ready) override;
  bool advance_stream(Stream& stream);
  bool publish_own();
  void hear_part();
  bool receive_segments();
  // Room for the blocks of this node. False: not yet.
  bool place();
  // Says to the others of the node that nothing comes for them.
  void place_nothing();
  void finish();

  std::uint64_t all_segments() const { return members().size() * segments_; }
  std::int64_t offset(std::uint64_t segment) const;
  std::int64_t length(std::uint64_t segment) const;
  // Segments of a node are counted member by member.
  bool is_own(std::uint64_t index) const { return index / segments_ == my_place(); }
  char* place_of(std::uint64_t index) const;

  const std::int64_t bytes_;  // of each block
  const std::uint64_t segments_;
  const char* input_ = nullptr;  // of the root
  char* output_ = nullptr;       // null: the root's own block is where it belongs

  std::uint64_t there_ = 0;  // winner: received; root: left in the area; reader: taken

  std::vector<Stream> streams_;  // of the root

  // Winner.
  Part part_{};
  host::Handle part_request_ = 0;
  bool part_known_ = false;
  bool nothing_comes_ = false;
  std::vector<host::Handle> receiving_;  // of each segment
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_FIRST_SCATTER_H_
