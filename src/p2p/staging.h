// Buffers on devices: what the host must not touch is copied by the device's runtime, to and from
// packed host memory, which is all that the rest of the engine sees.
//
// Gaps between the data of a receive buffer are left alone: a kernel of the program may be writing
// there. Only a buffer of a type that is itself too irregular to flatten is read and written as a
// whole.
#ifndef OVERDRIVE_P2P_STAGING_H_
#define OVERDRIVE_P2P_STAGING_H_

#include <cstdint>
#include <memory>

#include "host/host_table.h"
#include "p2p/layout.h"

namespace od::p2p {

// The layout of elements on a device that have the given one in host memory.
std::unique_ptr<Layout> layout_on_device(const LayoutRef& in_host_memory);

// The layout that the same elements have in host memory.
inline const LayoutRef& in_host_memory(const LayoutRef& layout) {
  return layout->in_host_memory ? layout->in_host_memory : layout;
}

// Both as their namesakes in p2p/opaque.h, for a layout on a device.
int pack_from_device(const host::HostTable& host, const Layout& layout, const void* address,
                     std::int64_t count, void* packed, std::int64_t bytes);
int unpack_to_device(const host::HostTable& host, const Layout& layout, const void* packed,
                     std::int64_t bytes, void* address);

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_STAGING_H_
