// Unpacking messages of datatypes that only the host can take apart, also those that are shorter
// than the receive and may end inside an element.
#ifndef OVERDRIVE_P2P_OPAQUE_H_
#define OVERDRIVE_P2P_OPAQUE_H_

#include <cstdint>

#include "host/host_table.h"
#include "p2p/layout.h"

namespace od::p2p {

// Unpacks `bytes` > 0 of a packed message into elements of `layout`, which is opaque, from
// `address` on. What the message does not reach keeps its contents. An error of the host, or its
// "no memory".
int unpack_opaque(const host::HostTable& host, const Layout& layout, const void* packed,
                  std::int64_t bytes, void* address);

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_OPAQUE_H_
