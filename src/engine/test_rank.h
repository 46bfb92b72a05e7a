// Test support: a Rank in a forked process without an MPI library, and layouts for its messages.
#ifndef OVERDRIVE_ENGINE_TEST_RANK_H_
#define OVERDRIVE_ENGINE_TEST_RANK_H_

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "engine/engine.h"
#include "engine/forked_host.h"
#include "engine/rank_state.h"
#include "node/forked_job.h"

namespace od {

inline std::unique_ptr<Rank> make_test_rank(const node::Exchange& exchange,
                                            const config::Settings& settings = {},
                                            bool threads = false) {
  auto rank = Rank::create(forked_host(exchange), settings, threads);
  if (rank != nullptr && rank->state().node->size() != exchange.size) {
    std::fprintf(stderr, "rank %d did not join: %s\n", exchange.rank,
                 rank->state().node->why().c_str());
    std::_Exit(98);
  }
  return rank;
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
