// The receiving half of the transport: frames, boxes, the inbox list, matching on arrival, copying
// out.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "memory/copy.h"
#include "observe/log.h"
#include "p2p/arrival.h"
#include "p2p/inbox.h"
#include "p2p/transport.h"

namespace od::p2p {

void Transport::watch_new_boxes() {
  for (std::size_t word = 0; word < doorbells_seen_.size(); ++word) {
    // Acquire: pairs with open_box.
    const std::uint64_t bits = header_->box_doorbells[word].load(std::memory_order_acquire);
    std::uint64_t fresh = bits & ~doorbells_seen_[word];
    if (fresh == 0) [[likely]]
      continue;
    doorbells_seen_[word] = bits;
    for (; fresh != 0; fresh &= fresh - 1) {
      const auto peer =
          static_cast<std::uint32_t>(word * 64 + static_cast<unsigned>(__builtin_ctzll(fresh)));
      if (peer < boxes_.size()) watched_.push_back(peer);
    }
  }
}

Envelope* Transport::envelope_at(std::uint32_t peer, std::uint64_t offset) const {
  const std::uint64_t fixed_end =
      layout_.envelopes_offset + layout_.envelope_count * sizeof(Envelope);
  const std::uint64_t heap_end = layout_.buffers_offset + layout_.buffers_bytes;
  const bool fixed = offset >= layout_.envelopes_offset && offset + sizeof(Envelope) <= fixed_end;
  const bool heap = offset >= layout_.buffers_offset && offset + sizeof(Envelope) <= heap_end;
  if ((!fixed && !heap) || offset % alignof(Envelope) != 0) corrupt(peer, "envelope");
  return reinterpret_cast<Envelope*>(links_[peer].base + offset);
}

const std::byte* Transport::payload_at(std::uint32_t peer, std::uint64_t offset,
                                       std::uint64_t bytes) const {
  const std::uint64_t pool_end = layout_.pool_offset + layout_.pool_bytes;
  const std::uint64_t heap_end = layout_.buffers_offset + layout_.buffers_bytes;
  const bool pool =
      offset >= layout_.pool_offset && offset <= pool_end && bytes <= pool_end - offset;
  const bool heap =
      offset >= layout_.buffers_offset && offset <= heap_end && bytes <= heap_end - offset;
  if (!pool && !heap) corrupt(peer, "payload address");
  return links_[peer].base + offset;
}

void Transport::check(std::uint32_t sent, std::uint64_t computed,
                      const MessageHeader& header) const {
  ++counters_.verified;
  if (sent == memory::checksum_fold(computed)) return;
  log(Level::kError,
      "verification failed: a message from rank %u with tag %d arrived changed; please report it, "
      "and "
      "run with OVERDRIVE_DISABLE=1 meanwhile",
      header.source, header.tag);
  host_.abort(1);
}

// --- completing a receive ------------------------------------------------------------------------

void Transport::finish_receive(Request& receive, const MessageHeader& header, std::uint64_t bytes) {
  receive.status.source = static_cast<int>(header.source);
  receive.status.tag = header.tag;
  receive.status.cancelled = false;
  const auto room = static_cast<std::uint64_t>(receive.bytes);
  if (bytes > room) [[unlikely]] {
    receive.status.error = host_.err_truncate;
    receive.status.bytes = receive.bytes;
    ++counters_.truncations;
  } else {
    receive.status.error = host::kSuccess;
    receive.status.bytes = static_cast<std::int64_t>(bytes);
    const std::int64_t whole_bytes = receive.layout->whole_bytes;
    if (whole_bytes != 0 && receive.status.bytes % whole_bytes != 0) [[unlikely]] {
      receive.status.error = host_.err_split_element;
      receive.status.bytes -= receive.status.bytes % whole_bytes;
    }
  }
  counters_.bytes_received += bytes;
  receive.complete = true;
}

void Transport::deliver_bytes(const void* data, std::uint64_t bytes, Request& receive,
                              memory::CopyFunction copy) {
  const std::uint64_t limit = std::min(bytes, static_cast<std::uint64_t>(receive.bytes));
  if (limit == 0) return;
  const Layout& layout = *receive.layout;
  char* start = nullptr;
  if (is_contiguous(layout, receive.address, receive.count, &start)) [[likely]] {
    copy(start, data, limit);
  } else if (layout.shape == Shape::opaque) {
    host_.unpack(data, static_cast<std::int64_t>(limit), receive.address, receive.count,
                 layout.host_type);
    ++counters_.layouts_host_packed;
  } else {
    Cursor cursor(receive.address, receive.count, layout);
    cursor.unpack(data, limit, copy);
    ++counters_.layouts_direct;
  }
}

// --- frames and fast boxes -----------------------------------------------------------------------

bool Transport::take_from(std::uint32_t peer, int most) {
  bool moved = false;
  for (int i = 0; i < most && take_next(peer); ++i) moved = true;
  return moved;
}

bool Transport::take_next(std::uint32_t peer) {
  FrameSet& frames = frames_[peer];
  BoxConsumer& box = boxes_[peer];
  FrameControl control;
  unsigned frame = frames.ready(&control);
  if (frame != FrameSet::kNone && control.box_before() == box.messages()) {
    take_frame_message(peer, frame, control);
    return true;
  }
  if (!box.ready()) [[likely]]
    return false;
  if (box.frames_before() != frames.received()) [[unlikely]] {
    // What has come meanwhile in a frame is older.
    frame = frames.ready(&control);
    if (frame == FrameSet::kNone || control.box_before() != box.messages()) {
      corrupt(peer, "order of messages");
    }
    take_frame_message(peer, frame, control);
    return true;
  }
  take_box_message(peer, box);
  return true;
}

// An inline message whose payload is in one piece.
void Transport::deliver_short(std::uint32_t peer, const MessageHeader& header,
                              const unsigned char* data) {
  const std::uint32_t bytes = header.inline_bytes;
  Request* receive = matching_.match_posted(header.context, header.source, header.tag);
  if (receive != nullptr) [[likely]] {
    ++counters_.matched_posted;
    ++counters_.receives_inline;
    char* start = nullptr;
    if (!verify_ && is_contiguous(*receive->layout, receive->address, receive->count, &start))
        [[likely]] {
      const auto limit = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(bytes, static_cast<std::uint64_t>(receive->bytes)));
      copy_small(reinterpret_cast<unsigned char*>(start), data, limit);
    } else {
      if (verify_) {
        check(header.checksum, memory::checksum_update(memory::kChecksumStart, data, bytes),
              header);
      }
      deliver_bytes(data, bytes, *receive);
    }
    finish_receive(*receive, header, bytes);
    return;
  }
  Unexpected* message = matching_.new_unexpected();
  message->header = header;
  message->node_index = static_cast<std::uint16_t>(peer);
  message->bytes = bytes;
  if (bytes > sizeof(message->small)) message->data.reset(new unsigned char[bytes]);
  std::memcpy(message->data != nullptr ? message->data.get() : message->small, data, bytes);
  matching_.add_unexpected(*message);
}

