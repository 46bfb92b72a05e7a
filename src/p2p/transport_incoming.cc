// Streams on their way in: pieces copied out of cells or of the sender's own memory as they appear.

#include <algorithm>
#include <atomic>
#include <utility>

#include "memory/copy.h"
#include "p2p/arrival.h"
#include "p2p/opaque.h"
#include "p2p/transport.h"

namespace od::p2p {

namespace {

// Shorter pieces may already be in the reader's cache as a whole.
constexpr std::uint64_t kTimedPieceBytes = 8192;

}  // namespace

void Transport::start_incoming(Taken taken, std::uint32_t peer, const StreamDescriptor& descriptor,
                               const MessageHeader& header, Request& receive) {
  const std::uint64_t bytes = descriptor.bytes;
  if (descriptor.cell_bytes == 0) corrupt(peer, "cell size");
  const bool cooperative = taken == Taken::direct && cooperates(peer, descriptor);
  if (taken == Taken::direct && !cooperative) {
    Envelope& envelope = *envelope_at(peer, descriptor.envelope_offset);
    if (read_direct(peer, descriptor, receive)) {
      if (verify_) check(envelope.checksum, direct_checksum_, header);
      mark_done(envelope, descriptor.generation);
      node::wake_if_armed(*links_[peer].armed, wake_);
      note_received(receive, bytes);
      finish_receive(receive, header, bytes, direct_delivered_);
      return;
    }
    // Release: the sender goes on with cells; pairs with its acquire in advance_offer.
    envelope.state.store(tag_state(descriptor.generation, EnvelopeState::matched),
                         std::memory_order_release);
  }
  std::unique_ptr<IncomingStream> stream;
  if (spare_incoming_.empty()) {
    stream = std::make_unique<IncomingStream>();
  } else {
    stream = std::move(spare_incoming_.back());
    spare_incoming_.pop_back();
    *stream = IncomingStream{};
  }
  stream->envelope = envelope_at(peer, descriptor.envelope_offset);
  stream->generation = descriptor.generation;
  stream->cell_bytes = descriptor.cell_bytes;
  stream->request = &receive;
  stream->peer = peer;
  stream->bytes = bytes;
  stream->limit = std::min(bytes, static_cast<std::uint64_t>(receive.bytes));
  stream->frame = descriptor.frame;
  if (stream->frame != 0) stream->frame_bytes = std::min(layout_.frame_bytes, bytes);
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
      ++counters_.layouts_direct;
    }
  }
  // Wakes a sender that waits for the match (synchronous mode).
  node::wake_if_armed(*links_[peer].armed, wake_);
  if (cooperative) read_cooperatively(*stream, descriptor);
  advance_incoming(*stream);
  if (stream->request != nullptr) {
    receive.incoming = stream.get();
    incoming_.push_back(std::move(stream));
  } else {
    spare_incoming_.push_back(std::move(stream));
  }
}

