// What the receiving half does with an envelope and with the payload of a cell.
#ifndef OVERDRIVE_P2P_ARRIVAL_H_
#define OVERDRIVE_P2P_ARRIVAL_H_

#include <atomic>
#include <cstdint>

#include "memory/copy.h"
#include "p2p/envelope.h"

namespace od::p2p {

// The copy kernel for a payload whose writer used non-temporal stores or not.
inline memory::CopyFunction reader_for(std::uint32_t nontemporal, bool far) {
  if (nontemporal != 0) return memory::copy_from_memory;
  return far ? memory::copy_from_far_cache : memory::copy_from_cache;
}

inline void mark_done(Envelope& envelope, std::uint32_t generation) {
  // Release: our reads are over; pairs with the sender's acquire before it reuses the envelope.
  envelope.state.store(tag_state(generation, EnvelopeState::done), std::memory_order_release);
}

// How a message was taken.
enum class Taken : std::uint8_t {
  cancelled,  // not at all: the sender has cancelled it
  in_cells,   // the payload comes through cells or the sender's own memory
  direct,     // the receiver may read the sender's buffer
};

// Takes the message for a receive (`to` = matched, or direct if the receiver could read the buffer
// itself) or pins it for a probe (`to` = pinned; then every answer but `cancelled` means success).
inline Taken take_state(Envelope& envelope, const StreamDescriptor& stream, EnvelopeState to) {
  // The sender believes `drained` only once the state is of this generation; a word left over from
  // a generation that is equal in its low bits must be gone by then. Relaxed: released with the
  // state.
  envelope.drained.store(tag_drained(stream.generation, 0), std::memory_order_relaxed);
  if (stream.contended == 0) {
    // Release: a synchronous sender that sees it knows that the receive has started.
    envelope.state.store(tag_state(stream.generation, to), std::memory_order_release);
    return to == EnvelopeState::direct ? Taken::direct : Taken::in_cells;
  }
  std::uint64_t word = envelope.state.load(std::memory_order_acquire);
  for (;;) {
    const EnvelopeState now = untag_state(word, stream.generation);
    EnvelopeState next = to;
    switch (now) {
      case EnvelopeState::cancelled:
        return Taken::cancelled;
      case EnvelopeState::pinned:
      case EnvelopeState::withdrawn_pinned:
        if (to == EnvelopeState::pinned) return Taken::in_cells;
        if (now == EnvelopeState::withdrawn_pinned) next = EnvelopeState::matched;
        break;
      case EnvelopeState::withdrawn:
        next =
            to == EnvelopeState::pinned ? EnvelopeState::withdrawn_pinned : EnvelopeState::matched;
        break;
      default:
        break;
    }
    // Acquire-release: settles against Sender::cancel and Sender::withdraw.
    if (envelope.state.compare_exchange_weak(word, tag_state(stream.generation, next),
                                             std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
      return next == EnvelopeState::direct ? Taken::direct : Taken::in_cells;
    }
  }
}

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_ARRIVAL_H_
