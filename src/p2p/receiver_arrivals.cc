// Arrivals: taking the oldest message out of a peer's frames, its box, or the inbox list, and
// matching it.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "memory/copy.h"
#include "p2p/arrival.h"
#include "p2p/inbox.h"
#include "p2p/path/short.h"
#include "p2p/receiver.h"

namespace od::p2p {

namespace {

// Messages taken from one peer before the others get their turn.
constexpr int kBatch = 16;

}  // namespace

bool Receiver::take_arrivals() {
  bool moved = false;
  watch_new_boxes();
  for (const std::uint32_t peer : watched_) moved |= take_from(peer, kBatch);
  if (inbox_waiting(header_->inbox)) [[unlikely]] {
    take_inbox();
    moved = true;
  }
  return moved;
}

void Receiver::watch_new_boxes() {
  for (std::size_t word = 0; word < doorbells_seen_.size(); ++word) {
    // Acquire: pairs with Outbox::open_box.
    const std::uint64_t bits = header_->box_doorbells[word].load(std::memory_order_acquire);
    std::uint64_t fresh = bits & ~doorbells_seen_[word];
    if (fresh == 0) [[likely]]
      continue;
    doorbells_seen_[word] = bits;
    for (; fresh != 0; fresh &= fresh - 1) {
      const auto peer =
          static_cast<std::uint32_t>(word * 64 + static_cast<unsigned>(__builtin_ctzll(fresh)));
      if (peer < links_.count()) watched_.push_back(peer);
    }
  }
}

// --- frames and fast boxes -----------------------------------------------------------------------

bool Receiver::take_from(std::uint32_t peer, int most) {
  if (!take_next(peer)) return false;
  FrameSet& frames = frames_[peer];
  BoxConsumer& box = boxes_[peer];
  for (int taken = 1; taken < most; ++taken) {
    // A peer that sends much at a time does so through its box. A message whose number is right is
    // the oldest, so frames need not be looked at.
    if (box.ready() && box.frames_before() == frames.received()) [[likely]] {
      take_box_message(peer, box);
    } else if (!take_next(peer)) {
      break;
    }
  }
  return true;
}

bool Receiver::take_next(std::uint32_t peer) {
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
      links_.corrupt(peer, "order of messages");
    }
    take_frame_message(peer, frame, control);
    return true;
  }
  take_box_message(peer, box);
  return true;
}

Unexpected& Receiver::new_unexpected(std::uint32_t peer, const MessageHeader& header,
                                     std::uint64_t bytes) {
  Unexpected* message = matching_.new_unexpected();
  message->header = header;
  message->node_index = static_cast<std::uint16_t>(peer);
  message->bytes = bytes;
  return *message;
}

// A message whose payload is with it; `copy(to, limit)` copies so much of it and lets it go.
template <typename Copy>
void Receiver::arrive_short(std::uint32_t peer, const MessageHeader& header, const Copy& copy) {
  const std::uint32_t bytes = header.inline_bytes;
  Request* receive = matching_.match_posted(header.context, header.source, header.tag);
  if (receive == nullptr) {
    Unexpected& message = new_unexpected(peer, header, bytes);
    if (bytes > sizeof(message.small)) message.data.reset(new unsigned char[bytes]);
    copy(message.data != nullptr ? message.data.get() : message.small, bytes);
    matching_.add_unexpected(message);
    return;
  }
  ++counters_.matched_posted;
  ++counters_.receives_inline;
  char* start = nullptr;
  if (!verify_ && is_contiguous(*receive->layout, receive->address, receive->count, &start))
      [[likely]] {
    copy(start, static_cast<std::uint32_t>(
                    std::min<std::uint64_t>(bytes, static_cast<std::uint64_t>(receive->bytes))));
    delivery_.finish(*receive, header, bytes);
  } else {
    copy(scratch_.data(), bytes);
    if (verify_) {
      delivery_.check(header, scratch_.data(), bytes);
    }
    delivery_.finish(*receive, header, bytes, delivery_.deliver(scratch_.data(), bytes, *receive));
  }
}

