// Moves messages between the ranks of a node: fast boxes, the inbox list, cells, frames, streams.
//
// The sending half (transport_send.cc) chooses the path of a message and keeps streams going; the
// receiving half takes what has arrived and matches it (transport_arrivals.cc) and copies payload
// out. Copies between the two programs' own buffers are in transport_direct.cc. Order between one
// pair of ranks: messages go through frames and the fast box, which tell the order among themselves
// (frames.h), until the box is full; from then on through the inbox list, until the receiver has
// taken the last listed one. The receiver takes everything from a sender's frames and box before it
// looks at that sender's listed messages. So neither holds a message that is younger than a listed
// one still to be taken.
//
// Used by one thread at a time (the rank's lock, when the program is multi-threaded).
#ifndef OVERDRIVE_P2P_TRANSPORT_H_
#define OVERDRIVE_P2P_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "config/settings.h"
#include "host/host_table.h"
#include "memory/copy.h"
#include "memory/send_history.h"
#include "memory/space_windows.h"
#include "node/node.h"
#include "node/wait.h"
#include "observe/counters.h"
#include "p2p/arrival.h"
#include "p2p/backoff.h"
#include "p2p/buffer_heap.h"
#include "p2p/cell_pool.h"
#include "p2p/copy_plan.h"
#include "p2p/distance.h"
#include "p2p/envelope.h"
#include "p2p/envelope_pool.h"
#include "p2p/fast_box.h"
#include "p2p/frames.h"
#include "p2p/layout.h"
#include "p2p/matching.h"
#include "p2p/path_table.h"
#include "p2p/request.h"
#include "p2p/store_speed.h"

namespace od::p2p {

// The program's data of one operation, in whatever shape.
struct Payload {
  const void* address = nullptr;
  std::int64_t count = 0;
  const LayoutRef* layout = nullptr;
  std::uint64_t bytes = 0;           // count * size
  const char* contiguous = nullptr;  // start, when it is one run of bytes
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

class Transport {
 public:
  Transport(node::Node& node, node::WakeMode wake, const config::Settings& settings,
            const host::HostTable& host, Matching& matching, observe::Counters& counters);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // At the start, and later: so much of the pool has been touched (cell_pool.h).
  void pool_exists(std::uint64_t bytes) { pool_.begin_within(bytes); }
  void pool_reaches(std::uint64_t bytes) { pool_.extend_to(bytes); }

