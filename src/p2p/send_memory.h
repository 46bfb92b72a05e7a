// The shared memory of a rank in which its messages wait for their receivers: envelopes, cells, own
// buffers; and what of it is in use although the program is done with the send.
//
// Invariants:
//  - An envelope, and what a stream holds in cells and in the buffer heap, comes back only after
//  the
//    receiver has stored `done` (or, for a single cell, has drained past it).
//  - A stream lies either with the sender (unfinished) or here (lingering), never in both.
//  - Cells come back in any order without a search of all that lingers: what still holds some is
//    no more than there are cells, and lies apart.
//  - A search for what has become free that found nothing makes the next ones rarer (backoff.h), so
//    that a flood of messages that nobody receives does not get slower with each of them.
// Private to the rank; receivers write only the envelopes' third line and the release bytes.
#ifndef OVERDRIVE_P2P_SEND_MEMORY_H_
#define OVERDRIVE_P2P_SEND_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "config/settings.h"
#include "p2p/backoff.h"
#include "p2p/buffer_heap.h"
#include "p2p/cell_pool.h"
#include "p2p/envelope.h"
#include "p2p/envelope_pool.h"
#include "p2p/links.h"
#include "p2p/stream_queue.h"
#include "p2p/streams.h"

namespace od::p2p {

class SendMemory {
 public:
  SendMemory(Links& links, const config::Settings& settings);

  // What to ask for as RegionRequest::buffers_bytes: the buffer limit, and envelopes beyond it.
  static std::uint64_t buffers_bytes(const config::Settings& settings);

  CellPool& pool() { return pool_; }
  BufferHeap& heap() { return heap_; }
  const BufferHeap& heap() const { return heap_; }
  std::byte* at(std::uint64_t offset) const { return region_ + offset; }
  std::uint64_t offset_of(const Envelope& envelope) const { return envelopes_.offset_of(envelope); }

  // Null when none is left; `hard`: looks thoroughly for one, and beyond the buffer limit. That is
  // for messages which may go on waiting in the program's buffer.
  Envelope* allocate_envelope(bool hard);
  void free_envelope(Envelope& envelope) { envelopes_.free(envelope); }
  // Room for `bytes` in one go; false: none is left.
  bool allocate_cell(std::uint64_t bytes, CellDescriptor* cell);
  // A cell of a stream; `matched`: its receiver has come. CellPool::kNoChunk: none is left.
  std::uint32_t allocate_chunk(bool matched);
  // Own memory for a payload; BufferHeap::kNone: none is left.
  std::uint64_t allocate_buffer(std::uint64_t bytes);

  // An empty stream.
  std::unique_ptr<OutgoingStream> new_stream();
  // The program is done with it, the receiver perhaps not.
  void linger(std::unique_ptr<OutgoingStream> stream) {
    (stream->holds_cells() ? with_cells_ : lingering_).push_back(std::move(stream));
  }
  // The receiver of this stream is going to call (StreamDescriptor::calls).
  void expect_call(OutgoingStream& stream);
  // It has: the stream, here or with the sender; null: nothing of the kind was expected.
  OutgoingStream* note_call(const Envelope& envelope);
  // The same for a message on a peer's inbox list that is no stream.
  void linger_listed(Envelope& envelope, std::uint32_t peer) {
    listed_.push_back({&envelope, peer});
  }
  // Takes back what receivers are done with: the oldest, which usually come first, and in turn some
  // of the others.
  void collect();
  // Cells of a stream that is still under way. Notes what the receiver has told beside.
  void free_drained_cells(OutgoingStream& stream);

 private:
  struct Listed {
    Envelope* envelope;
    std::uint32_t peer;
  };

  // Thorough searches, for when memory is short: for cells, and for everything.
  void collect_cells();
  void collect_all();
  bool retire(OutgoingStream& stream);
  // Those of a queue that can be retired, of the first so many from a stream on; where it stopped.
  OutgoingStream* retire_from(StreamQueue& queue, OutgoingStream* stream, std::size_t most,
                              bool* found);
  void retire_oldest(StreamQueue& queue);
  void free_oldest_chunk(OutgoingStream& stream) {
    pool_.free_chunk(stream.envelope->cells[stream.cells_freed % kStreamCells]);
    ++stream.cells_freed;
  }

  Links& links_;
  std::byte* region_;
  std::uint64_t far_threshold_ns_;
  BufferHeap heap_;
  CellPool pool_;
  EnvelopePool envelopes_;
  StreamQueue with_cells_;                                        // what lingers and holds cells
  StreamQueue lingering_;                                         // and what holds none
  std::unordered_map<const Envelope*, OutgoingStream*> calling_;  // see expect_call()
  std::deque<Listed> listed_;
  std::vector<std::unique_ptr<OutgoingStream>> spare_;
  Backoff cell_search_;  // of thorough looks at what lingers
  Backoff search_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_SEND_MEMORY_H_