void Receiver::take_frame_message(std::uint32_t peer, unsigned frame, FrameControl control) {
  FrameSet& frames = frames_[peer];
  MessageHeader header;
  frames.take(frame, control, &header);
  switch (header.kind) {
    case Kind::inline_data:
      if (header.inline_bytes > kFrameShortBytes) links_.corrupt(peer, "message");
      arrive_short(peer, header, [&](void* to, std::uint32_t limit) {
        copy_small(static_cast<unsigned char*>(to),
                   frames.short_payload(frame, header.inline_bytes), limit);
      });
      frames.keep(frame);
      return;
    case Kind::split:
      if (header.inline_bytes > kPrefixBytes + kFrameShortBytes ||
          header.inline_bytes <= kHeadPayloadBytes) {
        links_.corrupt(peer, "message");
      }
      header.kind = Kind::inline_data;  // from here on it is nothing else
      arrive_short(peer, header, [&](void* to, std::uint32_t limit) {
        frames.copy_split(frame, static_cast<unsigned char*>(to), limit);
      });
      frames.keep(frame);
      return;
    case Kind::frame: {
      if (header.inline_bytes > links_.layout().frame_bytes) links_.corrupt(peer, "message");
      Request* receive = matching_.match_posted(header.context, header.source, header.tag);
      if (receive != nullptr) {
        ++counters_.matched_posted;
        receive_frame(side_, peer, header, frame, *receive);
        return;
      }
      Unexpected& message = new_unexpected(peer, header, header.inline_bytes);
      message.frame = frame;
      matching_.add_unexpected(message);
      return;
    }
    case Kind::stream: {
      StreamDescriptor descriptor;
      if (header.inline_bytes != sizeof(descriptor)) links_.corrupt(peer, "message");
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
  links_.corrupt(peer, "message");
}

void Receiver::take_box_message(std::uint32_t peer, BoxConsumer& box) {
  MessageHeader header;
  box.peek(&header);
  switch (header.kind) {
    case Kind::inline_data:
      if (header.inline_bytes > kPrefixBytes + inline_max_) break;
      arrive_short(peer, header, [&](void* to, std::uint32_t limit) {
        box.take(to, header.inline_bytes, limit);
      });
      return;
    case Kind::cell: {
      CellDescriptor cell;
      if (header.inline_bytes != sizeof(cell)) break;
      box.take(&cell, sizeof(cell), sizeof(cell));
      links_.payload_at(peer, cell.offset, cell.bytes);
      if (cell.release_index >= links_.layout().release_count) break;
      Request* receive = matching_.match_posted(header.context, header.source, header.tag);
      if (receive != nullptr) {
        ++counters_.matched_posted;
        receive_cell(side_, peer, header, cell, *receive);
        return;
      }
      Unexpected& message = new_unexpected(peer, header, cell.bytes);
      message.cell = cell;
      matching_.add_unexpected(message);
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
    case Kind::split:
      break;
  }
  links_.corrupt(peer, "message");
}

std::int32_t Receiver::take_short(std::uint32_t peer, std::uint64_t context, std::uint32_t source,
                                  std::int32_t tag, void* to, std::uint32_t room) {
  // A box that is not open yet has no pages, and a look would make them.
  if ((doorbells_seen_[peer / 64] >> (peer % 64) & 1u) == 0 || inbox_waiting(header_->inbox))
      [[unlikely]] {
    return kAnother;
  }
  FrameSet& frames = frames_[peer];
  BoxConsumer& box = boxes_[peer];
  auto* const out = static_cast<unsigned char*>(to);
  MessageHeader header;
  const auto wanted = [&] {
    return header.context == context && header.source == source &&
           (tag == host::kAnyTag || header.tag == tag) && header.inline_bytes <= room;
  };
  FrameControl control;
  const unsigned frame = frames.ready(&control);
  if (frame != FrameSet::kNone && control.box_before() == box.messages()) {
    frames.peek(frame, control, &header);
    const bool split = header.kind == Kind::split;
    if ((header.kind != Kind::inline_data && !split) || !wanted()) return kAnother;
    if (header.inline_bytes > kFrameShortBytes + (split ? kPrefixBytes : 0)) return kAnother;
    frames.take(frame, control, &header);
    if (split) {
      frames.copy_split(frame, out, header.inline_bytes);
    } else {
      copy_small(out, frames.short_payload(frame, header.inline_bytes), header.inline_bytes);
    }
    frames.keep(frame);
  } else if (box.ready()) {
    if (box.frames_before() != frames.received()) return kAnother;
    box.peek(&header);
    if (header.kind != Kind::inline_data || header.inline_bytes > kPrefixBytes + inline_max_ ||
        !wanted()) {
      return kAnother;
    }
    box.take(to, header.inline_bytes, header.inline_bytes);
  } else {
    return kNothingYet;
  }
  ++counters_.matched_posted;
  ++counters_.receives_inline;
  ++counters_.receives_at_once;
  counters_.bytes_received += header.inline_bytes;
  return static_cast<std::int32_t>(header.inline_bytes);
}

// --- the inbox list ------------------------------------------------------------------------------

void Receiver::take_inbox() {
  std::uint64_t link = inbox_detach(header_->inbox);
  // Newest first: reverse through the `next` words, which now belong to us.
  std::uint64_t oldest = 0;
  while (link != 0) {
    const std::uint32_t peer = link_index(link);
    if (peer >= links_.count()) links_.corrupt(links_.my_index(), "inbox link");
    Envelope* envelope = links_.envelope_at(peer, link_offset(link));
    const std::uint64_t following = envelope->next.load(std::memory_order_relaxed);
    envelope->next.store(oldest, std::memory_order_relaxed);
    oldest = link;
    link = following;
  }
  watch_new_boxes();
  while (oldest != 0) {
    const std::uint32_t peer = link_index(oldest);
    Envelope& envelope = *links_.envelope_at(peer, link_offset(oldest));
    const std::uint64_t following = envelope.next.load(std::memory_order_relaxed);
    if (peer == links_.my_index()) {
      calls_.push_back(&envelope);
      oldest = following;
      continue;
    }
    // What the peer put into its frames and its box is older than what it listed.
    while (take_next(peer)) {
    }
    take_listed(peer, envelope);
    if (links_.layout().box_bytes > sizeof(BoxHeader)) boxes_[peer].note_listed();
    oldest = following;
  }
}

void Receiver::take_listed(std::uint32_t peer, Envelope& envelope) {
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
    descriptor.path = envelope.path;
    descriptor.calls = envelope.calls;
    descriptor.source_address = envelope.source_address;
    envelope.taken.store(generation, std::memory_order_release);
    arrive_stream(peer, header, descriptor);
    return;
  }
  if (header.kind == Kind::inline_data ? bytes > kEnvelopeInlineBytes : header.kind != Kind::cell) {
    links_.corrupt(peer, "listed message");
  }
  Request* receive = matching_.match_posted(header.context, header.source, header.tag);
  Unexpected& message = new_unexpected(peer, header, bytes);
  message.envelope = &envelope;
  message.stream.generation = generation;
  if (header.kind == Kind::cell) {
    message.cell = envelope.cell;
    if (message.cell.release_index >= links_.layout().release_count) links_.corrupt(peer, "cell");
    links_.payload_at(peer, message.cell.offset, message.cell.bytes);
  }
  // Release: see above. Before delivery, which hands the envelope back.
  envelope.taken.store(generation, std::memory_order_release);
  if (receive != nullptr) {
    ++counters_.matched_posted;
    deliver_unexpected(message, *receive);
  } else {
    matching_.add_unexpected(message);
  }
}

void Receiver::arrive_stream(std::uint32_t peer, const MessageHeader& header,
                             const StreamDescriptor& descriptor) {
  Envelope* envelope = links_.envelope_at(peer, descriptor.envelope_offset);  // checks the offset
  Request* receive = matching_.peek_posted(header.context, header.source, header.tag);
  if (receive != nullptr) {
    IncomingStreams::Take take = incoming_.take(peer, descriptor, *receive);
    if (take.how == Taken::cancelled) {
      links_.keep_frame(peer, descriptor.frame);
      return;
    }
    matching_.unpost(*receive);
    ++counters_.matched_posted;
    incoming_.start(take, peer, descriptor, header, *receive);
    return;
  }
  Unexpected& message = new_unexpected(peer, header, descriptor.bytes);
  message.envelope = envelope;
  message.stream = descriptor;
  matching_.add_unexpected(message);
}

}  // namespace od::p2p
