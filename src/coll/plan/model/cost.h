// What each algorithm costs by the LogGP model: one closed form per generator, of the same name.
#ifndef OVERDRIVE_COLL_PLAN_MODEL_COST_H_
#define OVERDRIVE_COLL_PLAN_MODEL_COST_H_

#include "coll/plan/model/estimate.h"
#include "coll/plan/shape.h"

namespace od::coll {

// Nanoseconds; `bytes` is the collective's message size, the parameters are effective ones.
using Cost = double(const Estimate& estimate, double bytes, const Parameters& parameters);

namespace cost {

Cost barrier_dissemination, barrier_recursive_doubling, barrier_tree, barrier_linear, barrier_ring,
    barrier_tournament;
Cost bcast_linear, bcast_knomial, bcast_chain, bcast_binary, bcast_double_binary_tree,
    bcast_split_binary, bcast_scatter_ring, bcast_scatter_doubling;
Cost reduce_linear, reduce_knomial, reduce_chain, reduce_binary, reduce_double_binary_tree,
    reduce_rabenseifner, reduce_shumilin;
Cost allreduce_recursive_doubling, allreduce_rabenseifner, allreduce_reduce_bcast,
    allreduce_gather_scatter, allreduce_shumilin_ring, allreduce_ring, allreduce_segmented_ring,
    allreduce_knomial, allreduce_double_binary_tree;
Cost scan_linear, scan_recursive_doubling, scan_binomial, exscan_linear, exscan_recursive_doubling,
    exscan_binomial;
Cost reduce_scatter_halving, reduce_scatter_pairwise, reduce_scatter_ring, reduce_scatter_doubling,
    reduce_scatter_nonoverlapping;
Cost allgather_recursive_doubling, allgather_bruck, allgather_ring, allgather_neighbour_exchange,
    allgather_gather_bcast, allgather_linear;
Cost alltoall_bruck, alltoall_linear, alltoall_pairwise, alltoallv_linear, alltoallv_pairwise;
Cost gather_linear, gather_knomial, gather_linear_sync, gatherv_linear, gatherv_linear_sync;
Cost scatter_linear, scatter_knomial, scatterv_linear;

}  // namespace cost

// A collective that the ranks of one node do together in shared memory.
double node_cost(const Machine& machine, Collective collective, int ranks, double bytes);

// The hierarchical form on several nodes, `per_node` ranks on each, in shared memory inside nodes.
struct HierarchyCost {
  double first_ns = 0;      // inside the nodes, before
  double between_ns = 0;    // between the leaders
  double last_ns = 0;       // inside the nodes, after
  double rest_ns = 0;       // until all other segments have followed the first one
  double leader_bytes = 0;  // the leaders' message size, of one segment
  double total() const { return first_ns + between_ns + last_ns + rest_ns; }
};
HierarchyCost hierarchy_cost(const Machine& machine, Collective collective, Cost* between,
                             const Parameters& parameters, int nodes, int per_node, double bytes);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_MODEL_COST_H_
