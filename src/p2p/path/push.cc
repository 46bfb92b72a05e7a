// Path `push`: cells until the receiver has come, then straight into its buffer.
//
// From the position `buffer_from` on, with `buffer_offset` kPushed, the payload is where it belongs
// and the receiver only counts.

#include <algorithm>
#include <atomic>

#include "memory/copy.h"
#include "p2p/path/direct_write.h"
#include "p2p/path/rows.h"
#include "p2p/stores.h"

namespace od::p2p {

namespace {

// How much is pushed before the receiver is told; it only counts, so the piece is large.
constexpr std::uint64_t kPushPieceBytes = 128u << 10;

}  // namespace

bool push_able(const Links& links, std::uint32_t peer, bool) { return links.opens(peer); }

bool push_offer(Links& links, std::uint32_t peer, const Payload&, std::uint64_t, std::uint64_t*) {
  return links.opens(peer);
}

bool push_help(SendSide& side, OutgoingStream& stream) {
  Envelope& envelope = *stream.envelope;
  if (state_of(envelope) != EnvelopeState::matched) return false;
  std::byte* const target = target_of(side, stream);
  if (target == nullptr) return false;  // the rest goes through cells as well
  Link& link = side.links[stream.peer];
  side.links.note_attached(envelope.target, side.counters.xpmem_writes,
                           stream.bytes - stream.filled);
  // Plain stores: published by the release of `filled`.
  envelope.buffer_offset = kPushed;
  envelope.buffer_from = stream.filled;
  side.counters.bytes_push += stream.bytes - stream.filled;
  ++side.counters.sends_push;
  while (stream.filled < stream.bytes) {
    const std::uint64_t piece = std::min(kPushPieceBytes, stream.bytes - stream.filled);
    const char* const from = stream.contiguous + stream.filled;
    side.stores.copy_to_peer(link, target + stream.filled, from, piece);
    if (side.verify) stream.checksum = memory::checksum_update(stream.checksum, from, piece);
    stream.filled += piece;
    if (stream.filled == stream.bytes) envelope.checksum = memory::checksum_fold(stream.checksum);
    // Release: the data is in its place; pairs with the acquire in IncomingStreams::advance.
    envelope.filled.store(stream.filled, std::memory_order_release);
    side.links.wake(stream.peer);
  }
  return true;
}

}  // namespace od::p2p
