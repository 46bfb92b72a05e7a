// The sending half of a rank: chooses the path of a message, sends what goes in one piece, and
// keeps the streams going that do not.
//
// Invariants:
//  - A request is complete when its payload has left the program's buffer (and, of a synchronous
//    send, a receive has come); no send needs its sender to come back for longer than
//    relieve_stalled() allows.
//  - A message whose path is not to be had takes cells; cells that are not to be had, own memory.
//  - A stream is `outgoing` until its request is complete, then it lingers in SendMemory until the
//    receiver is done.
//  - A round looks at a number of streams that does not grow with how many there are. What has been
//    behind many others asks its receiver to call when it comes, and is then looked at first.
//  - Only the speed depends on the choice of a path.
// What a small message touches comes first, in one line.
#ifndef OVERDRIVE_P2P_SENDER_H_
#define OVERDRIVE_P2P_SENDER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "config/settings.h"
#include "host/host_table.h"
#include "memory/send_history.h"
#include "node/wait.h"
#include "observe/counters.h"
#include "p2p/copy_plan.h"
#include "p2p/links.h"
#include "p2p/outbox.h"
#include "p2p/path/side.h"
#include "p2p/path_table.h"
#include "p2p/payload.h"
#include "p2p/request.h"
#include "p2p/send_memory.h"
#include "p2p/stores.h"
#include "p2p/stream_queue.h"
#include "p2p/streams.h"

namespace od::p2p {

class Receiver;

class alignas(64) Sender {
 public:
  // The most bytes that go inline: a message must fit a box several times over, or every one of
  // them would fill it.
  static std::uint64_t inline_max(const Links& links, const config::Settings& settings);

  Sender(Links& links, Receiver& receiver, const config::Settings& settings,
         const host::HostTable& host, observe::Counters& counters, memory::SendHistory& history);
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // --- sending (sender.cc) -----------------------------------------------------------------------
  // Sends a small contiguous message through the fast box if it fits now; false: use send().
  bool try_inline(std::uint32_t peer, const MessageHeader& header, const void* data,
                  std::uint32_t bytes) {
    Link& link = links_[peer];
    if (bytes > inline_max_ || !link.direct()) [[unlikely]]
      return false;
    FrameSet& frames = frames_[peer];
    const unsigned frame = frames.held();
    if (frame != FrameSet::kNone && bytes <= kFrameShortBytes) {
      frames.put(frame, header, data, bytes, link.box.messages());
    } else if (link.box.has_room(bytes)) [[likely]] {
      link.box.put(header, data, bytes, frames.sent());
    } else {
      return false;
    }
    node::wake_if_armed(*link.armed, wake_);
    ++counters_.sends_inline;
    counters_.bytes_inline += bytes;
    return true;
  }
  // The same for kPrefixBytes at `prefix` and `bytes` behind them.
  bool try_behind(std::uint32_t peer, const MessageHeader& header, const void* prefix,
                  const void* data, std::uint32_t bytes) {
    Link& link = links_[peer];
    if (bytes > inline_max_ || !link.direct()) [[unlikely]]
      return false;
    FrameSet& frames = frames_[peer];
    const unsigned frame = frames.held();
    if (frame != FrameSet::kNone && bytes <= kFrameShortBytes) {
      frames.put_behind(frame, header, prefix, data, bytes, link.box.messages());
    } else if (link.box.has_room(kPrefixBytes + bytes)) [[likely]] {
      link.box.put_behind(header, prefix, data, bytes, frames.sent());
    } else {
      return false;
    }
    node::wake_if_armed(*link.armed, wake_);
    ++counters_.sends_inline;
    counters_.bytes_inline += kPrefixBytes + bytes;
    return true;
  }
  // Starts a send of any shape and size. Sets request.complete at once when the payload has left
  // the program's buffer. Returns a host error code (out of memory only).
  int send(std::uint32_t peer, const MessageHeader& header, const Payload& payload, SendMode mode,
           Request& request);

  // --- streams that go out (sender_streams.cc) ---------------------------------------------------
  // MPI_Cancel of a send: true if the message will never be received.
  bool cancel(Request& request);
  // Completes the payload of all sends into own memory, as far as the buffer limit allows.
  void flush();
  // Buffers what has waited too long for its receiver; called now and then by waiting loops.
  // Those that are offers only if `offers` says so.
  void relieve_stalled(std::uint64_t now_ns, bool offers);
  bool has_unfinished() const { return !outgoing_.empty(); }
  // Sends whose payload is still (partly) in the program's buffer.
  bool has_unfinished_payload() const;
  // One round over all streams; true if anything moved.
  bool progress();
  // Whether progress() would find something.
  bool anything_ready() const;

  CellPool& pool() { return memory_.pool(); }
  const BufferHeap& heap() const { return memory_.heap(); }

 private:
  ChosenPath choose_path(std::uint32_t peer, const Payload& payload);
  Path learnt_path(std::uint32_t peer, const Payload& payload, bool reachable,
                   memory::BufferUse use, Path prior);
  int send_stream(std::uint32_t peer, MessageHeader header, const Payload& payload, Cursor* cursor,
                  std::unique_ptr<char[]> packed, SendMode mode, const ChosenPath& chosen,
                  Request& request);
  bool advance(OutgoingStream& stream);
  // Moves it as far as it goes, and lets go of it if its request is complete then.
  bool look_at(OutgoingStream& stream);
  bool answer_calls();
  bool advance_offer(OutgoingStream& stream);
  // What was offered goes through cells or own memory after all.
  void end_offer(OutgoingStream& stream);
  bool withdraw(OutgoingStream& stream);
  static bool done(const OutgoingStream& stream);
  static void complete(OutgoingStream& stream);

  // A line: what a small message touches, and whether there is more to do in a round.
  Link* links_;       // by node index
  FrameSet* frames_;  // by node index
  observe::Counters& counters_;
  std::uint64_t inline_max_;
  node::WakeMode wake_;
  bool verify_;
  StreamQueue outgoing_;  // its turn: of those that a round does not always look at
  std::uint64_t eager_max_ = 0;
  const config::Settings& settings_;
  const host::HostTable& host_;
  Links& all_links_;
  Receiver& receiver_;
  CopyPlan plan_;
  SendMemory memory_;
  Stores stores_;
  Outbox outbox_;
  SendSide side_;
  memory::SendHistory& history_;
  std::vector<unsigned char> packed_;  // a message that is sent; others may arrive meanwhile
  // What copy paths cost here; null where the thresholds alone choose.
  std::unique_ptr<PathTable> learnt_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_SENDER_H_
