// Taking streams, reading them directly, and the rounds over those that come in pieces.

#include "p2p/incoming.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "memory/copy.h"
#include "memory/reach.h"
#include "p2p/inbox.h"
#include "p2p/path/cells.h"
#include "p2p/path/path.h"

namespace od::p2p {

std::uint64_t IncomingStreams::target_for(std::uint32_t peer, const StreamDescriptor& descriptor,
                                          const Request& receive) {
  // A sender that could not map our file cannot write there, whatever it offers.
  const Link& link = side_.links[peer];
  char* start = nullptr;
  if ((!link.reaches_us && !link.opens_us) ||
      descriptor.bytes > static_cast<std::uint64_t>(receive.bytes) ||
      !is_contiguous(*receive.layout, receive.address, receive.count, &start)) {
    return memory::kUnreachable;
  }
  std::uint64_t target = memory::kUnreachable;
  if (link.reaches_us) target = memory::reach_offset(start, descriptor.bytes);
  if (target == memory::kUnreachable) {
    target = side_.links.attachable_place(peer, start, descriptor.bytes);
  }
  return target;
}

IncomingStreams::Take IncomingStreams::take(std::uint32_t peer, const StreamDescriptor& descriptor,
                                            const Request& receive) {
  Envelope& envelope = *side_.links.envelope_at(peer, descriptor.envelope_offset);
  const PathRow& path = row_named(descriptor.path);
  Take take;
  if (path.writes) {
    // Where the sender may write; plain stores, published with the state.
    const std::uint64_t target = target_for(peer, descriptor, receive);
    // Another generation than any: no target.
    envelope.target_generation =
        target == memory::kUnreachable ? descriptor.generation - 1 : descriptor.generation;
    envelope.target = target;
    envelope.claimed.store(static_cast<std::uint64_t>(descriptor.generation) << 32,
                           std::memory_order_relaxed);
  }
  envelope.line_ns = 0;
  const bool readable =
      path.readable != nullptr && path.readable(side_, peer, descriptor, &take.read);
  const EnvelopeState wanted = readable ? EnvelopeState::direct : EnvelopeState::matched;
  take.how = take_state(envelope, descriptor, wanted);
  if (take.how == Taken::cancelled) mark_done(envelope, descriptor.generation);
  return take;
}

std::unique_ptr<IncomingStream> IncomingStreams::new_stream() {
  if (spare_.empty()) return std::make_unique<IncomingStream>();
  std::unique_ptr<IncomingStream> stream = std::move(spare_.back());
  spare_.pop_back();
  *stream = IncomingStream{};
  return stream;
}

void IncomingStreams::call_sender(std::uint32_t peer, const StreamDescriptor& descriptor,
                                  Envelope& envelope) {
  if (descriptor.calls == 0) [[likely]]
    return;
  inbox_push(side_.links[peer].header->inbox, envelope,
             make_link(peer, descriptor.envelope_offset));
  side_.links.wake(peer);
}

void IncomingStreams::start(Take& take, std::uint32_t peer, const StreamDescriptor& descriptor,
                            const MessageHeader& header, Request& receive) {
  const std::uint64_t bytes = descriptor.bytes;
  if (descriptor.cell_bytes == 0) side_.links.corrupt(peer, "cell size");
  Envelope& envelope = *side_.links.envelope_at(peer, descriptor.envelope_offset);
  // Plain store: published with `done`.
  if (descriptor.calls != 0) envelope.called = descriptor.generation;
  const PathRow& path = row_named(descriptor.path);
  const bool shared = take.how == Taken::direct && path.share != nullptr &&
                      envelope.target_generation == descriptor.generation;
  if (take.how == Taken::direct && !shared) {
    if (path.read(side_, peer, descriptor, receive, &take.read)) {
      if (side_.verify) side_.delivery.check(envelope.checksum, take.read.checksum, header);
      mark_done(envelope, descriptor.generation);
      call_sender(peer, descriptor, envelope);
      side_.links.wake(peer);
      side_.delivery.note_received(receive, bytes);
      side_.delivery.finish(receive, header, bytes, take.read.delivered);
      return;
    }
    // Release: the sender goes on with cells; pairs with its acquire in Sender::advance_offer.
    envelope.state.store(tag_state(descriptor.generation, EnvelopeState::matched),
                         std::memory_order_release);
  }
  std::unique_ptr<IncomingStream> stream = new_stream();
  stream->envelope = &envelope;
  stream->generation = descriptor.generation;
  stream->cell_bytes = descriptor.cell_bytes;
  stream->request = &receive;
  stream->peer = peer;
  stream->bytes = bytes;
  stream->limit = std::min(bytes, static_cast<std::uint64_t>(receive.bytes));
  stream->frame = descriptor.frame;
  if (stream->frame != 0) stream->frame_bytes = std::min(side_.links.layout().frame_bytes, bytes);
  stream->checksum = memory::kChecksumStart;
  receive.status.source = static_cast<int>(header.source);
  receive.status.tag = header.tag;
  const Layout& layout = *receive.layout;
  if (!is_contiguous(layout, receive.address, receive.count, &stream->contiguous)) {
    if (layout.shape == Shape::opaque) {
      stream->packed.reset(new char[std::max<std::uint64_t>(stream->limit, 1)]);
      stream->contiguous = stream->packed.get();
    } else {
      stream->cursor = Cursor(receive.address, receive.count, layout);
      ++side_.counters.layouts_direct;
    }
  }
  call_sender(peer, descriptor, envelope);
  // Wakes a sender that waits for the match (synchronous mode).
  side_.links.wake(peer);
  if (shared) path.share(side_, *stream, descriptor, take.read);
  advance(*stream);
  if (stream->request != nullptr) {
    receive.incoming = stream.get();
    active_.push_back(std::move(stream));
  } else {
    spare_.push_back(std::move(stream));
  }
}

bool IncomingStreams::advance(IncomingStream& stream) {
  // Acquire: the payload below `filled` and its place; pairs with the release in fill(),
  // push_help() and cooperative_help().
  const std::uint64_t filled = stream.envelope->filled.load(std::memory_order_acquire);
  if (filled > stream.bytes) side_.links.corrupt(stream.peer, "stream position");
  if (stream.cooperative) {
    if (filled + stream.drained != stream.bytes) return false;
    stream.drained = stream.bytes;
    finish(stream);
    return true;
  }
  const bool moved = drain_cells(side_, stream, filled);
  if (stream.drained != stream.bytes || filled != stream.bytes) return moved;
  finish(stream);
  return true;
}

void IncomingStreams::finish(IncomingStream& stream) {
  Envelope& envelope = *stream.envelope;
  Request& receive = *stream.request;
  observe::Counters& counters = side_.counters;
  MessageHeader header;
  header.source = static_cast<std::uint32_t>(receive.status.source);
  header.tag = receive.status.tag;
  if (side_.verify) side_.delivery.check(envelope.checksum, stream.checksum, header);
  int delivered = host::kSuccess;
  if (stream.packed != nullptr) {
    delivered = side_.delivery.unpack(receive, std::move(stream.packed), stream.limit);
  }
  if (stream.cooperative) {
    ++counters.receives_cooperative;
  } else if (envelope.buffer_from >= stream.bytes) {
    ++counters.receives_stream;
  } else if (envelope.buffer_offset == kPushed) {
    ++counters.receives_push;
  } else {
    ++counters.receives_buffered;
  }
  side_.links.keep_frame(stream.peer, stream.frame);
  mark_done(envelope, stream.generation);
  side_.links.wake(stream.peer);
  receive.incoming = nullptr;
  side_.delivery.note_received(receive, stream.bytes);
  side_.delivery.finish(receive, header, stream.bytes, delivered);
  stream.request = nullptr;
}

bool IncomingStreams::progress() {
  bool moved = false;
  for (std::size_t i = 0; i < active_.size();) {
    moved |= advance(*active_[i]);
    if (active_[i]->request == nullptr) {
      spare_.push_back(std::move(active_[i]));
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return moved;
}

bool IncomingStreams::anything_ready() const {
  for (const auto& stream : active_) {
    // Acquire: pairs with the sender's release of `filled`, as in advance().
    const std::uint64_t filled = stream->envelope->filled.load(std::memory_order_acquire);
    if (stream->cooperative ? filled + stream->drained == stream->bytes
                            : filled > stream->drained) {
      return true;
    }
  }
  return false;
}

}  // namespace od::p2p
