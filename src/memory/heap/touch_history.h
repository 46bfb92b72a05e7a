// Foresees whether the program will touch memory that it has just been given, from what it did with
// the blocks before.
//
// Where huge pages have to be made ahead of the first touch, a program that reserves memory and
// hardly uses it would pay with memory. So blocks begin with small pages and are watched: once one
// is found full, as much again and twice as much may be given ahead, on credit. Every third byte
// thus shows anew what the program does, and a program that does not touch what it asked for loses
// its credit.
// Depends on the C library alone: it is part of the preloaded library and serves malloc.
#ifndef OVERDRIVE_MEMORY_HEAP_TOUCH_HISTORY_H_
#define OVERDRIVE_MEMORY_HEAP_TOUCH_HISTORY_H_

#include <stdint.h>

#include "memory/heap/mutex.h"

namespace od::memory::heap {

// Whether the range, whole pages of a mapped file, has pages nearly everywhere (a sample of them is
// looked at: some microseconds). False on error.
bool has_memory(const char* start, uint64_t bytes);
// Whether it has none, by the same sample.
bool has_no_memory(const char* start, uint64_t bytes);

class TouchHistory {
 public:
  // Blocks that wait to be found full; who is pushed out untouched costs the credit.
  static constexpr unsigned kWatched = 8;
  static constexpr uint64_t kMostCreditBytes = uint64_t{1} << 30;
  static constexpr uint64_t kTrust = 2;  // bytes of credit for each that was touched

  // Of a fresh range without memory: whether to give it memory now. If not, it is watched. Any
  // thread.
  bool foresees_touch(const char* start, uint64_t bytes);

  uint64_t credit_bytes() const { return credit_bytes_; }  // for tests

 private:
  struct Block {
    const char* start;
    uint64_t bytes;
  };
  void look_again();

  Mutex mutex_;
  Block watched_[kWatched] = {};
  unsigned oldest_ = 0;
  uint64_t credit_bytes_ = 0;
};

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_TOUCH_HISTORY_H_