void Transport::take_frame_message(std::uint32_t peer, unsigned frame, FrameControl control) {
  FrameSet& frames = frames_[peer];
  MessageHeader header;
  frames.take(frame, control, &header);
  switch (header.kind) {
    case Kind::inline_data:
      if (header.inline_bytes > kFrameShortBytes) corrupt(peer, "message");
      deliver_short(peer, header, frames.short_payload(frame, header.inline_bytes));
      frames.keep(frame);
      return;
    case Kind::frame: {
      if (header.inline_bytes > layout_.frame_bytes) corrupt(peer, "message");
      Request* receive = matching_.match_posted(header.context, header.source, header.tag);
      if (receive != nullptr) {
        ++counters_.matched_posted;
        deliver_frame(peer, header, frame, *receive);
        return;
      }
      Unexpected* message = matching_.new_unexpected();
      message->header = header;
      message->node_index = static_cast<std::uint16_t>(peer);
      message->bytes = header.inline_bytes;
      message->frame = frame;
      matching_.add_unexpected(*message);
      return;
    }
    case Kind::stream: {
      StreamDescriptor descriptor;
      if (header.inline_bytes != sizeof(descriptor)) corrupt(peer, "message");
      std::memcpy(&descriptor, frames.short_payload(frame, sizeof(descriptor)), sizeof(descriptor));
      if (descriptor.frame == 0) {
        frames.keep(frame);
      } else {
        descriptor.frame = static_cast<std::uint8_t>(frame + 1);
      }
      arrive_stream(peer, header, descriptor);
      return;
    }
    case Kind::none:
    case Kind::continuation:
    case Kind::cell:
      break;
  }
  corrupt(peer, "message");
}

