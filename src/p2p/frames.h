// Exchange frames: memory that goes to and fro between a pair of ranks, together with messages.
//
// What costs in a message between cores is taking lines away from the other one. A frame avoids
// half of it: whoever has read a message in a frame writes its own next message to that peer into
// the same frame, whose lines are in its cache already. Dialogues (ping-pong, neighbour exchange,
// request and answer) stay in the same memory; one-way traffic leaves the frames with the receiver
// and takes boxes and cells.
//
// Every rank's region holds one frame for each of up to `frame_count` neighbours, so a pair has two
// (fewer where ranks have more peers than frames). A frame is a head line with the layout of a box
// line, up to a page of short payload behind it, and `frame_bytes` of long payload.
//
// A frame belongs to exactly one of the two ranks at a time: at first to the owner of the region.
// Sending a message in it hands it over; the receiver owns it from the moment at which it has read
// (or dropped) that message. Only the owner writes, anything in it; the head's control word last:
//   sender: payload, head, then the control word (release)
//           pairs with the receiver's acquire load of that control word in ready()
// The control word carries a turn that counts the messages in this frame, so nothing is ever
// cleared.
//
// Order: a pair's messages go through its frames and its box by turns. Each message in a frame says
// how many messages have gone through the box before it, each message in the box how many through
// frames. So the receiver knows which of those that wait is the oldest.
#ifndef OVERDRIVE_P2P_FRAMES_H_
#define OVERDRIVE_P2P_FRAMES_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "node/region_layout.h"
#include "p2p/fast_box.h"

namespace od::p2p {

// Payload of a message that follows the head line at once.
inline constexpr std::uint64_t kFrameShortBytes = node::kFrameHeadBytes - sizeof(BoxLine);

// What the control word of a head says: bits 0-23 source, 24-37 messages in the box before this one
// (a BoxCount), 38-56 payload bytes, 57 whether it is an odd message of the pair's frames, 58-60
// kind, 61-63 turn (mod 8: only the turn before this one can stand there still).
struct FrameControl {
  static constexpr std::uint64_t kMaxBytes = (1u << 19) - 1;

  static std::uint64_t pack(std::uint32_t source, BoxCount box_before, std::uint64_t bytes,
                            std::uint8_t number, Kind kind, std::uint8_t turn) {
    return (std::uint64_t{turn & 7u} << 61) | (static_cast<std::uint64_t>(kind) << 58) |
           (std::uint64_t{number & 1u} << 57) | (bytes << 38) |
           (std::uint64_t{box_before.value()} << 24) | source;
  }
  std::uint64_t word;
  std::uint32_t source() const { return static_cast<std::uint32_t>(word & kMaxBoxSource); }
  BoxCount box_before() const { return BoxCount(static_cast<std::uint32_t>(word >> 24)); }
  std::uint32_t bytes() const { return static_cast<std::uint32_t>((word >> 38) & kMaxBytes); }
  bool odd() const { return ((word >> 57) & 1u) != 0; }
  Kind kind() const { return static_cast<Kind>((word >> 58) & 7u); }
  // Whether this is the message after `turns` of them.
  bool follows(std::uint8_t turns) const { return word >> 61 == ((turns + 1u) & 7u); }
};
static_assert(static_cast<unsigned>(Kind::split) < 8);
static_assert(24 + BoxCount::kBits == 38);

// The frame for `peer` in the region of `owner` (node indices, `base` that region's start), or null
// if there is none: neighbours in the order of ranks come first.
inline std::byte* frame_at(std::byte* base, const node::RegionLayout& layout, std::uint32_t owner,
                           std::uint32_t peer, std::uint32_t ranks) {
  const std::uint32_t slot = (peer + ranks - owner - 1) % ranks;
  if (slot >= layout.frame_count) return nullptr;
  return base + layout.frames_offset + slot * (node::kFrameHeadBytes + layout.frame_bytes);
}

// One rank's view of the frames it shares with one peer. A frame is named by an index: 0 the one in
// the own region, 1 the one in the peer's.
class FrameSet {
 public:
  static constexpr unsigned kNone = 2;

  FrameSet() = default;
  // Either may be null.
  FrameSet(std::byte* own, std::byte* peers)
      : heads_{reinterpret_cast<BoxLine*>(own), reinterpret_cast<BoxLine*>(peers)},
        held_(own != nullptr ? 1 : 0),
        away_(peers != nullptr ? 2 : 0) {}

