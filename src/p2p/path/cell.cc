// Path `cell`: a whole message in a cell of the sender's pool, announced in box or list
// (cell_pool.h).

#include "memory/copy.h"
#include "p2p/arrival.h"
#include "p2p/delivery.h"
#include "p2p/outbox.h"
#include "p2p/path/short.h"
#include "p2p/send_memory.h"
#include "p2p/stores.h"

namespace od::p2p {

bool send_cell(SendSide& side, std::uint32_t peer, MessageHeader header, const Payload& payload,
               Cursor* cursor) {
  SendMemory& memory = side.memory;
  const bool boxed = side.outbox.usable_box(peer, sizeof(CellDescriptor));
  Envelope* envelope = nullptr;
  if (!boxed) {
    envelope = memory.allocate_envelope(false);
    if (envelope == nullptr) return false;
  }
  CellDescriptor cell;
  if (!memory.allocate_cell(payload.bytes, &cell)) {
    if (envelope != nullptr) memory.free_envelope(*envelope);
    return false;
  }
  std::byte* const to = memory.at(cell.offset);
  const void* hashed = to;
  if (cursor != nullptr) {
    cursor->pack(to, payload.bytes, memory::copy_ordinary);
    side.counters.ordinary_bytes += payload.bytes;
  } else {
    hashed = payload.contiguous;
    const bool seen = memory.pool().went_round();
    cell.nontemporal =
        side.stores.copy(side.links[peer].cell_stores, to, hashed, payload.bytes, seen) ? 1 : 0;
  }
  if (side.verify) {
    header.checksum = memory::checksum_fold(
        memory::checksum_update(memory::kChecksumStart, hashed, payload.bytes));
  }
  header.kind = Kind::cell;
  if (boxed) {
    side.outbox.put(peer, header, &cell, sizeof(cell));
  } else {
    envelope->cell = cell;
    side.outbox.list(peer, *envelope, header, payload.bytes);
    memory.linger_listed(*envelope, peer);
  }
  ++side.counters.sends_cell;
  side.counters.bytes_cell += payload.bytes;
  return true;
}

void receive_cell(ReceiveSide& side, std::uint32_t peer, const MessageHeader& header,
                  const CellDescriptor& cell, Request& receive) {
  const std::byte* const data = side.links.payload_at(peer, cell.offset, cell.bytes);
  const Link& link = side.links[peer];
  if (side.verify) side.delivery.check(header, data, cell.bytes);
  const int delivered = side.delivery.deliver(data, cell.bytes, receive,
                                              reader_for(cell.nontemporal, link.distance.far()));
  release_cell(link.releases, cell);
  side.delivery.note_received(receive, cell.bytes);
  ++side.counters.receives_cell;
  side.delivery.finish(receive, header, cell.bytes, delivered);
}

}  // namespace od::p2p
