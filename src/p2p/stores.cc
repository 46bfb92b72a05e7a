// Ordinary or non-temporal stores, and which copies are timed to find out.

#include "p2p/stores.h"

#include <cstring>

#include "base/clock.h"
#include "memory/copy.h"

namespace od::p2p {

namespace {

// Copies that are long enough to tell how fast stores are.
constexpr std::uint64_t kTimedCopyBytes = 4096;

// What is risked of a longer copy where ordinary stores have been slow.
constexpr std::uint64_t kSampledBytes = 16u << 10;

}  // namespace

bool Stores::copy(StoreSpeed& speed, void* to, const void* from, std::uint64_t bytes, bool seen) {
  using config::CopyMode;
  const bool large = bytes >= settings_.nontemporal_min_bytes;
  bool nontemporal = settings_.copy == CopyMode::kNontemporal ||
                     (settings_.copy == CopyMode::kAuto && speed.slow());
  nontemporal = nontemporal && large;
  // Timing pays only for copies of some microseconds, and those are the ones that matter. Cells
  // that nobody has read yet tell nothing about the reader.
  const bool sample =
      settings_.copy == CopyMode::kAuto && bytes >= kTimedCopyBytes && seen && speed.wants_sample();
  if (sample) nontemporal = false;
  const std::uint64_t start = sample ? now_ns() : 0;
  if (nontemporal) {
    memory::copy_nontemporal(to, from, bytes);
    counters_.nontemporal_bytes += bytes;
  } else {
    std::memcpy(to, from, bytes);
    counters_.ordinary_bytes += bytes;
  }
  if (sample) speed.sample(bytes, now_ns() - start);
  return nontemporal;
}

void Stores::copy_into_frame(Link& link, void* to, const void* from, std::uint64_t bytes,
                             bool seen) {
  StoreSpeed& speed = link.frame_stores;
  const bool sample = seen && bytes >= kTimedCopyBytes && (speed.slow() || speed.wants_sample());
  const std::uint64_t start = sample ? now_ns() : 0;
  std::memcpy(to, from, bytes);
  if (sample) speed.sample(bytes, now_ns() - start);
  counters_.ordinary_bytes += bytes;
}

void Stores::copy_to_peer(Link& link, std::byte* to, const char* from, std::uint64_t bytes) {
  StoreSpeed& speed = link.buffer_stores;
  // Where they are slow, only a small part is risked to see whether they still are.
  while (speed.slow() && speed.due() && bytes > kSampledBytes) {
    copy(speed, to, from, kSampledBytes, true);
    from += kSampledBytes;
    to += kSampledBytes;
    bytes -= kSampledBytes;
  }
  copy(speed, to, from, bytes, true);
}

bool Stores::frames_are_quick(Link& link) const {
  const bool judged = settings_.copy == config::CopyMode::kAuto;
  return !judged || !link.frame_stores.slow() || link.frame_stores.wants_sample();
}

}  // namespace od::p2p