  // --- sending ---------------------------------------------------------------------------------
  // The frame to send in: the one that was read last; kNone if both are away.
  unsigned held() const {
    if ((held_ >> newest_ & 1u) != 0) return newest_;
    return held_ != 0 ? 1 - newest_ : kNone;
  }
  // Whether the peer has had this frame before: its pages exist, its lines have been in both
  // caches.
  bool seen(unsigned frame) const { return (seen_ >> frame & 1u) != 0; }
  std::byte* payload(unsigned frame) const {
    return reinterpret_cast<std::byte*>(heads_[frame]) + node::kFrameHeadBytes;
  }
  // Hands the frame over with a message of `bytes`, at most kFrameShortBytes, which is copied.
  // `box_before`: messages that have gone through the box.
  void put(unsigned frame, const MessageHeader& header, const void* payload, std::uint32_t bytes,
           BoxCount box_before) {
    BoxLine* const head = heads_[frame];
    if (bytes <= kHeadPayloadBytes) {
      copy_small(head->head.payload, static_cast<const unsigned char*>(payload), bytes);
    } else {
      std::memcpy(reinterpret_cast<std::byte*>(head + 1), payload, bytes);
    }
    hand_over(frame, header, bytes, box_before);
  }
  // The same for kPrefixBytes at `prefix` and `bytes`, at most kFrameShortBytes, behind them. What
  // the head line has no room for begins at the next one, as without a prefix: no line more.
  void put_behind(unsigned frame, MessageHeader header, const void* prefix, const void* payload,
                  std::uint32_t bytes, BoxCount box_before) {
    BoxLine* const head = heads_[frame];
    std::memcpy(head->head.payload, prefix, kPrefixBytes);
    if (bytes <= kHeadPayloadBytes - kPrefixBytes) {
      copy_small(head->head.payload + kPrefixBytes, static_cast<const unsigned char*>(payload),
                 bytes);
    } else {
      header.kind = Kind::split;
      std::memcpy(reinterpret_cast<std::byte*>(head + 1), payload, bytes);
    }
    hand_over(frame, header, kPrefixBytes + bytes, box_before);
  }
  // The same for `bytes` that the caller has put where payload() says.
  void hand_over(unsigned frame, const MessageHeader& header, std::uint64_t bytes,
                 BoxCount box_before) {
    BoxLine* const head = heads_[frame];
    head->head.context = header.context;
    head->head.tag = header.tag;
    head->head.checksum = header.checksum;
    ++turns_[frame];
    seen_ |= static_cast<std::uint8_t>(1u << frame);
    held_ &= static_cast<std::uint8_t>(~(1u << frame));
    away_ |= static_cast<std::uint8_t>(1u << frame);
    // Release: pairs with the acquire in ready().
    head->control.store(
        FrameControl::pack(header.source, box_before, bytes, sent_, header.kind, turns_[frame]),
        std::memory_order_release);
    ++sent_;
  }
  // Messages sent in frames, mod 256.
  std::uint8_t sent() const { return sent_; }

  // --- receiving -------------------------------------------------------------------------------
  // The frame with the oldest message that waits, or kNone; a load per frame that is away.
  unsigned ready(FrameControl* control) const {
    for (unsigned frame = 0; frame < 2; ++frame) {
      if ((away_ >> frame & 1u) == 0) continue;
      // Acquire: pairs with the release in hand_over().
      control->word = heads_[frame]->control.load(std::memory_order_acquire);
      if (control->follows(turns_[frame]) && control->odd() == ((received_ & 1u) != 0)) {
        return frame;
      }
    }
    return kNone;
  }
  bool ready() const {
    FrameControl control;
    return ready(&control) != kNone;
  }
  // Reads the head of the message that ready() has shown.
  void peek(unsigned frame, FrameControl control, MessageHeader* header) const {
    const BoxLine& line = *heads_[frame];
    header->kind = control.kind();
    header->inline_bytes = control.bytes();
    header->source = control.source();
    header->context = line.head.context;
    header->tag = line.head.tag;
    header->checksum = line.head.checksum;
  }
  // Takes the message that ready() has shown; its payload stays until keep().
  void take(unsigned frame, FrameControl control, MessageHeader* header) {
    peek(frame, control, header);
    away_ &= static_cast<std::uint8_t>(~(1u << frame));
    ++turns_[frame];
    seen_ |= static_cast<std::uint8_t>(1u << frame);
    ++received_;
  }
  const unsigned char* short_payload(unsigned frame, std::uint32_t bytes) const {
    return bytes <= kHeadPayloadBytes ? heads_[frame]->head.payload
                                      : reinterpret_cast<unsigned char*>(heads_[frame] + 1);
  }
  // Copies the first `limit` bytes of a message of kind split.
  void copy_split(unsigned frame, unsigned char* to, std::uint32_t limit) const {
    copy_small(to, heads_[frame]->head.payload, std::min(limit, kPrefixBytes));
    if (limit > kPrefixBytes) {
      copy_small(to + kPrefixBytes, reinterpret_cast<const unsigned char*>(heads_[frame] + 1),
                 limit - kPrefixBytes);
    }
  }
  // The message in it has been read, or will never be: from here on this rank may send in it.
  void keep(unsigned frame) {
    held_ |= static_cast<std::uint8_t>(1u << frame);
    newest_ = static_cast<std::uint8_t>(frame);
  }
  // Messages taken from frames, mod 256.
  std::uint8_t received() const { return received_; }

 private:
  BoxLine* heads_[2] = {nullptr, nullptr};
  std::uint8_t turns_[2] = {0, 0};  // messages in each frame so far, either way
  std::uint8_t held_ = 0;           // bit per frame: this rank may send in it
  std::uint8_t away_ = 0;           // bit per frame: the peer has it, or its message waits here
  std::uint8_t newest_ = 0;
  std::uint8_t sent_ = 0;
  std::uint8_t received_ = 0;
  std::uint8_t seen_ = 0;  // bit per frame: it has carried a message
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_FRAMES_H_
