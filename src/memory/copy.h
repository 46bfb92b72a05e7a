// Copy kernels: ordinary stores, and stores that bypass the cache (non-temporal).
//
// What costs in a copy between cores is a store into a line that the other core still caches. With
// ordinary stores every such line is first fetched; non-temporal stores send whole lines to memory
// and never fetch. Which is better depends on the distance of the two cores and on whether the
// lines are still cached: see docs/design/copy-paths.md.
#ifndef OVERDRIVE_MEMORY_COPY_H_
#define OVERDRIVE_MEMORY_COPY_H_

#include <cstddef>
#include <cstdint>

namespace od::memory {

using CopyFunction = void (*)(void* to, const void* from, std::size_t bytes);

// Plain memcpy; out of line so that it can be passed around.
void copy_ordinary(void* to, const void* from, std::size_t bytes);

// Copies with non-temporal stores where the processor has them and `bytes` is at least a line, else
// as copy_ordinary. Ends with the fence that makes the stores visible before a later release store.
void copy_nontemporal(void* to, const void* from, std::size_t bytes);

// Copies out of memory that another core has just written with ordinary stores. Blocks of a page go
// from their end to their start: read forwards, the reader's prefetcher runs past the end of a cell
// into the next one and takes away lines that the writer is about to fill (measured, near: 4 KiB in
// 0.21 us backwards, 0.33 to 0.59 us forwards).
void copy_from_cache(void* to, const void* from, std::size_t bytes);

// The same for a writer whose lines are long on their way: forwards, asking for lines well ahead
// but never beyond what is copied (measured, a line 195 ns: 64 KiB in 2.0 us, backwards 3.0).
void copy_from_far_cache(void* to, const void* from, std::size_t bytes);

// Copies out of memory that another core has written with non-temporal stores, hence from memory:
// forwards, which the prefetchers like, and with plain loads (measured: twice as fast as libc's
// string instructions when the two addresses differ by a few bytes modulo a page).
void copy_from_memory(void* to, const void* from, std::size_t bytes);

// Running checksum of a byte stream (64-bit FNV-1a); independent of how the stream is cut. Start
// with kChecksumStart, finish with checksum_fold.
inline constexpr std::uint64_t kChecksumStart = 0xcbf29ce484222325;
std::uint64_t checksum_update(std::uint64_t state, const void* data, std::size_t bytes);
inline std::uint32_t checksum_fold(std::uint64_t state) {
  return static_cast<std::uint32_t>(state ^ (state >> 32));
}

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_COPY_H_
