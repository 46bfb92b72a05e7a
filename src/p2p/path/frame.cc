// Path `frame`: a whole message in an exchange frame that is held, which goes over to the receiver
// with it (frames.h).

#include <algorithm>

#include "memory/copy.h"
#include "p2p/arrival.h"
#include "p2p/delivery.h"
#include "p2p/outbox.h"
#include "p2p/path/short.h"
#include "p2p/stores.h"

namespace od::p2p {

unsigned frame_for_payload(SendSide& side, std::uint32_t peer) {
  if (side.settings.copy == config::CopyMode::kNontemporal) return FrameSet::kNone;
  const unsigned frame = side.outbox.held_frame(peer);
  if (frame != FrameSet::kNone && !side.stores.frames_are_quick(side.links[peer])) {
    return FrameSet::kNone;
  }
  return frame;
}

bool send_frame(SendSide& side, std::uint32_t peer, MessageHeader header, const Payload& payload,
                Cursor* cursor) {
  if (payload.bytes > std::min(side.links.layout().frame_bytes, FrameControl::kMaxBytes)) {
    return false;
  }
  const unsigned frame = frame_for_payload(side, peer);
  if (frame == FrameSet::kNone) return false;
  Link& link = side.links[peer];
  FrameSet& frames = side.links.frames(peer);
  std::byte* const to = frames.payload(frame);
  if (cursor != nullptr) {
    cursor->pack(to, payload.bytes, memory::copy_ordinary);
    side.counters.ordinary_bytes += payload.bytes;
  } else {
    side.stores.copy_into_frame(link, to, payload.contiguous, payload.bytes, frames.seen(frame));
  }
  if (side.verify) {
    header.checksum =
        memory::checksum_fold(memory::checksum_update(memory::kChecksumStart, to, payload.bytes));
  }
  header.kind = Kind::frame;
  frames.hand_over(frame, header, payload.bytes, link.box.messages());
  side.links.wake(peer);
  ++side.counters.sends_frame;
  side.counters.bytes_frame += payload.bytes;
  return true;
}

void receive_frame(ReceiveSide& side, std::uint32_t peer, const MessageHeader& header,
                   unsigned frame, Request& receive) {
  FrameSet& frames = side.links.frames(peer);
  const std::byte* const data = frames.payload(frame);
  const std::uint32_t bytes = header.inline_bytes;
  if (side.verify) side.delivery.check(header, data, bytes);
  const int delivered =
      side.delivery.deliver(data, bytes, receive, reader_for(0, side.links[peer].distance.far()));
  frames.keep(frame);
  side.delivery.note_received(receive, bytes);
  ++side.counters.receives_frame;
  side.delivery.finish(receive, header, bytes, delivered);
}

}  // namespace od::p2p
