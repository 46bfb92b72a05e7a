// The shared descriptor of one message that does not fit a fast box: listed messages and streams.
//
// An envelope lies in the sender's region and is used over and over; `generation` counts the uses.
//   line 0  written by the sender before publication, constant afterwards. Only listed messages
//   need
//           it: for a stream that is announced through a fast box everything is in the
//           announcement.
//   line 1  written by the sender as it goes: how much payload is available and where. One line, so
//           that a receiver fetches one line per piece.
//   line 2  written by the receiver: matching state, progress. Every word carries the generation it
//           speaks about, so the sender never has to clear it: an older generation reads as
//           "unmatched", "not taken", "nothing drained".
//   line 3  payload of a small listed message.
//
// Life of the state in one generation:
//   unmatched -> pinned              a probe has shown it: it can no longer be cancelled
//   unmatched | pinned -> matched    a receive has taken it; the payload comes through cells
//   unmatched | pinned -> direct     a receive has taken it and reads the sender's buffer itself
//                                    (only if the descriptor says where that buffer lies)
//   direct -> matched                it could not: the payload has to come through cells after all
//   unmatched -> cancelled           MPI_Cancel won; the receiver drops it
//   unmatched | pinned -> withdrawn | withdrawn_pinned
//                                    the sender no longer wants its buffer to be read and sends the
//                                    payload through cells or own memory; from here on as above,
//                                    without `direct`
//   any -> done                      the receiver will not touch it again
// Where the sender may write the word as well (`contended`: messages that can be cancelled or
// withdrawn), both sides change it by compare-and-swap as long as nobody has matched; otherwise the
// receiver uses plain stores. Once matched the word is the receiver's. The sender reuses an
// envelope only after `done`, and a pool cell of a stream only after `drained` has passed it, so it
// may return to its program whenever `filled` equals `bytes`, or at `done`.
//
// A receiver that calls back (StreamDescriptor::calls) stores `called` before `done` and then puts
// the envelope on the list, so that a sender that sees `done` knows whether `next` is, or is going
// to be, in use; then it reuses the envelope only after it has found it on its list.
//
// When the receiver has published `target` (before it stores `matched` or `direct`), the sender may
// write into the receive buffer:
//   matched  everything that is not in cells yet (push), counted in `filled` like the rest
//   direct   the pieces that it claims (cooperative copy): both sides take pieces of kClaimBytes
//            by incrementing `claimed`, and `filled` counts the bytes that the sender has written
#ifndef OVERDRIVE_P2P_ENVELOPE_H_
#define OVERDRIVE_P2P_ENVELOPE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "p2p/fast_box.h"

namespace od::p2p {

enum class EnvelopeState : std::uint32_t {
  unmatched = 0,
  pinned,
  matched,
  cancelled,
  done,
  direct,
  withdrawn,
  withdrawn_pinned
};

// Whether no receive has taken the message yet.
inline bool is_waiting(EnvelopeState state) {
  return state == EnvelopeState::unmatched || state == EnvelopeState::pinned ||
         state == EnvelopeState::withdrawn || state == EnvelopeState::withdrawn_pinned;
}

// Cells that one stream may have in flight: with 16 KiB cells 256 KiB, which covers the time that a
// receiver needs to react on every machine measured, while 8 streams share a pool of 2 MiB.
inline constexpr std::uint32_t kStreamCells = 16;
inline constexpr std::uint32_t kEnvelopeInlineBytes = 64;

struct alignas(64) Envelope {
  // Line 0: written by the sender before publication; `next` later by a receiver that calls back.
  std::atomic<std::uint64_t> next;  // inbox list link: (node index + 1) << 48 | offset, or 0
  std::uint64_t context;
  std::int32_t tag;
  std::uint32_t source;
  std::uint64_t bytes;
  std::uint32_t cell_bytes;  // stream: payload bytes per cell
  std::uint32_t generation;
  Kind kind;  // inline_data, cell or stream
  std::uint8_t contended;
  std::uint8_t path;              // stream: Path
  std::uint8_t calls;             // stream: as StreamDescriptor::calls
  std::uint32_t header_checksum;  // inline_data, cell: of the payload
  union {
    CellDescriptor cell;           // kind cell
    std::uint64_t source_address;  // kind stream: see StreamDescriptor
  };

  // Line 1: written by the sender as it goes.
  alignas(64) std::atomic<std::uint64_t> filled;  // payload bytes available; release
  std::uint64_t buffer_from;  // from this position on the payload lies at buffer_offset
  std::uint64_t buffer_offset;
  std::uint32_t checksum;     // valid when filled == bytes
  std::uint32_t nontemporal;  // 1: the newest piece was written past the caches (a hint)
  // What follows the frame, if there is one: cell i is chunk cells[i % kStreamCells] of the pool.
  std::uint16_t cells[kStreamCells];

