// Test support: a Rank in a forked process with a host table that has no host behind it.
#ifndef OVERDRIVE_ENGINE_TEST_RANK_H_
#define OVERDRIVE_ENGINE_TEST_RANK_H_

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "engine/engine.h"
#include "engine/rank_state.h"
#include "node/forked_job.h"

namespace od {

inline node::Exchange test_exchange;

// Every function the engine calls in a job whose ranks are all local; anything else stays null.
inline host::HostTable test_host(const node::Exchange& exchange) {
  test_exchange = exchange;
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
    *size = comm == 2 ? 1 : test_exchange.size;
    return 0;
  };
  host.comm_rank = [](host::Handle comm, int* rank) {
    *rank = comm == 2 ? 0 : test_exchange.rank;
    return 0;
  };
  host.comm_test_inter = [](host::Handle, bool* inter) {
    *inter = false;
    return 0;
  };
  host.comm_world_ranks = [](host::Handle comm, bool, int* ranks, int count) {
    std::iota(ranks, ranks + count, comm == 2 ? test_exchange.rank : 0);
    return 0;
  };
  host.poll = [] {};
  host.abort = [](int) { std::_Exit(99); };
  return host;
}

inline std::unique_ptr<Rank> make_test_rank(const node::Exchange& exchange,
                                            const config::Settings& settings = {},
                                            bool threads = false) {
  auto rank = Rank::create(test_host(exchange), settings, threads);
  if (rank != nullptr && rank->state().node->size() != exchange.size) {
    std::fprintf(stderr, "rank %d did not join: %s\n", exchange.rank,
                 rank->state().node->why().c_str());
    std::_Exit(98);
  }
  return rank;
}

// The layout of MPI_BYTE.
inline p2p::LayoutRef byte_layout() {
  auto* layout = new p2p::Layout;
  layout->size = layout->extent = layout->block_bytes = 1;
  layout->immortal = true;
  return p2p::LayoutRef(layout);
}

// `count` blocks of `block` bytes, `stride` apart.
inline p2p::LayoutRef strided_layout(std::int64_t count, std::int64_t block, std::int64_t stride) {
  auto* layout = new p2p::Layout;
  layout->shape = p2p::Shape::strided;
  layout->block_count = count;
  layout->block_bytes = block;
  layout->stride = stride;
  layout->size = count * block;
  layout->extent = (count - 1) * stride + block;
  return p2p::LayoutRef(layout);
}

}  // namespace od

#endif  // OVERDRIVE_ENGINE_TEST_RANK_H_
