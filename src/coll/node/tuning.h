// Sizes that decide how exchanges inside a node are made. They affect speed only, but those marked
// "alike" have to be equal on all members of a team.
#ifndef OVERDRIVE_COLL_NODE_TUNING_H_
#define OVERDRIVE_COLL_NODE_TUNING_H_

#include <cstdint>

namespace od::coll::shm {

// How reductions of long vectors are cut (alike).
enum class Driver : std::uint8_t {
  generic,    // each member combines one slice of the whole vector
  segmented,  // the same segment by segment: slices are collected while caches still hold them
};

// Which way blocks are shown; for measurements and tests.
enum class WayChoice : std::uint8_t { automatic, cells, direct };

struct Tuning {
  // Bytes of a member's contribution from which others read it in its own buffer.
  struct Row {
    std::uint64_t direct_min_bytes;  // of a buffer that has not changed since the last time
    std::uint64_t direct_rewritten_min_bytes;  // of any other
  };
  Row near_row{4 << 10, 512 << 10};
  Row far_row{4 << 10, 1 << 20};
  std::uint64_t nontemporal_min_bytes = 1 << 10;
  WayChoice way = WayChoice::automatic;
  std::uint64_t piece_bytes = 16 << 10;  // alike: what is copied or combined at a time
  // Alike: reductions to one or to all members of vectors up to this size are made by every member
  // that wants the result, from all contributions; longer ones in slices. For two members, and (of
  // the contributions of all others together) for more.
  std::uint64_t whole_max_pair_bytes = 64 << 10;
  std::uint64_t whole_max_bytes = 32 << 10;
  Driver driver = Driver::segmented;
  std::uint64_t segment_slice_bytes = 64 << 10;  // alike: of each member
  bool far = false;                              // a cache line takes long between these cores
  bool nontemporal = false;                      // stores into cells past the cache
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_NODE_TUNING_H_
