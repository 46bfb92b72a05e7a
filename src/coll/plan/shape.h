// What is known about one collective operation when its schedule is made.
//
// Units. Schedules count in units and never in bytes. For reductions a unit is one element of the
// datatype: a reduction cannot be cut inside it. For collectives that only move data a unit is one
// byte of the packed message, because ranks may describe the same message by different datatypes;
// only its packed size is the same everywhere. (A contiguous datatype needs no packing.)
#ifndef OVERDRIVE_COLL_PLAN_SHAPE_H_
#define OVERDRIVE_COLL_PLAN_SHAPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace od::coll {

enum class Collective : std::uint8_t {
  kAllgather,
  kAllgatherv,
  kAllreduce,
  kAlltoall,
  kAlltoallv,
  kAlltoallw,
  kBarrier,
  kBcast,
  kExscan,
  kGather,
  kGatherv,
  kReduce,
  kReduceScatter,
  kReduceScatterBlock,
  kScan,
  kScatter,
  kScatterv,
};
inline constexpr std::size_t kCollectives = 17;

// Whose content reaches whom.
enum class Flow : std::uint8_t { kAll, kFromRoot, kToRoot, kPrefix };
// What of the message a buffer holds.
enum class Part : std::uint8_t {
  kNone,
  kOne,   // the vector, or one rank's block
  kEach,  // a block of or for every rank
};
// Who knows how long the blocks are.
enum class Counts : std::uint8_t {
  kSame,   // all are equally long
  kKnown,  // every rank knows the length of every block
  kOwn,    // a rank knows its own blocks only: schedules move whole blocks
};
// What "message size" means, by which algorithms are chosen: what is equal on all ranks.
enum class SizeRule : std::uint8_t {
  kNone,    // there is nothing that all ranks know
  kVector,  // the vector
  kBlock,   // the block that one rank sends to one rank
  kTotal,   // all blocks together
};

// Everything that holds for a collective as such, whatever the algorithm: a row of the table from
// which message sizes, schedules, buffers, costs and tests follow.
struct CollectiveInfo {
  const char* name;  // as in settings and commands: "reduce_scatter"
  Flow flow;
  // Of a rank that has both (the root, where there is one). Data that a broadcast sends lies in the
  // output.
  Part input;
  Part output;
  Counts counts;
  bool reduces;     // has an operation, units are elements
  bool takes_self;  // kPrefix: a rank's own contribution is part of its result

  constexpr bool rooted() const { return flow == Flow::kFromRoot || flow == Flow::kToRoot; }
  // In place the root of a scatter leaves out its output; all others that may leave out the input.
  constexpr bool scatters() const { return flow == Flow::kFromRoot && input == Part::kEach; }
  constexpr bool has_counts() const { return counts == Counts::kKnown; }
  constexpr bool counts_are_local() const { return counts == Counts::kOwn; }
  constexpr bool has_input(bool at_root) const {
    return input != Part::kNone && (flow != Flow::kFromRoot || at_root);
  }
  constexpr bool has_output(bool at_root) const {
    return output != Part::kNone && (flow != Flow::kToRoot || at_root);
  }
  constexpr SizeRule size_rule() const {
    if (output == Part::kNone || counts == Counts::kOwn) return SizeRule::kNone;
    if (input != Part::kEach && output != Part::kEach) return SizeRule::kVector;
    return reduces || counts == Counts::kKnown ? SizeRule::kTotal : SizeRule::kBlock;
  }
  // What that is in words.
  const char* size_text() const;
};

// In the order of Collective.
inline constexpr std::array<CollectiveInfo, kCollectives> kCollectiveTable = [] {
  using enum Flow;
  using enum Part;
  using enum Counts;
  return std::array<CollectiveInfo, kCollectives>{{
      {"allgather", kAll, kOne, kEach, kSame, false, false},
      {"allgatherv", kAll, kOne, kEach, kKnown, false, false},
      {"allreduce", kAll, kOne, kOne, kSame, true, false},
      {"alltoall", kAll, kEach, kEach, kSame, false, false},
      {"alltoallv", kAll, kEach, kEach, kOwn, false, false},
      {"alltoallw", kAll, kEach, kEach, kOwn, false, false},
      {"barrier", kAll, kNone, kNone, kSame, false, false},
      {"bcast", kFromRoot, kNone, kOne, kSame, false, false},
      {"exscan", kPrefix, kOne, kOne, kSame, true, false},
      {"gather", kToRoot, kOne, kEach, kSame, false, false},
      {"gatherv", kToRoot, kOne, kEach, kOwn, false, false},
      {"reduce", kToRoot, kOne, kOne, kSame, true, false},
      {"reduce_scatter", kAll, kEach, kOne, kKnown, true, false},
      {"reduce_scatter_block", kAll, kEach, kOne, kSame, true, false},
      {"scan", kPrefix, kOne, kOne, kSame, true, true},
      {"scatter", kFromRoot, kEach, kOne, kSame, false, false},
      {"scatterv", kFromRoot, kEach, kOne, kOwn, false, false},
  }};
}();

constexpr const CollectiveInfo& info(Collective collective) {
  return kCollectiveTable[static_cast<std::size_t>(collective)];
}
// False if no collective has that name (case is ignored).
bool find_collective(std::string_view name, Collective& collective);

// What a user may vary in an algorithm; 0 stands for the algorithm's own default.
struct Parameters {
  int radix = 0;                   // children per level, or exchange partners plus one
  std::int64_t segment_bytes = 0;  // pieces that travel as a pipeline; negative: never cut
  int window = 0;                  // messages under way at once; negative: no limit
  int leaders = 0;                 // ranks per node that take part in the steps between nodes
  // Hierarchical forms: pieces of which one is between the nodes while others are inside them;
  // negative: never cut.
  std::int64_t pipeline_bytes = 0;

  bool operator==(const Parameters&) const = default;
};

struct Shape {
  int ranks = 1;
  int rank = 0;
  int root = 0;
  // Units: the whole vector (bcast, reduce, allreduce, scan, exscan), or the block that one rank
  // contributes or receives (allgather, alltoall, gather, scatter, reduce_scatter_block).
  std::int64_t count = 0;
  // Units of each rank's block: where Counts::kKnown.
  const std::int64_t* counts = nullptr;
  // Although they have counts, the blocks of an allgatherv follow each other in the output.
  bool one_piece = false;
  std::int64_t unit_bytes = 1;
  bool commutative = true;
  bool in_place = false;  // at this rank (rooted collectives: it matters at the root only)
  Parameters parameters;
  // Pieces into which a vector is cut at most (see kMostOrdinals).
  std::int64_t most_segments = 1024;
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_SHAPE_H_
