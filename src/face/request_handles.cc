// Reserves the address range of request handles and fills in what Fortran libraries read there.
#include "face/request_handles.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>

namespace od::face {

bool RequestHandles::reserve(std::uint32_t capacity, bool pointers) {
  if (!pointers) {
    base_ = kFirstInteger;
    shift_ = 0;
    capacity_ = std::min(capacity, kIntegerCount);
    span_ = capacity_;
    filled_.store(capacity_, std::memory_order_relaxed);
    return true;
  }
  static_assert((kBlockBytes & (kBlockBytes - 1)) == 0);
  shift_ = static_cast<unsigned>(__builtin_ctzl(kBlockBytes));
  // A limit of address space leaves room for fewer requests, and to the program what it counts on.
  constexpr std::uint32_t kEnough = 1 << 16;
  constexpr std::uint64_t kShareOfAddressSpace = 32;
  rlimit limit;
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  while (limited && capacity > kEnough &&
         capacity * kBlockBytes > limit.rlim_cur / kShareOfAddressSpace) {
    capacity /= 2;
  }
  for (; capacity >= 1024; capacity /= 2) {
    void* memory = mmap(nullptr, capacity * kBlockBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) continue;
    madvise(memory, capacity * kBlockBytes, MADV_DONTDUMP);
    base_ = reinterpret_cast<host::Handle>(memory);
    capacity_ = capacity;
    span_ = capacity * kBlockBytes;
    return true;
  }
  return false;
}

void RequestHandles::fill(std::uint32_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::uint32_t first = filled_.load(std::memory_order_relaxed);
  if (index < first) return;
  // In steps, so that programs with few requests touch few pages.
  constexpr std::uint32_t kStep = 64;
  const std::uint32_t end = std::min(capacity_, index / kStep * kStep + kStep);
  if (request_word_ >= 0 || message_word_ >= 0) {
    for (std::uint32_t i = first; i < end; ++i) {
      auto* words =
          reinterpret_cast<std::int32_t*>(base_ + (static_cast<host::Handle>(i) << shift_));
      if (request_word_ >= 0) words[request_word_] = fortran_of(i);
      if (message_word_ >= 0) words[message_word_] = fortran_of(i);
    }
  }
  filled_.store(end, std::memory_order_release);  // pairs with handle_of()
}

}  // namespace od::face
