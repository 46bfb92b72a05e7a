// Asks about the bytes of a buffer that tell where all of it lies.
#include "face/device_buffers.h"

#include <algorithm>

#include "face/datatypes.h"
#include "face/state.h"

namespace od::face {
namespace {

bool byte_on_device(const void* buf, std::int64_t offset) {
  return memory::on_device(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(buf) +
                                                         static_cast<std::uintptr_t>(offset)));
}

bool starts_on_device(const void* buf, const p2p::Layout& layout) {
  switch (layout.shape) {
    case p2p::Shape::contiguous:
    case p2p::Shape::strided:
      return byte_on_device(buf, layout.lower);
    case p2p::Shape::segments: {
      const auto at = [&](const p2p::Segment& run) { return byte_on_device(buf, run.offset); };
      // Absolute displacements may name memory of both kinds.
      if (buf == MPI_BOTTOM) {
        return std::any_of(layout.segments.begin(), layout.segments.end(), at);
      }
      return !layout.segments.empty() && at(layout.segments.front());
    }
    case p2p::Shape::opaque:
      break;
  }
  std::int64_t lower = 0;
  std::int64_t extent = 0;
  return state.host.type_true_extent(layout.host_type, &lower, &extent) == host::kSuccess &&
         byte_on_device(buf, lower);
}

}  // namespace

const p2p::LayoutRef* find_where_it_lies(const void* buf, std::int64_t count, MPI_Datatype type,
                                         const p2p::LayoutRef* layout) {
  if (count == 0 || (*layout)->size == 0 || !starts_on_device(buf, **layout)) return layout;
  return type_cache_holder.value.find_on_device(abi::to_handle(type));
}

}  // namespace od::face
