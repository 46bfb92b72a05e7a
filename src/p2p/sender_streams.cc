// Streams on their way out: offers, pieces, self-buffering, cancelling.
//
// The sender offers its buffer in the stream's descriptor and fills no cell. As long as no receive
// has come it may withdraw its offer; then, and when the receiver cannot read, the message goes on
// as a stream of cells or out of the sender's own memory. See envelope.h for the states.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/clock.h"
#include "memory/copy.h"
#include "memory/space.h"
#include "observe/log.h"
#include "p2p/path/cells.h"
#include "p2p/path/path.h"
#include "p2p/path/short.h"
#include "p2p/receiver.h"
#include "p2p/sender.h"

namespace od::p2p {

namespace {

// A matched receiver is at work; give it this many times the patience of an unmatched one before
// the sender buffers the rest for itself (it may have gone into a blocking call of the host).
constexpr std::uint64_t kMatchedPatience = 20;

// Streams that one round of progress looks at: the oldest, whose receives come first as a rule, and
// some of the others in turn. With thousands under way a round would else cost more than what it
// moves, and all of them together the square of their number. Those that start behind so many have
// their receivers call, or each message that is received in another order would wait for its turn.
constexpr std::size_t kOldest = 128;
constexpr std::size_t kInTurn = 128;

// The rest of the payload leaves the program's buffer for memory that only this process sees: it
// goes on from there, when this rank makes progress.
bool keep_rest(OutgoingStream& stream) {
  if (stream.packed != nullptr) return true;  // it is there already
  std::unique_ptr<char[]> kept(new (std::nothrow) char[stream.bytes]);
  if (kept == nullptr) return false;
  char* const to = kept.get() + stream.filled;
  const std::uint64_t rest = stream.bytes - stream.filled;
  if (stream.contiguous != nullptr) {
    std::memcpy(to, stream.contiguous + stream.filled, rest);
  } else {
    stream.cursor.pack(to, rest, memory::copy_ordinary);
  }
  stream.packed = std::move(kept);
  stream.contiguous = stream.packed.get();
  return true;
}

}  // namespace

int Sender::send_stream(std::uint32_t peer, MessageHeader header, const Payload& payload,
                        Cursor* cursor, std::unique_ptr<char[]> packed, SendMode mode,
                        const ChosenPath& chosen, Request& request) {
  Envelope* const envelope = memory_.allocate_envelope(true);
  if (envelope == nullptr) {
    OD_LOG_ONCE(
        Level::kError,
        "no memory left to describe outgoing messages: more than OVERDRIVE_BUFFER_LIMIT wait "
        "for receives that are not posted; raise it");
    return host_.err_no_mem;
  }
  std::unique_ptr<OutgoingStream> stream = memory_.new_stream();
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
  stream->offered = row_of(chosen.path).offers;
  stream->attached = stream->offered && memory::is_address(chosen.source_address);
  stream->checksum = memory::kChecksumStart;
  request.outgoing = stream.get();

  envelope->checksum = memory::checksum_fold(memory::kChecksumStart);  // of an empty payload
  // The descriptor goes first: the receiver finds its receive while the first piece is copied.
  header.kind = Kind::stream;
  StreamDescriptor descriptor{};
  descriptor.envelope_offset = memory_.offset_of(*envelope);
  descriptor.bytes = payload.bytes;
  descriptor.generation = envelope->generation;
  descriptor.cell_bytes = static_cast<std::uint32_t>(memory_.pool().chunk_bytes());
  descriptor.contended = !request.blocking || stream->offered ? 1 : 0;
  descriptor.path = static_cast<std::uint8_t>(chosen.path);
  descriptor.source_address = chosen.source_address;
  if (outgoing_.size() >= kOldest) [[unlikely]] {
    descriptor.calls = 1;
    memory_.expect_call(*stream);
  }
  if (verify_ && stream->offered) {
    // Nobody else will look at the payload on its way.
    envelope->checksum = memory::checksum_fold(
        memory::checksum_update(memory::kChecksumStart, payload.contiguous, payload.bytes));
  }
  const unsigned frame = stream->offered ? FrameSet::kNone : frame_for_payload(side_, peer);
  if (frame != FrameSet::kNone) {
    FrameSet& frames = frames_[peer];
    stream->frame = frames.payload(frame);
    stream->frame_seen = frames.seen(frame);
    stream->frame_bytes = std::min(all_links_.layout().frame_bytes, payload.bytes);
    descriptor.frame = 1;
    // The payload follows; that the frame is the receiver's already does not matter: it touches
    // only what `filled` has published.
    frames.put(frame, header, &descriptor, sizeof(descriptor), links_[peer].box.messages());
    all_links_.wake(peer);
  } else if (!outbox_.post(peer, header, &descriptor, sizeof(descriptor))) {
    envelope->cell_bytes = descriptor.cell_bytes;
    envelope->contended = descriptor.contended;
    envelope->path = descriptor.path;
    envelope->calls = descriptor.calls;
    envelope->source_address = descriptor.source_address;
    outbox_.list(peer, *envelope, header, payload.bytes);
  }
  if (stream->offered) {
    stream->offered_ns = now_ns();
    outgoing_.push_back(std::move(stream));
    return host::kSuccess;
  }
  ++counters_.sends_stream;
  counters_.bytes_stream += payload.bytes;

  while (stream->filled < stream->bytes && advance(*stream)) {
  }
  // A short message whose receiver is so far behind that the pool is full is not worth a wait.
  const bool flood = stream->bytes <= eager_max_;
  if ((stream->buffered || flood) && stream->filled < stream->bytes)
    fill_own_memory(side_, *stream);
  // At the limit of own memory others wait; a buffered send never does.
  if (stream->buffered && stream->filled < stream->bytes && keep_rest(*stream)) complete(*stream);
  if (done(*stream)) {
    complete(*stream);
    memory_.linger(std::move(stream));
  } else {
    outgoing_.push_back(std::move(stream));
  }
  return host::kSuccess;
}

bool Sender::advance(OutgoingStream& stream) {
  if (stream.offered) return advance_offer(stream);
  memory_.free_drained_cells(stream);
  if (stream.filled == stream.bytes) return false;
  const PathRow& path = row_of(stream.path);
  if (!path.offers && path.help != nullptr && path.help(side_, stream)) return true;
  return fill_cells(side_, stream);
}

bool Sender::advance_offer(OutgoingStream& stream) {
  Link& link = links_[stream.peer];
  const PathRow& path = row_of(stream.path);
  switch (state_of(*stream.envelope)) {
    case EnvelopeState::direct:
      if (stream.offered_ns != 0) {
        link.distance.sample_answer(now_ns() - stream.offered_ns, settings_.far_threshold_ns);
        stream.offered_ns = 0;
      }
      return path.help != nullptr && path.help(side_, stream);
    case EnvelopeState::done:
      stream.offered = false;
      stream.filled = stream.bytes;
      link.note_in_time();
      ++(counters_.*path.words.sends);
      counters_.*path.words.bytes += stream.bytes;
      return true;
    case EnvelopeState::matched:
      ++counters_.offers_declined;
      if (stream.attached) {
        link.opens_us = false;  // what lies in the reach file can still be read
      } else {
        link.offers_declined = true;
      }
      end_offer(stream);
      return advance(stream);
    default:
      return false;
  }
}

void Sender::end_offer(OutgoingStream& stream) {
  stream.offered = false;
  ++counters_.sends_stream;
  counters_.bytes_stream += stream.bytes;
}

bool Sender::withdraw(OutgoingStream& stream) {
  Envelope& envelope = *stream.envelope;
  std::uint64_t word = envelope.state.load(std::memory_order_acquire);
  for (;;) {
    EnvelopeState to;
    switch (untag_state(word, envelope.generation)) {
      case EnvelopeState::unmatched:
        to = EnvelopeState::withdrawn;
        break;
      case EnvelopeState::pinned:
        to = EnvelopeState::withdrawn_pinned;
        break;
      default:
        return false;
    }
    // Acquire-release: settles against the receiver's compare-and-swap in take_state.
    if (envelope.state.compare_exchange_weak(word, tag_state(envelope.generation, to),
                                             std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
      break;
    }
  }
  ++counters_.offers_withdrawn;
  end_offer(stream);
  return true;
}

bool Sender::done(const OutgoingStream& stream) {
  if (stream.filled < stream.bytes) return false;
  if (!stream.synchronous) return true;
  return !is_waiting(state_of(*stream.envelope));
}

void Sender::complete(OutgoingStream& stream) {
  if (stream.request == nullptr) return;
  stream.request->outgoing = nullptr;
  stream.request->complete = true;
  stream.request = nullptr;
}

bool Sender::progress() {
  bool moved = !receiver_.calls().empty() && answer_calls();
  OutgoingStream* stream = outgoing_.first();
  for (std::size_t looked = 0; stream != nullptr && looked < kOldest; ++looked) {
    OutgoingStream* const next = stream->next;
    moved |= look_at(*stream);
    stream = next;
  }
  if (stream != nullptr) [[unlikely]] {
    if (outgoing_.turn() != nullptr) stream = outgoing_.turn();
    for (std::size_t looked = 0; stream != nullptr && looked < kInTurn; ++looked) {
      OutgoingStream* const next = stream->next;
      moved |= look_at(*stream);
      stream = next;
    }
    outgoing_.set_turn(stream);
  }
  return moved;
}

bool Sender::look_at(OutgoingStream& stream) {
  const bool moved = advance(stream);
  if (!done(stream)) return moved;
  complete(stream);
  stream.packed.reset();  // all of it has gone on
  memory_.linger(outgoing_.take(stream));
  return true;
}

// What has been called for is among the oldest from then on: its receiver waits.
bool Sender::answer_calls() {
  std::vector<Envelope*>& calls = receiver_.calls();
  for (Envelope* const envelope : calls) {
    OutgoingStream* const stream = memory_.note_call(*envelope);
    if (stream == nullptr) all_links_.corrupt(all_links_.my_index(), "call of a receiver");
    ++counters_.sends_called;
    if (stream->queue != &outgoing_) continue;  // there is nothing left to do for it
    outgoing_.push_front(outgoing_.take(*stream));
    look_at(*stream);
  }
  calls.clear();
  return true;
}

bool Sender::anything_ready() const {
  for (const OutgoingStream* stream = outgoing_.first(); stream != nullptr; stream = stream->next) {
    const Envelope& envelope = *stream->envelope;
    // Acquire: pairs with the receiver's release of `drained`.
    if (untag_drained(envelope.drained.load(std::memory_order_acquire), envelope.generation) !=
        stream->drained_seen) {
      return true;
    }
    const EnvelopeState state = state_of(envelope);
    if (stream->filled == stream->bytes && !is_waiting(state)) return true;
    if (stream->offered && !is_waiting(state) && state != EnvelopeState::direct) return true;
  }
  return false;
}

void Sender::relieve_stalled(std::uint64_t now, bool offers) {
  for (OutgoingStream* stream = outgoing_.first(); stream != nullptr; stream = stream->next) {
    if (stream->filled == stream->bytes) continue;
    if (stream->offered) {
      if (!offers) continue;
      if (stream->moved_ns == 0) {
        stream->moved_ns = now;
      } else if (now - stream->moved_ns >= settings_.pull_wait_ns && withdraw(*stream)) {
        links_[stream->peer].note_late();
        stream->moved_ns = now;
        fill_own_memory(side_, *stream);
      }
      continue;
    }
    memory_.free_drained_cells(*stream);
    if (stream->moved_ns == 0) {
      stream->moved_ns = now;
      continue;
    }
    const bool matched = state_of(*stream->envelope) == EnvelopeState::matched;
    const std::uint64_t patience = matched        ? settings_.unmatched_wait_ns * kMatchedPatience
                                   : stream->late ? settings_.pull_wait_ns
                                                  : settings_.unmatched_wait_ns;
    if (now - stream->moved_ns >= patience) {
      // Taken cells stay taken until drained; only the rest moves to own memory.
      if (!fill_own_memory(side_, *stream)) stream->moved_ns = now;
    }
  }
}

void Sender::flush() {
  for (OutgoingStream* stream = outgoing_.first(); stream != nullptr; stream = stream->next) {
    if (stream->offered) {
      advance(*stream);
      if (stream->offered && !withdraw(*stream)) continue;  // the receiver is reading, by itself
    }
    if (stream->filled < stream->bytes) {
      advance(*stream);
      fill_own_memory(side_, *stream);
    }
  }
}

bool Sender::has_unfinished_payload() const {
  for (const OutgoingStream* stream = outgoing_.first(); stream != nullptr; stream = stream->next) {
    if (stream->filled < stream->bytes) return true;
  }
  return false;
}

bool Sender::cancel(Request& request) {
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
  memory_.linger(outgoing_.take(*stream));
  return true;
}

}  // namespace od::p2p
