// Lists where the data of a device buffer lies, and has it copied.
#include "p2p/staging.h"

#include <algorithm>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "memory/device/device_memory.h"
#include "observe/log.h"
#include "p2p/opaque.h"

namespace od::p2p {
namespace {

using host::kSuccess;
using memory::CopyDirection;
using memory::DeviceBlocks;

// Copies are handed to the runtime in groups, so that it waits for the device once in a while only
// and lists stay short.
constexpr std::size_t kGroup = 1024;

bool copy(std::span<const DeviceBlocks> blocks, char* packed, CopyDirection direction) {
  memory::DeviceFailure failure;
  if (memory::copy_device_blocks(blocks, packed, direction, &failure)) return true;
  if (failure.runtime == nullptr) {
    OD_LOG_ONCE(Level::kError,
                "the buffer at %p was in memory of a device and is not any more: it must stay "
                "until its operation is complete",
                failure.address);
  } else {
    OD_LOG_ONCE(Level::kError, "%s did not copy %llu bytes %s its device, buffer at %p (error %d)",
                failure.runtime, static_cast<unsigned long long>(failure.bytes),
                direction == CopyDirection::from_device ? "from" : "to", failure.address,
                failure.error);
  }
  return false;
}

// Collects the runs of a buffer in the order of its typemap.
class Runs {
 public:
  Runs(char* packed, CopyDirection direction) : packed_(packed), direction_(direction) {}

  bool add(const DeviceBlocks& blocks) {
    if (blocks.blocks == 0 || blocks.block_bytes == 0) return true;
    group_.push_back(blocks);
    group_bytes_ += blocks.blocks * blocks.block_bytes;
    return group_.size() < kGroup || flush();
  }
  bool flush() {
    if (group_.empty()) return true;
    const bool done = copy(group_, packed_, direction_);
    packed_ += group_bytes_;
    group_bytes_ = 0;
    group_.clear();
    return done;
  }

 private:
  char* packed_;
  const CopyDirection direction_;
  std::vector<DeviceBlocks> group_;
  std::int64_t group_bytes_ = 0;
};

// `bytes` of blocks, of which the last may be cut short.
bool add_blocks(Runs& runs, char* start, std::int64_t block_bytes, std::int64_t stride,
                std::int64_t bytes) {
  const std::int64_t whole = bytes / block_bytes;
  return runs.add({start, block_bytes, whole, stride}) &&
         runs.add({start + whole * stride, bytes % block_bytes, 1, 0});
}

// Moves the first `bytes` of `count` elements. Not for opaque layouts.
bool move(const Layout& layout, char* address, std::int64_t bytes, char* packed,
          CopyDirection direction) {
  Runs runs(packed, direction);
  if (layout.shape == Shape::contiguous) {
    runs.add({address + layout.lower, bytes, 1, 0});
  } else if (layout.shape == Shape::strided && layout.block_count == 1) {
    // One block per element: all elements are one pattern.
    if (!add_blocks(runs, address + layout.lower, layout.block_bytes, layout.extent, bytes))
      return false;
  } else if (layout.shape == Shape::strided) {
    for (std::int64_t left = bytes; left > 0; left -= layout.size, address += layout.extent) {
      if (!add_blocks(runs, address + layout.lower, layout.block_bytes, layout.stride,
                      std::min(left, layout.size))) {
        return false;
      }
    }
  } else {
    for (std::int64_t left = bytes; left > 0; address += layout.extent) {
      for (const Segment& run : layout.segments) {
        const std::int64_t now = std::min(left, run.bytes);
        if (!runs.add({address + run.offset, now, 1, 0})) return false;
        left -= now;
      }
    }
  }
  return runs.flush();
}

// The whole stretch of device memory that holds a buffer, in host memory.
class Image {
 public:
  // Returns a host error code.
  int load(const host::HostTable& host, const Layout& layout, void* address, std::int64_t count) {
    std::int64_t lower = 0;
    std::int64_t extent = 0;
    const int error = host.type_true_extent(layout.host_type, &lower, &extent);
    if (error != kSuccess) return error;
    const std::int64_t last = (count - 1) * layout.extent;
    first_ = lower + std::min<std::int64_t>(0, last);
    bytes_ = extent + (last < 0 ? -last : last);
    device_ = static_cast<char*>(address) + first_;
    memory_.reset(new (std::nothrow) char[static_cast<std::size_t>(bytes_)]);
    if (memory_ == nullptr) return host.err_no_mem;
    return move(CopyDirection::from_device) ? kSuccess : host.err_intern;
  }
  bool store() { return move(CopyDirection::to_device); }
  // Where the first element's address is in it.
  char* address() { return memory_.get() - first_; }

 private:
  bool move(CopyDirection direction) {
    const DeviceBlocks whole{device_, bytes_, 1, 0};
    return copy(std::span(&whole, 1), memory_.get(), direction);
  }

  std::unique_ptr<char[]> memory_;
  char* device_ = nullptr;
  std::int64_t first_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Layout> layout_on_device(const LayoutRef& in_host_memory) {
  auto layout = std::make_unique<Layout>();
  layout->shape = Shape::opaque;
  layout->size = in_host_memory->size;
  layout->extent = in_host_memory->extent;
  layout->whole_bytes = in_host_memory->whole_bytes;
  layout->immortal = in_host_memory->immortal;
  layout->in_host_memory = in_host_memory;
  return layout;
}

int pack_from_device(const host::HostTable& host, const Layout& layout, const void* address,
                     std::int64_t count, void* packed, std::int64_t bytes) {
  const Layout& inner = *layout.in_host_memory;
  auto* const from = static_cast<char*>(const_cast<void*>(address));
  if (inner.shape != Shape::opaque) {
    const bool done =
        move(inner, from, bytes, static_cast<char*>(packed), CopyDirection::from_device);
    return done ? kSuccess : host.err_intern;
  }
  Image image;
  const int error = image.load(host, inner, from, count);
  return error == kSuccess ? pack_opaque(host, inner, image.address(), count, packed, bytes)
                           : error;
}

int unpack_to_device(const host::HostTable& host, const Layout& layout, const void* packed,
                     std::int64_t bytes, void* address) {
  const Layout& inner = *layout.in_host_memory;
  auto* const to = static_cast<char*>(address);
  if (inner.shape != Shape::opaque) {
    // Only read when the direction is to the device.
    auto* const from = static_cast<char*>(const_cast<void*>(packed));
    return move(inner, to, bytes, from, CopyDirection::to_device) ? kSuccess : host.err_intern;
  }
  Image image;
  int error = image.load(host, inner, to, (bytes + inner.size - 1) / inner.size);
  if (error == kSuccess) error = unpack_opaque(host, inner, packed, bytes, image.address());
  return error == kSuccess && !image.store() ? host.err_intern : error;
}

}  // namespace od::p2p
