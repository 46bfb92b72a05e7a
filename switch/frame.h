// Ethernet frames inside the switch, and the bounded pool that they come from.
//
// A frame is one buffer that belongs to exactly one holder: a port that has received it, the timer
// wheel while it waits, a port that sends it. Two sizes of buffer exist, because nearly all frames
// have at most 2 KiB while segments of a TCP stream that a virtual link hands over whole have up to
// 64 KiB. Freed buffers are kept for later; what is in use and what is kept stays together below
// the pool's limit, so the switch cannot grow.
#ifndef OVERDRIVE_SWITCH_FRAME_H_
#define OVERDRIVE_SWITCH_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace od::fabric {

// What the kernel says about a frame that it has not finished: checksum to be filled in, stream to
// be cut into segments. The layout is that of <linux/virtio_net.h>, little endian.
struct OffloadHeader {
  std::uint8_t flags = 0;
  std::uint8_t gso_type = 0;
  std::uint16_t header_bytes = 0;
  std::uint16_t segment_bytes = 0;  // payload of each segment, if gso_type is not 0
  std::uint16_t checksum_start = 0;
  std::uint16_t checksum_offset = 0;
};
static_assert(sizeof(OffloadHeader) == 10);

inline constexpr std::size_t kSmallFrameBytes = 2048;
// The longest that Linux hands over: 64 KiB of IP packet with its Ethernet header and one VLAN tag.
inline constexpr std::size_t kLargeFrameBytes = 65536 + 18;

class FramePool;

struct Frame {
  Frame* next = nullptr;  // in the list that holds it
  std::uint64_t due_ns = 0;
  std::uint32_t bytes = 0;
  std::uint32_t capacity_bytes = 0;
  std::uint32_t destination = 0;  // the link that it goes to, while it is in the timer wheel
  bool control = false;           // made by the switch itself: faults for tests pass it by
  OffloadHeader offload;

  std::uint8_t* data() { return reinterpret_cast<std::uint8_t*>(this + 1); }
  const std::uint8_t* data() const { return reinterpret_cast<const std::uint8_t*>(this + 1); }
};

struct FrameDeleter {
  FramePool* pool = nullptr;
  void operator()(Frame* frame) const;
};
using FramePtr = std::unique_ptr<Frame, FrameDeleter>;

class FramePool {
 public:
  explicit FramePool(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ~FramePool();
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  // A frame that can hold `bytes`, which are its length and not initialised; null if the limit is
  // reached or no frame is that long.
  FramePtr take(std::size_t bytes);
  FramePtr copy(const Frame& frame);
  void give_back(Frame* frame);
  // Makes a holder out of a frame that was released into a list.
  FramePtr hold(Frame* frame) { return FramePtr(frame, FrameDeleter{this}); }

  std::size_t limit_bytes() const { return limit_bytes_; }
  void set_limit_bytes(std::size_t bytes) { limit_bytes_ = bytes; }
  std::size_t allocated_bytes() const { return allocated_bytes_; }
  std::size_t in_use() const { return in_use_; }
  std::uint64_t refused() const { return refused_; }

 private:
  static std::size_t class_of(std::size_t bytes) { return bytes <= kSmallFrameBytes ? 0 : 1; }
  static std::size_t class_bytes(std::size_t number) {
    return number == 0 ? kSmallFrameBytes : kLargeFrameBytes;
  }
  bool make_room(std::size_t wanted_class);

  std::size_t limit_bytes_;
  std::size_t allocated_bytes_ = 0;
  std::size_t in_use_ = 0;
  std::uint64_t refused_ = 0;
  std::array<Frame*, 2> free_{};
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_FRAME_H_
