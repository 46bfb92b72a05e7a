// Path `cooperative`: both sides copy, piece by piece, whoever comes first to the next one.
//
// Offered like a pull. The receiver tells where its buffer lies, if the sender can reach it; else
// it reads everything by itself. `claimed` shares out the pieces; `filled` counts what the sender
// has written. A sender that does not come leaves all pieces to the receiver; one that has taken a
// piece finishes it before it returns.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "memory/copy.h"
#include "p2p/path/direct_write.h"
#include "p2p/path/rows.h"
#include "p2p/stores.h"

namespace od::p2p {

namespace {

// Takes the next piece: its position, or `bytes` or more at the end.
std::uint64_t claim(Envelope& envelope) {
  // Relaxed: the counter only shares out the pieces; `filled` and `done` publish their contents.
  const std::uint64_t word = envelope.claimed.fetch_add(1, std::memory_order_relaxed);
  return (word & 0xffffffff) * kClaimBytes;
}

}  // namespace

bool cooperative_help(SendSide& side, OutgoingStream& stream) {
  Envelope& envelope = *stream.envelope;
  std::byte* const target = target_of(side, stream);
  if (target == nullptr) return false;  // it does everything itself
  Link& link = side.links[stream.peer];
  std::uint64_t written = 0;
  for (;;) {
    const std::uint64_t position = claim(envelope);
    if (position >= stream.bytes) break;
    const std::uint64_t piece = std::min(kClaimBytes, stream.bytes - position);
    side.stores.copy_to_peer(link, target + position, stream.contiguous + position, piece);
    written += piece;
  }
  if (written == 0) return false;
  side.links.note_attached(envelope.target, side.counters.xpmem_writes, written);
  // Release: what has been written; pairs with the acquire in IncomingStreams::advance. Added in
  // one step, because this side takes pieces until none is left.
  envelope.filled.store(written, std::memory_order_release);
  side.links.wake(stream.peer);
  return true;
}

void cooperative_share(ReceiveSide& side, IncomingStream& stream,
                       const StreamDescriptor& descriptor, const DirectRead& read) {
  Envelope& envelope = *stream.envelope;
  stream.cooperative = true;
  for (;;) {
    const std::uint64_t position = claim(envelope);
    if (position >= stream.bytes) break;
    const std::uint64_t piece = std::min(kClaimBytes, stream.bytes - position);
    std::memcpy(stream.contiguous + position, read.source + position, piece);
    stream.drained += piece;
  }
  side.links.note_attached(descriptor.source_address, side.counters.xpmem_reads, stream.drained);
  if (side.verify) {
    stream.checksum = memory::checksum_update(memory::kChecksumStart, read.source, stream.bytes);
  }
}

}  // namespace od::p2p
