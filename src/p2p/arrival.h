// What both files of the receiving half do with an envelope and with the payload of a cell.
#ifndef OVERDRIVE_P2P_ARRIVAL_H_
#define OVERDRIVE_P2P_ARRIVAL_H_

#include <atomic>
#include <cstdint>

#include "memory/copy.h"
#include "p2p/envelope.h"

namespace od::p2p {

// The copy kernel for a payload whose writer used non-temporal stores or not.
inline memory::CopyFunction reader_for(std::uint32_t nontemporal) {
  return nontemporal != 0 ? memory::copy_from_memory : memory::copy_from_cache;
}

inline void mark_done(Envelope& envelope, std::uint32_t generation) {
  // Release: our reads are over; pairs with the sender's acquire before it reuses the envelope.
  envelope.state.store(tag_state(generation, EnvelopeState::done), std::memory_order_release);
}

// Takes the message for a receive or pins it for a probe; false when the sender has cancelled it.
inline bool take_state(Envelope& envelope, const StreamDescriptor& stream, EnvelopeState to) {
  const std::uint64_t wanted = tag_state(stream.generation, to);
  // The sender believes `drained` only once the state is of this generation; a word left over from
  // a generation that is equal in its low bits must be gone by then. Relaxed: released with the
  // state.
  envelope.drained.store(tag_drained(stream.generation, 0), std::memory_order_relaxed);
  if (stream.cancellable == 0) {
    // Release: a synchronous sender that sees it knows that the receive has started.
    envelope.state.store(wanted, std::memory_order_release);
    return true;
  }
  std::uint64_t word = envelope.state.load(std::memory_order_acquire);
  for (;;) {
    switch (untag_state(word, stream.generation)) {
      case EnvelopeState::cancelled:
        return false;
      case EnvelopeState::pinned:
        if (to == EnvelopeState::pinned) return true;
        break;
      default:
        break;
    }
    // Acquire-release: settles against Transport::cancel.
    if (envelope.state.compare_exchange_weak(word, wanted, std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
      return true;
    }
  }
}

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_ARRIVAL_H_