void Transport::take_box_message(std::uint32_t peer, BoxConsumer& box) {
  MessageHeader header;
  box.peek(&header);
  switch (header.kind) {
    case Kind::inline_data: {
      const std::uint32_t bytes = header.inline_bytes;
      if (bytes > inline_max_) break;
      Request* receive = matching_.match_posted(header.context, header.source, header.tag);
      if (receive != nullptr) {
        ++counters_.matched_posted;
        ++counters_.receives_inline;
        char* start = nullptr;
        if (!verify_ && is_contiguous(*receive->layout, receive->address, receive->count, &start))
            [[likely]] {
          const auto limit = static_cast<std::uint32_t>(
              std::min<std::uint64_t>(bytes, static_cast<std::uint64_t>(receive->bytes)));
          box.take(start, bytes, limit);
        } else {
          box.take(scratch_.data(), bytes, bytes);
          if (verify_) {
            check(header.checksum,
                  memory::checksum_update(memory::kChecksumStart, scratch_.data(), bytes), header);
          }
          deliver_bytes(scratch_.data(), bytes, *receive);
        }
        finish_receive(*receive, header, bytes);
        return;
      }
      Unexpected* message = matching_.new_unexpected();
      message->header = header;
      message->node_index = static_cast<std::uint16_t>(peer);
      message->bytes = bytes;
      if (bytes > sizeof(message->small)) message->data.reset(new unsigned char[bytes]);
      box.take(message->data != nullptr ? message->data.get() : message->small, bytes, bytes);
      matching_.add_unexpected(*message);
      return;
    }
    case Kind::cell: {
      CellDescriptor cell;
      if (header.inline_bytes != sizeof(cell)) break;
      box.take(&cell, sizeof(cell), sizeof(cell));
      const std::byte* data = payload_at(peer, cell.offset, cell.bytes);
      if (cell.release_index >= layout_.release_count) break;
      Request* receive = matching_.match_posted(header.context, header.source, header.tag);
      if (receive != nullptr) {
        ++counters_.matched_posted;
        ++counters_.receives_cell;
        if (verify_) {
          check(header.checksum, memory::checksum_update(memory::kChecksumStart, data, cell.bytes),
                header);
        }
        deliver_bytes(data, cell.bytes, *receive,
                      reader_for(cell.nontemporal, links_[peer].distance.far()));
        release_cell(links_[peer].releases, cell);
        finish_receive(*receive, header, cell.bytes);
        return;
      }
      Unexpected* message = matching_.new_unexpected();
      message->header = header;
      message->node_index = static_cast<std::uint16_t>(peer);
      message->bytes = cell.bytes;
      message->cell = cell;
      matching_.add_unexpected(*message);
      return;
    }
    case Kind::stream: {
      StreamDescriptor descriptor;
      if (header.inline_bytes != sizeof(descriptor)) break;
      box.take(&descriptor, sizeof(descriptor), sizeof(descriptor));
      descriptor.frame = 0;
      arrive_stream(peer, header, descriptor);
      return;
    }
    case Kind::none:
    case Kind::continuation:
    case Kind::frame:
      break;
  }
  corrupt(peer, "message");
}

// --- the inbox list ------------------------------------------------------------------------------

bool Transport::take_inbox() {
  std::uint64_t link = inbox_detach(header_->inbox);
  // Newest first: reverse through the `next` words, which now belong to us.
  std::uint64_t oldest = 0;
  while (link != 0) {
    const std::uint32_t peer = link_index(link);
    if (peer >= links_.size()) corrupt(my_index_, "inbox link");
    Envelope* envelope = envelope_at(peer, link_offset(link));
    const std::uint64_t following = envelope->next.load(std::memory_order_relaxed);
    envelope->next.store(oldest, std::memory_order_relaxed);
    oldest = link;
    link = following;
  }
  watch_new_boxes();
  while (oldest != 0) {
    const std::uint32_t peer = link_index(oldest);
    Envelope& envelope = *envelope_at(peer, link_offset(oldest));
    const std::uint64_t following = envelope.next.load(std::memory_order_relaxed);
    // What the peer put into its frames and its box is older than what it listed.
    while (take_next(peer)) {
    }
    take_listed(peer, envelope);
    oldest = following;
  }
  return true;
}

