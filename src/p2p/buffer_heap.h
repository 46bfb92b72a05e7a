// The part of a rank's region where payload waits that its sender could not leave anywhere else.
//
// Used for self-buffered messages and for envelopes beyond the fixed ones. The range is sparse:
// pages exist only once written. Freed ranges are merged and reused first fit; above a kept amount
// their memory is handed back to the system. Private to the owner; receivers only read what
// descriptors name. Not for the fast path.
#ifndef OVERDRIVE_P2P_BUFFER_HEAP_H_
#define OVERDRIVE_P2P_BUFFER_HEAP_H_

#include <cstdint>
#include <functional>
#include <map>

namespace od::p2p {

class BufferHeap {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  using Punch = std::function<void(std::uint64_t offset, std::uint64_t bytes)>;

  // Serves [offset, offset + bytes). `punch` gives the whole pages of a range back to the
  // system.
  BufferHeap(std::uint64_t offset, std::uint64_t bytes, std::uint64_t keep_bytes, Punch punch);

  // Offset of a range of at least `bytes`, aligned to 256, or kNone when the limit is reached.
  std::uint64_t allocate(std::uint64_t bytes);
  void free(std::uint64_t offset);

  std::uint64_t used_bytes() const { return used_; }
  std::uint64_t peak_bytes() const { return peak_; }
  std::uint64_t limit_bytes() const { return limit_; }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> bytes
  std::map<std::uint64_t, std::uint64_t> used_ranges_;
  std::uint64_t limit_;
  std::uint64_t keep_;
  std::uint64_t used_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t cached_ = 0;  // bytes in free ranges that may still hold pages
  Punch punch_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_BUFFER_HEAP_H_
