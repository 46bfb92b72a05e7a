// Handles of the ABIs in which they are pointers: Open MPI's and the standard one.
#ifndef OVERDRIVE_SRC_FACE_ABI_POINTERS_H_
#define OVERDRIVE_SRC_FACE_ABI_POINTERS_H_

#include "host/host_table.h"

namespace od::face::abi {

inline constexpr bool kPointerHandles = true;

template <typename T>
inline host::Handle to_handle(T* object) {
  return reinterpret_cast<host::Handle>(object);
}
template <typename T>
inline T from_handle(host::Handle handle) {
  return reinterpret_cast<T>(handle);
}

}  // namespace od::face::abi

#endif  // OVERDRIVE_SRC_FACE_ABI_POINTERS_H_
