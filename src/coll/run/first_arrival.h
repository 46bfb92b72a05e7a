// Broadcasts between nodes that start with whoever comes first on each node.
//
// Who comes first is not known before, but the root must come in any case, and so it arranges
// everything:
//
//   winner   The first rank of a node that comes (coll/shm/arrival_area.h) tells the root that it
//            is there: *ready*. It is told where its data come from: *part*; then to whom it has to
//            pass them on: *next*, until it is told that nobody else will come to it. It takes the
//            segments, leaves them in the node's area for the other ranks, and passes them on.
//   root     It makes a tree of the winners in the order in which they are ready
//            (coll/plan/hierarchy/arrival_tree.h): long messages run along a chain, short ones fan
//            out. As long as it is sending itself, others take in those that come, and send them
//            everything from the start. Those that come later it serves itself, and they begin
//            another tree. No winner waits for one that is not there yet.
//   others   They take the segments from the area whenever they come, also when the winner has
//            left.
//
// The mirror of it, for reductions and gathers: last_arrival.h.
#ifndef OVERDRIVE_COLL_RUN_FIRST_ARRIVAL_H_
#define OVERDRIVE_COLL_RUN_FIRST_ARRIVAL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coll/plan/hierarchy/arrival_tree.h"
#include "coll/run/arrival_call.h"
#include "host/host_table.h"

namespace od {

// One broadcast, at this rank.
class FirstArrival : public FirstComers<ArrivalCall> {
 public:
  // `buffer` has the packed data of the root, or takes them.
  FirstArrival(ArrivalComm& shared, int root, char* buffer, std::int64_t bytes,
               std::int64_t segment_bytes);

  std::string describe() const override;

 private:
  // From here on few long messages between two nodes cost every host less than many short ones.
  static constexpr std::int64_t kMuch = 4 << 20;
  // What the root leaves for its own node before it looks after others again.
  static constexpr std::int64_t kOwnBytesAtOnce = 4 << 20;

  struct Part {
    std::uint64_t number;
    std::int64_t bytes;
    std::int64_t segment_bytes;
    std::int32_t parent;
    std::int32_t more;  // whether a *next* follows
  };
  struct Next {
    std::uint64_t number;
    std::int32_t child;  // kNobody: none
    std::int32_t more;   // whether another one follows
  };
  // Segments on their way to one winner.
  struct Stream {
    int to = kNobody;
    std::uint64_t sent = 0;
    std::vector<host::Handle> open;
    bool done(std::uint64_t segments) const { return sent == segments && open.empty(); }
  };

  void find_role() override;
  bool advance_root() override;
  bool advance_winner() override;
  bool advance_reader() override;

  bool open_area();
  bool publish_own();
  void publish(std::uint64_t segments);
  void take_in(const Ready& ready) override;
  void close_tree(std::size_t knowing, std::size_t told);
  bool receive_segments();
  void segment_is_there(std::uint64_t index);
  bool hear_next();
  bool advance_streams(std::uint64_t there);
  bool advance_stream(Stream& stream, std::uint64_t there);
  bool streamed() const;
  void finish();
  void give_up();

  // Where a segment is sent from, or received into.
  char* place_of(std::uint64_t index) const;
  std::int64_t length_of(std::uint64_t index) const;
  void set_shape(std::int64_t bytes, std::int64_t segment_bytes);
  std::int64_t usual_segment(std::int64_t bytes) const;
  // Of a segment that a node passes on.
  std::int64_t passed_on_bytes() const;

  char* const buffer_;
  const std::int64_t own_bytes_;  // as this rank was called
  std::int64_t bytes_ = 0;        // as the root was
  std::int64_t segment_bytes_ = 0;
  std::uint64_t segments_ = 0;
  std::uint64_t segments_per_wake_ = 1;

  // Root and winner.
  std::vector<char> aside_;  // of a winner whose own buffer cannot take what comes
  std::vector<Stream> streams_;
  std::uint64_t there_ = 0;  // segments that this rank has; reader: that it has taken

  // Root.
  std::unique_ptr<coll::ArrivalTree> tree_;
  std::vector<int> tree_ranks_;  // of its members
  std::uint64_t published_ = 0;

  // Winner.
  Part part_{};
  Next next_{};
  host::Handle part_request_ = 0;
  host::Handle next_request_ = 0;
  bool part_known_ = false;
  bool more_ = false;                    // others may come that this rank has to serve
  std::vector<host::Handle> receiving_;  // of each segment
  std::uint64_t asked_ = 0;              // segments for which a receive has been started
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_FIRST_ARRIVAL_H_
