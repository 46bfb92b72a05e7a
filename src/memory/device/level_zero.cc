// oneAPI, through the loader of Level Zero.
//
// Its questions need a context. The program's are not known to us, but a driver answers for all
// its memory whichever of its contexts asks, so we make one of our own per driver, as the MPI
// libraries with support for oneAPI do. Drivers show up only after the program has started them.
// Copies go through an immediate command list per device that returns when the copy is done.
#include <algorithm>
#include <mutex>
#include <vector>

#include "memory/device/library.h"
#include "memory/device/runtime.h"

namespace od::memory {
namespace {

using Result = unsigned;
using Driver = void*;
using Context = void*;
using Device = void*;
using CommandList = void*;

constexpr Result kSuccess = 0;
constexpr Result kUninitialised = 0x78000001;
constexpr unsigned kContextDescription = 0xd;
constexpr unsigned kQueueDescription = 0xe;
constexpr unsigned kAllocationProperties = 0x17;
constexpr unsigned kDeviceMemory = 2;
constexpr unsigned kSynchronousMode = 1;

struct ContextDescription {
  unsigned type = kContextDescription;
  const void* next = nullptr;
  unsigned flags = 0;
};

struct QueueDescription {
  unsigned type = kQueueDescription;
  const void* next = nullptr;
  unsigned ordinal = 0;
  unsigned index = 0;
  unsigned flags = 0;
  unsigned mode = kSynchronousMode;
  unsigned priority = 0;
};

struct AllocationProperties {
  unsigned type = kAllocationProperties;
  void* next = nullptr;
  unsigned memory_type = 0;
  std::uint64_t id = 0;
  std::uint64_t page_bytes = 0;
};

class LevelZero final : public DeviceRuntime {
 public:
  bool open(void* library) {
    return look_up(library, "zeDriverGet", &driver_get_) &&
           look_up(library, "zeContextCreate", &context_create_) &&
           look_up(library, "zeMemGetAllocProperties", &allocation_properties_) &&
           look_up(library, "zeCommandListCreateImmediate", &list_create_) &&
           look_up(library, "zeCommandListAppendMemoryCopy", &append_copy_);
  }

  const char* name() const override { return "oneAPI (Level Zero)"; }

  bool owns(const void* address) override {
    const std::lock_guard lock(mutex_);
    Found found;
    return find(address, &found);
  }

  // Command lists are used by one thread at a time.
  int copy(const void* home, std::span<const DeviceBlocks> blocks, char* packed,
           CopyDirection direction) override {
    const std::lock_guard lock(mutex_);
    Found found;
    if (!find(home, &found)) return static_cast<int>(kUninitialised);
    CommandList list = nullptr;
    const Result error = lists_.get(found.device, &list, [&](CommandList* made) {
      const QueueDescription description;
      return list_create_(found.context, found.device, &description, made);
    });
    if (error != kSuccess) return static_cast<int>(error);
    return static_cast<int>(copy_each(blocks, packed, direction, Calls{*this, list}));
  }

 private:
  struct Found {
    Context context = nullptr;
    Device device = nullptr;
  };

  bool find(const void* address, Found* found) {
    if (contexts_.empty()) make_contexts();
    return std::any_of(contexts_.begin(), contexts_.end(), [&](Context context) {
      AllocationProperties properties;
      found->context = context;
      return allocation_properties_(context, address, &properties, &found->device) == kSuccess &&
             properties.memory_type == kDeviceMemory;
    });
  }

  void make_contexts() {
    std::uint32_t count = 0;
    if (driver_get_(&count, nullptr) != kSuccess || count == 0) return;
    std::vector<Driver> drivers(count);
    if (driver_get_(&count, drivers.data()) != kSuccess) return;
    drivers.resize(std::min<std::size_t>(count, drivers.size()));
    for (Driver driver : drivers) {
      const ContextDescription description;
      Context context = nullptr;
      if (context_create_(driver, &description, &context) == kSuccess) {
        contexts_.push_back(context);
      }
    }
  }

  struct Calls {
    const LevelZero& level_zero;
    CommandList list;

    Result copy(void* to, const void* from, std::size_t bytes) const {
      return level_zero.append_copy_(list, to, from, bytes, nullptr, 0, nullptr);
    }
    bool copy_rows(const DeviceBlocks& /*run*/, char* /*packed*/, Result* /*error*/) const {
      return false;
    }
  };

  Result (*driver_get_)(std::uint32_t*, Driver*) = nullptr;
  Result (*context_create_)(Driver, const ContextDescription*, Context*) = nullptr;
  Result (*allocation_properties_)(Context, const void*, AllocationProperties*, Device*) = nullptr;
  Result (*list_create_)(Context, Device, const QueueDescription*, CommandList*) = nullptr;
  Result (*append_copy_)(CommandList, void*, const void*, std::size_t, void*, std::uint32_t,
                         void**) = nullptr;

  std::mutex mutex_;
  std::vector<Context> contexts_;
  MadeOnce<Device, CommandList> lists_;
};

}  // namespace

DeviceRuntime* open_level_zero(void* library) { return open_runtime<LevelZero>(library); }

}  // namespace od::memory
