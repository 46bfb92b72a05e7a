// What became of blocks: see touch_history.h. System calls and the C library alone.
#include "memory/heap/touch_history.h"

#include <errno.h>
#include <sys/mman.h>

#include "memory/heap/size_classes.h"

namespace od::memory::heap {
namespace {

constexpr uint64_t kSamples = 16;
// Ends of blocks, and the one that was handed out last, may still be empty.
constexpr uint64_t kMostMissing = 2;

// How many of the sampled pages have memory; more than kSamples on error.
uint64_t sampled_pages(const char* start, uint64_t bytes) {
  const uint64_t pages = bytes / kPageBytes;
  if (pages == 0) return kSamples + 1;
  const int saved_errno = errno;
  uint64_t present = 0;
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t page = i * (pages - 1) / (kSamples - 1);
    unsigned char state = 0;
    if (mincore(const_cast<char*>(start) + page * kPageBytes, kPageBytes, &state) != 0) {
      present = kSamples + 1;
      break;
    }
    present += state & 1;
  }
  errno = saved_errno;
  return present;
}

}  // namespace

bool has_memory(const char* start, uint64_t bytes) {
  const uint64_t present = sampled_pages(start, bytes);
  return present <= kSamples && present + kMostMissing >= kSamples;
}

bool has_no_memory(const char* start, uint64_t bytes) { return sampled_pages(start, bytes) == 0; }

void TouchHistory::look_again() {
  for (Block& each : watched_) {
    if (each.bytes == 0 || !has_memory(each.start, each.bytes)) continue;
    const uint64_t earned = kTrust * each.bytes;
    credit_bytes_ = credit_bytes_ > kMostCreditBytes - earned || earned > kMostCreditBytes
                        ? kMostCreditBytes
                        : credit_bytes_ + earned;
    each.bytes = 0;
  }
}

bool TouchHistory::foresees_touch(const char* start, uint64_t bytes) {
  Locked locked(mutex_);
  if (credit_bytes_ < bytes) look_again();
  if (credit_bytes_ >= bytes) {
    credit_bytes_ -= bytes;
    return true;
  }
  Block& place = watched_[oldest_];
  // The credit is for programs that touch what they ask for.
  if (place.bytes != 0) credit_bytes_ = 0;
  place = {start, bytes};
  oldest_ = (oldest_ + 1) % kWatched;
  return false;
}

}  // namespace od::memory::heap
