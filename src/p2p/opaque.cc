// Hosts unpack whole elements only (Open MPI ends the job where the packed data is shorter than
// what it is asked for). So an element of which only the beginning came is packed as it is, the
// beginning replaced, and unpacked again.
#include "p2p/opaque.h"

#include <cstring>
#include <memory>
#include <new>

#include "p2p/staging.h"

namespace od::p2p {

int pack_opaque(const host::HostTable& host, const Layout& layout, const void* address,
                std::int64_t count, void* packed, std::int64_t bytes) {
  if (layout.in_host_memory) return pack_from_device(host, layout, address, count, packed, bytes);
  return host.pack(address, count, layout.host_type, packed, bytes);
}

int unpack_opaque(const host::HostTable& host, const Layout& layout, const void* packed,
                  std::int64_t bytes, void* address) {
  if (layout.in_host_memory) return unpack_to_device(host, layout, packed, bytes, address);
  const std::int64_t whole = bytes / layout.size;
  const std::int64_t whole_bytes = whole * layout.size;
  if (whole > 0) {
    const int error = host.unpack(packed, whole_bytes, address, whole, layout.host_type);
    if (error != host::kSuccess) return error;
  }
  if (whole_bytes == bytes) return host::kSuccess;
  void* const element = static_cast<char*>(address) + whole * layout.extent;
  const std::unique_ptr<char[]> copy(
      new (std::nothrow) char[static_cast<std::size_t>(layout.size)]);
  if (copy == nullptr) return host.err_no_mem;
  const int error = host.pack(element, 1, layout.host_type, copy.get(), layout.size);
  if (error != host::kSuccess) return error;
  std::memcpy(copy.get(), static_cast<const char*>(packed) + whole_bytes,
              static_cast<std::size_t>(bytes - whole_bytes));
  return host.unpack(copy.get(), layout.size, element, 1, layout.host_type);
}

}  // namespace od::p2p
