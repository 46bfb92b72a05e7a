// What is known about one collective operation when its schedule is made.
//
// Units. Schedules count in units and never in bytes. For reductions a unit is one element of the
// datatype: a reduction cannot be cut inside it. For collectives that only move data a unit is one
// byte of the packed message, because ranks may describe the same message by different datatypes;
// only its packed size is the same everywhere. (A contiguous datatype needs no packing.)
#ifndef OVERDRIVE_COLL_PLAN_SHAPE_H_
#define OVERDRIVE_COLL_PLAN_SHAPE_H_

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

// Everything that holds for a collective as such, whatever the algorithm.
struct CollectiveInfo {
  const char* name;       // as in settings and commands: "reduce_scatter"
  const char* size_rule;  // what "message size" means for it
  bool reduces;           // has an operation, units are elements
  bool rooted;            // has a root
  bool has_counts;        // every rank knows the count of every other one
  bool counts_are_local;  // a rank knows its own counts only: schedules move whole blocks
};
const CollectiveInfo& info(Collective collective);
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
  // Units of each rank's block: allgatherv and reduce_scatter only.
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
