// ROCm, through HIP's library.
//
// Copies go through a stream of our own per device that does not wait for the program's default
// stream (see cuda.cc). HIP remembers the last error of a thread for the program; a question about
// memory that HIP does not know may be such an error and is taken back.
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

  Error copy_on_device(int device, std::span<const DeviceBlocks> blocks, char* packed,
                       CopyDirection direction) {
    Stream stream = nullptr;
    const Error error = streams_.get(
        device, &stream, [this](Stream* made) { return stream_create_(made, kNonBlockingStream); });
    if (error != kSuccess) return error;
    const Error copied = copy_each(blocks, packed, direction, Calls{*this, stream, direction});
    const Error waited = stream_synchronize_(stream);
    return copied != kSuccess ? copied : waited;
  }

  struct Calls {
    const Rocm& rocm;
    Stream stream;
    CopyDirection direction;

    Error copy(void* to, const void* from, std::size_t bytes) const {
      return rocm.copy_(to, from, bytes, kCopyDefault, stream);
    }
    bool copy_rows(const DeviceBlocks& run, char* packed, Error* error) const {
      const auto width = static_cast<std::size_t>(run.block_bytes);
      const auto stride = static_cast<std::size_t>(run.stride);
      const auto height = static_cast<std::size_t>(run.blocks);
      *error =
          direction == CopyDirection::from_device
              ? rocm.copy_2d_(packed, width, run.start, stride, width, height, kCopyDefault, stream)
              : rocm.copy_2d_(run.start, stride, packed, width, width, height, kCopyDefault,
                              stream);
      return true;
    }
  };

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

  MadeOnce<int, Stream> streams_;
};

}  // namespace

DeviceRuntime* open_rocm(void* library) { return open_runtime<Rocm>(library); }

}  // namespace od::memory
