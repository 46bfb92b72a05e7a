// Making pages of shared memory before they are touched one by one.
#ifndef OVERDRIVE_BASE_POPULATE_H_
#define OVERDRIVE_BASE_POPULATE_H_

#include <sys/mman.h>

#include <cstddef>

namespace od {

// Makes the pages (write), or maps those that are there already (!write), in one call: a quarter to
// half of what as many page faults take, and whoever maps the same file finds whole stretches to
// map. Starts at a page. False where the kernel cannot (before Linux 5.14) or there is no room:
// nothing is lost, pages then come when they are touched.
inline bool populate_pages(std::byte* start, std::size_t bytes, bool write) {
#if defined(MADV_POPULATE_WRITE) && defined(MADV_POPULATE_READ)
  return madvise(start, bytes, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0;
#else
  (void)start, (void)bytes, (void)write;
  return false;
#endif
}

}  // namespace od

#endif  // OVERDRIVE_BASE_POPULATE_H_
