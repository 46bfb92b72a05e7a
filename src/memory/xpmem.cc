// libxpmem, loaded rather than linked: one library serves machines with and without it.
//
// The only file that needs <xpmem.h>; CMake defines OVERDRIVE_XPMEM where it has found it.
#include "memory/space_calls.h"

#ifdef OVERDRIVE_XPMEM
#include <dlfcn.h>
#include <unistd.h>
#include <xpmem.h>

#include <cerrno>
#include <cstring>
#endif

namespace od::memory {

#ifdef OVERDRIVE_XPMEM

namespace {

constexpr const char* kLibrary = "libxpmem.so.0";
constexpr const char* kDevice = "/dev/xpmem";
// Only for processes of the same user.
constexpr std::uintptr_t kPermissions = 0600;
// Older headers have no name for it.
#ifdef XPMEM_MAXADDR_SIZE
constexpr std::size_t kWholeSpace = XPMEM_MAXADDR_SIZE;
#else
constexpr std::size_t kWholeSpace = ~std::size_t{0};
#endif

// Process-wide by nature, as what the dynamic linker has loaded. Constant once `loaded`.
struct Library {
  decltype(&xpmem_version) version;
  decltype(&xpmem_make) make;
  decltype(&xpmem_remove) remove;
  decltype(&xpmem_get) get;
  decltype(&xpmem_release) release;
  decltype(&xpmem_attach) attach;
  decltype(&xpmem_detach) detach;
  bool loaded;
};
constinit Library library = {};

template <typename Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

std::int64_t expose() {
  return library.make(nullptr, kWholeSpace, XPMEM_PERMIT_MODE,
                      reinterpret_cast<void*>(kPermissions));
}

void withdraw(std::int64_t id) { library.remove(id); }

std::int64_t open(std::int64_t id) {
  return library.get(id, XPMEM_RDWR, XPMEM_PERMIT_MODE, nullptr);
}

void close(std::int64_t handle) { library.release(handle); }

std::byte* attach(std::int64_t handle, std::uint64_t address, std::uint64_t bytes) {
  xpmem_addr from = {};
  from.apid = handle;
  from.offset = static_cast<off_t>(address);
  void* const start = library.attach(from, bytes, nullptr);
  return reinterpret_cast<std::intptr_t>(start) == -1 ? nullptr : static_cast<std::byte*>(start);
}

void detach(std::byte* start) { library.detach(start); }

constexpr SpaceCalls kCalls = {.expose = expose,
                               .withdraw = withdraw,
                               .open = open,
                               .close = close,
                               .attach = attach,
                               .detach = detach};

// Once loaded, the library stays: it holds the descriptor of the device.
bool load(std::string* why) {
  if (library.loaded) return true;
  void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    *why = access(kDevice, F_OK) != 0 ? std::string("no ") + kDevice
                                      : std::string("no ") + kLibrary + " is installed";
    return false;
  }
  if (!find(handle, "xpmem_version", library.version) ||
      !find(handle, "xpmem_make", library.make) || !find(handle, "xpmem_remove", library.remove) ||
      !find(handle, "xpmem_get", library.get) || !find(handle, "xpmem_release", library.release) ||
      !find(handle, "xpmem_attach", library.attach) ||
      !find(handle, "xpmem_detach", library.detach)) {
    *why = std::string(kLibrary) + " lacks a function";
    dlclose(handle);
    return false;
  }
  library.loaded = true;
  return true;
}

}  // namespace

const SpaceCalls* xpmem_calls(std::string* why) {
  if (!load(why)) return nullptr;
  errno = 0;
  // Opens the device; the library is the only one to know which.
  if (library.version() < 0) {
    const int error = errno;
    *why = access(kDevice, F_OK) != 0
               ? std::string("no ") + kDevice
               : std::string(kDevice) + " cannot be used: " + std::strerror(error);
    return nullptr;
  }
  return &kCalls;
}

const char* xpmem_not_built() { return ""; }

#else

const SpaceCalls* xpmem_calls(std::string* why) {
  *why = xpmem_not_built();
  return nullptr;
}

const char* xpmem_not_built() { return "not built in"; }

#endif

}  // namespace od::memory
