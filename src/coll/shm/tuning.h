// Sizes that decide how exchanges inside a node are made. They affect speed only, but those marked
// "alike" have to be equal on all members of a team.
#ifndef OVERDRIVE_COLL_SHM_TUNING_H_
#define OVERDRIVE_COLL_SHM_TUNING_H_

#include <cstdint>

namespace od::coll::shm {

// How reductions of long vectors are cut (alike).
enum class Driver : std::uint8_t {
  generic,  // each member combines one slice of the whole vector
  // The same segment by segment, so that slices are collected while caches still hold them, and
  // first within groups that share a cache, then across groups.
  segmented,
};

// How a reduction that each member or one of them wants is made (alike): as sizes say, or as the
// caller does; what a team cannot do (no groups, elements too large for them) becomes the next
// simpler one.
enum class ReductionForm : std::uint8_t {
  automatic,
  whole,     // whoever wants the result combines all contributions
  slices,    // Driver::generic
  segments,  // Driver::segmented, without groups
  groups,    // Driver::segmented, in groups also with more ranks than cores
};

// Which way blocks are shown; for measurements and tests.
enum class WayChoice : std::uint8_t { automatic, cells, direct };

struct Tuning {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  // From how many bytes of a member's contribution on others read it in its own buffer: of one that
  // has not changed since the last time, and of any other. Measured with rewritten buffers.
  struct Row {
    std::uint64_t direct_everyone;  // each member reads what all others show
    std::uint64_t direct_rooted;    // one shows, or one reads
    // The same of two members, where the owner waits for one other only.
    std::uint64_t direct_rooted_pair;
    std::uint64_t rewritten_everyone;
    // One way, so that whoever shows can run ahead of the readers: the root is that of the last
    // rooted exchange.
    std::uint64_t rewritten_rooted;
    std::uint64_t rewritten_turning;  // another root than last time
    std::uint64_t rewritten_before;   // scans, one way, too
    // Reductions that everyone makes: each member reads all of it and leaves all of its lines
    // shared; slices, each of which one member reads; and results of slices, which everyone reads.
    std::uint64_t rewritten_whole;
    std::uint64_t rewritten_slices;
    std::uint64_t results;
    // Between two members: from how many bytes on a block that is copied goes as a message
    // (carrier.h), for which both sides copy at once, or the source alone. One of them shows; both
    // show, and others would read it where it lies; and both show, through cells.
    std::uint64_t message_rooted = kNever;
    std::uint64_t message_everyone = kNever;
    std::uint64_t message_rewritten = kNever;
  };
  Row near_row{
      .direct_everyone = 4 << 10,
      .direct_rooted = 16 << 10,
      .direct_rooted_pair = 4 << 10,
      .rewritten_everyone = 256 << 10,
      .rewritten_rooted = 256 << 10,
      .rewritten_turning = 256 << 10,
      .rewritten_before = 256 << 10,
      .rewritten_whole = 512 << 10,
      .rewritten_slices = 256 << 10,
      .results = 8 << 10,
      .message_rooted = 256 << 10,
      .message_everyone = 1 << 20,
      .message_rewritten = 1 << 20,
  };
  Row far_row{
      .direct_everyone = 2 << 10,
      .direct_rooted = 16 << 10,
      .direct_rooted_pair = 4 << 10,
      .rewritten_everyone = 16 << 20,
      .rewritten_rooted = 4 << 20,
      .rewritten_turning = 4 << 20,
      .rewritten_before = 4 << 20,
      .rewritten_whole = 16 << 20,
      .rewritten_slices = 16 << 20,
      .results = 16 << 20,
      .message_rooted = 512 << 10,
      .message_everyone = 1 << 20,
      .message_rewritten = 32 << 10,
  };
  // More ranks than cores: reading a buffer directly costs the owner one more wait. A scan's buffer
  // is read by many: 8 ranks on two cores, 600 KiB, us in place | through cells | by messages: near
  // 309 | 399 | 548, far, of which nothing is known here, 812 | 427 | 556.
  Row oversubscribed_row{
      .direct_everyone = 64 << 10,
      .direct_rooted = 128 << 10,
      .direct_rooted_pair = 128 << 10,
      .rewritten_everyone = 64 << 10,
      .rewritten_rooted = 256 << 10,
      .rewritten_turning = 256 << 10,
      .rewritten_before = 16 << 20,
      .rewritten_whole = 512 << 10,
      .rewritten_slices = 64 << 10,
      .results = 64 << 10,
  };
  WayChoice way = WayChoice::automatic;
  // Alike: what is copied or combined at a time; and where everyone copies from everyone, who
  // cannot go on before the others anyway: long pieces cost fewer waits there, short ones begin
  // sooner.
  std::uint64_t piece_bytes = 16 << 10;
  std::uint64_t everyones_piece_bytes = 32 << 10;
  // Alike: up to this size a reduction is made by every member that wants the result, from all
  // contributions; longer ones in slices (docs/measurements/design-figures.md). Of two members; of
  // more: all contributions together, for an allreduce and for a reduce, with a core for each rank
  // and without.
  std::uint64_t whole_max_pair_bytes = 256 << 10;
  std::uint64_t allreduce_whole_max_bytes = 64 << 10;
  std::uint64_t reduce_whole_max_bytes = 64 << 10;
  std::uint64_t oversubscribed_allreduce_whole_max_bytes = 256 << 10;
  std::uint64_t oversubscribed_reduce_whole_max_bytes = 512 << 10;
  Driver driver = Driver::segmented;
  std::uint64_t segment_slice_bytes = 1 << 20;  // alike: of each member at most (groups.h)
  // Alike: shorter slices are not worth an exchange within groups before the one across.
  std::uint64_t groups_min_slice_bytes = 4 << 10;
  bool oversubscribed = false;         // more ranks than cores
  bool oversubscribed_groups = false;  // alike: groups combine first nevertheless
  bool far = false;                    // a cache line takes long between these cores

  // With rows for the kind of processor on which this runs.
  static Tuning built_in();
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_TUNING_H_
