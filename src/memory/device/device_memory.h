// Memory of accelerators: whether the host may touch an address, and copies from and to where it
// may not.
//
// What is asked, in this order, so that most calls pay next to nothing:
//   1. whether the process has a device runtime, or has loaded any library since MPI_Init: one flag
//      that stays down in programs that do neither;
//   2. whether the address is host memory by nature: the reachable heap, converted static data, the
//      C library's main heap, the calling thread's stack;
//   3. whether libraries came since the last look, and device runtimes among them;
//   4. the runtimes, anew each time. An answer that is kept would have to be withdrawn when the
//      memory is freed, and nobody tells us: a program's calls into a runtime that is linked
//      statically cannot be seen. An old "device" would only be slow, but an old "host" would end
//      in a segmentation fault.
//
// Thread safety: all functions may be called on any thread.
#ifndef OVERDRIVE_MEMORY_DEVICE_DEVICE_MEMORY_H_
#define OVERDRIVE_MEMORY_DEVICE_DEVICE_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "memory/device/runtime.h"

namespace od::memory {

namespace internal {
// Relaxed: whoever passes device memory to MPI loaded its runtime before, on this thread or on one
// that it has synchronised with.
inline constinit std::atomic<bool> device_watch{false};
}  // namespace internal

// False: no address can be a device's.
inline bool devices_possible() { return internal::device_watch.load(std::memory_order_relaxed); }

// Told once of each library that looks like a device runtime; `runtime` is null if it lacks a
// function that is needed, and is then ignored. On any thread.
using FoundRuntime = void (*)(const char* library, const char* runtime);

// At the end of MPI_Init, at whose beginning find_host_memory() was called (host_memory.h): looks
// which runtimes the process has. From here on
// library_is_being_loaded() says when to look again.
void begin_device_watch(FoundRuntime found);
// Before each dlopen; may be called at any time, also inside the dynamic linker.
void library_is_being_loaded();

// Whether the byte at `address` lies in memory that the host must not touch.
bool on_device(const void* address);

// Why the first copy that failed did so.
struct DeviceFailure {
  const char* runtime = nullptr;  // null: no runtime knows the memory (any more)
  int error = 0;                  // of the runtime
  const void* address = nullptr;
  std::uint64_t bytes = 0;
};

// Copies the blocks, one after the other, to or from `packed` in host memory. At least one of them
// lies on a device; others may lie in host memory. False: it was not done.
bool copy_device_blocks(std::span<const DeviceBlocks> blocks, char* packed, CopyDirection direction,
                        DeviceFailure* failure);

struct DeviceUsage {
  std::uint64_t copies = 0;  // buffers, or parts of a receive, that were staged
  std::uint64_t bytes = 0;
};
DeviceUsage device_usage();

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_DEVICE_DEVICE_MEMORY_H_
