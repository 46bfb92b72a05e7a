// A host table without an MPI library: for jobs of forked processes (node/forked_job.h) whose ranks
// are all local, as the tests and overdrive-measure make them.
#ifndef OVERDRIVE_ENGINE_FORKED_HOST_H_
#define OVERDRIVE_ENGINE_FORKED_HOST_H_

#include <cstdlib>
#include <numeric>

#include "host/host_table.h"
#include "node/forked_job.h"
#include "p2p/layout.h"

namespace od {

// Every function the engine calls in a job whose ranks are all local; anything else stays null.
inline host::HostTable forked_host(const node::Exchange& exchange) {
  using node::ForkedJob;
  host::HostTable host;
  host.comm_world = 1;
  host.comm_self = 2;
  host.err_truncate = 15;
  host.err_no_mem = 34;
  host.world_rank = exchange.rank;
  host.world_size = exchange.size;
  host.world_allgather = exchange.allgather;
  host.world_barrier = exchange.barrier;
  host.comm_size = [](host::Handle comm, int* size) {
    *size = comm == 2 ? 1 : ForkedJob::current->ranks();
    return 0;
  };
  host.comm_rank = [](host::Handle comm, int* rank) {
    *rank = comm == 2 ? 0 : ForkedJob::current_rank;
    return 0;
  };
  host.comm_test_inter = [](host::Handle, bool* inter) {
    *inter = false;
    return 0;
  };
  host.comm_world_ranks = [](host::Handle comm, bool, int* ranks, int count) {
    std::iota(ranks, ranks + count, comm == 2 ? ForkedJob::current_rank : 0);
    return 0;
  };
  host.poll = [] {};
  host.abort = [](int) { std::_Exit(99); };
  return host;
}

// The layout of MPI_BYTE.
inline p2p::LayoutRef byte_layout() {
  auto* layout = new p2p::Layout;
  layout->size = layout->extent = layout->block_bytes = 1;
  layout->immortal = true;
  return p2p::LayoutRef(layout);
}

}  // namespace od

#endif  // OVERDRIVE_ENGINE_FORKED_HOST_H_