void Transport::take_listed(std::uint32_t peer, Envelope& envelope) {
  MessageHeader header;
  header.context = envelope.context;
  header.tag = envelope.tag;
  header.source = envelope.source;
  header.kind = envelope.kind;
  header.checksum = envelope.header_checksum;
  const std::uint32_t generation = envelope.generation;
  const std::uint64_t bytes = envelope.bytes;
  if (header.kind == Kind::stream) {
    // Release: from here on the sender may use its box again; pairs with Link::listed_taken. Before
    // arrival, which may hand the envelope back.
    StreamDescriptor descriptor{};
    descriptor.envelope_offset =
        static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(&envelope) - links_[peer].base);
    descriptor.bytes = bytes;
    descriptor.generation = generation;
    descriptor.cell_bytes = envelope.cell_bytes;
    descriptor.contended = envelope.contended;
    descriptor.route = envelope.route;
    descriptor.source_address = envelope.source_address;
    envelope.taken.store(generation, std::memory_order_release);
    arrive_stream(peer, header, descriptor);
    return;
  }
  if (header.kind == Kind::inline_data ? bytes > kEnvelopeInlineBytes : header.kind != Kind::cell) {
    corrupt(peer, "listed message");
  }
  Request* receive = matching_.match_posted(header.context, header.source, header.tag);
  Unexpected* message = matching_.new_unexpected();
  message->header = header;
  message->node_index = static_cast<std::uint16_t>(peer);
  message->bytes = bytes;
  message->envelope = &envelope;
  message->stream.generation = generation;
  if (header.kind == Kind::cell) {
    message->cell = envelope.cell;
    if (message->cell.release_index >= layout_.release_count) corrupt(peer, "cell");
    payload_at(peer, message->cell.offset, message->cell.bytes);
  }
  // Release: see above. Before delivery, which hands the envelope back.
  envelope.taken.store(generation, std::memory_order_release);
  if (receive != nullptr) {
    ++counters_.matched_posted;
    deliver_unexpected(*message, *receive);
  } else {
    matching_.add_unexpected(*message);
  }
}

void Transport::arrive_stream(std::uint32_t peer, const MessageHeader& header,
                              const StreamDescriptor& descriptor) {
  Envelope* envelope = envelope_at(peer, descriptor.envelope_offset);  // checks the offset
  Request* receive = matching_.peek_posted(header.context, header.source, header.tag);
  if (receive != nullptr) {
    const Taken taken = take_stream(peer, descriptor, *receive);
    if (taken == Taken::cancelled) {
      keep_frame(peer, descriptor.frame);
      return;
    }
    matching_.unpost(*receive);
    ++counters_.matched_posted;
    start_incoming(taken, peer, descriptor, header, *receive);
    return;
  }
  Unexpected* message = matching_.new_unexpected();
  message->header = header;
  message->node_index = static_cast<std::uint16_t>(peer);
  message->bytes = descriptor.bytes;
  message->envelope = envelope;
  message->stream = descriptor;
  matching_.add_unexpected(*message);
}

// --- unexpected messages -------------------------------------------------------------------------

