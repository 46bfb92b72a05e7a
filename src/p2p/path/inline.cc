// Path `inline`: the payload lies beside the header, in a frame, in the box or in an envelope on
// the inbox list.

#include <cstring>

#include "p2p/outbox.h"
#include "p2p/path/short.h"
#include "p2p/send_memory.h"

namespace od::p2p {

bool send_inline(SendSide& side, std::uint32_t peer, const MessageHeader& header, const void* data,
                 std::uint32_t bytes) {
  if (!side.outbox.post(peer, header, data, bytes)) {
    if (bytes > kEnvelopeInlineBytes) return false;
    Envelope* const envelope = side.memory.allocate_envelope(false);
    if (envelope == nullptr) return false;
    if (bytes > 0) std::memcpy(envelope->payload, data, bytes);
    side.outbox.list(peer, *envelope, header, bytes);
    side.memory.linger_listed(*envelope, peer);
  }
  ++side.counters.sends_inline;
  side.counters.bytes_inline += bytes;
  return true;
}

}  // namespace od::p2p
