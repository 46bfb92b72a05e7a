// The program's data of one operation, in whatever shape.
#ifndef OVERDRIVE_P2P_PAYLOAD_H_
#define OVERDRIVE_P2P_PAYLOAD_H_

#include <cstdint>

#include "p2p/layout.h"

namespace od::p2p {

struct Payload {
  const void* address = nullptr;
  std::int64_t count = 0;
  const LayoutRef* layout = nullptr;
  std::uint64_t bytes = 0;           // count * size
  const char* contiguous = nullptr;  // start, when it is one run of bytes
};

// Describes a payload; `bytes` and `contiguous` are derived.
inline Payload make_payload(const void* address, std::int64_t count, const LayoutRef& layout) {
  Payload payload{address, count, &layout, static_cast<std::uint64_t>(count * layout->size),
                  nullptr};
  char* start = nullptr;
  if (is_contiguous(*layout, address, count, &start)) payload.contiguous = start;
  return payload;
}

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_PAYLOAD_H_
