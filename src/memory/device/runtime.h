// What Overdrive needs of a device runtime (CUDA, ROCm, oneAPI): whose memory an address is, and
// copies.
//
// Nothing is linked and nothing is started: a runtime is used once the program has loaded it, and
// its functions are looked up in the library that the program uses. Declarations are our own, of
// the few functions, structures and numbers of the runtimes' stable binary interfaces.
//
// Every function may be called on any thread, and leaves the calling thread's current device or
// context as it was.
#ifndef OVERDRIVE_MEMORY_DEVICE_RUNTIME_H_
#define OVERDRIVE_MEMORY_DEVICE_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace od::memory {

// `blocks` blocks of `block_bytes`, `stride` bytes apart, from `start` on.
struct DeviceBlocks {
  char* start = nullptr;
  std::int64_t block_bytes = 0;
  std::int64_t blocks = 1;
  std::int64_t stride = 0;
};

enum class CopyDirection : bool { from_device, to_device };

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  // "CUDA", for messages.
  virtual const char* name() const = 0;
  // Whether the host must not touch the byte at `address`: memory of a device. Not memory that both
  // may touch (managed, unified, pinned). Asked anew each time: no answer outlives an allocation.
  virtual bool owns(const void* address) = 0;
  // Moves the blocks, one after the other, to or from `packed`; complete when it returns. Where
  // `home` lies tells which device does it. Returns 0 or the runtime's error number.
  virtual int copy(const void* home, std::span<const DeviceBlocks> blocks, char* packed,
                   CopyDirection direction) = 0;
};

// Each takes a handle of dlopen; null if the library lacks a function. They live as long as the
// process.
DeviceRuntime* open_cuda(void* library);
DeviceRuntime* open_rocm(void* library);
DeviceRuntime* open_level_zero(void* library);

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_DEVICE_RUNTIME_H_