  // Line 2: written by the receiver; all tagged with the generation.
  // generation << 8 | EnvelopeState; each change pairs with the other side's next look
  alignas(64) std::atomic<std::uint64_t> state;
  std::atomic<std::uint64_t> drained;  // generation << 44 | payload bytes read
  std::atomic<std::uint32_t> taken;    // generation, once off the inbox list
  std::uint32_t target_generation;     // generation that `target` speaks about
  std::uint64_t target;                // offset of the receive buffer in the receiver's shared file
  std::atomic<std::uint64_t> claimed;  // generation << 32 | pieces taken by either side
  std::uint32_t line_ns;               // what a line from the sender took; 0: not measured
  std::uint32_t called;                // generation in which the receiver calls back

  alignas(64) unsigned char payload[kEnvelopeInlineBytes];
};
static_assert(sizeof(Envelope) == 256);
static_assert(offsetof(Envelope, cell) == 48 && offsetof(Envelope, filled) == 64);
static_assert(offsetof(Envelope, state) == 128 && offsetof(Envelope, payload) == 192);

// What announces a stream in a fast box.
struct StreamDescriptor {
  std::uint64_t envelope_offset;
  std::uint64_t bytes;
  std::uint32_t generation;
  std::uint32_t cell_bytes;
  std::uint8_t contended;  // 1: the sender may change the state as well
  std::uint8_t path;       // Path: what the sender offers
  // 1: the payload begins in the frame that carries this, as much as a frame holds. The receiver
  // keeps the frame's index plus one here.
  std::uint8_t frame;
  // 1: the sender has so many streams under way that it does not look at each all the time. Whoever
  // takes this one puts its envelope on the sender's own inbox list.
  std::uint8_t calls;
  std::uint8_t unused[4];
  // pull, cooperative: where the sender's buffer lies in its shared file; kernel: its address.
  std::uint64_t source_address;
};
static_assert(sizeof(StreamDescriptor) == kHeadPayloadBytes);

// Value of `buffer_offset`: from `buffer_from` on the sender writes into the receive buffer.
inline constexpr std::uint64_t kPushed = ~std::uint64_t{0};

// Pieces of a cooperative copy: small enough that both sides end at about the same time, large
// enough that taking one is cheap.
inline constexpr std::uint64_t kClaimBytes = 64u << 10;

// Messages are shorter than 2^44 bytes; 20 bits of the generation are enough to tell the current
// use from the one before.
inline constexpr unsigned kDrainedBits = 44;
inline constexpr std::uint64_t kDrainedMask = (std::uint64_t{1} << kDrainedBits) - 1;

inline std::uint64_t tag_state(std::uint32_t generation, EnvelopeState state) {
  return (static_cast<std::uint64_t>(generation) << 8) | static_cast<std::uint64_t>(state);
}
inline EnvelopeState untag_state(std::uint64_t word, std::uint32_t generation) {
  return (word >> 8) == generation ? static_cast<EnvelopeState>(word & 0xff)
                                   : EnvelopeState::unmatched;
}
// The state of an envelope in its current use, as its sender sees it.
inline EnvelopeState state_of(const Envelope& envelope) {
  // Acquire: pairs with the receiver's release or compare-and-swap of `state`.
  return untag_state(envelope.state.load(std::memory_order_acquire), envelope.generation);
}
inline std::uint64_t tag_drained(std::uint32_t generation, std::uint64_t bytes) {
  return (static_cast<std::uint64_t>(generation) << kDrainedBits) | bytes;
}
inline std::uint64_t untag_drained(std::uint64_t word, std::uint32_t generation) {
  return (word >> kDrainedBits) == (generation & 0xfffff) ? word & kDrainedMask : 0;
}

// A position in some rank's region that fits one word: links of the inbox list.
inline constexpr unsigned kLinkIndexShift = 48;
inline std::uint64_t make_link(std::uint32_t node_index, std::uint64_t offset) {
  return (static_cast<std::uint64_t>(node_index + 1) << kLinkIndexShift) | offset;
}
inline std::uint32_t link_index(std::uint64_t link) {
  return static_cast<std::uint32_t>(link >> kLinkIndexShift) - 1;
}
inline std::uint64_t link_offset(std::uint64_t link) {
  return link & ((std::uint64_t{1} << kLinkIndexShift) - 1);
}

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_ENVELOPE_H_
