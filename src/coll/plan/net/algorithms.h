// Every algorithm between ranks, as a function that writes one rank's schedule.
//
// Numbers, names, defaults and conditions are in coll/plan/registry.cc. All work for any number of
// ranks, any root, empty messages and MPI_IN_PLACE, unless the registry's conditions say otherwise.
#ifndef OVERDRIVE_COLL_PLAN_NET_ALGORITHMS_H_
#define OVERDRIVE_COLL_PLAN_NET_ALGORITHMS_H_

#include "coll/plan/builder.h"
#include "coll/plan/shape.h"

namespace od::coll {

using Generate = void(Builder& builder, const Shape& shape);

Generate barrier_dissemination, barrier_recursive_doubling, barrier_tree, barrier_linear,
    barrier_ring, barrier_tournament;

Generate bcast_linear, bcast_knomial, bcast_chain, bcast_binary, bcast_double_binary_tree,
    bcast_split_binary, bcast_scatter_ring, bcast_scatter_doubling;

Generate reduce_linear, reduce_knomial, reduce_chain, reduce_binary, reduce_double_binary_tree,
    reduce_rabenseifner, reduce_shumilin;

Generate allreduce_recursive_doubling, allreduce_rabenseifner, allreduce_reduce_bcast,
    allreduce_gather_scatter, allreduce_shumilin_ring, allreduce_ring, allreduce_segmented_ring,
    allreduce_knomial, allreduce_double_binary_tree;

Generate scan_linear, scan_recursive_doubling, scan_binomial, exscan_linear,
    exscan_recursive_doubling, exscan_binomial;

Generate reduce_scatter_halving, reduce_scatter_pairwise, reduce_scatter_ring,
    reduce_scatter_doubling, reduce_scatter_nonoverlapping;

Generate allgather_recursive_doubling, allgather_bruck, allgather_ring,
    allgather_neighbour_exchange, allgather_gather_bcast, allgather_linear;

Generate alltoall_bruck, alltoall_linear, alltoall_pairwise, alltoallv_linear, alltoallv_pairwise;

// By something outside that adds, and otherwise as another one.
Generate barrier_in_network, bcast_in_network, reduce_in_network, allreduce_in_network;

Generate gather_linear, gather_knomial, gather_linear_sync, gatherv_linear, gatherv_linear_sync;
Generate scatter_linear, scatter_knomial, scatterv_linear;

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_NET_ALGORITHMS_H_
