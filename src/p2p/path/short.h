// The paths of short messages, which go in one piece before their receiver has come: in the lines
// of a frame or box (inline), in an exchange frame, in a cell of the pool.
//
// Invariants:
//  - The payload has left the program's buffer when a function here has returned true.
//  - What is in a frame or a cell stays until the receiver gives it back: the frame by being its
//  own
//    from then on, the cell by its release byte.
// Called by name and not through a table: for these messages a jump counts. The shortest are sent
// by Sender::try_inline and received by Receiver::arrive_short, inline in their callers.
#ifndef OVERDRIVE_P2P_PATH_SHORT_H_
#define OVERDRIVE_P2P_PATH_SHORT_H_

#include <cstdint>

#include "p2p/envelope.h"
#include "p2p/fast_box.h"
#include "p2p/layout.h"
#include "p2p/path/side.h"
#include "p2p/payload.h"
#include "p2p/request.h"

namespace od::p2p {

// `data`: the payload as one run of bytes. Sends it through frame, box or list; false: no room.
bool send_inline(SendSide& side, std::uint32_t peer, const MessageHeader& header, const void* data,
                 std::uint32_t bytes);

// A frame for long payload to `peer`, or FrameSet::kNone if there is none or it would be slow.
unsigned frame_for_payload(SendSide& side, std::uint32_t peer);
// `cursor`: walks over the payload if that is not one run of bytes. False: no frame now.
bool send_frame(SendSide& side, std::uint32_t peer, MessageHeader header, const Payload& payload,
                Cursor* cursor);
void receive_frame(ReceiveSide& side, std::uint32_t peer, const MessageHeader& header,
                   unsigned frame, Request& receive);

// False: no cell, or no memory to announce it.
bool send_cell(SendSide& side, std::uint32_t peer, MessageHeader header, const Payload& payload,
               Cursor* cursor);
void receive_cell(ReceiveSide& side, std::uint32_t peer, const MessageHeader& header,
                  const CellDescriptor& cell, Request& receive);

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_PATH_SHORT_H_
