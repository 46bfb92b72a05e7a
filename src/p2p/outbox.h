// How a message, or the descriptor that announces it, gets to a peer: in an exchange frame or in
// the pair's fast box, and where neither takes it, on the peer's inbox list.
//
// Invariants (with rule R of the receiver they keep a pair's messages in order, see
// docs/design/point-to-point.md):
//  S  After a message was listed, frames and box of that peer are used again only when the peer has
//     taken the newest listed one (Link::direct).
//  -  Messages in frames and in the box tell each other's number, so of these two the receiver
//  knows
//     the older.
//  -  A sender waits for room only while its receiver is at work, and meanwhile takes what arrives:
//     two ranks that flood each other would both wait.
#ifndef OVERDRIVE_P2P_OUTBOX_H_
#define OVERDRIVE_P2P_OUTBOX_H_

#include <cstdint>

#include "config/settings.h"
#include "observe/counters.h"
#include "p2p/links.h"
#include "p2p/send_memory.h"

namespace od::p2p {

class Receiver;

class Outbox {
 public:
  Outbox(Links& links, SendMemory& memory, Receiver& receiver, const config::Settings& settings,
         observe::Counters& counters)
      : links_(links),
        memory_(memory),
        receiver_(receiver),
        settings_(settings),
        counters_(counters) {}

  // Sends a message or descriptor of some lines at most through a frame or the box; false: neither
  // can take it, use the inbox list.
  bool post(std::uint32_t peer, const MessageHeader& header, const void* data, std::uint32_t bytes);
  // Whether a message of this size can go into the box; waits a little for room. Then put().
  bool usable_box(std::uint32_t peer, std::uint32_t bytes);
  void put(std::uint32_t peer, const MessageHeader& header, const void* data, std::uint32_t bytes);
  // Puts a message on the peer's inbox list; what the header does not say is in the envelope
  // already.
  void list(std::uint32_t peer, Envelope& envelope, const MessageHeader& header,
            std::uint64_t bytes);
  // A frame for long payload, if frames may be used now; FrameSet::kNone.
  unsigned held_frame(std::uint32_t peer);

 private:
  bool open_box(std::uint32_t peer);
  // Whether the box may be used again, for a sender that has listed messages; now and then this
  // waits a little for the receiver to catch up.
  bool list_drains(std::uint32_t peer);

  Links& links_;
  SendMemory& memory_;
  Receiver& receiver_;
  const config::Settings& settings_;
  observe::Counters& counters_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_OUTBOX_H_
