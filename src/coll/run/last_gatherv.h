// Gathers of blocks of different lengths between nodes that end with whoever comes last on each
// node.
//
//   giver    Leaves its block in the node's area if that is short (arrival_blocks.h), and the word
//            in any case. With a short one it is done.
//   sender   The last rank of a node to come: tells the root that its node is complete: *ready*,
//            then the words of its node, and sends the short blocks in the order of ranks. Of the
//            root's node there is none.
//   long     Whoever has a long block tells the root so: *ready*, and sends it, whether others of
//            its node are there or not. So does a rank that is alone on its node, with any block.
//   root     Takes from all of them; what its own node has left it takes from the area. It is
//            complete when it has all blocks of which it has been told.
//
// So a rank with a short block waits for nobody, one with a long block for the root.
#ifndef OVERDRIVE_COLL_RUN_LAST_GATHERV_H_
#define OVERDRIVE_COLL_RUN_LAST_GATHERV_H_

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "coll/run/arrival_blocks.h"
#include "coll/run/buffers.h"
#include "coll/run/call.h"

namespace od {

class LastGatherv : public ArrivalBlocks {
 public:
  LastGatherv(ArrivalComm& shared, const CollectiveCall& call, CollectiveBuffers& buffers);

  bool advance() override;
  std::string describe() const override;

 private:
  // Root: a node whose sender has spoken.
  struct Node {
    std::vector<std::int64_t> words;
    host::Handle request = 0;
    bool known = false;
    Stream stream;
  };

  bool give();
  bool advance_giver();
  bool advance_root();
  void begin_sending();
  void begin_long();
  void take_in(const Ready& ready) override;
  bool hear_words(Node& node);
  void expect_long(int rank);
  bool take_own_node();

  char* block_of(int rank) const { return buffers_.address({0, rank, coll::Buffer::kOutput}); }
  std::int64_t room_of(int rank) const {
    return buffers_.units(coll::kWholeBlock, {0, rank, coll::Buffer::kOutput});
  }

  CollectiveBuffers& buffers_;
  char* input_ = nullptr;  // null: the root's own block is where it belongs
  std::int64_t bytes_ = 0;

  bool given_ = false;
  std::vector<std::int64_t> words_;  // of this node, as the sender tells them
  std::list<Stream> streams_;        // of a giver: to the root; of the root: long blocks

  // Root.
  std::list<Node> nodes_;
  std::vector<bool> heard_;  // of each rank: it has spoken of its long block
  bool own_node_taken_ = false;
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_LAST_GATHERV_H_
