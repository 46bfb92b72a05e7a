// Scatters of blocks of different lengths between nodes that start with whoever comes first on each
// node.
//
//   winner   The first rank of a node that comes tells the root that it is there: *ready*. It is
//            told the words of its node (arrival_blocks.h), which it leaves in the area, and then
//            gets the short blocks in the order of ranks: its own where that belongs, the others
//            into the area.
//   long     Who finds in its word that its block is long tells the root so: *ready*, and gets it
//            from there; the winner has said that it is ready already. So does a rank that is
//            alone on its node.
//   root     It sends to each node as soon as somebody is there, and long blocks as soon as their
//            ranks are; it leaves words and short blocks of its own node in the area.
//   others   They take their block from the area whenever they come, also when the winner has left.
//
// So nobody waits for a rank of its own node that is late; the root waits for the first of each
// node, and for those with long blocks.
#ifndef OVERDRIVE_COLL_RUN_FIRST_SCATTERV_H_
#define OVERDRIVE_COLL_RUN_FIRST_SCATTERV_H_

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "coll/run/arrival_blocks.h"
#include "coll/run/buffers.h"
#include "coll/run/call.h"

namespace od {

class FirstScatterv : public FirstComers<ArrivalBlocks> {
 public:
  FirstScatterv(ArrivalComm& shared, const CollectiveCall& call, CollectiveBuffers& buffers);

  std::string describe() const override;

 private:
  void find_role() override;
  bool advance_root() override;
  bool advance_winner() override;
  bool advance_reader() override;

  void take_in(const Ready& ready) override;
  void send_long(int rank);
  bool publish_own();
  void hear_words();
  // Takes this rank's long block, of so many bytes.
  void begin_long(std::int64_t bytes);
  bool finish_if(bool complete);

  // The root's blocks.
  char* block_of(int rank) const { return buffers_.address({0, rank, coll::Buffer::kInput}); }
  std::int64_t length_of(int rank) const {
    return buffers_.units(coll::kWholeBlock, {0, rank, coll::Buffer::kInput});
  }
  // A winner's words until they are in the area; of the root: those of a node.
  std::vector<std::int64_t> words_of_node(int node) const;

  CollectiveBuffers& buffers_;
  char* output_ = nullptr;  // null: the root's own block is where it belongs
  std::int64_t bytes_ = 0;  // for which this rank has room

  std::vector<std::int64_t> words_;  // of this node
  std::uint64_t published_ = 0;      // the words, then members whose blocks are there
  std::list<Stream> streams_;

  // Root.
  std::list<std::vector<std::int64_t>> sent_words_;

  // Winner.
  host::Handle words_request_ = 0;
  bool words_known_ = false;
  bool began_ = false;             // to receive
  std::vector<std::size_t> ends_;  // of each member's pieces in the stream

  // Reader.
  bool word_known_ = false;
  bool taken_ = false;
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_FIRST_SCATTERV_H_
