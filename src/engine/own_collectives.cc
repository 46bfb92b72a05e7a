// Collective calls of the library's own, by which the ranks of a communicator agree on something
// beside the program's calls. They are never the host's: where only that could do it, all ranks
// find so alike.

#include <cstdint>
#include <span>

#include "coll/run/buffers.h"
#include "engine/engine.h"
#include "engine/rank_state.h"

namespace od {

using host::kSuccess;

// *served is false where only the host could do it, unless `otherwise` names an algorithm for that
// case.
int Rank::own_collective(const CollectiveCall& call, std::uint64_t bytes, Comm& comm, bool* served,
                         const char* otherwise) {
  *served = false;
  const coll::Selection& selection = state_->collectives.selection;
  const coll::Layout& layout = comm.collectives->layout();
  coll::Decision decision = selection.own_choice(call.collective, layout, true, bytes);
  if (decision.algorithm->is_host()) {
    if (otherwise == nullptr) return kSuccess;
    decision = selection.complete(*coll::find_algorithm(call.collective, otherwise),
                                  coll::Mode::kFlat, {}, layout, true);
  }
  return serve_collective(call, comm, served, nullptr, &decision);
}

p2p::LayoutRef Rank::layout_of_number() {
  static const p2p::LayoutRef layout = [] {
    auto* made = new p2p::Layout;
    made->size = made->extent = made->block_bytes = sizeof(std::int64_t);
    made->immortal = true;
    return p2p::LayoutRef(made);
  }();
  return layout;
}

// What all ranks have, put together in place.
int Rank::own_reduce(coll::ops::Op op, std::span<std::int64_t> values, Comm& comm, bool* served) {
  CollectiveCall call;
  call.internal = true;
  call.collective = coll::Collective::kAllreduce;
  call.in_place = true;
  call.recv = values.data();
  call.recv_count = static_cast<std::int64_t>(values.size());
  call.recv_type = layout_of_number();
  call.reduction.kernel = coll::ops::find_kernel(op, coll::ops::Kind::int64);
  return own_collective(call, values.size_bytes(), comm, served);
}

// The smallest value of all ranks; where the call cannot be done, 0.
int Rank::own_minimum(std::int64_t& value, Comm& comm) {
  bool served = false;
  const int error = own_reduce(coll::ops::Op::min, {&value, 1}, comm, &served);
  if (error != kSuccess || !served) value = 0;
  return error;
}

// `bytes` of each rank, in their order.
int Rank::own_gather(const void* mine, std::uint64_t bytes, void* all, Comm& comm, bool* served,
                     const char* otherwise) {
  CollectiveCall call;
  call.internal = true;
  call.collective = coll::Collective::kAllgather;
  call.send = mine;
  call.recv = all;
  call.send_type = call.recv_type = CollectiveBuffers::byte_layout();
  call.send_count = call.recv_count = static_cast<std::int64_t>(bytes);
  return own_collective(call, bytes, comm, served, otherwise);
}

}  // namespace od
