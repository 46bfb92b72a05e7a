// CUDA, through its driver library: the runtime library (often linked statically) stands on it, and
// asking it leaves no trace in what cudaGetLastError() tells the program.
//
// Copies go through a stream of our own per context that does not wait for the program's legacy
// default stream: as with every MPI library, the program synchronises before it hands over a
// buffer, and a kernel that waits for this very message must not be waited for.
#include <cstdint>

#include "memory/device/library.h"
#include "memory/device/runtime.h"

namespace od::memory {
namespace {

using Result = int;
using Context = void*;
using Stream = void*;
using DevicePointer = std::uint64_t;

constexpr Result kSuccess = 0;
constexpr unsigned kNonBlockingStream = 1;
constexpr unsigned kHostMemory = 1;
constexpr unsigned kDeviceMemory = 2;
// Attributes of a pointer.
constexpr int kAttributeContext = 1;
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeIsManaged = 8;
constexpr int kAttributeDeviceOrdinal = 9;
// No device has a smaller limit for the distance of rows in a two-dimensional copy.
constexpr std::int64_t kMostPitchBytes = (std::int64_t{1} << 31) - 1;

struct Copy2d {
  std::size_t source_x = 0;
  std::size_t source_y = 0;
  unsigned source_type = 0;
  const void* source_host = nullptr;
  DevicePointer source_device = 0;
  void* source_array = nullptr;
  std::size_t source_pitch = 0;
  std::size_t target_x = 0;
  std::size_t target_y = 0;
  unsigned target_type = 0;
  void* target_host = nullptr;
  DevicePointer target_device = 0;
  void* target_array = nullptr;
  std::size_t target_pitch = 0;
  std::size_t width_bytes = 0;
  std::size_t height = 0;
};

DevicePointer device_pointer(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

class Cuda final : public DeviceRuntime {
 public:
  bool open(void* library) {
    return look_up(library, "cuPointerGetAttributes", &pointer_attributes_) &&
           look_up(library, "cuCtxPushCurrent_v2", &push_context_) &&
           look_up(library, "cuCtxPopCurrent_v2", &pop_context_) &&
           look_up(library, "cuDevicePrimaryCtxRetain", &primary_context_) &&
           look_up(library, "cuStreamCreate", &stream_create_) &&
           look_up(library, "cuStreamSynchronize", &stream_synchronize_) &&
           look_up(library, "cuMemcpyAsync", &copy_) &&
           look_up(library, "cuMemcpy2DAsync_v2", &copy_2d_);
  }

  const char* name() const override { return "CUDA"; }

  bool owns(const void* address) override {
    const Attributes found = attributes(address);
    return found.memory_type == kDeviceMemory && found.is_managed == 0;
  }

  int copy(const void* home, std::span<const DeviceBlocks> blocks, char* packed,
           CopyDirection direction) override {
    const Attributes found = attributes(home);
    Context context = found.context;
    // Memory that was mapped by hand, or comes from a pool, belongs to a device and no context.
    if (context == nullptr) {
      const Result error = primaries_.get(found.device, &context, [&](Context* retained) {
        return primary_context_(retained, found.device);
      });
      if (error != kSuccess) return error;
    }
    const Result pushed = push_context_(context);
    if (pushed != kSuccess) return pushed;
    Result error = copy_in_context(context, blocks, packed, direction);
    if (error != kSuccess) {
      // The context may have been destroyed, and another one got its handle.
      streams_.forget(context);
      error = copy_in_context(context, blocks, packed, direction);
    }
    Context popped = nullptr;
    pop_context_(&popped);
    return error;
  }

 private:
  struct Attributes {
    Context context = nullptr;
    unsigned memory_type = 0;
    unsigned is_managed = 0;
    int device = 0;
  };

  // All zero for memory that CUDA does not know.
  Attributes attributes(const void* address) const {
    Attributes found;
    int names[] = {kAttributeContext, kAttributeMemoryType, kAttributeIsManaged,
                   kAttributeDeviceOrdinal};
    void* values[] = {&found.context, &found.memory_type, &found.is_managed, &found.device};
    if (pointer_attributes_(4, names, values, device_pointer(address)) != kSuccess) return {};
    return found;
  }

  Result copy_in_context(Context context, std::span<const DeviceBlocks> blocks, char* packed,
                         CopyDirection direction) {
    Stream stream = nullptr;
    const Result error = streams_.get(context, &stream, [this](Stream* made) {
      return stream_create_(made, kNonBlockingStream);
    });
    if (error != kSuccess) return error;
    const Result copied = copy_each(blocks, packed, direction, Calls{*this, stream, direction});
    const Result waited = stream_synchronize_(stream);
    return copied != kSuccess ? copied : waited;
  }

  struct Calls {
    const Cuda& cuda;
    Stream stream;
    CopyDirection direction;

    Result copy(const void* to, const void* from, std::size_t bytes) const {
      return cuda.copy_(device_pointer(to), device_pointer(from), bytes, stream);
    }
    bool copy_rows(const DeviceBlocks& run, char* packed, Result* error) const {
      if (run.stride > kMostPitchBytes) return false;
      Copy2d copy;
      copy.width_bytes = static_cast<std::size_t>(run.block_bytes);
      copy.height = static_cast<std::size_t>(run.blocks);
      if (direction == CopyDirection::from_device) {
        copy.source_type = kDeviceMemory;
        copy.source_device = device_pointer(run.start);
        copy.source_pitch = static_cast<std::size_t>(run.stride);
        copy.target_type = kHostMemory;
        copy.target_host = packed;
        copy.target_pitch = copy.width_bytes;
      } else {
        copy.source_type = kHostMemory;
        copy.source_host = packed;
        copy.source_pitch = copy.width_bytes;
        copy.target_type = kDeviceMemory;
        copy.target_device = device_pointer(run.start);
        copy.target_pitch = static_cast<std::size_t>(run.stride);
      }
      *error = cuda.copy_2d_(&copy, stream);
      return true;
    }
  };

  Result (*pointer_attributes_)(unsigned, int*, void**, DevicePointer) = nullptr;
  Result (*push_context_)(Context) = nullptr;
  Result (*pop_context_)(Context*) = nullptr;
  Result (*primary_context_)(Context*, int) = nullptr;
  Result (*stream_create_)(Stream*, unsigned) = nullptr;
  Result (*stream_synchronize_)(Stream) = nullptr;
  Result (*copy_)(DevicePointer, DevicePointer, std::size_t, Stream) = nullptr;
  Result (*copy_2d_)(const Copy2d*, Stream) = nullptr;

  MadeOnce<Context, Stream> streams_;
  MadeOnce<int, Context> primaries_;
};

}  // namespace

DeviceRuntime* open_cuda(void* library) { return open_runtime<Cuda>(library); }

}  // namespace od::memory
