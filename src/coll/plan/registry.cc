// The table of algorithms.
#include "coll/plan/registry.h"

#include <algorithm>
#include <array>

#include "config/settings_types.h"

namespace od::coll {
namespace {

using enum Collective;

constexpr std::int64_t kKiB = 1024;

// Defaults of pipelines between nodes: what every library sends at once. Longer messages wait for
// their receivers, and over TCP all that are under way then share the link: none is there before
// the last one, and nothing flows on. Broadcasts and reductions of 1 MiB over 1 Gbit/s take half as
// long as with 64 KiB (docs/measurements/between-nodes.md). Where messages cost more than their
// bytes kLongSegmentBytes is better, which the program finds out.
constexpr std::int64_t kSegment = 16 * kKiB;

constexpr Parameters radix(int value) { return {.radix = value}; }
constexpr Parameters segment(std::int64_t bytes) { return {.segment_bytes = bytes}; }
constexpr Parameters piped(int radix_value, std::int64_t bytes) {
  return {.radix = radix_value, .segment_bytes = bytes};
}
constexpr Parameters window(int value) { return {.window = value}; }

constexpr unsigned kCommutes = kNeedsCommutative;
constexpr unsigned kPiped = kTakesSegment;
constexpr unsigned kTree = kTakesRadix | kTakesSegment;

// Rows of one collective stand together, in the order of Collective; the host's comes first.
// collective, name, number, needs, takes, defaults, scales, generator and cost, doc
constexpr Algorithm kAlgorithms[] = {
// clang-format off
#define OD_WITH_COST(name) name, cost::name
#define OD_HOST(collective) \
    {collective, "host", 100, 0, 0, {}, false, nullptr, nullptr, "The installed MPI library's own"}
// What ranks of a node do in shared memory, and by which algorithm messages go: between nodes, and
// where a node has none.
#define OD_AS(...) __VA_ARGS__
#define OD_SHARED(collective, name, number, form, defaults_and_scales, generator, doc) \
    {collective, name, number, 0, kTakesNode, defaults_and_scales, OD_WITH_COST(generator), doc, \
     NodeForm::form}
    OD_HOST(kAllgather),
    {kAllgather, "recursive_doubling", 101, 0, 0, {}, true,
     OD_WITH_COST(allgather_recursive_doubling),
     "Pairs exchange all they have, at twice the distance each round"},
    {kAllgather, "bruck", 102, 0, kTakesRadix, radix(2), true, OD_WITH_COST(allgather_bruck),
     "In each round what one has goes to ranks at k times the distance; order is made at the end"},
    {kAllgather, "ring", 103, 0, 0, {}, true,
     OD_WITH_COST(allgather_ring), "Blocks travel around the ring"},
    {kAllgather, "neighbour_exchange", 104, kNeedsEvenRanks, 0, {}, true,
     OD_WITH_COST(allgather_neighbour_exchange),
     "Left and right neighbours in turn exchange what they got last"},
    {kAllgather, "gather_bcast", 105, 0, kPiped, piped(2, kSegment), false,
     OD_WITH_COST(allgather_gather_bcast),
     "Up a binomial tree and down again"},
    {kAllgather, "linear", 106, 0, kTakesWindow, window(16), true, OD_WITH_COST(allgather_linear),
     "All send to all, with a limited number of messages under way"},
    {kAllgather, "knomial", 107, 0, kTree, piped(4, kSegment), false,
     OD_WITH_COST(allgather_gather_bcast),
     "Up a k-nomial tree and down again"},
    OD_SHARED(kAllgather, "shared_memory", 200, automatic, OD_AS({}, true), allgather_ring,
              "In shared memory inside a node, as sizes and caches say; messages as ring"),
    OD_HOST(kAllgatherv),
    {kAllgatherv, "recursive_doubling", 101, 0, 0, {}, false,
     OD_WITH_COST(allgather_recursive_doubling),
     "Pairs exchange all they have, at twice the distance each round"},
    {kAllgatherv, "bruck", 102, 0, kTakesRadix, radix(2), false, OD_WITH_COST(allgather_bruck),
     "In each round what one has goes to ranks at k times the distance; order is made at the end"},
    {kAllgatherv, "ring", 103, 0, 0, {}, false,
     OD_WITH_COST(allgather_ring), "Blocks travel around the ring"},
    {kAllgatherv, "neighbour_exchange", 104, kNeedsEvenRanks, 0, {}, false,
     OD_WITH_COST(allgather_neighbour_exchange),
     "Left and right neighbours in turn exchange what they got last"},
    {kAllgatherv, "gather_bcast", 105, 0, kPiped, piped(2, kSegment), false,
     OD_WITH_COST(allgather_gather_bcast),
     "Up a binomial tree and down again"},
    {kAllgatherv, "linear", 106, 0, kTakesWindow, window(16), false, OD_WITH_COST(allgather_linear),
     "All send to all, with a limited number of messages under way"},
    {kAllgatherv, "knomial", 107, 0, kTree, piped(4, kSegment), false,
     OD_WITH_COST(allgather_gather_bcast),
     "Up a k-nomial tree and down again"},
    OD_SHARED(kAllgatherv, "shared_memory", 200, automatic, OD_AS({}, false), allgather_ring,
              "In shared memory inside a node, as sizes and caches say; messages as ring"),
    OD_HOST(kAllreduce),
    {kAllreduce, "recursive_doubling", 101, 0, 0, {}, true,
     OD_WITH_COST(allreduce_recursive_doubling),
     "Pairs exchange and add whole vectors, at twice the distance each round"},
    {kAllreduce, "rabenseifner", 102, 0, 0, {}, false, OD_WITH_COST(allreduce_rabenseifner),
     "Recursive halving leaves each rank a piece of the sum, recursive doubling spreads them"},
    {kAllreduce, "reduce_bcast", 103, 0, kPiped, segment(kSegment), false,
     OD_WITH_COST(allreduce_reduce_bcast),
     "Reduction along a binomial tree and back, in segments"},
    {kAllreduce, "gather_scatter", 104, 0, 0, {}, true, OD_WITH_COST(allreduce_gather_scatter),
     "Binomial tree takes all vectors to one rank, which adds them and sends the sum back"},
    {kAllreduce, "shumilin_ring", 105, 0, kPiped, segment(kSegment), false,
     OD_WITH_COST(allreduce_shumilin_ring),
     "Segments run around the ring twice: first they are added to, then they are handed out"},
    {kAllreduce, "ring", 106, kCommutes, 0, {}, false, OD_WITH_COST(allreduce_ring),
     "Each rank's block of the vector travels around the ring and is added to, then once more"},
    {kAllreduce, "segmented_ring", 107, kCommutes, kPiped, segment(kSegment), false,
     OD_WITH_COST(allreduce_segmented_ring),
     "As ring, with blocks cut so that adding overlaps with sending"},
    {kAllreduce, "knomial", 108, 0, kTree, piped(4, kSegment), false,
     OD_WITH_COST(allreduce_knomial),
     "Reduction along a k-nomial tree and back, in segments"},
    {kAllreduce, "double_binary_tree", 109, kCommutes, kPiped, segment(kSegment), false,
     OD_WITH_COST(allreduce_double_binary_tree),
     "Each half of the vector goes up and down its own binary tree, inner ranks of one are leaves "
     "of the other"},
    {kAllreduce, "in_network_node", 110, 0, kTakesSwitch, {}, true,
     allreduce_in_network, cost::allreduce_recursive_doubling,
     "A switch between the nodes adds; without one as recursive_doubling"},
    {kAllreduce, "in_network_socket", 111, 0, kTakesSwitch | kTakesSockets, {}, true,
     allreduce_in_network, cost::allreduce_recursive_doubling,
     "The same with as many leaders in a node as it has sockets, each for a slice of the vector"},
    OD_SHARED(kAllreduce, "shared_memory", 200, automatic, OD_AS({}, true), allreduce_recursive_doubling,
              "In shared memory inside a node, as sizes and caches say; messages as recursive_doubling"),
    OD_SHARED(kAllreduce, "shared_whole", 201, whole, OD_AS({}, true), allreduce_recursive_doubling,
              "Inside a node everyone adds all contributions; messages as recursive_doubling"),
    OD_SHARED(kAllreduce, "shared_slices", 202, slices, OD_AS({}, true), allreduce_recursive_doubling,
              "Inside a node each rank adds a slice, then all collect them; messages as recursive_doubling"),
    OD_SHARED(kAllreduce, "shared_segments", 203, segments, OD_AS({}, true), allreduce_recursive_doubling,
              "As shared_slices, segment by segment as a pipeline; messages as recursive_doubling"),
    OD_SHARED(kAllreduce, "shared_groups", 204, groups, OD_AS({}, true), allreduce_recursive_doubling,
              "As shared_segments, first among ranks that share a cache; messages as recursive_doubling"),
    OD_HOST(kAlltoall),
    {kAlltoall, "bruck", 101, 0, kTakesRadix, radix(2), true, OD_WITH_COST(alltoall_bruck),
     "Blocks travel in log(p) rounds, many in one message"},
    {kAlltoall, "linear", 102, 0, 0, window(-1), true, OD_WITH_COST(alltoall_linear),
     "All send to all, everything at once"},
    {kAlltoall, "pairwise", 103, 0, 0, {}, true, OD_WITH_COST(alltoall_pairwise),
     "In each step every rank has one partner to send to and one to receive from"},
    {kAlltoall, "throttled", 104, 0, kTakesWindow, window(8), true, OD_WITH_COST(alltoall_linear),
     "All send to all, with a limited number of messages under way"},
    OD_SHARED(kAlltoall, "shared_memory", 200, automatic, OD_AS({}, true), alltoall_pairwise,
              "In shared memory inside a node, as sizes and caches say; messages as pairwise"),
    OD_HOST(kAlltoallv),
    {kAlltoallv, "linear", 101, 0, 0, window(-1), true, OD_WITH_COST(alltoallv_linear),
     "All send to all, everything at once"},
    {kAlltoallv, "throttled", 102, 0, kTakesWindow, window(8), true, OD_WITH_COST(alltoallv_linear),
     "All send to all, with a limited number of messages under way"},
    {kAlltoallv, "pairwise", 103, 0, 0, {}, true, OD_WITH_COST(alltoallv_pairwise),
     "In each step every rank has one partner to send to and one to receive from"},
    OD_SHARED(kAlltoallv, "shared_memory", 200, automatic, OD_AS({}, true), alltoallv_pairwise,
              "In shared memory inside a node, as sizes and caches say; messages as pairwise"),
    OD_HOST(kAlltoallw),
    {kAlltoallw, "linear", 101, 0, 0, window(-1), true, OD_WITH_COST(alltoallv_linear),
     "All send to all, everything at once"},
    {kAlltoallw, "throttled", 102, 0, kTakesWindow, window(8), true, OD_WITH_COST(alltoallv_linear),
     "All send to all, with a limited number of messages under way"},
    {kAlltoallw, "pairwise", 103, 0, 0, {}, true, OD_WITH_COST(alltoallv_pairwise),
     "In each step every rank has one partner to send to and one to receive from"},
    OD_SHARED(kAlltoallw, "shared_memory", 200, automatic, OD_AS({}, true), alltoallv_pairwise,
              "In shared memory inside a node, as sizes and caches say; messages as pairwise"),
    OD_HOST(kBarrier),
    {kBarrier, "dissemination", 101, 0, kTakesRadix, radix(2), true,
     OD_WITH_COST(barrier_dissemination),
     "In each round a rank tells others at k times the distance"},
    {kBarrier, "recursive_doubling", 102, 0, 0, {}, true, OD_WITH_COST(barrier_recursive_doubling),
     "Pairs tell each other, at twice the distance each round"},
    {kBarrier, "binomial", 103, 0, 0, radix(2), true, OD_WITH_COST(barrier_tree),
     "Up a binomial tree and down again"},
    {kBarrier, "knomial", 104, 0, kTakesRadix, radix(4), true, OD_WITH_COST(barrier_tree),
     "Up a k-nomial tree and down again"},
    {kBarrier, "linear", 105, 0, 0, {}, true,
     OD_WITH_COST(barrier_linear), "All tell one rank, which tells all"},
    {kBarrier, "ring", 106, 0, 0, {}, true, OD_WITH_COST(barrier_ring), "Twice around the ring"},
    {kBarrier, "tournament", 107, 0, 0, {}, true, OD_WITH_COST(barrier_tournament),
     "Pairs play, losers wait for their winner's word"},
    {kBarrier, "in_network_node", 108, 0, kTakesSwitch, radix(2), true,
     barrier_in_network, cost::barrier_dissemination,
     "A switch between the nodes counts who has come; without one as dissemination"},
    OD_SHARED(kBarrier, "shared_memory", 200, automatic, OD_AS(radix(2), true), barrier_dissemination,
              "In shared memory inside a node, as sizes and caches say; messages as dissemination"),
    OD_HOST(kBcast),
    {kBcast, "linear", 101, 0, kTakesWindow, {}, true,
     OD_WITH_COST(bcast_linear), "The root sends to everyone"},
    {kBcast, "binomial", 102, 0, kPiped, piped(2, -1), false, OD_WITH_COST(bcast_knomial),
     "Binomial tree: in each round those who have the message send it on"},
    {kBcast, "knomial", 103, 0, kTree, piped(4, -1), false, OD_WITH_COST(bcast_knomial),
     "k-nomial tree: fewer levels, more messages per rank"},
    {kBcast, "chain", 104, 0, kTree, piped(1, kSegment), false, OD_WITH_COST(bcast_chain),
     "Segments run along a line of ranks (radix: several lines)"},
    {kBcast, "binary", 105, 0, kPiped, segment(kSegment), false, OD_WITH_COST(bcast_binary),
     "Segments run down a binary tree"},
    {kBcast, "double_binary_tree", 106, 0, kPiped, segment(kSegment), false, OD_WITH_COST(bcast_double_binary_tree),
     "Each half of the vector goes down its own binary tree, inner ranks of one are leaves of the "
     "other"},
    {kBcast, "split_binary", 107, 0, kPiped, segment(kSegment), false,
     OD_WITH_COST(bcast_split_binary),
     "Each half of the vector goes down one side of a binary tree, then pairs exchange halves"},
    {kBcast, "scatter_ring", 108, 0, 0, {}, false, OD_WITH_COST(bcast_scatter_ring),
     "Binomial scatter, then the blocks travel around the ring"},
    {kBcast, "scatter_doubling", 109, 0, 0, {}, false, OD_WITH_COST(bcast_scatter_doubling),
     "Binomial scatter, then recursive doubling"},
    {kBcast, "first_arrival", 111, 0, kPiped, piped(1, kLongSegmentBytes), false, OD_WITH_COST(bcast_chain),
     "A tree of nodes that grows as they come, begun on each by the rank that comes first (flat: as "
     "chain)"},
    {kBcast, "in_network_node", 110, 0, kTakesSwitch, piped(2, -1), false,
     bcast_in_network, cost::bcast_knomial,
     "A switch between the nodes hands the message out; without one as binomial"},
    OD_SHARED(kBcast, "shared_memory", 200, automatic, OD_AS(piped(2, -1), false), bcast_knomial,
              "In shared memory inside a node, as sizes and caches say; messages as binomial"),
    OD_HOST(kExscan),
    {kExscan, "linear", 101, 0, kPiped, segment(kSegment), false, OD_WITH_COST(exscan_linear),
     "Partial sums run along the line of ranks in segments"},
    {kExscan, "recursive_doubling", 102, 0, 0, {}, true, OD_WITH_COST(exscan_recursive_doubling),
     "Pairs exchange the sums of their groups, which double in size"},
    {kExscan, "binomial", 103, 0, 0, {}, true, OD_WITH_COST(exscan_binomial),
     "All ranks at once send their partial sum up, at twice the distance each round"},
    OD_SHARED(kExscan, "shared_memory", 200, automatic, OD_AS({}, true), exscan_recursive_doubling,
              "In shared memory inside a node, as sizes and caches say; messages as recursive_doubling"),
    OD_HOST(kGather),
    {kGather, "linear", 101, 0, kTakesWindow, window(-1), true, OD_WITH_COST(gather_linear),
     "All send to the root"},
    {kGather, "binomial", 102, 0, 0, radix(2), true, OD_WITH_COST(gather_knomial), "Binomial tree"},
    {kGather, "knomial", 103, 0, kTakesRadix, radix(4), true,
     OD_WITH_COST(gather_knomial), "k-nomial tree"},
    {kGather, "linear_sync", 104, 0, kTakesWindow, window(4), true, OD_WITH_COST(gather_linear_sync),
     "All send to the root, each when the root has asked for it"},
    {kGather, "first_arrival", 105, 0, kTakesWindow, window(-1), true, OD_WITH_COST(gather_linear),
     "Each node's ranks leave it theirs, and the last one sends for all (flat: as linear)"},
    OD_SHARED(kGather, "shared_memory", 200, automatic, OD_AS(radix(2), true), gather_knomial,
              "In shared memory inside a node, as sizes and caches say; messages as binomial"),
    OD_HOST(kGatherv),
    {kGatherv, "linear", 101, 0, kTakesWindow, window(-1), true, OD_WITH_COST(gatherv_linear),
     "All send to the root"},
    {kGatherv, "linear_sync", 102, 0, kTakesWindow, window(4), true, OD_WITH_COST(gatherv_linear_sync),
     "All send to the root, each when the root has asked for it"},
    {kGatherv, "first_arrival", 103, 0, kTakesWindow, window(-1), true, OD_WITH_COST(gatherv_linear),
     "Each node's ranks leave it theirs, and the last one sends for all (on one node: as linear)"},
    OD_SHARED(kGatherv, "shared_memory", 200, automatic, OD_AS(window(-1), true), gatherv_linear,
              "In shared memory inside a node, as sizes and caches say; messages as linear"),
    OD_HOST(kReduce),
    {kReduce, "linear", 101, 0, kTakesWindow, window(8), true, OD_WITH_COST(reduce_linear),
     "All send to the root, which adds in rank order"},
    {kReduce, "binomial", 102, 0, kPiped, piped(2, -1), false,
     OD_WITH_COST(reduce_knomial), "Binomial tree"},
    {kReduce, "knomial", 103, 0, kTree, piped(4, -1), false,
     OD_WITH_COST(reduce_knomial), "k-nomial tree"},
    {kReduce, "chain", 104, 0, kTree, piped(1, kSegment), false, OD_WITH_COST(reduce_chain),
     "Segments run along a line of ranks to the root (radix: several lines)"},
    {kReduce, "binary", 105, 0, kPiped, segment(kSegment), false, OD_WITH_COST(reduce_binary),
     "Segments run up a binary tree"},
    {kReduce, "double_binary_tree", 106, kCommutes, kPiped, segment(kSegment), false,
     OD_WITH_COST(reduce_double_binary_tree),
     "Each half of the vector goes up its own binary tree, inner ranks of one are leaves of the "
     "other"},
    {kReduce, "rabenseifner", 107, 0, 0, {}, false, OD_WITH_COST(reduce_rabenseifner),
     "Recursive halving leaves each rank a piece of the sum, then the pieces are gathered"},
    {kReduce, "shumilin", 108, 0, kPiped, segment(kSegment), false, OD_WITH_COST(reduce_shumilin),
     "Segments run along two lines of ranks that end at the root"},
    {kReduce, "first_arrival", 110, 0, kTree, piped(1, kSegment), false, OD_WITH_COST(reduce_chain),
     "Each node's ranks leave it theirs, and the last one sends for all (flat: as chain)"},
    {kReduce, "in_network_node", 109, 0, kTakesSwitch, piped(2, -1), false,
     reduce_in_network, cost::reduce_knomial,
     "A switch between the nodes adds; without one as binomial"},
    OD_SHARED(kReduce, "shared_memory", 200, automatic, OD_AS(piped(2, -1), false), reduce_knomial,
              "In shared memory inside a node, as sizes and caches say; messages as binomial"),
    OD_SHARED(kReduce, "shared_whole", 201, whole, OD_AS(piped(2, -1), false), reduce_knomial,
              "Inside a node the root adds all contributions; messages as binomial"),
    OD_SHARED(kReduce, "shared_slices", 202, slices, OD_AS(piped(2, -1), false), reduce_knomial,
              "Inside a node each rank adds a slice, then the root collects them; messages as binomial"),
    OD_SHARED(kReduce, "shared_segments", 203, segments, OD_AS(piped(2, -1), false), reduce_knomial,
              "As shared_slices, segment by segment as a pipeline; messages as binomial"),
    OD_SHARED(kReduce, "shared_groups", 204, groups, OD_AS(piped(2, -1), false), reduce_knomial,
              "As shared_segments, first among ranks that share a cache; messages as binomial"),
    OD_HOST(kReduceScatter),
    {kReduceScatter, "recursive_halving", 101, kCommutes, 0, {}, false,
     OD_WITH_COST(reduce_scatter_halving),
     "Pairs exchange what the other side keeps, at half the distance each round"},
    {kReduceScatter, "pairwise", 102, kCommutes, kTakesWindow, window(4), false,
     OD_WITH_COST(reduce_scatter_pairwise),
     "In each step every rank sends one block to its owner and adds one to its own"},
    {kReduceScatter, "recursive_doubling", 103, 0, 0, {}, false,
     OD_WITH_COST(reduce_scatter_doubling),
     "All add the whole vector by recursive doubling and keep their block"},
    {kReduceScatter, "reduce_scatterv", 104, 0, kPiped, segment(kSegment), false,
     OD_WITH_COST(reduce_scatter_nonoverlapping),
     "Binomial reduction to one rank, then binomial scatter"},
    {kReduceScatter, "ring", 105, kCommutes, kPiped, segment(kSegment), false,
     OD_WITH_COST(reduce_scatter_ring),
     "Each block travels around the ring to its owner and is added to"},
    OD_SHARED(kReduceScatter, "shared_memory", 200, automatic, OD_AS({}, false), reduce_scatter_doubling,
              "In shared memory inside a node, as sizes and caches say; messages as recursive_doubling"),
    OD_HOST(kReduceScatterBlock),
    {kReduceScatterBlock, "recursive_halving", 101, kCommutes, 0, {}, false,
     OD_WITH_COST(reduce_scatter_halving),
     "Pairs exchange what the other side keeps, at half the distance each round"},
    {kReduceScatterBlock, "pairwise", 102, kCommutes, kTakesWindow, window(4), true,
     OD_WITH_COST(reduce_scatter_pairwise),
     "In each step every rank sends one block to its owner and adds one to its own"},
    {kReduceScatterBlock, "recursive_doubling", 103, 0, 0, {}, true,
     OD_WITH_COST(reduce_scatter_doubling),
     "All add the whole vector by recursive doubling and keep their block"},
    {kReduceScatterBlock, "reduce_scatterv", 104, 0, kPiped, segment(kSegment), false,
     OD_WITH_COST(reduce_scatter_nonoverlapping),
     "Binomial reduction to one rank, then binomial scatter"},
    {kReduceScatterBlock, "ring", 105, kCommutes, kPiped, segment(kSegment), false,
     OD_WITH_COST(reduce_scatter_ring),
     "Each block travels around the ring to its owner and is added to"},
    OD_SHARED(kReduceScatterBlock, "shared_memory", 200, automatic, OD_AS({}, true), reduce_scatter_doubling,
              "In shared memory inside a node, as sizes and caches say; messages as recursive_doubling"),
    OD_HOST(kScan),
    {kScan, "linear", 101, 0, kPiped, segment(kSegment), false, OD_WITH_COST(scan_linear),
     "Partial sums run along the line of ranks in segments"},
    {kScan, "recursive_doubling", 102, 0, 0, {}, true, OD_WITH_COST(scan_recursive_doubling),
     "Pairs exchange the sums of their groups, which double in size"},
    {kScan, "binomial", 103, 0, 0, {}, true, OD_WITH_COST(scan_binomial),
     "All ranks at once send their partial sum up, at twice the distance each round"},
    OD_SHARED(kScan, "shared_memory", 200, automatic, OD_AS({}, true), scan_recursive_doubling,
              "In shared memory inside a node, as sizes and caches say; messages as recursive_doubling"),
    OD_HOST(kScatter),
    {kScatter, "linear", 101, 0, 0, window(-1), true,
     OD_WITH_COST(scatter_linear), "The root sends to everyone"},
    {kScatter, "binomial", 102, 0, 0, radix(2), true,
     OD_WITH_COST(scatter_knomial), "Binomial tree"},
    {kScatter, "knomial", 103, 0, kTakesRadix, radix(4), true,
     OD_WITH_COST(scatter_knomial), "k-nomial tree"},
    {kScatter, "throttled", 104, 0, kTakesWindow, window(8), true, OD_WITH_COST(scatter_linear),
     "The root sends to everyone, with a limited number of messages under way"},
    {kScatter, "first_arrival", 105, 0, 0, window(-1), true, OD_WITH_COST(scatter_linear),
     "Each node's first rank takes what the root has for all of them (flat: as linear)"},
    OD_SHARED(kScatter, "shared_memory", 200, automatic, OD_AS(radix(2), true), scatter_knomial,
              "In shared memory inside a node, as sizes and caches say; messages as binomial"),
    OD_HOST(kScatterv),
    {kScatterv, "linear", 101, 0, 0, window(-1), true, OD_WITH_COST(scatterv_linear),
     "The root sends to everyone"},
    {kScatterv, "throttled", 102, 0, kTakesWindow, window(8), true, OD_WITH_COST(scatterv_linear),
     "The root sends to everyone, with a limited number of messages under way"},
    {kScatterv, "first_arrival", 103, 0, 0, window(-1), true, OD_WITH_COST(scatterv_linear),
     "Each node's first rank takes what the root has for all of them (on one node: as linear)"},
    OD_SHARED(kScatterv, "shared_memory", 200, automatic, OD_AS(window(-1), true), scatterv_linear,
              "In shared memory inside a node, as sizes and caches say; messages as linear"),
#undef OD_SHARED
#undef OD_AS
#undef OD_HOST
#undef OD_WITH_COST
    // clang-format on
};

// Intel MPI's documented numbers, where the algorithm is public or its part can be played by one of
// ours (Shumilin's and Plum's are not published: segmented pipelines, limited messages under way).
constexpr IntelNumber kIntelNumbers[] = {
    {kAllgather, 1, "recursive_doubling", false},
    {kAllgather, 2, "bruck", false},
    {kAllgather, 3, "ring", false},
    {kAllgather, 4, "gather_bcast", true},
    {kAllgather, 5, "knomial", false},
    {kAllgatherv, 1, "recursive_doubling", false},
    {kAllgatherv, 2, "bruck", false},
    {kAllgatherv, 3, "ring", false},
    {kAllgatherv, 4, "gather_bcast", true},
    {kAllreduce, 1, "recursive_doubling", false},
    {kAllreduce, 2, "rabenseifner", false},
    {kAllreduce, 3, "reduce_bcast", false},
    {kAllreduce, 4, "reduce_bcast", true},
    {kAllreduce, 5, "gather_scatter", false},
    {kAllreduce, 6, "gather_scatter", true},
    {kAllreduce, 7, "shumilin_ring", false},
    {kAllreduce, 8, "ring", false},
    {kAllreduce, 9, "knomial", false},
    {kAllreduce, 10, "recursive_doubling", true},
    {kAllreduce, 11, "knomial", true},
    {kAllreduce, 12, "double_binary_tree", true},
    {kAlltoall, 1, "bruck", false},
    {kAlltoall, 2, "linear", false},
    {kAlltoall, 3, "pairwise", false},
    {kAlltoall, 4, "throttled", false},
    {kAlltoallv, 1, "linear", false},
    {kAlltoallv, 2, "throttled", false},
    {kAlltoallw, 1, "linear", false},
    {kBarrier, 1, "dissemination", false},
    {kBarrier, 2, "recursive_doubling", false},
    {kBarrier, 3, "dissemination", true},
    {kBarrier, 4, "recursive_doubling", true},
    {kBarrier, 5, "binomial", false},
    {kBarrier, 6, "binomial", true},
    {kBarrier, 7, "linear", true},
    {kBarrier, 8, "knomial", true},
    {kBarrier, 9, "tournament", true},
    {kBcast, 1, "binomial", false},
    {kBcast, 2, "scatter_doubling", false},
    {kBcast, 3, "scatter_ring", false},
    {kBcast, 4, "binomial", true},
    {kBcast, 5, "scatter_doubling", true},
    {kBcast, 6, "scatter_ring", true},
    {kBcast, 7, "chain", false},
    {kBcast, 8, "knomial", false},
    {kBcast, 9, "linear", true},
    {kBcast, 10, "knomial", true},
    {kBcast, 11, "binary", true},
    {kExscan, 1, "recursive_doubling", false},
    {kExscan, 2, "recursive_doubling", true},
    {kGather, 1, "binomial", false},
    {kGather, 2, "binomial", true},
    {kGather, 3, "linear_sync", false},
    {kGatherv, 1, "linear", false},
    {kGatherv, 2, "linear", true},
    {kReduce, 1, "shumilin", false},
    {kReduce, 2, "binomial", false},
    {kReduce, 3, "shumilin", true},
    {kReduce, 4, "binomial", true},
    {kReduce, 5, "rabenseifner", false},
    {kReduce, 6, "rabenseifner", true},
    {kReduce, 7, "knomial", false},
    {kReduce, 8, "linear", true},
    {kReduce, 9, "knomial", true},
    {kReduce, 10, "binary", true},
    {kReduce, 11, "binomial", true},
    {kReduceScatter, 1, "recursive_halving", false},
    {kReduceScatter, 2, "pairwise", false},
    {kReduceScatter, 3, "recursive_doubling", false},
    {kReduceScatter, 4, "reduce_scatterv", false},
    {kReduceScatter, 5, "reduce_scatterv", true},
    {kScan, 1, "recursive_doubling", false},
    {kScan, 2, "recursive_doubling", true},
    {kScatter, 1, "binomial", false},
    {kScatter, 2, "binomial", true},
    {kScatter, 3, "throttled", false},
    {kScatterv, 1, "linear", false},
    {kScatterv, 2, "linear", true},
};

constexpr OldName kOldNames[] = {{"invited", "linear_sync"}, {"two_trees", "double_binary_tree"}};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

std::span<const Algorithm> algorithms(Collective collective) {
  const auto of_it = [&](const Algorithm& a) { return a.collective == collective; };
  const auto* first = std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), of_it);
  const auto* end = std::find_if_not(first, std::end(kAlgorithms), of_it);
  return {first, end};
}

