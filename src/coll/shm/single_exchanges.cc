// Descriptions of collectives that are one exchange.

#include "coll/shm/single_exchanges.h"

#include <algorithm>

#include "coll/shm/slot_layout.h"

namespace od::coll::shm {

namespace {

PlannedExchange moving(const TeamShape& shape, Pattern pattern, Content content, int root) {
  PlannedExchange x;
  x.spec.pattern = pattern;
  x.spec.content = content;
  x.spec.use = Use::copy;
  x.spec.root = root;
  x.spec.piece_bytes = shape.copied_piece_bytes(pattern, content);
  return x;
}

PlannedExchange combining(const TeamShape& shape, Pattern pattern, Content content, int root,
                          const Combiner& combiner) {
  PlannedExchange x;
  x.spec.pattern = pattern;
  x.spec.content = content;
  x.spec.use = Use::combine;
  x.spec.root = root;
  x.spec.piece_bytes = shape.piece_bytes(content, shape.size, combiner.extent_bytes);
  x.part.combiner = &combiner;
  x.part.own_operand = true;
  return x;
}

// What a vector takes that is scattered in blocks without gaps, if all of it can be shown at once;
// else 0.
std::uint64_t short_vector_bytes(const Blocks& blocks, int members) {
  std::uint64_t end = 0;
  for (int i = 0; i < members; ++i) {
    if (blocks.offset(i) != end && blocks.size(i) != 0) return 0;
    end += blocks.size(i);
    if (end > kLinesBytes) return 0;
  }
  return end;
}

}  // namespace

PlannedExchange signal_exchange(Pattern pattern, int root) {
  PlannedExchange x;
  x.spec.pattern = pattern;
  x.spec.root = root;
  return x;
}

PlannedExchange bcast_exchange(const TeamShape& shape, int root, void* data, std::uint64_t bytes) {
  PlannedExchange x = moving(shape, Pattern::from_root, Content::same, root);
  (shape.me == root ? x.part.out : x.part.in) = one_block(bytes_of(data), bytes);
  return x;
}

PlannedExchange gather_exchange(const TeamShape& shape, int root, const void* send,
                                std::uint64_t send_bytes, const Blocks& recv) {
  PlannedExchange x = moving(shape, Pattern::to_root, Content::same, root);
  if (shape.me != root) {
    x.part.out = one_block(source_of(send), send_bytes);
    return x;
  }
  x.part.in = recv;
  if (send != nullptr && send != recv.at(shape.me)) {
    x.part.own_copy = {bytes_of(send), recv.at(shape.me),
                       std::min(send_bytes, recv.size(shape.me))};
  }
  return x;
}

PlannedExchange scatter_exchange(const TeamShape& shape, int root, const Blocks& send, void* recv,
                                 std::uint64_t recv_bytes) {
  PlannedExchange x = moving(shape, Pattern::from_root, Content::each, root);
  if (shape.me != root) {
    x.part.in = one_block(bytes_of(recv), recv_bytes);
    return x;
  }
  x.part.out = send;
  x.part.own_places = send.sizes != nullptr;
  if (recv != nullptr && recv != send.at(shape.me)) {
    x.part.own_copy = {send.at(shape.me), bytes_of(recv),
                       std::min(recv_bytes, send.size(shape.me))};
  }
  return x;
}

PlannedExchange allgather_exchange(const TeamShape& shape, const void* send,
                                   std::uint64_t send_bytes, const Blocks& recv) {
  PlannedExchange x = moving(shape, Pattern::everyone, Content::same, 0);
  const int me = shape.me;
  x.part.in = recv;
  if (send == nullptr) {
    send = recv.at(me);
    send_bytes = recv.size(me);
  }
  x.part.out = one_block(source_of(send), send_bytes);
  if (send != recv.at(me)) {
    x.part.own_copy = {bytes_of(send), recv.at(me), std::min(send_bytes, recv.size(me))};
  }
  return x;
}

PlannedExchange alltoall_exchange(const TeamShape& shape, const Blocks& send, const Blocks& recv) {
  PlannedExchange x = moving(shape, Pattern::everyone, Content::each, 0);
  const int me = shape.me;
  x.part.in = recv;
  // Blocks that are all empty may have no address.
  const bool in_place = send.base == nullptr && send.sizes == nullptr;
  x.part.overwrites = in_place || (send.base != nullptr && send.base == recv.base);
  x.part.out = in_place ? recv : send;
  x.part.own_places = x.part.out.sizes != nullptr;
  if (!x.part.overwrites) {
    x.part.own_copy = {x.part.out.at(me), recv.at(me),
                       std::min(x.part.out.size(me), recv.size(me))};
  }
  return x;
}

PlannedExchange reduce_scatter_exchange(const TeamShape& shape, const Blocks& send, void* recv,
                                        const Combiner& combiner) {
  // Of two members with equal blocks each shows only what the other takes.
  const bool shows_all = shape.size > 2 || send.sizes != nullptr;
  const std::uint64_t whole = shows_all ? short_vector_bytes(send, shape.size) : 0;
  PlannedExchange x =
      combining(shape, Pattern::everyone, whole != 0 ? Content::same : Content::each, 0, combiner);
  x.part.out = send;
  x.part.overwrites = send.base == nullptr || send.base == recv;
  if (send.base == nullptr) x.part.out.base = bytes_of(recv);
  x.part.in = one_block(bytes_of(recv), send.size(shape.me));
  if (whole != 0) {
    x.part.out = one_block(x.part.out.base, whole);
    x.part.takes_share = true;
    x.part.share_at = send.offset(shape.me);
  }
  return x;
}

PlannedExchange reduce_exchange(const TeamShape& shape, int root, const void* send, void* recv,
                                std::uint64_t bytes, const Combiner& combiner) {
  PlannedExchange x = combining(shape, Pattern::to_root, Content::same, root, combiner);
  x.part.out = one_block(source_of(send), bytes);
  if (shape.me == root) x.part.in = one_block(bytes_of(recv), bytes);
  return x;
}

PlannedExchange allreduce_exchange(const TeamShape& shape, const void* send, void* recv,
                                   std::uint64_t bytes, const Combiner& combiner) {
  PlannedExchange x = combining(shape, Pattern::everyone, Content::same, 0, combiner);
  x.part.out = one_block(source_of(send), bytes);
  x.part.in = one_block(bytes_of(recv), bytes);
  x.part.overwrites = send == recv;
  return x;
}

PlannedExchange scan_exchange(const TeamShape& shape, const void* send, void* recv,
                              std::uint64_t bytes, const Combiner& combiner, bool takes_self) {
  PlannedExchange x = combining(shape, Pattern::before, Content::same, 0, combiner);
  x.part.out = one_block(source_of(send), bytes);
  x.part.in = one_block(bytes_of(recv), bytes);
  x.part.overwrites = send == recv;
  x.part.own_operand = takes_self;
  return x;
}

}  // namespace od::coll::shm
