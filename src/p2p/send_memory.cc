// Giving out memory for messages, and taking it back once their receivers are done.

#include "p2p/send_memory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "p2p/request_slab.h"

namespace od::p2p {

namespace {

// Free memory kept for the next self-buffered message before pages go back to the system.
constexpr std::uint64_t kKeepBufferBytes = 16u << 20;

// Envelopes beyond the buffer limit: one for each request that a rank can have.
constexpr std::uint64_t kLastEnvelopesBytes =
    std::uint64_t{RequestSlab::kCapacity} * sizeof(Envelope);
// Where the join has found less room than was asked for, they get this part of it.
constexpr std::uint64_t kLastEnvelopesShare = 8;

// How much of the sparse part of the region is for payload and for usual envelopes.
std::uint64_t heap_bytes(const node::RegionLayout& layout, const config::Settings& settings) {
  const std::uint64_t last =
      std::min(kLastEnvelopesBytes, layout.buffers_bytes / kLastEnvelopesShare);
  const std::uint64_t wanted = settings.buffer_limit_bytes / node::kPageBytes * node::kPageBytes;
  return std::min(wanted, (layout.buffers_bytes - last) / node::kPageBytes * node::kPageBytes);
}

// Chunks must be a power of two of lines and divide the pool.
std::uint64_t chunk_bytes_for(const config::Settings& settings, std::uint64_t pool_bytes) {
  const std::uint64_t wanted = std::bit_floor(std::max<std::uint64_t>(settings.cell_bytes, 1024));
  return std::min(wanted, pool_bytes);
}

}  // namespace

SendMemory::SendMemory(Links& links, const config::Settings& settings)
    : links_(links),
      region_(links.region()),
      far_threshold_ns_(settings.far_threshold_ns),
      heap_(links.layout().buffers_offset, heap_bytes(links.layout(), settings), kKeepBufferBytes,
            [&node = links.node()](std::uint64_t offset, std::uint64_t bytes) {
              node.punch(offset, bytes);
            }),
      pool_(links.layout().pool_offset, links.layout().pool_bytes,
            chunk_bytes_for(settings, links.layout().pool_bytes),
            reinterpret_cast<std::atomic<std::uint8_t>*>(region_ + links.layout().releases_offset),
            links.layout().release_count),
      envelopes_(region_, links.layout().envelopes_offset, links.layout().envelope_count, heap_,
                 links.layout().buffers_offset + heap_bytes(links.layout(), settings),
                 links.layout().buffers_bytes - heap_bytes(links.layout(), settings)) {}

std::uint64_t SendMemory::buffers_bytes(const config::Settings& settings) {
  return settings.buffer_limit_bytes + kLastEnvelopesBytes;
}

Envelope* SendMemory::allocate_envelope(bool hard) {
  collect();
  Envelope* envelope = envelopes_.allocate();
  if (envelope == nullptr && hard) {
    collect_all();
    envelope = envelopes_.allocate();
    if (envelope == nullptr) envelope = envelopes_.allocate_last();
  }
  return envelope;
}

bool SendMemory::allocate_cell(std::uint64_t bytes, CellDescriptor* cell) {
  if (pool_.allocate(bytes, cell)) return true;
  collect_cells();
  return pool_.allocate(bytes, cell);
}

std::uint32_t SendMemory::allocate_chunk(bool matched) {
  const std::uint32_t chunk = pool_.allocate_chunk(matched);
  if (chunk != CellPool::kNoChunk) return chunk;
  collect_cells();
  return pool_.allocate_chunk(matched);
}

std::uint64_t SendMemory::allocate_buffer(std::uint64_t bytes) {
  const std::uint64_t offset = heap_.allocate(bytes);
  if (offset != BufferHeap::kNone) return offset;
  collect_all();
  return heap_.allocate(bytes);
}

void SendMemory::expect_call(OutgoingStream& stream) {
  stream.calls = true;
  calling_.emplace(stream.envelope, &stream);
}

OutgoingStream* SendMemory::note_call(const Envelope& envelope) {
  const auto found = calling_.find(&envelope);
  if (found == calling_.end()) return nullptr;
  found->second->called = true;
  return found->second;
}

std::unique_ptr<OutgoingStream> SendMemory::new_stream() {
  if (spare_.empty()) return std::make_unique<OutgoingStream>();
  std::unique_ptr<OutgoingStream> stream = std::move(spare_.back());
  spare_.pop_back();
  *stream = OutgoingStream{};
  return stream;
}

void SendMemory::free_drained_cells(OutgoingStream& stream) {
  if (is_waiting(state_of(*stream.envelope))) return;
  // Acquire: the receiver's reads are over; pairs with the release in IncomingStreams::advance.
  const std::uint64_t drained = untag_drained(
      stream.envelope->drained.load(std::memory_order_acquire), stream.envelope->generation);
  if (drained != stream.drained_seen) {
    if (const std::uint32_t ns = stream.envelope->line_ns; ns != 0 && !stream.line_seen) {
      stream.line_seen = true;
      links_[stream.peer].distance.sample_line(ns, far_threshold_ns_);
    }
    stream.drained_seen = drained;
    stream.moved_ns = 0;
  }
  const std::uint64_t cell_bytes = pool_.chunk_bytes();
  while (stream.cells_freed < stream.cells_allocated &&
         (drained >= stream.frame_bytes + (stream.cells_freed + 1) * cell_bytes ||
          drained == stream.bytes)) {
    free_oldest_chunk(stream);
  }
}

bool SendMemory::retire(OutgoingStream& stream) {
  free_drained_cells(stream);
  const Envelope& envelope = *stream.envelope;
  if (state_of(envelope) != EnvelopeState::done) return false;
  if (stream.calls) [[unlikely]] {
    // Not before the call has come: the receiver links the envelope into our list.
    if (envelope.called == envelope.generation && !stream.called) return false;
    calling_.erase(stream.envelope);
  }
  while (stream.holds_cells()) free_oldest_chunk(stream);
  if (stream.buffer_offset != BufferHeap::kNone) heap_.free(stream.buffer_offset);
  links_[stream.peer].note_done(stream.envelope);
  envelopes_.free(*stream.envelope);
  return true;
}

OutgoingStream* SendMemory::retire_from(StreamQueue& queue, OutgoingStream* stream,
                                        std::size_t most, bool* found) {
  for (std::size_t looked = 0; stream != nullptr && looked < most; ++looked) {
    OutgoingStream* const next = stream->next;
    const std::uint32_t freed = stream->cells_freed;
    if (retire(*stream)) {
      spare_.push_back(queue.take(*stream));
      *found = true;
      stream = next;
      continue;
    }
    if (stream->cells_freed != freed) *found = true;
    if (&queue == &with_cells_ && !stream->holds_cells()) {
      lingering_.push_back(queue.take(*stream));
    }
    stream = next;
  }
  return stream;
}

void SendMemory::retire_oldest(StreamQueue& queue) {
  while (!queue.empty() && retire(*queue.first())) {
    spare_.push_back(queue.take(*queue.first()));
  }
}

void SendMemory::collect() {
  // Where the oldest stay, what has come back behind them is found after so many messages as there
  // are looks at one; one look at a time costs less than the message.
  constexpr std::size_t kInTurn = 2;
  retire_oldest(with_cells_);
  retire_oldest(lingering_);
  if (!lingering_.empty()) [[unlikely]] {
    OutgoingStream* const turn = lingering_.turn();
    bool found = false;
    lingering_.set_turn(
        retire_from(lingering_, turn != nullptr ? turn : lingering_.first(), kInTurn, &found));
  }
  const auto give_back = [&](const Listed& listed) {
    if (state_of(*listed.envelope) != EnvelopeState::done) return false;
    Link& link = links_[listed.peer];
    link.note_done(listed.envelope);
    ++link.listed_given_back;
    envelopes_.free(*listed.envelope);
    return true;
  };
  while (!listed_.empty() && give_back(listed_.front())) listed_.pop_front();
  // The first may be one that nobody asks for. A look at all whenever twice as many wait costs each
  // message little.
  constexpr std::size_t kMany = 2048;
  if (listed_.size() >= kMany && std::has_single_bit(listed_.size())) [[unlikely]] {
    std::erase_if(listed_, give_back);
  }
}

void SendMemory::collect_cells() {
  if (with_cells_.empty() || !cell_search_.due()) return;
  bool found = false;
  retire_from(with_cells_, with_cells_.first(), with_cells_.size(), &found);
  found ? cell_search_.found() : cell_search_.in_vain();
}

void SendMemory::collect_all() {
  collect_cells();
  if (!search_.due()) return;
  bool found = false;
  retire_from(lingering_, lingering_.first(), lingering_.size(), &found);
  found ? search_.found() : search_.in_vain();
}

}  // namespace od::p2p
