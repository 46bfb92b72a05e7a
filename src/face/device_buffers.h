// Whether a buffer of the program lies on a device, and the layout that says so.
//
// A buffer that the host must not touch gets a layout of its own (p2p/staging.h), and everything
// behind the face treats it like any other. Calls that belong to the host MPI get their buffers
// untouched: it may know devices itself.
#ifndef OVERDRIVE_SRC_FACE_DEVICE_BUFFERS_H_
#define OVERDRIVE_SRC_FACE_DEVICE_BUFFERS_H_

#include <cstdint>

#include "face/face_mpi.h"
#include "memory/device/device_memory.h"
#include "p2p/layout.h"

namespace od::face {

// `layout`, or that of the same elements on a device. Null: the host has to look at the call.
const p2p::LayoutRef* find_where_it_lies(const void* buf, std::int64_t count, MPI_Datatype type,
                                         const p2p::LayoutRef* layout);

// One branch where no device can be.
inline const p2p::LayoutRef* where_it_lies(const void* buf, std::int64_t count, MPI_Datatype type,
                                           const p2p::LayoutRef* layout) {
  if (!memory::devices_possible()) [[likely]]
    return layout;
  return find_where_it_lies(buf, count, type, layout);
}

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_DEVICE_BUFFERS_H_