const Algorithm& host_algorithm(Collective collective) { return algorithms(collective).front(); }

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (config::equal_ignoring_case(name, algorithm.name)) return &algorithm;
  }
  for (const OldName& old : kOldNames) {
    if (config::equal_ignoring_case(name, old.before)) return find_algorithm(collective, old.now);
  }
  return nullptr;
}

std::span<const OldName> old_names() { return kOldNames; }

const Algorithm* find_algorithm(Collective collective, int number) {
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (algorithm.number == number) return &algorithm;
  }
  return nullptr;
}

std::span<const IntelNumber> intel_numbers() { return kIntelNumbers; }

const char* why_not(const Algorithm& algorithm, const Call& call) {
  if ((algorithm.needs & kNeedsCommutative) != 0 && !call.commutative) {
    return "needs an operation that commutes";
  }
  if ((algorithm.needs & kNeedsEvenRanks) != 0 && call.ranks % 2 != 0) {
    return "needs an even number of ranks";
  }
  return nullptr;
}

int least_radix(const Algorithm& algorithm) { return algorithm.defaults.radix == 1 ? 1 : 2; }

Parameters effective_parameters(const Algorithm& algorithm, const Parameters& chosen) {
  Parameters result = algorithm.defaults;
  if ((algorithm.takes & kTakesRadix) != 0 && chosen.radix != 0) {
    result.radix = std::max(chosen.radix, least_radix(algorithm));
  }
  if ((algorithm.takes & kTakesSegment) != 0 && chosen.segment_bytes != 0) {
    result.segment_bytes = chosen.segment_bytes;
  }
  if ((algorithm.takes & kTakesWindow) != 0 && chosen.window != 0) result.window = chosen.window;
  result.leaders = chosen.leaders;
  result.pipeline_bytes = chosen.pipeline_bytes;
  return result;
}

Schedule make_schedule(const Algorithm& algorithm, Shape shape) {
  shape.parameters = effective_parameters(algorithm, shape.parameters);
  Builder builder;
  algorithm.generate(builder, shape);
  return builder.finish();
}

}  // namespace od::coll
