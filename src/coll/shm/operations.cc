// Collectives as sequences of exchanges.

#include <algorithm>

#include "coll/shm/team.h"

namespace od::coll::shm {

// How much of a block one round moves. Blocks for each reader share a cell.
std::uint64_t Team::piece_bytes(Content content, int members, std::uint64_t unit_bytes) const {
  std::uint64_t piece = tuning_.piece_bytes;
  if (content == Content::each) {
    const std::uint64_t cell = ring_.bytes() / (4 * static_cast<std::uint64_t>(members));
    piece = std::min(piece, cell / kLineBytes * kLineBytes);
  }
  return std::max(unit_bytes, piece / unit_bytes * unit_bytes);
}

void Team::start(Operation& op, Operation::Plan plan, std::uint32_t exchanges) {
  ++counters_.operations;
  op.plan_ = plan;
  op.exchanges_ = exchanges;
  op.begun_ = op.finished_ = 0;
  op.next_ = nullptr;
  op.lengths_agree_ = true;
  op.first_number_ = reserved_;
  reserved_ += exchanges;
  if (exchanges == 0) return;
  if (last_open_ == nullptr) {
    first_open_ = &op;
  } else {
    last_open_->next_ = &op;
  }
  last_open_ = &op;
}

void Team::barrier(Operation& op) {
  op.single_ = {};
  start(op, Operation::Plan::single, size_ > 1 ? 1 : 0);
}

void Team::signal_to(Operation& op, int root) {
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::to_root;
  x.root = root;
  start(op, Operation::Plan::single, 1);
}

void Team::signal_from(Operation& op, int root) {
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::from_root;
  x.root = root;
  start(op, Operation::Plan::single, 1);
}

void Team::bcast(Operation& op, int root, void* data, std::uint64_t bytes) {
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::from_root;
  x.content = Content::same;
  x.use = Use::copy;
  x.root = root;
  x.piece_bytes = piece_bytes(x.content, size_, 1);
  (me_ == root ? x.out : x.in) = one_block(bytes_of(data), bytes);
  start(op, Operation::Plan::single, size_ > 1 && bytes != 0 ? 1 : 0);
}

void Team::gather(Operation& op, int root, const void* send, std::uint64_t send_bytes,
                  const Blocks& recv) {
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::to_root;
  x.content = Content::same;
  x.use = Use::copy;
  x.root = root;
  x.piece_bytes = piece_bytes(x.content, size_, 1);
  if (me_ == root) {
    x.in = recv;
    if (send != nullptr && send != recv.at(me_)) {
      x.own_from = bytes_of(send);
      x.own_to = recv.at(me_);
      x.own_bytes = std::min(send_bytes, recv.size(me_));
    }
  } else {
    x.out = one_block(source_of(send), send_bytes);
  }
  start(op, Operation::Plan::single, 1);
}

void Team::scatter(Operation& op, int root, const Blocks& send, void* recv,
                   std::uint64_t recv_bytes) {
  Exchange& x = op.single_ = {};
  x.pattern = Pattern::from_root;
  x.content = Content::each;
  x.use = Use::copy;
  x.root = root;
  x.piece_bytes = piece_bytes(x.content, size_, 1);
  if (me_ == root) {
    x.out = send;
    x.own_places = send.sizes != nullptr;
    if (recv != nullptr && recv != send.at(me_)) {
      x.own_from = send.at(me_);
      x.own_to = bytes_of(recv);
      x.own_bytes = std::min(recv_bytes, send.size(me_));
    }
  } else {
    x.in = one_block(bytes_of(recv), recv_bytes);
  }
  start(op, Operation::Plan::single, 1);
}

void Team::allgather(Operation& op, const void* send, std::uint64_t send_bytes,
                     const Blocks& recv) {
  Exchange& x = op.single_ = {};
  x.content = Content::same;
  x.use = Use::copy;
  x.piece_bytes = piece_bytes(x.content, size_, 1);
  x.in = recv;
  if (send == nullptr) {
    send = recv.at(me_);
    send_bytes = recv.size(me_);
  }
  x.out = one_block(source_of(send), send_bytes);
  if (send != recv.at(me_)) {
    x.own_from = bytes_of(send);
    x.own_to = recv.at(me_);
    x.own_bytes = std::min(send_bytes, recv.size(me_));
  }
  start(op, Operation::Plan::single, 1);
}

void Team::alltoall(Operation& op, const Blocks& send, const Blocks& recv) {
  Exchange& x = op.single_ = {};
  x.content = Content::each;
  x.use = Use::copy;
  x.piece_bytes = piece_bytes(x.content, size_, 1);
  x.in = recv;
  // Blocks that are all empty may have no address.
  const bool in_place = send.base == nullptr && send.sizes == nullptr;
  x.overwrites = in_place || (send.base != nullptr && send.base == recv.base);
  x.out = in_place ? recv : send;
  x.own_places = x.out.sizes != nullptr;
  if (!x.overwrites) {
    x.own_from = x.out.at(me_);
    x.own_to = recv.at(me_);
    x.own_bytes = std::min(x.out.size(me_), recv.size(me_));
  }
  start(op, Operation::Plan::single, 1);
}

void Team::reduce_scatter(Operation& op, const Blocks& send, void* recv, const Combiner& combiner) {
  op.combiner_ = combiner;
  Exchange& x = op.single_ = {};
  x.content = Content::each;
  x.use = Use::combine;
  x.piece_bytes = piece_bytes(x.content, size_, combiner.extent_bytes);
  x.combiner = &op.combiner_;
  x.own_operand = true;
  x.out = send;
  x.overwrites = send.base == nullptr || send.base == recv;
  if (send.base == nullptr) x.out.base = bytes_of(recv);
  x.in = one_block(bytes_of(recv), send.size(me_));
  start(op, Operation::Plan::single, 1);
}

void Team::scan(Operation& op, const void* send, void* recv, std::uint64_t count,
                const Combiner& combiner) {
  op.combiner_ = combiner;
  const std::uint64_t bytes = count * combiner.extent_bytes;
  if (send == nullptr) send = recv;
  Exchange& x = combine_whole(op, send, bytes);
  x.pattern = Pattern::before;
  x.overwrites = send == recv;
  x.in = one_block(bytes_of(recv), bytes);
  start(op, Operation::Plan::single, bytes != 0 ? 1 : 0);
}

void Team::exscan(Operation& op, const void* send, void* recv, std::uint64_t count,
                  const Combiner& combiner) {
  scan(op, send, recv, count, combiner);
  op.single_.own_operand = false;
}

}  // namespace od::coll::shm
