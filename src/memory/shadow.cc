// The second mapping: see shadow.h.
#include "memory/shadow.h"

#include <sys/mman.h>

#include "memory/reach.h"

namespace od::memory {
namespace {

const GuardService* service_in_use = nullptr;

// Huge pages need addresses that equal their offset modulo their size.
constexpr std::uint64_t kHugeBytes = 2 << 20;

bool map_shadow() {
  static bool tried = false;
  if (tried) return internal::shadow_bytes != 0;
  tried = true;
  const ReachOwn own = reach_own();
  if (own.fd < 0 || own.bytes == 0) return false;
  void* const space = mmap(nullptr, own.bytes + kHugeBytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return false;
  const auto start =
      (reinterpret_cast<std::uintptr_t>(space) + kHugeBytes - 1) / kHugeBytes * kHugeBytes;
  void* const shadow = mmap(reinterpret_cast<void*>(start), own.bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED | MAP_NORESERVE, own.fd, 0);
  if (shadow == MAP_FAILED) {
    munmap(space, own.bytes + kHugeBytes);
    return false;
  }
  madvise(shadow, own.bytes, MADV_DONTDUMP);
  madvise(shadow, own.bytes, MADV_DONTFORK);
  internal::shadow_start = start;
  internal::shadow_bytes = own.bytes;
  return true;
}

}  // namespace

void use_guard_service(const void* service) {
  const auto* const found = static_cast<const GuardService*>(service);
  const bool fits = found != nullptr && found->version == kGuardServiceVersion &&
                    found->size_bytes == sizeof(GuardService);
  service_in_use = fits ? found : nullptr;
}

const GuardService* guard_service() { return service_in_use; }

char* shadow_of(const void* address, std::uint64_t bytes) {
  const std::uint64_t offset = reach_offset(address, bytes);
  if (offset == kUnreachable || !map_shadow()) return nullptr;
  return reinterpret_cast<char*>(internal::shadow_start + offset);
}

}  // namespace od::memory
