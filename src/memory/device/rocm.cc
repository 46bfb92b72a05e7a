// ROCm, through HIP's library.
//
// Copies go through a stream of our own per device that does not wait for the program's default
// stream (see cuda.cc). HIP remembers the last error of a thread for the program; a question about
// memory that HIP does not know may be such an error and is taken back.
#include <mutex>
#include <utility>
#include <vector>

#include "memory/device/library.h"
#include "memory/device/runtime.h"

namespace od::memory {
namespace {

using Error = int;
using Stream = void*;

constexpr Error kSuccess = 0;
constexpr unsigned kNonBlockingStream = 1;
constexpr int kCopyDefault = 4;  // the direction follows from the addresses

struct PointerAttributes {
  int memory_type = -1;
  int device = 0;
  void* device_pointer = nullptr;
  void* host_pointer = nullptr;
  int is_managed = 0;
  unsigned allocation_flags = 0;
  // Room in case a later version writes more.
  void* reserved[8] = {};
};

// Memory types were numbered anew in version 6.
constexpr int kVersion6 = 60000000;
constexpr int kDeviceMemory = 2;
constexpr int kDeviceMemoryBefore6 = 1;

class Rocm final : public DeviceRuntime {
 public:
  bool open(void* library) {
    Error (*version)(int*) = nullptr;
    const bool complete = look_up(library, "hipRuntimeGetVersion", &version) &&
                          look_up(library, "hipPointerGetAttributes", &pointer_attributes_) &&
                          look_up(library, "hipPeekAtLastError", &peek_at_last_error_) &&
                          look_up(library, "hipGetLastError", &get_last_error_) &&
                          look_up(library, "hipGetDevice", &get_device_) &&
                          look_up(library, "hipSetDevice", &set_device_) &&
                          look_up(library, "hipStreamCreateWithFlags", &stream_create_) &&
                          look_up(library, "hipStreamSynchronize", &stream_synchronize_) &&
                          look_up(library, "hipMemcpyAsync", &copy_) &&
                          look_up(library, "hipMemcpy2DAsync", &copy_2d_);
    int number = 0;
    if (!complete || version(&number) != kSuccess) return false;
    device_memory_ = number >= kVersion6 ? kDeviceMemory : kDeviceMemoryBefore6;
    return true;
  }

  const char* name() const override { return "ROCm"; }

  bool owns(const void* address) override {
    PointerAttributes found;
    return ask(address, &found) && found.memory_type == device_memory_ && found.is_managed == 0;
  }

  int copy(const void* home, std::span<const DeviceBlocks> blocks, char* packed,
           CopyDirection direction) override {
    PointerAttributes found;
    int before = 0;
    if (!ask(home, &found)) return kInvalidValue;
    Error error = get_device_(&before);
    if (error == kSuccess && before != found.device) error = set_device_(found.device);
    if (error != kSuccess) return error;
    error = copy_on_device(found.device, blocks, packed, direction);
    if (before != found.device) set_device_(before);
    return error;
  }

 private:
  static constexpr Error kInvalidValue = 1;

  bool ask(const void* address, PointerAttributes* found) const {
    const bool clean = peek_at_last_error_() == kSuccess;
    if (pointer_attributes_(found, address) == kSuccess) return true;
    if (clean) get_last_error_();
    return false;
  }

  Error stream_of(int device, Stream* stream) {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, made] : streams_) {
      if (known == device) {
        *stream = made;
        return kSuccess;
      }
    }
    const Error error = stream_create_(stream, kNonBlockingStream);
    if (error == kSuccess) streams_.emplace_back(device, *stream);
    return error;
  }

  Error copy_on_device(int device, std::span<const DeviceBlocks> blocks, char* packed,
                       CopyDirection direction) {
    Stream stream = nullptr;
    Error error = stream_of(device, &stream);
    if (error != kSuccess) return error;
    for (const DeviceBlocks& run : blocks) {
      error = copy_blocks(run, packed, direction, stream);
      if (error != kSuccess) break;
      packed += run.blocks * run.block_bytes;
    }
    const Error waited = stream_synchronize_(stream);
    return error != kSuccess ? error : waited;
  }

  Error copy_blocks(const DeviceBlocks& run, char* packed, CopyDirection direction,
                    Stream stream) const {
    const bool out = direction == CopyDirection::from_device;
    const auto width = static_cast<std::size_t>(run.block_bytes);
    if (run.blocks > 1 && run.stride >= run.block_bytes) {
      const auto stride = static_cast<std::size_t>(run.stride);
      const auto height = static_cast<std::size_t>(run.blocks);
      return out ? copy_2d_(packed, width, run.start, stride, width, height, kCopyDefault, stream)
                 : copy_2d_(run.start, stride, packed, width, width, height, kCopyDefault, stream);
    }
    for (std::int64_t i = 0; i < run.blocks; ++i) {
      char* const device = run.start + i * run.stride;
      char* const ours = packed + i * run.block_bytes;
      const Error error =
          copy_(out ? ours : device, out ? device : ours, width, kCopyDefault, stream);
      if (error != kSuccess) return error;
    }
    return kSuccess;
  }

  Error (*pointer_attributes_)(PointerAttributes*, const void*) = nullptr;
  Error (*peek_at_last_error_)() = nullptr;
  Error (*get_last_error_)() = nullptr;
  Error (*get_device_)(int*) = nullptr;
  Error (*set_device_)(int) = nullptr;
  Error (*stream_create_)(Stream*, unsigned) = nullptr;
  Error (*stream_synchronize_)(Stream) = nullptr;
  Error (*copy_)(void*, const void*, std::size_t, int, Stream) = nullptr;
  Error (*copy_2d_)(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, int,
                    Stream) = nullptr;
  int device_memory_ = kDeviceMemory;

  std::mutex mutex_;  // of the list
  std::vector<std::pair<int, Stream>> streams_;
};

}  // namespace

DeviceRuntime* open_rocm(void* library) {
  auto* rocm = new Rocm;
  if (rocm->open(library)) return rocm;
  delete rocm;
  return nullptr;
}

}  // namespace od::memory
