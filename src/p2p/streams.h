// The two ends of a message that does not travel in one go, and the sender's offer of its buffer.
//
// Invariants:
//  - `filled` counts what has left the program's buffer, `drained` what has reached it: either only
//    grows, and never beyond `bytes`.
//  - While `offered` holds nothing of the payload is in cells; it ends with `done`, with the
//    receiver's `matched`, or when the sender withdraws (envelope.h).
//  - `request` is null from when the program's side is complete.
#ifndef OVERDRIVE_P2P_STREAMS_H_
#define OVERDRIVE_P2P_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "p2p/buffer_heap.h"
#include "p2p/envelope.h"
#include "p2p/layout.h"
#include "p2p/path/path.h"
#include "p2p/request.h"

namespace od::p2p {

class StreamQueue;

// How a payload is going to travel.
struct ChosenPath {
  Path path = Path::cells;
  std::uint64_t source_address = 0;
  bool late = false;  // the receiver usually is: do not wait for it
};

// A send whose payload did not leave in one go, or whose envelope is still in use.
struct OutgoingStream {
  Envelope* envelope = nullptr;
  Request* request = nullptr;  // null once the program's side is complete
  std::uint32_t peer = 0;
  bool synchronous = false;
  bool buffered = false;   // Bsend: may not wait for the receiver at all
  bool line_seen = false;  // what the receiver has measured has been noted
  bool late = false;       // see ChosenPath
  bool offered = false;    // the receiver may read the program's buffer: nothing is in cells
  bool attached = false;   // of these: it has to attach our memory for it
  bool calls = false;      // its receiver calls when it has come (StreamDescriptor::calls)
  bool called = false;     // that has been seen: nobody else touches Envelope::next
  Path path = Path::cells;
  const char* contiguous = nullptr;
  Cursor cursor;
  LayoutRef layout;
  std::unique_ptr<char[]> packed;  // what is opaque, packed
  std::uint64_t bytes = 0;
  std::uint64_t filled = 0;
  std::byte* frame = nullptr;     // holds the first `frame_bytes` of the payload
  bool frame_seen = false;        // see FrameSet::seen
  std::uint64_t frame_bytes = 0;  // 0: all goes through cells
  std::uint32_t cells_allocated = 0;
  std::uint32_t cells_freed = 0;
  std::uint64_t buffer_offset = BufferHeap::kNone;
  std::uint64_t checksum = 0;
  std::uint64_t drained_seen = 0;
  std::uint64_t offered_ns = 0;  // when the offer was made; 0 once its answer has been seen
  std::uint64_t moved_ns = 0;    // when the receiver was last seen to move; 0: not yet looked
  bool holds_cells() const { return cells_freed != cells_allocated; }

  const StreamQueue* queue = nullptr;  // that it is in (stream_queue.h), and its neighbours there
  OutgoingStream* next = nullptr;
  OutgoingStream* prev = nullptr;
};

// A receive whose payload comes in pieces.
struct IncomingStream {
  Envelope* envelope = nullptr;
  std::uint32_t generation = 0;
  std::uint64_t cell_bytes = 0;
  Request* request = nullptr;
  std::uint32_t peer = 0;
  std::uint64_t bytes = 0;
  std::uint64_t drained = 0;
  std::uint64_t limit = 0;  // bytes that fit the receive; the rest is drained unread
  std::uint8_t frame = 0;   // 1 + index of the frame with the first `frame_bytes` of the payload
  std::uint64_t frame_bytes = 0;
  // `drained` counts what this side has copied, Envelope::filled what the sender has.
  bool cooperative = false;
  char* contiguous = nullptr;
  Cursor cursor;
  std::unique_ptr<char[]> packed;  // what is opaque: unpacked at the end
  std::uint64_t checksum = 0;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_STREAMS_H_
