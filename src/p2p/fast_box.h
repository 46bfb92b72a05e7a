// A single-producer, single-consumer ring of cache lines that carries small messages and message
// descriptors from one rank to one other with a single line transfer each.
//
// The box lies in the receiver's region. Every line starts with a control word; a message takes one
// head line and as many continuation lines as its payload needs. Because every line is written once
// per lap and its control word carries the lap number, no line is ever cleared. The head's control
// word is written last: a consumer that sees it of the current lap may read the whole message.
//
// Writers: the producer writes `lines`; the consumer writes `consumed`, and `listed_taken`, from
// which the producer sees that the consumer is at work although messages have to go past the box.
//   producer: write the rest of each line, then its control word (release)
//             pairs with the consumer's acquire load of that control word
//   consumer: after copying a message out, now and then `consumed` (release)
//             pairs with the producer's acquire load before it overwrites those lines
// The box has no waiting: when it stays full the message takes the inbox list (usable_box).
#ifndef OVERDRIVE_P2P_FAST_BOX_H_
#define OVERDRIVE_P2P_FAST_BOX_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/prefetch.h"
#include "node/region_layout.h"

namespace od::p2p {

// What a message descriptor announces. Zero is never a valid kind.
enum class Kind : std::uint8_t {
  none = 0,
  continuation = 1,  // fast box only: further payload of the message before
  inline_data = 2,   // the payload follows
  cell = 3,          // the payload is complete in one cell of the sender's pool
  stream = 4,        // the payload comes in pieces, governed by an envelope
  frame = 5,         // the payload is complete in an exchange frame
  split = 6,         // exchange frames only: as inline_data, see FrameSet::put_behind
};

// What both ends agree on about a message, whatever way it takes.
struct MessageHeader {
  std::uint64_t context = 0;
  std::int32_t tag = 0;
  std::uint32_t source = 0;    // sender's rank in the communicator (24 bits in a box)
  std::uint32_t checksum = 0;  // of the payload, when verification is on
  Kind kind = Kind::none;
  std::uint32_t inline_bytes = 0;
};

// Where a complete payload lies in the sender's region.
struct CellDescriptor {
  std::uint64_t offset;
  std::uint32_t bytes;
  std::uint16_t release_index;  // entry of the sender's release bytes
  std::uint8_t release_value;   // what to store there when the payload has been read
  std::uint8_t nontemporal;     // 1: written past the caches, a hint for the reader's copy kernel
};
static_assert(sizeof(CellDescriptor) == 16);

inline constexpr std::uint32_t kHeadPayloadBytes = 40;
inline constexpr std::uint32_t kContinuationPayloadBytes = 56;
// What a message of two parts begins with.
inline constexpr std::uint32_t kPrefixBytes = 16;
static_assert(kPrefixBytes < kHeadPayloadBytes);

struct alignas(64) BoxLine {
  std::atomic<std::uint64_t> control;  // see box_control
  union {
    struct {
      std::uint64_t context;
      std::int32_t tag;
      std::uint32_t checksum;
      unsigned char payload[kHeadPayloadBytes];
    } head;
    unsigned char more[kContinuationPayloadBytes];
  };
};
static_assert(sizeof(BoxLine) == 64 && offsetof(BoxLine, head.payload) == 24);
static_assert(offsetof(BoxLine, more) == 8);

struct BoxHeader {
  alignas(kFalseSharingBytes) std::atomic<std::uint64_t> consumed;  // lines, all laps
  std::atomic<std::uint64_t> listed_taken;  // messages taken off the inbox list
};
static_assert(sizeof(BoxHeader) == 128);
static_assert(offsetof(BoxHeader, consumed) == 0 && offsetof(BoxHeader, listed_taken) == 8);

// How many lines ahead the producer asks for, one with each message. A lone message does not
// profit; in a stream the lines are on their way while messages are being made. Beyond the line
// that the consumer polls.
inline constexpr std::uint32_t kFetchAhead = 4;

inline constexpr std::uint32_t kMaxBoxSource = (1u << 24) - 1;

// Bits 0-23 source, 24-47 bytes, 48-55 messages in frames before this one (mod 256, see frames.h),
// 56-59 kind, 60-63 lap.
inline std::uint64_t box_control(std::uint32_t source, std::uint32_t bytes,
                                 std::uint8_t frames_before, Kind kind, unsigned lap) {
  return (static_cast<std::uint64_t>(lap & 15u) << 60) | (static_cast<std::uint64_t>(kind) << 56) |
         (static_cast<std::uint64_t>(frames_before) << 48) |
         (static_cast<std::uint64_t>(bytes) << 24) | source;
}

inline std::uint32_t box_lines_for(std::uint32_t payload_bytes) {
  return payload_bytes <= kHeadPayloadBytes
             ? 1
             : 1 + (payload_bytes - kHeadPayloadBytes + kContinuationPayloadBytes - 1) /
                       kContinuationPayloadBytes;
}

// How many messages have gone through a box, modulo a number that is larger than a box has lines:
// equal counts are the same message.
class BoxCount {
 public:
  static constexpr unsigned kBits = 14;
  static constexpr std::uint32_t kMask = (1u << kBits) - 1;

