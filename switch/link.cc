// Computes when frames leave a link and what befalls them.
#include "switch/link.h"

#include <algorithm>

namespace od::fabric {
namespace {

constexpr std::uint64_t kFramingBytes = 24;  // preamble 8, frame check sequence 4, gap 12
constexpr std::uint64_t kShortestBytes = 60;
constexpr std::uint32_t kEthernetBytes = 14;

std::uint64_t segment_wire_bytes(std::uint64_t bytes) {
  return std::max(bytes, kShortestBytes) + kFramingBytes;
}

}  // namespace

std::uint64_t Link::wire_bytes(const Frame& frame) {
  const OffloadHeader& offload = frame.offload;
  const std::uint64_t header = std::max<std::uint64_t>(offload.header_bytes, kEthernetBytes);
  if (offload.gso_type == 0 || offload.segment_bytes == 0 || frame.bytes <= header) {
    return segment_wire_bytes(frame.bytes);
  }
  const std::uint64_t payload = frame.bytes - header;
  const std::uint64_t segments = (payload + offload.segment_bytes - 1) / offload.segment_bytes;
  return payload + segments * (header + kFramingBytes);
}

Link::Passage Link::pass(const Frame& frame, std::uint64_t ready_ns) {
  Passage passage;
  if (!frame.control && has_faults()) {
    if (chance_.hits(settings_.loss)) {
      passage.fate = Fate::lost;
      return passage;
    }
    passage.twice = chance_.hits(settings_.duplication);
    passage.overtaken = chance_.hits(settings_.reordering);
    if (chance_.hits(settings_.corruption) && frame.bytes > kEthernetBytes) {
      // Behind the Ethernet header: a wrong address is another fault, and a hidden one.
      const std::uint64_t bits = (std::uint64_t{frame.bytes} - kEthernetBytes) * 8;
      passage.corrupt_bit = 1 + kEthernetBytes * 8 + chance_.next() % bits;
    }
  }
  std::uint64_t end_ns = ready_ns;
  if (settings_.rate_bits > 0) {
    const std::uint64_t waiting_ns = busy_until_ns_ > ready_ns ? busy_until_ns_ - ready_ns : 0;
    if (waiting_ns > transmission_ns(settings_.queue_bytes)) {
      passage.fate = Fate::queue_full;
      return passage;
    }
    end_ns = std::max(ready_ns, busy_until_ns_) + transmission_ns(wire_bytes(frame));
    busy_until_ns_ = end_ns;
  }
  passage.due_ns = end_ns + settings_.latency_ns;
  if (passage.overtaken && settings_.reorder_ns > 0) {
    passage.due_ns += 1 + chance_.next() % settings_.reorder_ns;
  }
  return passage;
}

}  // namespace od::fabric
