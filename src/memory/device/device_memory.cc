// Finds device runtimes, and asks them.

#include "memory/device/device_memory.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "memory/device/host_memory.h"

namespace od::memory {
namespace {

struct Kind {
  std::string_view file_prefix;  // how the library's file name begins
  DeviceRuntime* (*open)(void* library);
};
constexpr std::array<Kind, 3> kKinds = {{{"libcuda.so", open_cuda},
                                         {"libamdhip64.so", open_rocm},
                                         {"libze_loader.so", open_level_zero}}};

// Process-wide by nature, like the libraries of the process. Never destroyed: MPI_Finalize may be
// called by a destructor.
struct Watch {
  // What the dynamic linker has loaded and unloaded when we last looked. Relaxed: see device_watch.
  std::atomic<std::uint64_t> seen_changes{0};
  // Set once each, never taken back. Release and acquire: who sees one sees it complete.
  std::array<std::atomic<DeviceRuntime*>, kKinds.size()> runtimes = {};
  std::array<std::atomic<bool>, kKinds.size()> refused = {};
  std::atomic<std::uint64_t> copies{0};
  std::atomic<std::uint64_t> bytes{0};
  FoundRuntime found = nullptr;
};

Watch& watch() {
  static Watch* const the_watch = new Watch;
  return *the_watch;
}

std::string_view file_name(const char* path) {
  std::string_view name = path == nullptr ? "" : path;
  const std::size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

// How often the dynamic linker has changed the list of libraries. Only asks for the first entry.
std::uint64_t linker_changes() {
  std::uint64_t changes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uint64_t*>(out) = info->dlpi_adds + info->dlpi_subs;
        return 1;
      },
      &changes);
  return changes;
}

// The libraries that look like device runtimes. Nothing else is done meanwhile, because the dynamic
// linker's lock is held.
struct Candidates {
  std::array<std::array<char, 4096>, kKinds.size()> paths = {};
  static int visit(dl_phdr_info* info, std::size_t, void* self) {
    const std::string_view name = file_name(info->dlpi_name);
    for (std::size_t i = 0; i < kKinds.size(); ++i) {
      auto& path = static_cast<Candidates*>(self)->paths[i];
      if (path[0] == 0 && name.starts_with(kKinds[i].file_prefix)) {
        std::snprintf(path.data(), path.size(), "%s", info->dlpi_name);
      }
    }
    return 0;
  }
};

// Threads may look at the same time. No lock: a constructor that runs inside dlopen may call MPI,
// and opening a library waits for the dynamic linker.
void look_for_runtimes(Watch& w) {
  const std::uint64_t changes = linker_changes();
  if (changes == w.seen_changes.load(std::memory_order_acquire)) return;
  Candidates candidates;
  dl_iterate_phdr(Candidates::visit, &candidates);
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    const char* const path = candidates.paths[i].data();
    if (path[0] == 0 || w.refused[i].load(std::memory_order_relaxed) ||
        w.runtimes[i].load(std::memory_order_relaxed) != nullptr) {
      continue;
    }
    // Kept: its functions are going to be called.
    void* const library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    DeviceRuntime* const runtime = kKinds[i].open(library);
    if (runtime == nullptr) {
      if (w.refused[i].exchange(true, std::memory_order_relaxed)) continue;
      w.found(path, nullptr);
      continue;
    }
    DeviceRuntime* none = nullptr;
    // Release: the runtime is complete; pairs with runtime_of().
    if (!w.runtimes[i].compare_exchange_strong(none, runtime, std::memory_order_release,
                                               std::memory_order_relaxed)) {
      delete runtime;  // another thread was faster
      continue;
    }
    internal::device_watch.store(true, std::memory_order_relaxed);
    w.found(path, runtime->name());
  }
  // Release: who sees it sees the runtimes that were found; pairs with the acquire above.
  w.seen_changes.store(changes, std::memory_order_release);
}

// The runtime whose device has the byte, or null.
DeviceRuntime* runtime_of(Watch& w, const void* address) {
  for (const auto& entry : w.runtimes) {
    // Pairs with the release with which it was entered.
    DeviceRuntime* const runtime = entry.load(std::memory_order_acquire);
    if (runtime != nullptr && runtime->owns(address)) return runtime;
  }
  return nullptr;
}

}  // namespace

void begin_device_watch(FoundRuntime found) {
  Watch& w = watch();
  w.found = found;
  internal::device_watch.store(false, std::memory_order_relaxed);
  look_for_runtimes(w);
}

void library_is_being_loaded() { internal::device_watch.store(true, std::memory_order_relaxed); }

bool on_device(const void* address) {
  Watch& w = watch();
  if (address == nullptr || host_by_nature(address)) return false;
  look_for_runtimes(w);
  return runtime_of(w, address) != nullptr;
}

bool copy_device_blocks(std::span<const DeviceBlocks> blocks, char* packed, CopyDirection direction,
                        DeviceFailure* failure) {
  Watch& w = watch();
  DeviceRuntime* runtime = nullptr;
  const void* home = nullptr;
  std::uint64_t bytes = 0;
  for (const DeviceBlocks& run : blocks) {
    bytes += static_cast<std::uint64_t>(run.blocks * run.block_bytes);
    if (runtime != nullptr) continue;
    home = run.start;
    runtime = runtime_of(w, home);
  }
  const int error = runtime != nullptr ? runtime->copy(home, blocks, packed, direction) : -1;
  if (error == 0) {
    w.copies.fetch_add(1, std::memory_order_relaxed);
    w.bytes.fetch_add(bytes, std::memory_order_relaxed);
    return true;
  }
  *failure = {.runtime = runtime != nullptr ? runtime->name() : nullptr,
              .error = error,
              .address = home,
              .bytes = bytes};
  return false;
}

DeviceUsage device_usage() {
  Watch& w = watch();
  return {w.copies.load(std::memory_order_relaxed), w.bytes.load(std::memory_order_relaxed)};
}

}  // namespace od::memory