  constexpr BoxCount() = default;
  constexpr explicit BoxCount(std::uint32_t value) : value_(value & kMask) {}
  constexpr std::uint32_t value() const { return value_; }
  constexpr BoxCount& operator++() {
    value_ = (value_ + 1) & kMask;
    return *this;
  }
  friend constexpr bool operator==(BoxCount a, BoxCount b) = default;

 private:
  std::uint32_t value_ = 0;
};
// A MiB, the largest box that can be asked for, is not affected.
inline constexpr std::uint32_t kMostBoxLines = BoxCount::kMask;
static_assert(((1u << 20) - sizeof(BoxHeader)) / sizeof(BoxLine) <= kMostBoxLines);

inline std::uint32_t box_line_count(std::uint64_t box_bytes) {
  const std::uint64_t lines = (box_bytes - sizeof(BoxHeader)) / sizeof(BoxLine);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(lines, kMostBoxLines));
}

// Copies short runs without a call into libc: payloads of a line or less dominate.
inline void copy_small(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  if (bytes >= 16) {
    std::size_t done = 0;
    for (; done + 16 <= bytes; done += 16) std::memcpy(to + done, from + done, 16);
    if (done < bytes) std::memcpy(to + bytes - 16, from + bytes - 16, 16);
  } else if (bytes >= 8) {
    std::uint64_t a, b;
    std::memcpy(&a, from, 8);
    std::memcpy(&b, from + bytes - 8, 8);
    std::memcpy(to, &a, 8);
    std::memcpy(to + bytes - 8, &b, 8);
  } else if (bytes >= 4) {
    std::uint32_t a, b;
    std::memcpy(&a, from, 4);
    std::memcpy(&b, from + bytes - 4, 4);
    std::memcpy(to, &a, 4);
    std::memcpy(to + bytes - 4, &b, 4);
  } else {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

// The sending end; lives in the producer's private memory.
class BoxProducer {
 public:
  BoxProducer() = default;
  BoxProducer(std::byte* box, std::uint64_t box_bytes)
      : header_(reinterpret_cast<BoxHeader*>(box)),
        lines_(reinterpret_cast<BoxLine*>(box + sizeof(BoxHeader))),
        line_count_(box_line_count(box_bytes)) {}

  bool open() const { return lines_ != nullptr; }

  // Whether a message of `payload_bytes` fits now.
  bool has_room(std::uint32_t payload_bytes) {
    const std::uint32_t need = box_lines_for(payload_bytes);
    if (produced_ + need - consumed_seen_ <= line_count_) [[likely]]
      return true;
    // Acquire: pairs with the consumer's release; its reads of those lines are over.
    consumed_seen_ = header_->consumed.load(std::memory_order_acquire);
    return produced_ + need - consumed_seen_ <= line_count_;
  }

  // Precondition: has_room(payload_bytes). `frames_before`: messages to this peer that have gone
  // through frames, mod 256.
  void put(const MessageHeader& header, const void* payload, std::uint32_t payload_bytes,
           std::uint8_t frames_before = 0) {
    put_parts<0>(header, nullptr, payload, payload_bytes, frames_before);
  }
  // The same for kPrefixBytes at `prefix` and `bytes` behind them.
  void put_behind(const MessageHeader& header, const void* prefix, const void* payload,
                  std::uint32_t bytes, std::uint8_t frames_before = 0) {
    put_parts<kPrefixBytes>(header, prefix, payload, bytes, frames_before);
  }
  // Messages put so far.
  BoxCount messages() const { return messages_; }
  // Messages of this producer that the consumer has taken off its inbox list. Relaxed: it only
  // tells that the consumer is at work.
  std::uint64_t listed_taken() const {
    return header_->listed_taken.load(std::memory_order_relaxed);
  }

 private:
  template <std::uint32_t kPrefix>
  void put_parts(const MessageHeader& header, const void* prefix, const void* payload,
                 std::uint32_t bytes, std::uint8_t frames_before) {
    BoxLine* head = lines_ + next_;
    const unsigned lap = lap_;
    const auto* from = static_cast<const unsigned char*>(payload);
    const std::uint32_t first = std::min(bytes, kHeadPayloadBytes - kPrefix);
    head->head.context = header.context;
    head->head.tag = header.tag;
    head->head.checksum = header.checksum;
    if constexpr (kPrefix != 0) std::memcpy(head->head.payload, prefix, kPrefix);
    copy_small(head->head.payload + kPrefix, from, first);
    advance();
    if (bytes > kHeadPayloadBytes - kPrefix) [[unlikely]] {
      put_continuation(from + first, bytes - first);
    }
    // Release: pairs with the consumer's acquire in ready(). The head goes last and publishes the
    // continuation lines as well.
    head->control.store(
        box_control(header.source, kPrefix + bytes, frames_before, header.kind, lap),
        std::memory_order_release);
    ++messages_;
    fetch_ahead();
  }
  // Takes a line that will be written soon from the consumer's cache. Only a line that is known to
  // have been read: taking one that has not would cost the consumer a second transfer.
  void fetch_ahead() {
    if (produced_ + kFetchAhead - consumed_seen_ >= line_count_) return;
    std::uint32_t index = next_ + kFetchAhead;
    if (index >= line_count_) index -= line_count_;
    prefetch_for_writing(lines_ + index);
  }
  void advance() {
    ++produced_;
    if (++next_ == line_count_) {
      next_ = 0;
      ++lap_;
    }
  }
  // Release: pairs with the consumer's look at the control word.
  void publish_continuation() {
    lines_[next_].control.store(box_control(0, 0, 0, Kind::continuation, lap_),
                                std::memory_order_release);
    advance();
  }
  // Out of line: what is left of put() then fits into each of its callers.
  [[gnu::noinline]] void put_continuation(const unsigned char* from, std::uint32_t bytes) {
    // Whole lines with a constant size: the compiler turns the copy into a few vector moves.
    for (; bytes >= kContinuationPayloadBytes; bytes -= kContinuationPayloadBytes) {
      std::memcpy(lines_[next_].more, from, kContinuationPayloadBytes);
      publish_continuation();
      from += kContinuationPayloadBytes;
    }
    if (bytes > 0) {
      copy_small(lines_[next_].more, from, bytes);
      publish_continuation();
    }
  }

  BoxHeader* header_ = nullptr;
  BoxLine* lines_ = nullptr;
  std::uint32_t line_count_ = 0;
  std::uint32_t next_ = 0;
  unsigned lap_ = 1;
  BoxCount messages_;
  std::uint64_t produced_ = 0;
  std::uint64_t consumed_seen_ = 0;
};

// The receiving end; lives in the consumer's private memory.
class BoxConsumer {
 public:
  BoxConsumer() = default;
  BoxConsumer(std::byte* box, std::uint64_t box_bytes)
      : header_(reinterpret_cast<BoxHeader*>(box)),
        lines_(reinterpret_cast<BoxLine*>(box + sizeof(BoxHeader))),
        line_count_(box_line_count(box_bytes)) {}

  // Whether a message waits; a single load when not.
  bool ready() const {
    // Acquire: pairs with the producer's release store of the head's control word.
    const std::uint64_t control = lines_[next_].control.load(std::memory_order_acquire);
    return (control >> 60) == (lap_ & 15u);
  }

  // Reads the head of the waiting message. Precondition: ready(). The payload stays where it is
  // until take(); its first kHeadPayloadBytes can be read through head_payload().
  void peek(MessageHeader* header) const {
    const BoxLine& line = lines_[next_];
    // Relaxed: ready() has acquired this word.
    const std::uint64_t control = line.control.load(std::memory_order_relaxed);
    header->kind = static_cast<Kind>((control >> 56) & 15u);
    header->inline_bytes = static_cast<std::uint32_t>(control >> 24) & 0xffffffu;
    header->source = static_cast<std::uint32_t>(control & kMaxBoxSource);
    header->context = line.head.context;
    header->tag = line.head.tag;
    header->checksum = line.head.checksum;
  }
  // Messages that have gone through frames before the waiting one, mod 256. Precondition: ready().
  std::uint8_t frames_before() const {
    return static_cast<std::uint8_t>(lines_[next_].control.load(std::memory_order_relaxed) >> 48);
  }
  // Messages taken so far.
  BoxCount messages() const { return messages_; }
  const unsigned char* head_payload() const { return lines_[next_].head.payload; }

  // Copies min(bytes, limit) of the payload to `to` and consumes the message of `bytes`.
  void take(void* to, std::uint32_t bytes, std::uint32_t limit) {
    auto* out = static_cast<unsigned char*>(to);
    ++messages_;
    const std::uint32_t first = std::min(bytes, kHeadPayloadBytes);
    copy_small(out, lines_[next_].head.payload, std::min(first, limit));
    advance();
    if (bytes > kHeadPayloadBytes) [[unlikely]] {
      take_continuation(out, bytes - first, limit > first ? limit - first : 0);
    }
    if (produced_ - published_ >= publish_every()) publish();
  }

  // Tells the producer about all consumed lines; also called when idle.
  void publish() {
    published_ = produced_;
    header_->consumed.store(produced_, std::memory_order_release);  // pairs with has_room()
  }
  bool unpublished() const { return published_ != produced_; }
  // A message of the producer was taken off the inbox list.
  void note_listed() {
    const std::uint64_t before = header_->listed_taken.load(std::memory_order_relaxed);
    header_->listed_taken.store(before + 1, std::memory_order_relaxed);  // the only writer
  }

 private:
  // Often enough that a producer whose box is full need not wait long for the next room, seldom
  // enough that the line of `consumed` does not wander for each message.
  std::uint32_t publish_every() const { return line_count_ / 8; }
  void advance() {
    ++produced_;
    if (++next_ == line_count_) {
      next_ = 0;
      ++lap_;
    }
  }
  // Reads the last line first: read forwards, the prefetchers of this core run on into the lines
  // that the producer writes next and make it fetch them back (measured: 70 ns of a 256-byte
  // message).
  void take_continuation(unsigned char* out, std::uint32_t bytes, std::uint32_t limit) {
    const std::uint32_t lines = (bytes + kContinuationPayloadBytes - 1) / kContinuationPayloadBytes;
    // The producer wrote these lines before the head, whose control word has been acquired.
    for (std::uint32_t line = lines; line-- > 0;) {
      const std::uint32_t start = line * kContinuationPayloadBytes;
      if (start >= limit) continue;
      std::uint32_t index = next_ + line;
      if (index >= line_count_) index -= line_count_;
      unsigned char* to = out + kHeadPayloadBytes + start;
      const std::uint32_t part = std::min(bytes, limit) - start;
      if (part >= kContinuationPayloadBytes) {
        // A constant size: the compiler turns the copy into a few vector moves.
        std::memcpy(to, lines_[index].more, kContinuationPayloadBytes);
      } else {
        copy_small(to, lines_[index].more, part);
      }
    }
    produced_ += lines;
    next_ += lines;
    if (next_ >= line_count_) {
      next_ -= line_count_;
      ++lap_;
    }
  }

  BoxHeader* header_ = nullptr;
  BoxLine* lines_ = nullptr;
  std::uint32_t line_count_ = 0;
  std::uint32_t next_ = 0;
  unsigned lap_ = 1;
  BoxCount messages_;
  std::uint64_t produced_ = 0;   // lines consumed so far
  std::uint64_t published_ = 0;  // of these, told to the producer
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_FAST_BOX_H_
