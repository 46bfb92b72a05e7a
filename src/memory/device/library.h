// What the runtimes have in common: functions found at run time, what is made once for each device,
// and the copy of many blocks as the calls of a table.
#ifndef OVERDRIVE_MEMORY_DEVICE_LIBRARY_H_
#define OVERDRIVE_MEMORY_DEVICE_LIBRARY_H_

#include <dlfcn.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "memory/device/runtime.h"

namespace od::memory {

// Fills a function pointer; false if the library lacks the function.
template <typename Function>
bool look_up(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

// The runtime `Runtime` if the library has all its functions, else null.
template <typename Runtime>
DeviceRuntime* open_runtime(void* library) {
  auto* runtime = new Runtime;
  if (runtime->open(library)) return runtime;
  delete runtime;
  return nullptr;
}

// What has been made for each of a few devices or contexts. Any thread may call.
template <typename Key, typename Made>
class MadeOnce {
 public:
  // *made is what belongs to `key`, from an earlier call or make(made), whose error is returned.
  template <typename Make>
  auto get(Key key, Made* made, Make make) {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, value] : list_) {
      if (known != key) continue;
      *made = value;
      return decltype(make(made)){};
    }
    const auto error = make(made);
    if (error == 0) list_.emplace_back(key, *made);
    return error;
  }
  void forget(Key key) {
    const std::lock_guard lock(mutex_);
    std::erase_if(list_, [&](const auto& entry) { return entry.first == key; });
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<Key, Made>> list_;
};

// Copies blocks one after the other to or from `packed` until the first error, which is returned.
// `calls` has
//   copy(to, from, bytes)              one run of bytes; an error number or 0
//   copy_rows(run, packed, &error)     several blocks as the rows of a rectangle; false: it cannot
template <typename Calls>
auto copy_each(std::span<const DeviceBlocks> blocks, char* packed, CopyDirection direction,
               const Calls& calls) {
  const bool out = direction == CopyDirection::from_device;
  decltype(calls.copy(nullptr, nullptr, 0)) error = 0;
  for (const DeviceBlocks& run : blocks) {
    if (run.blocks > 1 && run.stride >= run.block_bytes && calls.copy_rows(run, packed, &error)) {
      packed += run.blocks * run.block_bytes;
      if (error != 0) return error;
      continue;
    }
    for (std::int64_t i = 0; i < run.blocks; ++i, packed += run.block_bytes) {
      char* const device = run.start + i * run.stride;
      error = calls.copy(out ? packed : device, out ? device : packed,
                         static_cast<std::size_t>(run.block_bytes));
      if (error != 0) return error;
    }
  }
  return error;
}

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_DEVICE_LIBRARY_H_
