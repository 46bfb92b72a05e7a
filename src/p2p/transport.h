// Moves messages between the ranks of a node: what a rank's sending and receiving halves are to the
// engine, and what they share.
//
// Link and Links say what is known about peers, Sender sends, Receiver takes what arrives; each has
// its own header with its invariants, each copy path its own file in path/. Here they are only put
// together and run in turn.
//
// Used by one thread at a time (the rank's lock, when the program is multi-threaded).
#ifndef OVERDRIVE_P2P_TRANSPORT_H_
#define OVERDRIVE_P2P_TRANSPORT_H_

#include <cstdint>

#include "config/settings.h"
#include "host/host_table.h"
#include "memory/send_history.h"
#include "node/node.h"
#include "node/wait.h"
#include "observe/counters.h"
#include "p2p/links.h"
#include "p2p/matching.h"
#include "p2p/payload.h"
#include "p2p/receiver.h"
#include "p2p/request.h"
#include "p2p/sender.h"

namespace od::p2p {

class Transport {
 public:
  Transport(node::Node& node, node::WakeMode wake, const config::Settings& settings,
            const host::HostTable& host, Matching& matching, observe::Counters& counters)
      : links_(node, wake, settings, host, counters),
        receiver_(links_, settings, host, matching, counters, Sender::inline_max(links_, settings),
                  settings.copy_path == config::CopyPath::kAuto ? &history_ : nullptr),
        sender_(links_, receiver_, settings, host, counters, history_) {}
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // At the start, and later: so much of the pool has been touched (cell_pool.h).
  void pool_exists(std::uint64_t bytes) { sender_.pool().begin_within(bytes); }
  void pool_reaches(std::uint64_t bytes) { sender_.pool().extend_to(bytes); }

  // --- sending: see Sender -------------------------------------------------------------------
  bool try_send_inline(std::uint32_t peer, const MessageHeader& header, const void* data,
                       std::uint32_t bytes) {
    return sender_.try_inline(peer, header, data, bytes);
  }
  bool try_send_behind(std::uint32_t peer, const MessageHeader& header, const void* prefix,
                       const void* data, std::uint32_t bytes) {
    return sender_.try_behind(peer, header, prefix, data, bytes);
  }
  int send(std::uint32_t peer, const MessageHeader& header, const Payload& payload, SendMode mode,
           Request& request) {
    return sender_.send(peer, header, payload, mode, request);
  }
  int send_to_self(const MessageHeader& header, const Payload& payload, bool synchronous,
                   Request& request) {
    return receiver_.arrive_from_self(header, payload, synchronous, request);
  }
  bool cancel(Request& request) { return sender_.cancel(request); }
  void flush() {
    sender_.flush();
    receiver_.publish_consumed();
  }
  bool has_unfinished_sends() const { return sender_.has_unfinished(); }
  bool has_unfinished_payload() const { return sender_.has_unfinished_payload(); }
  void relieve_stalled(std::uint64_t now_ns, bool offers = true) {
    sender_.relieve_stalled(now_ns, offers);
  }

  // --- receiving: see Receiver and Delivery --------------------------------------------------
  std::int32_t take_short(std::uint32_t peer, std::uint64_t context, std::uint32_t source,
                          std::int32_t tag, void* to, std::uint32_t room) {
    return receiver_.take_short(peer, context, source, tag, to, room);
  }
  bool deliver_unexpected(Unexpected& message, Request& receive) {
    return receiver_.deliver_unexpected(message, receive);
  }
  // Copies a message that came another way into the receive's buffer, as far as it fits. An error
  // of the host when it could not unpack the message.
  int deliver(const void* data, std::int64_t bytes, Request& receive) {
    return receiver_.delivery().deliver(data, static_cast<std::uint64_t>(bytes), receive);
  }
  bool take_aside(Unexpected& message) { return receiver_.take_aside(message); }
  bool pin(Unexpected& message) { return receiver_.pin(message); }
  void publish_consumed() { receiver_.publish_consumed(); }
  // While set, whoever makes progress may not call the host: what only the host can unpack stays
  // incomplete until unpack_deferred().
  void set_host_away(bool away) { receiver_.delivery().set_host_away(away); }
  bool has_deferred() { return receiver_.delivery().has_deferred(); }
  void unpack_deferred() { receiver_.delivery().unpack_deferred(); }

  // --- progress ------------------------------------------------------------------------------
  // One round: arrivals, incoming and outgoing streams. True if anything moved.
  bool progress() {
    bool moved = receiver_.progress();
    if (sender_.has_unfinished() || !receiver_.calls().empty()) [[unlikely]]
      moved |= sender_.progress();
    return moved;
  }
  // Cheap look at the queues alone: whether progress() would find a message.
  bool arrived() const { return receiver_.arrived(); }
  // The second look before sleeping: whether progress() would find something.
  bool anything_ready() const { return receiver_.anything_ready() || sender_.anything_ready(); }
  bool streams_active() const { return sender_.has_unfinished() || receiver_.streams_active(); }

  // --- peers: see Links ----------------------------------------------------------------------
  void set_distance(std::uint32_t peer, bool far) { links_[peer].set_distance(far); }
  void fix_distance(std::uint32_t peer, bool far) { links_[peer].distance.fix(far); }
  // The peer has just written this line: how long it takes tells how far away the peer is.
  void time_line(std::uint32_t peer, const void* line, std::uint64_t far_line_ns) {
    links_[peer].distance.sample_line(p2p::time_line(line), far_line_ns);
  }
  bool far(std::uint32_t peer) const { return links_[peer].distance.far(); }
  node::WakeMode wake_mode() const { return links_.wake_mode(); }
  const BufferHeap& heap() const { return sender_.heap(); }
  void close_spaces() { links_.close_spaces(); }

 private:
  Links links_;
  memory::SendHistory history_;
  Receiver receiver_;
  Sender sender_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_TRANSPORT_H_
