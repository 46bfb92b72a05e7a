// What the sender's part of a push and of a cooperative copy have in common: the receive buffer,
// where the receiver has said that it lies.
#ifndef OVERDRIVE_P2P_PATH_DIRECT_WRITE_H_
#define OVERDRIVE_P2P_PATH_DIRECT_WRITE_H_

#include <cstddef>

#include "p2p/links.h"
#include "p2p/path/side.h"
#include "p2p/streams.h"

namespace od::p2p {

// Where the receiver wants the message; null: it wants no help, or its buffer cannot be reached.
// Only once the state says that a receive has taken the message.
inline std::byte* target_of(SendSide& side, const OutgoingStream& stream) {
  const Envelope& envelope = *stream.envelope;
  if (envelope.target_generation != envelope.generation) return nullptr;
  return side.links.peer_bytes(stream.peer, envelope.target, stream.bytes, "receive buffer");
}

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_PATH_DIRECT_WRITE_H_
