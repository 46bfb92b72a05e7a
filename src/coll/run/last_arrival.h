// Reductions to a root between nodes that end with whoever comes last on each node.
//
//   giver    Leaves what it contributes in the node's area (coll/shm/arrival_area.h), and is done.
//   sender   The last rank of a node to come: it finds what all others have left, combines it and
//            sends it to the root. It needs no copy of its own. Of the root's node there is none.
//   root     Is told who the senders are, and takes from them; what its own node has left it takes
//            from the area.
//
// So nobody waits for anyone but the sender, for the root, and the root, for all. Contributions are
// combined in the order of ranks in a node, and then of nodes: who comes when decides nothing but
// who computes. Gathers: relay_gather.h.
#ifndef OVERDRIVE_COLL_RUN_LAST_ARRIVAL_H_
#define OVERDRIVE_COLL_RUN_LAST_ARRIVAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "coll/run/arrival_call.h"
#include "coll/run/buffers.h"
#include "coll/run/call.h"
#include "host/host_table.h"

namespace od {

class LastArrival : public ArrivalCall {
 public:
  // Whether it can serve a call with so many bytes of each rank in units of `unit_bytes`; the same
  // on all ranks.
  static bool fits(const ArrivalComm& shared, int nodes, std::int64_t bytes,
                   std::int64_t unit_bytes);

  LastArrival(ArrivalComm& shared, const CollectiveCall& call, CollectiveBuffers& buffers,
              std::int64_t bytes);

  bool advance() override;
  std::string describe() const override;

 private:
  enum class Role : std::uint8_t { unknown, root, sender };
  // What a node's sender sends.
  struct Node {
    Ready ready;
    std::vector<char> aside;
    std::vector<host::Handle> open;
    std::uint64_t asked = 0;
    std::uint64_t there = 0;
    std::uint64_t segments = 0;
  };

  bool give();
  void become_sender();
  bool advance_sender();
  bool advance_root();
  void take_in(const Ready& ready) override;
  bool receive_from(Node& node);
  void combine_all();
  void combine_node(std::uint64_t segment, char* target);

  // A segment of a member's contribution.
  char* cell(std::size_t member, std::uint64_t segment) const;
  const char* contribution(std::size_t member, std::uint64_t segment) const;
  const char* own(std::uint64_t segment) const { return input_ + offset(segment); }
  std::int64_t offset(std::uint64_t segment) const {
    return static_cast<std::int64_t>(segment) * segment_bytes_;
  }
  std::int64_t length(std::uint64_t segment) const;
  void reduce(char* target, const char* left, const char* right, std::uint64_t segment);

  CollectiveBuffers& buffers_;
  const std::int64_t bytes_;  // of each rank
  const std::int64_t segment_bytes_;
  const std::uint64_t segments_;
  const char* input_ = nullptr;
  char* output_ = nullptr;  // of the root

  Role role_ = Role::unknown;
  bool copied_ = true;  // into the area

  // Sender.
  std::uint64_t sent_ = 0;
  std::vector<host::Handle> open_;

  // Root.
  std::vector<Node> nodes_;  // by number; of its own nothing
  bool own_node_given_ = false;
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_LAST_ARRIVAL_H_
