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
//   unmatched | pinned -> matched    a receive has taken it
//   unmatched -> cancelled           MPI_Cancel won; the receiver drops it
//   any -> done                      the receiver will not touch it again
// Only the sender of a cancellable message (a non-blocking one) may write the word, by one
// compare-and-swap to `cancelled`; the receiver of such a message leaves `unmatched` by
// compare-and-swap as well, otherwise by a plain store. The sender reuses an envelope only after
// `done`, and a pool cell of a stream only after `drained` has passed it, so it may return to its
// program whenever `filled` equals `bytes`.
#ifndef OVERDRIVE_P2P_ENVELOPE_H_
#define OVERDRIVE_P2P_ENVELOPE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "p2p/fast_box.h"

namespace od::p2p {

enum class EnvelopeState : std::uint32_t { unmatched = 0, pinned, matched, cancelled, done };

// Cells that one stream may have in flight: with 16 KiB cells 256 KiB, which covers the time that a
// receiver needs to react on every machine measured, while 8 streams share a pool of 2 MiB.
inline constexpr std::uint32_t kStreamCells = 16;
inline constexpr std::uint32_t kEnvelopeInlineBytes = 64;

struct alignas(64) Envelope {
  // Line 0: written by the sender before publication.
  std::atomic<std::uint64_t> next;  // inbox list link: (node index + 1) << 48 | offset, or 0
  std::uint64_t context;
  std::int32_t tag;
  std::uint32_t source;
  std::uint64_t bytes;
  std::uint32_t cell_bytes;  // stream: payload bytes per cell
  std::uint32_t generation;
  Kind kind;  // inline_data, cell or stream
  std::uint8_t cancellable;
  std::uint8_t unused[2];
  std::uint32_t header_checksum;  // inline_data, cell: of the payload
  CellDescriptor cell;            // kind cell

  // Line 1: written by the sender as it goes.
  alignas(64) std::atomic<std::uint64_t> filled;  // payload bytes available; release
  std::uint64_t buffer_from;  // from this position on the payload lies at buffer_offset
  std::uint64_t buffer_offset;
  std::uint32_t checksum;             // valid when filled == bytes
  std::uint32_t nontemporal;          // 1: the newest piece was written past the caches (a hint)
  std::uint16_t cells[kStreamCells];  // cell i is chunk cells[i % kStreamCells] of the pool

  // Line 2: written by the receiver; all tagged with the generation.
  alignas(64) std::atomic<std::uint64_t> state;  // generation << 8 | EnvelopeState
  std::atomic<std::uint64_t> drained;            // generation << 44 | payload bytes read
  std::atomic<std::uint32_t> taken;              // generation, once off the inbox list

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
  std::uint32_t cancellable;
  std::uint32_t reserved;
};
static_assert(sizeof(StreamDescriptor) <= kHeadPayloadBytes);

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
