// Path `pull`: the receiver reads the sender's buffer, at once and to the end, so that nobody ever
// waits for a receiver that has gone away in between.
//
// The buffer lies in its owner's reach file, which its peers have mapped, or anywhere in its
// address space, of which they then attach a window (memory/space.h).

#include "memory/copy.h"
#include "p2p/delivery.h"
#include "p2p/links.h"
#include "p2p/path/rows.h"
#include "p2p/path/side.h"

namespace od::p2p {

bool pull_able(const Links& links, std::uint32_t peer, bool reachable) {
  return reachable && !links[peer].offers_declined;
}

bool pull_offer(Links& links, std::uint32_t peer, const Payload&, std::uint64_t place,
                std::uint64_t* source_address) {
  if (!links[peer].offer_worthwhile()) return false;
  *source_address = place;
  return true;
}

bool pull_readable(ReceiveSide& side, std::uint32_t peer, const StreamDescriptor& descriptor,
                   DirectRead* read) {
  read->source =
      side.links.peer_bytes(peer, descriptor.source_address, descriptor.bytes, "send buffer");
  return read->source != nullptr;
}

bool pull_read(ReceiveSide& side, std::uint32_t, const StreamDescriptor& descriptor,
               Request& receive, DirectRead* read) {
  side.links.note_attached(descriptor.source_address, side.counters.xpmem_reads, descriptor.bytes);
  read->delivered = side.delivery.deliver(read->source, descriptor.bytes, receive);
  if (side.verify) {
    read->checksum =
        memory::checksum_update(memory::kChecksumStart, read->source, descriptor.bytes);
  }
  ++side.counters.receives_pull;
  return true;
}

}  // namespace od::p2p
