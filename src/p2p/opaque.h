// Packing and unpacking what no cursor can walk over (Shape::opaque): elements of datatypes that
// only the host can take apart, and buffers on devices, which the host must not touch. Also
// messages that are shorter than the receive and may end inside an element.
#ifndef OVERDRIVE_P2P_OPAQUE_H_
#define OVERDRIVE_P2P_OPAQUE_H_

#include <cstdint>

#include "host/host_table.h"
#include "p2p/layout.h"

namespace od::p2p {

// Whether packing calls the host MPI, which only threads of the program may do.
inline bool packed_by_host(const Layout& layout) {
  return layout.shape == Shape::opaque &&
         (!layout.in_host_memory || layout.in_host_memory->shape == Shape::opaque);
}

// Packs `count` elements, `bytes` > 0 in all, of `layout`, which is opaque. An error of the host's.
int pack_opaque(const host::HostTable& host, const Layout& layout, const void* address,
                std::int64_t count, void* packed, std::int64_t bytes);

// Unpacks `bytes` > 0 of a packed message into elements of `layout`, which is opaque, from
// `address` on. What the message does not reach keeps its contents. An error of the host, or its
// "no memory".
int unpack_opaque(const host::HostTable& host, const Layout& layout, const void* packed,
                  std::int64_t bytes, void* address);

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_OPAQUE_H_
