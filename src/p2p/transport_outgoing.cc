// Streams on their way out: cells filled piece by piece, self-buffering, cancelling, what lingers.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "memory/copy.h"
#include "memory/space.h"
#include "observe/log.h"
#include "p2p/inbox.h"
#include "p2p/transport.h"

namespace od::p2p {

namespace {

// A matched receiver is at work; give it this many times the patience of an unmatched one before
// the sender buffers the rest for itself (it may have gone into a blocking call of the host).
constexpr std::uint64_t kMatchedPatience = 20;

// The first pieces of a stream are short, so that the receiver starts early.
constexpr std::uint64_t kFirstPieceBytes = 4096;

// One call copies at most this much of a stream before it looks at arrivals again, so that two
// ranks that send to each other keep both directions moving.
constexpr std::uint64_t kTurnBytes = 128u << 10;

// Pieces of a stream in a frame. Measured: near 64 KiB in pieces of 16 KiB took 3.3 us one way with
// writing and reading the buffers, in one piece 3.4; far 128 KiB in pieces of 64 KiB 8.7 us, of 16
// KiB 9.0.
constexpr std::uint64_t kNearFramePieceBytes = 16u << 10;
constexpr std::uint64_t kFarFramePieceBytes = 64u << 10;

}  // namespace

int Transport::send_stream(std::uint32_t peer, MessageHeader header, const Payload& payload,
                           Cursor* cursor, std::unique_ptr<char[]> packed, SendMode mode,
                           const ChosenPath& chosen, Request& request) {
  collect_lingering(false);
  Envelope* envelope = envelopes_.allocate();
  if (envelope == nullptr) {
    collect_lingering(true);
    envelope = envelopes_.allocate();
  }
  if (envelope == nullptr) {
    OD_LOG_ONCE(
        Level::kError,
        "no memory left to describe outgoing messages: more than OVERDRIVE_BUFFER_LIMIT wait "
        "for receives that are not posted; raise it");
    return host_.err_no_mem;
  }
  std::unique_ptr<OutgoingStream> stream;
  if (spare_outgoing_.empty()) {
    stream = std::make_unique<OutgoingStream>();
  } else {
    stream = std::move(spare_outgoing_.back());
    spare_outgoing_.pop_back();
    *stream = OutgoingStream{};
  }
  stream->envelope = envelope;
  stream->request = &request;
  stream->peer = peer;
  stream->synchronous = mode == SendMode::synchronous;
  stream->buffered = mode == SendMode::buffered;
  stream->contiguous = payload.contiguous;
  if (cursor != nullptr) {
    stream->cursor = *cursor;
    stream->layout = *payload.layout;  // the cursor points into it
  }
  stream->packed = std::move(packed);
  stream->bytes = payload.bytes;
  stream->path = chosen.path;
  stream->late = chosen.late;
  stream->offered = chosen.path != Path::cells && chosen.path != Path::push;
  stream->attached = stream->offered && memory::is_address(chosen.source_address);
  stream->checksum = memory::kChecksumStart;
  request.outgoing = stream.get();

  envelope->checksum = memory::checksum_fold(memory::kChecksumStart);  // of an empty payload
  // The descriptor goes first: the receiver finds its receive while the first piece is copied.
  header.kind = Kind::stream;
  StreamDescriptor descriptor{};
  descriptor.envelope_offset = envelopes_.offset_of(*envelope);
  descriptor.bytes = payload.bytes;
  descriptor.generation = envelope->generation;
  descriptor.cell_bytes = static_cast<std::uint32_t>(pool_.chunk_bytes());
  descriptor.contended = !request.blocking || stream->offered ? 1 : 0;
  descriptor.path = static_cast<std::uint8_t>(chosen.path);
  descriptor.source_address = chosen.source_address;
  if (verify_ && stream->offered) {
    // Nobody else will look at the payload on its way.
    envelope->checksum = memory::checksum_fold(
        memory::checksum_update(memory::kChecksumStart, payload.contiguous, payload.bytes));
  }
  const unsigned frame = stream->offered ? FrameSet::kNone : frame_for_payload(peer);
  if (frame != FrameSet::kNone) {
    FrameSet& frames = frames_[peer];
    stream->frame = frames.payload(frame);
    stream->frame_seen = frames.seen(frame);
    stream->frame_bytes = std::min(layout_.frame_bytes, payload.bytes);
    descriptor.frame = 1;
    // The payload follows; that the frame is the receiver's already does not matter: it touches
    // only what `filled` has published.
    frames.put(frame, header, &descriptor, sizeof(descriptor), links_[peer].box.messages());
    node::wake_if_armed(*links_[peer].armed, wake_);
  } else if (!post(peer, header, &descriptor, sizeof(descriptor))) {
    envelope->cell_bytes = descriptor.cell_bytes;
    envelope->contended = descriptor.contended;
    envelope->path = descriptor.path;
    envelope->source_address = descriptor.source_address;
    list_envelope(peer, *envelope, header, payload.bytes);
  }
  if (stream->offered) {
    stream->offered_ns = now_ns();
    outgoing_.push_back(std::move(stream));
    return host::kSuccess;
  }
  ++counters_.sends_stream;
  counters_.bytes_stream += payload.bytes;

  while (stream->filled < stream->bytes && advance_outgoing(*stream)) {
  }
  // A short message whose receiver is so far behind that the pool is full is not worth a wait.
  const bool flood = stream->bytes <= eager_max_;
  if ((stream->buffered || flood) && stream->filled < stream->bytes) buffer_rest(*stream);
  if (sender_done(*stream)) {
    complete_send(*stream);
    lingering_.push_back(std::move(stream));
  } else {
    outgoing_.push_back(std::move(stream));
  }
  return host::kSuccess;
}

void Transport::fill(OutgoingStream& stream, std::byte* to, std::uint64_t bytes, Place place) {
  Envelope& envelope = *stream.envelope;
  const void* hashed = to;
  if (stream.contiguous != nullptr) {
    hashed = stream.contiguous + stream.filled;
    // `nontemporal`: plain stores, published with `filled`.
    switch (place) {
      case Place::frame:
        copy_into_frame(links_[stream.peer], to, hashed, bytes, stream.frame_seen);
        envelope.nontemporal = 0;
        break;
      case Place::cell:
        envelope.nontemporal =
            copy_in(links_[stream.peer].cell_stores, to, hashed, bytes, pool_.went_round()) ? 1 : 0;
        break;
      case Place::own_memory:
        std::memcpy(to, hashed, bytes);
        break;
    }
  } else {
    stream.cursor.pack(to, bytes, memory::copy_ordinary);
    counters_.ordinary_bytes += bytes;
  }
  if (verify_) stream.checksum = memory::checksum_update(stream.checksum, hashed, bytes);
  stream.filled += bytes;
  if (stream.filled == stream.bytes) envelope.checksum = memory::checksum_fold(stream.checksum);
  // Release: the payload and what says where it is; pairs with the acquire in advance_incoming.
  envelope.filled.store(stream.filled, std::memory_order_release);
  node::wake_if_armed(*links_[stream.peer].armed, wake_);
}

void Transport::free_drained_cells(OutgoingStream& stream) {
  if (is_waiting(state_of(*stream.envelope))) return;
  // Acquire: the receiver's reads are over; pairs with the release in advance_incoming.
  const std::uint64_t drained = untag_drained(
      stream.envelope->drained.load(std::memory_order_acquire), stream.envelope->generation);
  if (drained != stream.drained_seen) {
    if (const std::uint32_t ns = stream.envelope->line_ns; ns != 0 && !stream.line_seen) {
      stream.line_seen = true;
      links_[stream.peer].distance.sample_line(ns, settings_.far_threshold_ns);
    }
    stream.drained_seen = drained;
    stream.moved_ns = 0;
  }
  const std::uint64_t cell_bytes = pool_.chunk_bytes();
  while (stream.cells_freed < stream.cells_allocated &&
         (drained >= stream.frame_bytes + (stream.cells_freed + 1) * cell_bytes ||
          drained == stream.bytes)) {
    pool_.free_chunk(stream.envelope->cells[stream.cells_freed % kStreamCells]);
    ++stream.cells_freed;
  }
}

bool Transport::advance_outgoing(OutgoingStream& stream) {
  if (stream.offered) return advance_offer(stream);
  Envelope& envelope = *stream.envelope;
  free_drained_cells(stream);
  if (stream.filled == stream.bytes) return false;
  if (stream.path == Path::push && push_rest(stream)) return true;
  const std::uint64_t cell_bytes = pool_.chunk_bytes();
  const std::uint64_t stop = std::min(stream.bytes, stream.filled + kTurnBytes);
  bool moved = false;
  while (stream.filled < stream.frame_bytes && stream.filled < stop) {
    const std::uint64_t most =
        links_[stream.peer].distance.far() ? kFarFramePieceBytes : kNearFramePieceBytes;
    const std::uint64_t piece = std::min(stream.frame_bytes - stream.filled, most);
    fill(stream, stream.frame + stream.filled, piece, Place::frame);
    moved = true;
  }
  while (stream.filled < stop) {
    const std::uint64_t in_cells = stream.filled - stream.frame_bytes;
    const std::uint64_t within = in_cells % cell_bytes;
    if (within == 0 && in_cells / cell_bytes == stream.cells_allocated) {
      if (stream.cells_allocated - stream.cells_freed == kStreamCells) {
        free_drained_cells(stream);
        if (stream.cells_allocated - stream.cells_freed == kStreamCells) break;
      }
      const bool matched = state_of(envelope) == EnvelopeState::matched;
      std::uint32_t chunk = pool_.allocate_chunk(matched);
      if (chunk == CellPool::kNoChunk) {
        collect_lingering(true);
        chunk = pool_.allocate_chunk(matched);
      }
      if (chunk == CellPool::kNoChunk) {
        ++counters_.pool_full_waits;
        break;
      }
      // Plain store: published by the release of `filled`; the receiver reads an entry only for
      // positions below `filled`.
      envelope.cells[stream.cells_allocated % kStreamCells] = static_cast<std::uint16_t>(chunk);
      ++stream.cells_allocated;
    }
    const std::uint64_t cell =
        pool_.chunk_offset(envelope.cells[(in_cells / cell_bytes) % kStreamCells]);
    const std::uint64_t ramp = std::max(kFirstPieceBytes, 2 * stream.filled);
    const std::uint64_t piece =
        std::min({cell_bytes - within, stream.bytes - stream.filled, piece_bytes_, ramp});
    fill(stream, region_ + cell + within, piece, Place::cell);
    moved = true;
  }
  return moved;
}

bool Transport::buffer_rest(OutgoingStream& stream) {
  const std::uint64_t rest = stream.bytes - stream.filled;
  if (rest == 0) return true;
  const std::uint64_t offset = heap_.allocate(rest);
  if (offset == BufferHeap::kNone) {
    ++counters_.buffer_limit_waits;
    OD_LOG_ONCE(
        Level::kWarning,
        "a send waits for its receiver because the %llu bytes of OVERDRIVE_BUFFER_LIMIT are "
        "in use; raise it if the program relies on more buffering",
        static_cast<unsigned long long>(heap_.limit_bytes()));
    return false;
  }
  stream.buffer_offset = offset;
  // Plain stores: published by the release of `filled`.
  stream.envelope->buffer_offset = offset;
  stream.envelope->buffer_from = stream.filled;
  ++counters_.self_buffered;
  ++counters_.sends_buffered;
  counters_.self_buffered_bytes += rest;
  counters_.bytes_buffered += rest;
  counters_.buffer_peak_bytes = std::max(counters_.buffer_peak_bytes, heap_.peak_bytes());
  std::byte* to = region_ + offset;
  while (stream.filled < stream.bytes) {
    const std::uint64_t piece = std::min<std::uint64_t>(stream.bytes - stream.filled, 64u << 10);
    const std::uint64_t before = stream.filled;
    fill(stream, to, piece, Place::own_memory);
    to += stream.filled - before;
  }
  return true;
}

bool Transport::sender_done(const OutgoingStream& stream) const {
  if (stream.filled < stream.bytes) return false;
  if (!stream.synchronous) return true;
  return !is_waiting(state_of(*stream.envelope));
}

void Transport::complete_send(OutgoingStream& stream) {
  if (stream.request != nullptr) {
    stream.request->outgoing = nullptr;
    stream.request->complete = true;
    stream.request = nullptr;
  }
}

bool Transport::retire(OutgoingStream& stream) {
  free_drained_cells(stream);
  const EnvelopeState state = state_of(*stream.envelope);
  if (state != EnvelopeState::done) return false;
  while (stream.cells_freed < stream.cells_allocated) {
    pool_.free_chunk(stream.envelope->cells[stream.cells_freed % kStreamCells]);
    ++stream.cells_freed;
  }
  if (stream.buffer_offset != BufferHeap::kNone) heap_.free(stream.buffer_offset);
  Link& link = links_[stream.peer];
  if (link.last_listed == stream.envelope) link.last_listed = nullptr;  // done implies taken
  envelopes_.free(*stream.envelope);
  return true;
}

void Transport::collect_lingering(bool thorough) {
  // Usually the oldest are done first; a thorough pass looks at all, for when memory is short.
  while (!lingering_.empty() && retire(*lingering_.front())) {
    spare_outgoing_.push_back(std::move(lingering_.front()));
    lingering_.pop_front();
  }
  while (!listed_.empty() && state_of(*listed_.front().envelope) == EnvelopeState::done) {
    const Listed& oldest = listed_.front();
    Link& link = links_[oldest.peer];
    if (link.last_listed == oldest.envelope) link.last_listed = nullptr;  // done implies taken
    ++link.listed_given_back;
    envelopes_.free(*oldest.envelope);
    listed_.pop_front();
  }
  if (!thorough || !search_.due()) return;
  bool found = false;
  for (std::size_t i = 0; i < lingering_.size();) {
    if (retire(*lingering_[i])) {
      spare_outgoing_.push_back(std::move(lingering_[i]));
      lingering_.erase(lingering_.begin() + static_cast<std::ptrdiff_t>(i));
      found = true;
    } else {
      ++i;
    }
  }
  found ? search_.found() : search_.in_vain();
}

void Transport::relieve_stalled(std::uint64_t now) {
  for (auto& stream : outgoing_) {
    if (stream->filled == stream->bytes) continue;
    if (stream->offered) {
      if (stream->moved_ns == 0) {
        stream->moved_ns = now;
      } else if (now - stream->moved_ns >= settings_.pull_wait_ns && withdraw(*stream)) {
        Link& link = links_[stream->peer];
        if (link.late_receives < Link::kLateReceives) ++link.late_receives;
        stream->moved_ns = now;
        buffer_rest(*stream);
      }
      continue;
    }
    free_drained_cells(*stream);
    if (stream->moved_ns == 0) {
      stream->moved_ns = now;
      continue;
    }
    const EnvelopeState state = state_of(*stream->envelope);
    const bool matched = state == EnvelopeState::matched;
    const std::uint64_t patience = matched        ? settings_.unmatched_wait_ns * kMatchedPatience
                                   : stream->late ? settings_.pull_wait_ns
                                                  : settings_.unmatched_wait_ns;
    if (now - stream->moved_ns >= patience) {
      // Taken cells stay taken until drained; only the rest moves to own memory.
      if (!buffer_rest(*stream)) stream->moved_ns = now;
    }
  }
}

void Transport::flush() {
  for (auto& stream : outgoing_) {
    if (stream->offered) {
      advance_outgoing(*stream);
      if (stream->offered && !withdraw(*stream)) continue;  // the receiver is reading, by itself
    }
    if (stream->filled < stream->bytes) {
      advance_outgoing(*stream);
      buffer_rest(*stream);
    }
  }
  publish_consumed();
}

bool Transport::has_unfinished_payload() const {
  return std::any_of(outgoing_.begin(), outgoing_.end(),
                     [](const auto& stream) { return stream->filled < stream->bytes; });
}

bool Transport::cancel(Request& request) {
  OutgoingStream* stream = request.outgoing;
  if (stream == nullptr) return false;
  Envelope& envelope = *stream->envelope;
  std::uint64_t word = envelope.state.load(std::memory_order_acquire);
  const EnvelopeState state = untag_state(word, envelope.generation);
  if (state != EnvelopeState::unmatched && state != EnvelopeState::withdrawn) return false;
  // Acquire-release: settles against the receiver's compare-and-swap in take_state.
  if (!envelope.state.compare_exchange_strong(
          word, tag_state(envelope.generation, EnvelopeState::cancelled), std::memory_order_acq_rel,
          std::memory_order_acquire)) {
    return false;
  }
  stream->filled = stream->bytes;  // nothing will be read
  stream->offered = false;
  request.outgoing = nullptr;
  stream->request = nullptr;
  for (std::size_t i = 0; i < outgoing_.size(); ++i) {
    if (outgoing_[i].get() == stream) {
      lingering_.push_back(std::move(outgoing_[i]));
      outgoing_.erase(outgoing_.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  }
  return true;
}

}  // namespace od::p2p
