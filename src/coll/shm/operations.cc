// Collectives as operations: one exchange each, or the plan of a long reduction.

#include "coll/shm/single_exchanges.h"
#include "coll/shm/team.h"

namespace od::coll::shm {

void Team::start(Operation& op, std::uint32_t exchanges) {
  ++counters_.operations;
  op.state_ = {};
  op.state_.exchanges = exchanges;
  op.state_.first_number = reserved_;
  reserved_ += exchanges;
  if (exchanges == 0) return;
  if (last_open_ == nullptr) {
    first_open_ = &op;
  } else {
    last_open_->state_.next = &op;
  }
  last_open_ = &op;
}

// Of op.spec_.single; where it is not needed there is nothing to do, on any member.
void Team::start_single(Operation& op, bool needed) {
  op.spec_.kind = Operation::Spec::Kind::single;
  start(op, needed ? 1 : 0);
}

void Team::start_long(Operation& op, const ReducedVector& vector) {
  op.spec_.kind = Operation::Spec::Kind::long_reduction;
  op.spec_.reduction.make(shape_, vector);
  if (op.spec_.reduction.in_groups()) {
    ++counters_.in_groups;
    if (in_groups_ != nullptr) ++*in_groups_;
  }
  start(op, op.spec_.reduction.exchanges());
}

void Team::barrier(Operation& op) {
  op.spec_.single = signal_exchange(Pattern::everyone, 0);
  start_single(op, size() > 1);
}

void Team::signal_to(Operation& op, int root) {
  op.spec_.single = signal_exchange(Pattern::to_root, root);
  start_single(op);
}

void Team::signal_from(Operation& op, int root) {
  op.spec_.single = signal_exchange(Pattern::from_root, root);
  start_single(op);
}

void Team::bcast(Operation& op, int root, void* data, std::uint64_t bytes) {
  op.spec_.single = bcast_exchange(shape_, root, data, bytes);
  start_single(op, size() > 1 && bytes != 0);
}

void Team::gather(Operation& op, int root, const void* send, std::uint64_t send_bytes,
                  const Blocks& recv) {
  op.spec_.single = gather_exchange(shape_, root, send, send_bytes, recv);
  start_single(op);
}

void Team::scatter(Operation& op, int root, const Blocks& send, void* recv,
                   std::uint64_t recv_bytes) {
  op.spec_.single = scatter_exchange(shape_, root, send, recv, recv_bytes);
  start_single(op);
}

void Team::allgather(Operation& op, const void* send, std::uint64_t send_bytes,
                     const Blocks& recv) {
  op.spec_.single = allgather_exchange(shape_, send, send_bytes, recv);
  start_single(op);
}

void Team::alltoall(Operation& op, const Blocks& send, const Blocks& recv) {
  op.spec_.single = alltoall_exchange(shape_, send, recv);
  start_single(op);
}

void Team::reduce_scatter(Operation& op, const Blocks& send, void* recv, const Combiner& combiner) {
  op.spec_.combiner = combiner;
  op.spec_.single = reduce_scatter_exchange(shape_, send, recv, op.spec_.combiner);
  start_single(op);
}

void Team::reduce(Operation& op, int root, const void* send, void* recv, std::uint64_t count,
                  const Combiner& combiner, ReductionForm form) {
  op.spec_.combiner = combiner;
  const std::uint64_t bytes = count * combiner.extent_bytes;
  if (send == nullptr) send = recv;
  if (!shape_.reduces_whole(bytes, form)) {
    return start_long(op, {bytes_of(send), bytes_of(recv), bytes, root, &op.spec_.combiner, form});
  }
  op.spec_.single = reduce_exchange(shape_, root, send, recv, bytes, op.spec_.combiner);
  start_single(op, bytes != 0);
}

void Team::allreduce(Operation& op, const void* send, void* recv, std::uint64_t count,
                     const Combiner& combiner, ReductionForm form) {
  op.spec_.combiner = combiner;
  const std::uint64_t bytes = count * combiner.extent_bytes;
  if (send == nullptr) send = recv;
  if (!shape_.allreduces_whole(bytes, form)) {
    return start_long(op, {bytes_of(send), bytes_of(recv), bytes, ReducedVector::kEverybody,
                           &op.spec_.combiner, form});
  }
  op.spec_.single = allreduce_exchange(shape_, send, recv, bytes, op.spec_.combiner);
  start_single(op, bytes != 0);
}

void Team::scan(Operation& op, const void* send, void* recv, std::uint64_t count,
                const Combiner& combiner) {
  op.spec_.combiner = combiner;
  const std::uint64_t bytes = count * combiner.extent_bytes;
  if (send == nullptr) send = recv;
  op.spec_.single = scan_exchange(shape_, send, recv, bytes, op.spec_.combiner, true);
  start_single(op, bytes != 0);
}

void Team::exscan(Operation& op, const void* send, void* recv, std::uint64_t count,
                  const Combiner& combiner) {
  scan(op, send, recv, count, combiner);
  op.spec_.single.part.own_operand = false;
}

}  // namespace od::coll::shm
