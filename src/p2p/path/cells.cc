// Path `cells`: streams through frames, rotating cells and own memory.

#include "p2p/path/cells.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "memory/copy.h"
#include "observe/log.h"
#include "p2p/arrival.h"
#include "p2p/links.h"
#include "p2p/path/rows.h"
#include "p2p/send_memory.h"
#include "p2p/stores.h"

namespace od::p2p {

namespace {

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

// Shorter pieces may already be in the reader's cache as a whole.
constexpr std::uint64_t kTimedPieceBytes = 8192;

enum class Place : std::uint8_t { frame, cell, own_memory };

void fill(SendSide& side, OutgoingStream& stream, std::byte* to, std::uint64_t bytes, Place place) {
  Envelope& envelope = *stream.envelope;
  const void* hashed = to;
  if (stream.contiguous != nullptr) {
    hashed = stream.contiguous + stream.filled;
    Link& link = side.links[stream.peer];
    // `nontemporal`: plain stores, published with `filled`.
    switch (place) {
      case Place::frame:
        side.stores.copy_into_frame(link, to, hashed, bytes, stream.frame_seen);
        envelope.nontemporal = 0;
        break;
      case Place::cell: {
        const bool seen = side.memory.pool().went_round();
        envelope.nontemporal = side.stores.copy(link.cell_stores, to, hashed, bytes, seen) ? 1 : 0;
        break;
      }
      case Place::own_memory:
        std::memcpy(to, hashed, bytes);
        break;
    }
  } else {
    stream.cursor.pack(to, bytes, memory::copy_ordinary);
    side.counters.ordinary_bytes += bytes;
  }
  if (side.verify) stream.checksum = memory::checksum_update(stream.checksum, hashed, bytes);
  stream.filled += bytes;
  if (stream.filled == stream.bytes) envelope.checksum = memory::checksum_fold(stream.checksum);
  // Release: the payload and what says where it is; pairs with the acquire in
  // IncomingStreams::advance.
  envelope.filled.store(stream.filled, std::memory_order_release);
  side.links.wake(stream.peer);
}

}  // namespace

bool cells_able(const Links&, std::uint32_t, bool) { return true; }

bool cells_offer(Links&, std::uint32_t, const Payload&, std::uint64_t, std::uint64_t*) {
  return true;
}

bool fill_cells(SendSide& side, OutgoingStream& stream) {
  Envelope& envelope = *stream.envelope;
  SendMemory& memory = side.memory;
  const std::uint64_t cell_bytes = memory.pool().chunk_bytes();
  const std::uint64_t stop = std::min(stream.bytes, stream.filled + kTurnBytes);
  bool moved = false;
  while (stream.filled < stream.frame_bytes && stream.filled < stop) {
    const std::uint64_t most =
        side.links[stream.peer].distance.far() ? kFarFramePieceBytes : kNearFramePieceBytes;
    const std::uint64_t piece = std::min(stream.frame_bytes - stream.filled, most);
    fill(side, stream, stream.frame + stream.filled, piece, Place::frame);
    moved = true;
  }
  while (stream.filled < stop) {
    const std::uint64_t in_cells = stream.filled - stream.frame_bytes;
    const std::uint64_t within = in_cells % cell_bytes;
    if (within == 0 && in_cells / cell_bytes == stream.cells_allocated) {
      if (stream.cells_allocated - stream.cells_freed == kStreamCells) {
        memory.free_drained_cells(stream);
        if (stream.cells_allocated - stream.cells_freed == kStreamCells) break;
      }
      const std::uint32_t chunk =
          memory.allocate_chunk(state_of(envelope) == EnvelopeState::matched);
      if (chunk == CellPool::kNoChunk) {
        ++side.counters.pool_full_waits;
        break;
      }
      // Plain store: published by the release of `filled`; the receiver reads an entry only for
      // positions below `filled`.
      envelope.cells[stream.cells_allocated % kStreamCells] = static_cast<std::uint16_t>(chunk);
      ++stream.cells_allocated;
    }
    const std::uint64_t cell =
        memory.pool().chunk_offset(envelope.cells[(in_cells / cell_bytes) % kStreamCells]);
    const std::uint64_t ramp = std::max(kFirstPieceBytes, 2 * stream.filled);
    const std::uint64_t piece = std::min(
        {cell_bytes - within, stream.bytes - stream.filled, side.settings.piece_bytes, ramp});
    fill(side, stream, memory.at(cell + within), piece, Place::cell);
    moved = true;
  }
  return moved;
}

bool fill_own_memory(SendSide& side, OutgoingStream& stream) {
  const std::uint64_t rest = stream.bytes - stream.filled;
  if (rest == 0) return true;
  BufferHeap& heap = side.memory.heap();
  observe::Counters& counters = side.counters;
  const std::uint64_t offset = side.memory.allocate_buffer(rest);
  if (offset == BufferHeap::kNone) {
    if (stream.request == nullptr) return false;  // nobody waits: keep_rest() in sender_streams.cc
    ++counters.buffer_limit_waits;
    OD_LOG_ONCE(
        Level::kWarning,
        "a send waits for its receiver (a buffered one takes other memory) because the %llu bytes "
        "of OVERDRIVE_BUFFER_LIMIT are in use; raise it if the program relies on more buffering",
        static_cast<unsigned long long>(heap.limit_bytes()));
    return false;
  }
  stream.buffer_offset = offset;
  // Plain stores: published by the release of `filled`.
  stream.envelope->buffer_offset = offset;
  stream.envelope->buffer_from = stream.filled;
  ++counters.self_buffered;
  ++counters.sends_buffered;
  counters.self_buffered_bytes += rest;
  counters.bytes_buffered += rest;
  counters.buffer_peak_bytes = std::max(counters.buffer_peak_bytes, heap.peak_bytes());
  std::byte* to = side.memory.at(offset);
  while (stream.filled < stream.bytes) {
    const std::uint64_t piece = std::min<std::uint64_t>(stream.bytes - stream.filled, 64u << 10);
    fill(side, stream, to, piece, Place::own_memory);
    to += piece;
  }
  return true;
}

bool drain_cells(ReceiveSide& side, IncomingStream& stream, std::uint64_t filled) {
  Envelope& envelope = *stream.envelope;
  Links& links = side.links;
  const std::uint64_t cell_bytes = stream.cell_bytes;
  bool moved = false;
  while (stream.drained < filled) {
    const std::uint64_t position = stream.drained;
    std::uint64_t piece = filled - position;
    const std::byte* from;
    if (position >= envelope.buffer_from && envelope.buffer_offset == kPushed) {
      // The sender has written it where it belongs.
      if (side.verify) {
        stream.checksum =
            memory::checksum_update(stream.checksum, stream.contiguous + position, piece);
      }
      stream.drained += piece;
      moved = true;
      continue;
    }
    if (position >= envelope.buffer_from) {
      from = links.payload_at(stream.peer,
                              envelope.buffer_offset + (position - envelope.buffer_from), piece);
    } else if (position < stream.frame_bytes) {
      piece = std::min({piece, stream.frame_bytes - position, envelope.buffer_from - position});
      from = links.frames(stream.peer).payload(stream.frame - 1u) + position;
    } else {
      const std::uint64_t in_cells = position - stream.frame_bytes;
      const std::uint64_t within = in_cells % cell_bytes;
      piece = std::min({piece, cell_bytes - within, envelope.buffer_from - position});
      const std::uint64_t cell =
          links.layout().pool_offset +
          envelope.cells[(in_cells / cell_bytes) % kStreamCells] * cell_bytes;
      from = links.payload_at(stream.peer, cell + within, piece);
    }
    const std::uint64_t wanted =
        position < stream.limit ? std::min(piece, stream.limit - position) : 0;
    if (wanted > 0) {
      Distance& distance = links[stream.peer].distance;
      if (piece >= kTimedPieceBytes && envelope.nontemporal == 0 &&
          position < envelope.buffer_from && distance.wants_line()) {
        // In the middle, where no prefetcher has been yet.
        const std::uint64_t ns = time_line(from + piece / 2);
        distance.sample_line(ns, side.settings.far_threshold_ns);
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
    if (side.verify) stream.checksum = memory::checksum_update(stream.checksum, from, piece);
    stream.drained += piece;
    moved = true;
    if (stream.drained == stream.bytes ||
        (stream.drained >= stream.frame_bytes &&
         (stream.drained - stream.frame_bytes) % cell_bytes == 0)) {
      // Release: our reads of the cell are over; pairs with SendMemory::free_drained_cells.
      envelope.drained.store(tag_drained(stream.generation, stream.drained),
                             std::memory_order_release);
      links.wake(stream.peer);
    }
  }
  return moved;
}

}  // namespace od::p2p