  // --- sending -------------------------------------------------------------------------------
  // Sends a small contiguous message through the fast box if it fits now; false: use send().
  bool try_send_inline(std::uint32_t peer, const MessageHeader& header, const void* data,
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
  // Starts a send of any shape and size. Sets request.complete at once when the payload has left
  // the program's buffer. Returns a host error code (out of memory only).
  int send(std::uint32_t peer, const MessageHeader& header, const Payload& payload, SendMode mode,
           Request& request);
  // MPI_Cancel of a send: true if the message will never be received.
  bool cancel(Request& request);
  // Completes the payload of all sends into own memory, as far as the buffer limit allows.
  void flush();
  bool has_unfinished_sends() const { return !outgoing_.empty(); }
  // Sends whose payload is still (partly) in the program's buffer.
  bool has_unfinished_payload() const;

  // --- receiving -----------------------------------------------------------------------------
  // Delivers an unexpected message that has been removed from the queue. False: the sender
  // cancelled it meanwhile (the message is freed, the receive goes on looking).
  bool deliver_unexpected(Unexpected& message, Request& receive);
  // Copies a message that came another way into the receive's buffer, as far as it fits. An error
  // of the host when it could not unpack the message.
  int deliver(const void* data, std::int64_t bytes, Request& receive) {
    return deliver_bytes(data, static_cast<std::uint64_t>(bytes), receive);
  }
  // Receives an unexpected stream into own memory, so that its sender is done with it; which
  // receive of the program gets it is seen later. True if anything moved; the message may be gone.
  bool take_aside(Unexpected& message);
  // While set, whoever makes progress may not call the host: what only the host can unpack stays
  // incomplete until unpack_deferred().
  void set_host_away(bool away) { host_away_ = away; }
  bool has_deferred() const { return !deferred_.empty(); }
  void unpack_deferred();
  // A probe is about to show `message`: false if it has been cancelled (then it is freed).
  bool pin(Unexpected& message);
  // An error when there is no memory, or the host could not pack the message.
  int send_to_self(const MessageHeader& header, const Payload& payload, bool synchronous,
                   Request& request);

  // --- progress ------------------------------------------------------------------------------
  // One round: arrivals, incoming and outgoing streams. True if anything moved.
  bool progress();
  // Cheap look at the queues alone: whether progress() would find a message.
  bool arrived() const {
    for (const std::uint32_t peer : watched_) {
      if (frames_[peer].ready() || boxes_[peer].ready()) return true;
    }
    // Relaxed: only a hint, progress() acquires.
    return header_->inbox.load(std::memory_order_relaxed) != 0;
  }
  // Buffers what has waited too long for its receiver; called now and then by waiting loops.
  void relieve_stalled(std::uint64_t now_ns);
  // The second look before sleeping: whether progress() would find something.
  bool anything_ready() const;
  bool streams_active() const { return !outgoing_.empty() || !incoming_.empty(); }

  void set_distance(std::uint32_t peer, bool far) {
    Link& link = links_[peer];
    link.distance.set(far);
    link.cell_stores.assume(far);
    link.buffer_stores.assume(far);
    link.frame_stores.assume(false);
  }
  void fix_distance(std::uint32_t peer, bool far) { links_[peer].distance.fix(far); }
  bool far(std::uint32_t peer) const { return links_[peer].distance.far(); }
  node::WakeMode wake_mode() const { return wake_; }
  const BufferHeap& heap() const { return heap_; }
  // Before the rank leaves: nothing of the peers' address spaces is attached any more.
  void close_spaces() { windows_.close(); }
  // Publishes what fast boxes have consumed, so that senders see room while we are away.
  void publish_consumed();

 private:
  struct Link {  // what this rank knows about one peer
    BoxProducer box;
    Envelope* last_listed = nullptr;  // newest message on the peer's inbox list, if maybe untaken
    // See list_drains: listed messages that are done, what had been seen of the receiver's work
    // when it was last waited for in vain, and how often the list was in the way.
    std::uint64_t listed_given_back = 0;
    std::uint64_t stuck_at = std::numeric_limits<std::uint64_t>::max();
    std::uint8_t posts_behind_list = 0;
    std::atomic<std::uint32_t>* armed = nullptr;
    node::RegionHeader* header = nullptr;
    std::byte* base = nullptr;
    std::atomic<std::uint8_t>* releases = nullptr;
    std::byte* reach = nullptr;  // the peer's shared memory of its program, if it is mapped
    std::uint64_t reach_bytes = 0;
    bool reaches_us = false;  // the peer has mapped ours
    bool opens_us = false;    // the peer has opened our address space, and could attach so far
    Distance distance;
    StoreSpeed cell_stores;
    // Into the peer's own buffers, which it reads and writes itself: nothing that is written in
    // rotation, as cells are, tells what that costs.
    StoreSpeed buffer_stores{StoreSpeed::kSlowInBuffers};
    StoreSpeed frame_stores;  // into frames that have come back
    bool box_refused = false;
    bool offers_declined = false;      // the peer cannot read our memory
    bool kernel_refused = false;       // process_vm_readv of the peer is not permitted
    std::uint8_t late_receives = 0;    // how often, of late, an offer had to be withdrawn
    std::uint8_t offers_left_out = 0;  // since the peer is known to be late

    // Whether to let the peer read our buffer. Waiting for a receiver that is usually late is in
    // vain; now and then it is tried again.
    bool offer_worthwhile() {
      if (offers_declined) return false;
      return late_receives < kLateReceives || ++offers_left_out % kOfferInterval == 0;
    }
    static constexpr std::uint8_t kLateReceives = 3;
    static constexpr std::uint8_t kOfferInterval = 16;

    // Whether the box may be used now without overtaking a listed message.
    bool direct() {
      if (last_listed == nullptr) [[likely]]
        return box.open();
      return listed_taken();
    }
    bool listed_taken() {
      // Acquire: pairs with the receiver's release in take_listed.
      if (last_listed->taken.load(std::memory_order_acquire) != last_listed->generation) {
        return false;
      }
      last_listed = nullptr;
      return box.open();
    }
  };

  struct ChosenPath {  // how a payload is going to travel
    Path path = Path::cells;
    std::uint64_t source_address = 0;
    bool late = false;  // the receiver usually is: do not wait for it
  };

  // Sending.
  ChosenPath choose_path(std::uint32_t peer, const Payload& payload);
  Path learnt_path(std::uint32_t peer, const Payload& payload, bool reachable,
                   memory::BufferUse use, Path prior);
  bool open_box(std::uint32_t peer);
  bool usable_box(std::uint32_t peer, std::uint32_t bytes);
  // Whether the box may be used again, for a sender that has listed messages; now and then this
  // waits a little for the receiver to catch up.
  bool list_drains(std::uint32_t peer);
  // Puts a message on the peer's inbox list; what the header does not say is in the envelope
  // already.
  void list_envelope(std::uint32_t peer, Envelope& envelope, const MessageHeader& header,
                     std::uint64_t bytes);
  bool send_cell(std::uint32_t peer, MessageHeader header, const Payload& payload, Cursor* cursor);
  // In one go through a frame; false: there is none now.
  bool send_frame(std::uint32_t peer, MessageHeader header, const Payload& payload, Cursor* cursor);
  // A frame for long payload to `peer`, or kNone if there is none or it would be slow.
  unsigned frame_for_payload(std::uint32_t peer);
  // Sends a message or descriptor of some lines at most through a frame or the box; false: neither
  // can take it, use the inbox list.
  bool post(std::uint32_t peer, const MessageHeader& header, const void* data, std::uint32_t bytes);
  void copy_into_frame(Link& link, void* to, const void* from, std::uint64_t bytes, bool seen);
  int send_stream(std::uint32_t peer, MessageHeader header, const Payload& payload, Cursor* cursor,
                  std::unique_ptr<char[]> packed, SendMode mode, const ChosenPath& chosen,
                  Request& request);
  bool advance_outgoing(OutgoingStream& stream);
  enum class Place : std::uint8_t { frame, cell, own_memory };
  void fill(OutgoingStream& stream, std::byte* to, std::uint64_t bytes, Place place);
  void free_drained_cells(OutgoingStream& stream);
  bool buffer_rest(OutgoingStream& stream);
  bool sender_done(const OutgoingStream& stream) const;
  void complete_send(OutgoingStream& stream);
  void collect_lingering(bool thorough);
  bool retire(OutgoingStream& stream);
  bool advance_offer(OutgoingStream& stream);
  // Place of an own buffer for a peer that attaches, if it is worth it; kUnreachable.
  std::uint64_t attachable_place(const Link& link, const void* address, std::uint64_t bytes);
  bool withdraw(OutgoingStream& stream);
  // Where a place that a peer has told (an offset in its reach file, or a marked address) is in
  // this process, until the next call; null: it cannot be reached. A place that no buffer of the
  // peer can have ends the job.
  std::byte* peer_bytes(std::uint32_t peer, std::uint64_t place, std::uint64_t bytes,
                        const char* what);
  // Where the receiver wants the message; null: it cannot be reached.
  std::byte* target_of(const OutgoingStream& stream);
  bool help_receiver(OutgoingStream& stream);
  bool push_rest(OutgoingStream& stream);
  void copy_to_peer(OutgoingStream& stream, std::byte* to, std::uint64_t from, std::uint64_t bytes);
  // Into cells or the peer's buffer, whose `stores` they are; true if it used non-temporal stores.
  // `seen`: the peer has read this memory before, so that the copy tells how fast stores are.
  bool copy_in(StoreSpeed& stores, void* to, const void* from, std::uint64_t bytes, bool seen);

  // Receiving.
  bool take_from(std::uint32_t peer, int most);
  // Takes the oldest message that waits in frames and box of `peer`; false: none.
  bool take_next(std::uint32_t peer);
  void take_box_message(std::uint32_t peer, BoxConsumer& box);
  void take_frame_message(std::uint32_t peer, unsigned frame, FrameControl control);
  template <typename Take>
  void arrive_short(std::uint32_t peer, const MessageHeader& header, const Take& take);
  Unexpected& new_unexpected(std::uint32_t peer, const MessageHeader& header, std::uint64_t bytes);
  bool take_inbox();
  void take_listed(std::uint32_t peer, Envelope& envelope);
  void arrive_stream(std::uint32_t peer, const MessageHeader& header,
                     const StreamDescriptor& descriptor);
  void watch_new_boxes();
  int deliver_bytes(const void* data, std::uint64_t bytes, Request& receive,
                    memory::CopyFunction copy = memory::copy_ordinary);
  void deliver_cell(std::uint32_t peer, const MessageHeader& header, const CellDescriptor& cell,
                    Request& receive);
  void deliver_frame(std::uint32_t peer, const MessageHeader& header, unsigned frame,
                     Request& receive);
  // `delivered`: what deliver_bytes() has returned.
  void finish_receive(Request& receive, const MessageHeader& header, std::uint64_t bytes,
                      int delivered = host::kSuccess);
  // A message long enough for other ways than cells has been received: its buffer is not what was
  // last sent from there.
  void note_received(const Request& receive, std::uint64_t bytes) {
    if (bytes >= kNotedBytes) [[unlikely]]
      note_long_receive(receive);
  }
  void note_long_receive(const Request& receive);
  static constexpr std::uint64_t kNotedBytes = PathTable::kLeastBytes;
  void start_incoming(Taken taken, std::uint32_t peer, const StreamDescriptor& descriptor,
                      const MessageHeader& header, Request& receive);
  bool advance_incoming(IncomingStream& stream);
  void finish_incoming(IncomingStream& stream);
  void deliver_aside(Unexpected& message, Request& receive);
  bool deliver_parked();
  Taken take_stream(std::uint32_t peer, const StreamDescriptor& descriptor, const Request& receive);
  // Whether the sender's buffer can be read; if it is to be loaded, it is then at direct_source_.
  bool readable(std::uint32_t peer, const StreamDescriptor& descriptor);
  void note_attached(std::uint64_t place, std::uint64_t& messages, std::uint64_t bytes);
  // Both false: the payload has to come through cells after all.
  bool read_direct(std::uint32_t peer, const StreamDescriptor& descriptor, Request& receive);
  bool read_through_kernel(std::uint32_t peer, const StreamDescriptor& descriptor,
                           Request& receive);
  bool cooperates(std::uint32_t peer, const StreamDescriptor& descriptor) const;
  void read_cooperatively(IncomingStream& stream, const StreamDescriptor& descriptor);
  void check(std::uint32_t sent, std::uint64_t computed, const MessageHeader& header) const;
  Envelope* envelope_at(std::uint32_t peer, std::uint64_t offset) const;
  const std::byte* payload_at(std::uint32_t peer, std::uint64_t offset, std::uint64_t bytes) const;
  // A message has been read, or will never be: its frame is ours now. `frame`: index plus one, or
  // 0.
  void keep_frame(std::uint32_t peer, std::uint8_t frame) {
    if (frame != 0) frames_[peer].keep(frame - 1u);
  }
  [[noreturn]] void corrupt(std::uint32_t peer, const char* what) const;

  node::Node& node_;
  node::WakeMode wake_;
  const config::Settings& settings_;
  const host::HostTable& host_;
  Matching& matching_;
  observe::Counters& counters_;
  const node::RegionLayout& layout_;
  std::byte* region_;           // own
  node::RegionHeader* header_;  // own
  std::uint32_t my_index_;
  std::uint64_t inline_max_;
  std::uint64_t eager_max_;
  std::uint64_t piece_bytes_;
  bool verify_;
  std::uint64_t direct_checksum_ = 0;  // of what read_direct() has read, when verification is on
  int direct_delivered_ = 0;           // what deliver_bytes() said to it
  CopyPlan plan_;
  memory::SendHistory history_;
  memory::SpaceWindows windows_;  // by node index
  // Where the message lies that has just been taken to be read directly.
  const std::byte* direct_source_ = nullptr;

  std::vector<Link> links_;             // by node index
  std::vector<BoxConsumer> boxes_;      // by node index
  std::vector<FrameSet> frames_;        // by node index
  std::vector<std::uint32_t> watched_;  // peers that have opened a box towards us
  std::vector<std::uint64_t> doorbells_seen_;
  BufferHeap heap_;
  CellPool pool_;
  EnvelopePool envelopes_;
  std::vector<std::unique_ptr<OutgoingStream>> outgoing_;  // payload not yet complete
  std::deque<std::unique_ptr<OutgoingStream>> lingering_;  // complete, receiver not done
  struct Listed {
    Envelope* envelope;
    std::uint32_t peer;
  };
  std::deque<Listed> listed_;  // small listed messages, not done
  std::vector<std::unique_ptr<IncomingStream>> incoming_;
  // A message taken aside whose receive has been found before all of it was there.
  struct Parked {
    std::unique_ptr<Request> aside;
    std::unique_ptr<unsigned char[]> data;
    MessageHeader header;
    std::uint64_t bytes;
    Request* receive;
  };
  std::vector<Parked> parked_;
  // Payload that has arrived while the host could not be called.
  struct Deferred {
    Request* receive;
    std::unique_ptr<char[]> packed;
    std::uint64_t bytes;
  };
  std::vector<Deferred> deferred_;
  bool host_away_ = false;
  IncomingStream elsewhere_;  // what a receive points at whose payload is parked or deferred
  std::vector<std::unique_ptr<OutgoingStream>> spare_outgoing_;
  std::vector<std::unique_ptr<IncomingStream>> spare_incoming_;
  std::vector<unsigned char> scratch_;  // a message that arrives
  std::vector<unsigned char> packed_;   // one that is sent; messages may arrive meanwhile
  Backoff search_;                      // of thorough looks at what lingers
  // What copy paths cost here; null where the thresholds alone choose. Last, so that it moves
  // nothing that short messages touch.
  std::unique_ptr<PathTable> learnt_;
};

// Describes a payload; `bytes` and `contiguous` are derived.
inline Payload make_payload(const void* address, std::int64_t count, const LayoutRef& layout) {
  Payload payload{address, count, &layout, static_cast<std::uint64_t>(count * layout->size),
                  nullptr};
  char* start = nullptr;
  if (is_contiguous(*layout, address, count, &start)) payload.contiguous = start;
  return payload;
}

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_TRANSPORT_H_
