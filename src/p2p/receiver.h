// The receiving half of a rank: takes what has arrived in frames, boxes and on the inbox list,
// matches it, and brings payload into the program's buffers.
//
// Invariants (with rule S of the sender they keep a pair's messages in order, see
// docs/design/point-to-point.md):
//  R  Everything in a peer's frames and its box is taken before a listed message of that peer, and
//  of
//     frames and box the message whose number is next.
//  -  A message is matched once: it goes to its receive, or to the unexpected ones, where
//     deliver_unexpected() finds it.
//  -  *Taken* is stored before a listed message is handed on, which may give its envelope back.
//  -  A message *taken aside* (its sender must not wait, its receive is not known) stays
//  unexpected,
//     with its payload here; if that is not whole when the receive is found it is *parked* until it
//     is.
// What every message touches comes first, in the order in which it is touched.
#ifndef OVERDRIVE_P2P_RECEIVER_H_
#define OVERDRIVE_P2P_RECEIVER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "config/settings.h"
#include "host/host_table.h"
#include "memory/send_history.h"
#include "observe/counters.h"
#include "p2p/delivery.h"
#include "p2p/incoming.h"
#include "p2p/links.h"
#include "p2p/matching.h"
#include "p2p/path/side.h"
#include "p2p/payload.h"

namespace od::p2p {

class alignas(64) Receiver {
 public:
  // `inline_max`: the most bytes that a peer sends inline. `history`: see Delivery.
  Receiver(Links& links, const config::Settings& settings, const host::HostTable& host,
           Matching& matching, observe::Counters& counters, std::uint64_t inline_max,
           memory::SendHistory* history);
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // --- arrivals (receiver_arrivals.cc) ---------------------------------------------------------
  // Cheap look at the queues alone: whether progress would find a message.
  bool arrived() const {
    for (const std::uint32_t peer : watched_) {
      if (frames_[peer].ready() || boxes_[peer].ready()) return true;
    }
    // Relaxed: only a hint, progress acquires.
    return header_->inbox.load(std::memory_order_relaxed) != 0;
  }
  // Takes all that has arrived, a batch of each peer; true if there was anything.
  bool take_arrivals();
  // Own envelopes whose receivers have come and called, in that order; for the sender to take.
  std::vector<Envelope*>& calls() { return calls_; }
  // Takes at most so many messages from frames and box of one peer.
  bool take_from(std::uint32_t peer, int most);
  // If the oldest message of `peer` in frames and box is a short one of (context, source, tag; the
  // tag may be a wildcard) that fits, takes it and returns its length. The caller has made sure
  // that no posted receive and no older message goes before.
  static constexpr std::int32_t kNothingYet = -1;
  static constexpr std::int32_t kAnother = -2;  // or somebody has listed something
  std::int32_t take_short(std::uint32_t peer, std::uint64_t context, std::uint32_t source,
                          std::int32_t tag, void* to, std::uint32_t room);
  // Arrivals, the streams that come in, what is parked: the receiver's part of a round.
  bool progress() {
    bool moved = take_arrivals();
    if (!incoming_.empty()) [[unlikely]]
      moved |= incoming_.progress();
    if (!parked_.empty()) [[unlikely]]
      moved |= deliver_parked();
    return moved;
  }
  // The second look before sleeping: whether progress() would find something.
  bool anything_ready() const;
  bool streams_active() const { return !incoming_.empty(); }
  // Publishes what fast boxes have consumed, so that senders see room while we are away.
  void publish_consumed();

  // --- messages that came before their receive (receiver.cc) -----------------------------------
  // Delivers an unexpected message that has been removed from the queue. False: the sender
  // cancelled it meanwhile (the message is freed, the receive goes on looking).
  bool deliver_unexpected(Unexpected& message, Request& receive);
  // A probe is about to show `message`: false if it has been cancelled (then it is freed).
  bool pin(Unexpected& message);
  // A message of this rank to itself. An error when there is no memory, or the host could not pack
  // the message.
  int arrive_from_self(const MessageHeader& header, const Payload& payload, bool synchronous,
                       Request& request);

  // --- for a program that sits in a call of the host (receiver_aside.cc) -----------------------
  // Receives an unexpected stream into own memory, so that its sender is done with it; which
  // receive of the program gets it is seen later. True if anything moved; the message may be gone.
  bool take_aside(Unexpected& message);

  Delivery& delivery() { return delivery_; }

 private:
  // A message taken aside whose receive has been found before all of it was there.
  struct Parked {
    std::unique_ptr<Request> aside;
    std::unique_ptr<unsigned char[]> data;
    MessageHeader header;
    std::uint64_t bytes;
    Request* receive;
  };

  void watch_new_boxes();
  // Takes the oldest message that waits in frames and box of `peer`; false: none.
  bool take_next(std::uint32_t peer);
  void take_box_message(std::uint32_t peer, BoxConsumer& box);
  void take_frame_message(std::uint32_t peer, unsigned frame, FrameControl control);
  template <typename Copy>
  void arrive_short(std::uint32_t peer, const MessageHeader& header, const Copy& copy);
  Unexpected& new_unexpected(std::uint32_t peer, const MessageHeader& header, std::uint64_t bytes);
  void take_inbox();
  void take_listed(std::uint32_t peer, Envelope& envelope);
  void arrive_stream(std::uint32_t peer, const MessageHeader& header,
                     const StreamDescriptor& descriptor);
  void deliver_aside(Unexpected& message, Request& receive);
  bool deliver_parked();

  // A line: the queues, and whom a message is for.
  std::vector<std::uint32_t> watched_;  // peers that have opened a box towards us
  FrameSet* frames_;                    // by node index
  BoxConsumer* boxes_;                  // by node index
  node::RegionHeader* header_;          // own
  Matching& matching_;
  observe::Counters& counters_;
  // A line: more of the same.
  std::vector<std::uint64_t> doorbells_seen_;
  std::uint64_t inline_max_;
  bool verify_;
  std::vector<unsigned char> scratch_;  // a message that arrives
  // A line: whether there is more to do in a round.
  std::vector<Parked> parked_;
  IncomingStreams incoming_;
  Delivery delivery_;
  ReceiveSide side_;
  Links& links_;
  const host::HostTable& host_;
  std::vector<Envelope*> calls_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_RECEIVER_H_