bool Transport::deliver_unexpected(Unexpected& message, Request& receive) {
  const MessageHeader header = message.header;
  const std::uint32_t peer = message.node_index;
  const std::uint64_t bytes = message.bytes;
  if (message.from == Unexpected::Source::self) {
    deliver_bytes(message.data.get(), bytes, receive);
    if (message.synchronous_sender != nullptr) message.synchronous_sender->complete = true;
    ++counters_.receives_self;
    finish_receive(receive, header, bytes);
  } else if (header.kind == Kind::stream) {
    const Taken taken = take_stream(peer, message.stream, receive);
    if (taken == Taken::cancelled) {
      keep_frame(peer, message.stream.frame);
      matching_.free_unexpected(message);
      return false;
    }
    start_incoming(taken, peer, message.stream, header, receive);
  } else if (header.kind == Kind::frame) {
    deliver_frame(peer, header, message.frame, receive);
  } else if (header.kind == Kind::cell) {
    const std::byte* data = payload_at(peer, message.cell.offset, message.cell.bytes);
    if (verify_) {
      check(header.checksum, memory::checksum_update(memory::kChecksumStart, data, bytes), header);
    }
    deliver_bytes(data, bytes, receive,
                  reader_for(message.cell.nontemporal, links_[peer].distance.far()));
    release_cell(links_[peer].releases, message.cell);
    if (message.envelope != nullptr) mark_done(*message.envelope, message.stream.generation);
    ++counters_.receives_cell;
    finish_receive(receive, header, bytes);
  } else {
    const unsigned char* data = message.envelope != nullptr ? message.envelope->payload
                                : message.data != nullptr   ? message.data.get()
                                                            : message.small;
    if (verify_) {
      check(header.checksum, memory::checksum_update(memory::kChecksumStart, data, bytes), header);
    }
    deliver_bytes(data, bytes, receive);
    if (message.envelope != nullptr) mark_done(*message.envelope, message.stream.generation);
    ++counters_.receives_inline;
    finish_receive(receive, header, bytes);
  }
  matching_.free_unexpected(message);
  return true;
}

void Transport::deliver_frame(std::uint32_t peer, const MessageHeader& header, unsigned frame,
                              Request& receive) {
  const std::byte* const data = frames_[peer].payload(frame);
  const std::uint32_t bytes = header.inline_bytes;
  if (verify_) {
    check(header.checksum, memory::checksum_update(memory::kChecksumStart, data, bytes), header);
  }
  deliver_bytes(data, bytes, receive, reader_for(0, links_[peer].distance.far()));
  frames_[peer].keep(frame);
  ++counters_.receives_frame;
  finish_receive(receive, header, bytes);
}

bool Transport::pin(Unexpected& message) {
  if (message.from != Unexpected::Source::local || message.header.kind != Kind::stream) return true;
  if (take_state(*message.envelope, message.stream, EnvelopeState::pinned) != Taken::cancelled) {
    return true;
  }
  mark_done(*message.envelope, message.stream.generation);
  keep_frame(message.node_index, message.stream.frame);
  matching_.remove_unexpected(message);
  matching_.free_unexpected(message);
  return false;
}

void Transport::send_to_self(const MessageHeader& header_in, const Payload& payload,
                             bool synchronous, Request& request) {
  MessageHeader header = header_in;
  header.kind = Kind::inline_data;
  std::unique_ptr<unsigned char[]> data;
  const void* from = payload.contiguous;
  if (payload.bytes > 0 && from == nullptr) {
    data.reset(new unsigned char[payload.bytes]);
    const Layout& layout = **payload.layout;
    if (layout.shape == Shape::opaque) {
      host_.pack(payload.address, payload.count, layout.host_type, data.get(),
                 static_cast<std::int64_t>(payload.bytes));
    } else {
      Cursor cursor(const_cast<void*>(payload.address), payload.count, layout);
      cursor.pack(data.get(), payload.bytes, memory::copy_ordinary);
    }
    from = data.get();
  }
  ++counters_.sends_self;
  counters_.bytes_self += payload.bytes;
  Request* receive = matching_.match_posted(header.context, header.source, header.tag);
  if (receive != nullptr) {
    ++counters_.receives_self;
    ++counters_.matched_posted;
    deliver_bytes(from, payload.bytes, *receive);
    finish_receive(*receive, header, payload.bytes);
    request.complete = true;
    return;
  }
  if (data == nullptr && payload.bytes > 0) {
    data.reset(new unsigned char[payload.bytes]);
    std::memcpy(data.get(), from, payload.bytes);
  }
  Unexpected* message = matching_.new_unexpected();
  message->header = header;
  message->from = Unexpected::Source::self;
  message->node_index = static_cast<std::uint16_t>(my_index_);
  message->bytes = payload.bytes;
  message->data = std::move(data);
  if (synchronous) {
    message->synchronous_sender = &request;
  } else {
    request.complete = true;
  }
  matching_.add_unexpected(*message);
}

}  // namespace od::p2p
