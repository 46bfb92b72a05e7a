// Finds the layout of a datatype handle: a cache in front of type_shape.h.
//
// Handles are recycled by the host, so MPI_Type_free drops the entry before the host frees the
// type. An entry's memory is never given back, only reused for another handle: a lookup of another
// thread may still be reading it. The fast path is one load and one comparison.
//
// Whether a type has been committed is known from MPI_Type_commit and MPI_Type_dup, because the
// host would complain about an uncommitted type and so must we. Handles that were committed once
// stay known as such: a freed handle may still be valid (MPI_Type_get_contents hands out another
// reference to it).
#ifndef OVERDRIVE_SRC_FACE_DATATYPES_H_
#define OVERDRIVE_SRC_FACE_DATATYPES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "host/host_table.h"
#include "p2p/layout.h"

namespace od::face {

class TypeCache {
 public:
  // Makes the layout of a handle, for the program's eyes: null if the host has to look at it.
  using Make = std::unique_ptr<p2p::Layout> (*)(host::Handle type);

  explicit TypeCache(Make make) : make_(make) {}

  // The layout of the type's elements in memory of a device. Valid until the type is freed; null if
  // find() has not found it.
  const p2p::LayoutRef* find_on_device(host::Handle type);

  // Valid until the type is freed; null for types that are not known or not committed.
  const p2p::LayoutRef* find(host::Handle type) {
    // Acquire: pairs with the releases in insert(), which come after the entry was filled.
    const Entry* entry = slot(type).load(std::memory_order_acquire);
    if (entry != nullptr && entry->type.load(std::memory_order_acquire) == type) [[likely]] {
      return &entry->layout;
    }
    return find_slow(type);
  }

  void committed(host::Handle type);
  bool known_as_committed(host::Handle type);
  void freed(host::Handle type);

 private:
  struct Entry {
    std::atomic<host::Handle> type{0};  // 0: unused
    p2p::LayoutRef layout;
    p2p::LayoutRef on_device;  // made when first asked for, under the mutex
  };
  // Programs use few types at a time; collisions only cost the slow path.
  static constexpr std::size_t kSlotBits = 10;

  std::atomic<Entry*>& slot(host::Handle type) {
    // Fibonacci hashing: handles differ in few, regular bits.
    return slots_[(static_cast<std::uint64_t>(type) * 0x9e3779b97f4a7c15u) >> (64 - kSlotBits)];
  }
  const p2p::LayoutRef* find_slow(host::Handle type);
  const p2p::LayoutRef* insert(host::Handle type, p2p::LayoutRef layout);
  // What the entry held is put into `dropped`, to be released after the lock.
  void drop_locked(host::Handle type, std::pair<p2p::LayoutRef, p2p::LayoutRef>* dropped);

  const Make make_;
  std::atomic<Entry*> slots_[std::size_t{1} << kSlotBits] = {};
  std::mutex mutex_;  // guards everything below, and all changes of entries
  std::unordered_map<host::Handle, Entry*> entries_;
  std::deque<Entry> memory_;
  std::vector<Entry*> unused_;
  std::unordered_set<host::Handle> committed_;
};

// The cache of this process: like State it lives as long as the entry points do, that is until the
// process has gone.
union TypeCacheHolder {
  TypeCacheHolder();
  ~TypeCacheHolder() {}
  TypeCache value;
};
extern TypeCacheHolder type_cache_holder __attribute__((visibility("hidden")));

// The layout of a type, or null if the host has to look at it: it is then no type, or not
// committed.
inline const p2p::LayoutRef* layout_of(host::Handle type) {
  return type_cache_holder.value.find(type);
}

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_DATATYPES_H_