bool Transport::advance_incoming(IncomingStream& stream) {
  Envelope& envelope = *stream.envelope;
  // Acquire: the payload below `filled` and its place; pairs with the release in fill().
  const std::uint64_t filled = envelope.filled.load(std::memory_order_acquire);
  if (filled > stream.bytes) corrupt(stream.peer, "stream position");
  bool moved = false;
  const std::uint64_t cell_bytes = stream.cell_bytes;
  if (stream.cooperative) {
    if (filled + stream.drained != stream.bytes) return false;
    stream.drained = stream.bytes;
    finish_incoming(stream);
    return true;
  }
  while (stream.drained < filled) {
    const std::uint64_t position = stream.drained;
    std::uint64_t piece = filled - position;
    const std::byte* from;
    if (position >= envelope.buffer_from && envelope.buffer_offset == kPushed) {
      // The sender has written it where it belongs.
      if (verify_) {
        stream.checksum =
            memory::checksum_update(stream.checksum, stream.contiguous + position, piece);
      }
      stream.drained += piece;
      moved = true;
      continue;
    }
    if (position >= envelope.buffer_from) {
      from = payload_at(stream.peer, envelope.buffer_offset + (position - envelope.buffer_from),
                        piece);
    } else if (position < stream.frame_bytes) {
      piece = std::min({piece, stream.frame_bytes - position, envelope.buffer_from - position});
      from = frames_[stream.peer].payload(stream.frame - 1u) + position;
    } else {
      const std::uint64_t in_cells = position - stream.frame_bytes;
      const std::uint64_t within = in_cells % cell_bytes;
      piece = std::min({piece, cell_bytes - within, envelope.buffer_from - position});
      const std::uint64_t cell =
          layout_.pool_offset + envelope.cells[(in_cells / cell_bytes) % kStreamCells] * cell_bytes;
      from = payload_at(stream.peer, cell + within, piece);
    }
    const std::uint64_t wanted =
        position < stream.limit ? std::min(piece, stream.limit - position) : 0;
    if (wanted > 0) {
      Distance& distance = links_[stream.peer].distance;
      if (piece >= kTimedPieceBytes && envelope.nontemporal == 0 &&
          position < envelope.buffer_from && distance.wants_line()) {
        // In the middle, where no prefetcher has been yet.
        const std::uint64_t ns = time_line(from + piece / 2);
        distance.sample_line(ns, settings_.far_threshold_ns);
        // Plain store: published with `drained` or the state.
        envelope.line_ns = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(ns, 1, ~0u));
      }
      const memory::CopyFunction copy = reader_for(envelope.nontemporal, distance.far());
      if (stream.contiguous != nullptr) {
        copy(stream.contiguous + position, from, wanted);
      } else {
        stream.cursor.unpack(from, wanted, copy);
      }
    }
    if (verify_) stream.checksum = memory::checksum_update(stream.checksum, from, piece);
    stream.drained += piece;
    moved = true;
    if (stream.drained == stream.bytes ||
        (stream.drained >= stream.frame_bytes &&
         (stream.drained - stream.frame_bytes) % cell_bytes == 0)) {
      // Release: our reads of the cell are over; pairs with free_drained_cells.
      envelope.drained.store(tag_drained(stream.generation, stream.drained),
                             std::memory_order_release);
      node::wake_if_armed(*links_[stream.peer].armed, wake_);
    }
  }
  if (stream.drained == stream.bytes && filled == stream.bytes) {
    finish_incoming(stream);
    moved = true;
  }
  return moved;
}

void Transport::finish_incoming(IncomingStream& stream) {
  Envelope& envelope = *stream.envelope;
  Request& receive = *stream.request;
  MessageHeader header;
  header.source = static_cast<std::uint32_t>(receive.status.source);
  header.tag = receive.status.tag;
  if (verify_) check(envelope.checksum, stream.checksum, header);
  int delivered = host::kSuccess;
  if (stream.packed != nullptr && host_away_ && stream.limit > 0) {
    deferred_.push_back({&receive, std::move(stream.packed), stream.limit});
    ++counters_.layouts_host_packed;
  } else if (stream.packed != nullptr) {
    if (stream.limit > 0) {
      delivered = unpack_opaque(host_, *receive.layout, stream.packed.get(),
                                static_cast<std::int64_t>(stream.limit), receive.address);
    }
    if (packed_by_host(*receive.layout)) ++counters_.layouts_host_packed;
    stream.packed.reset();
  }
  if (stream.cooperative) {
    ++counters_.receives_cooperative;
  } else if (envelope.buffer_from >= stream.bytes) {
    ++counters_.receives_stream;
  } else if (envelope.buffer_offset == kPushed) {
    ++counters_.receives_push;
  } else {
    ++counters_.receives_buffered;
  }
  keep_frame(stream.peer, stream.frame);
  mark_done(envelope, stream.generation);
  node::wake_if_armed(*links_[stream.peer].armed, wake_);
  receive.incoming = nullptr;
  note_received(receive, stream.bytes);
  finish_receive(receive, header, stream.bytes, delivered);
  stream.request = nullptr;
}

}  // namespace od::p2p
