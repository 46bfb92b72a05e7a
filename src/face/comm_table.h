// Finds our Comm for a communicator handle: what every point-to-point call does first.
//
// An open-addressing table that readers search without a lock while one writer changes it. A key is
// never removed from its slot, only its value is cleared (hosts reuse handles, so the slot is used
// again); a table that has become too full is replaced by a bigger copy, and the old one is kept
// until the end because a reader may still look at it. The sizes double, so all old ones together
// are no bigger than the newest. Lookups that race with the insertion or the removal of the *same*
// handle are errors of the program; those of other handles are always answered right.
#ifndef OVERDRIVE_SRC_FACE_COMM_TABLE_H_
#define OVERDRIVE_SRC_FACE_COMM_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "host/host_table.h"

namespace od {
class Comm;
}

namespace od::face {

class CommTable {
 public:
  CommTable() { current_.store(grow(kFirstBits), std::memory_order_relaxed); }

  // The Comm registered for `handle`, or null.
  Comm* find(host::Handle handle) const {
    // pairs with the release store in insert()
    const Array* array = current_.load(std::memory_order_acquire);
    for (std::size_t i = array->home(handle);; i = (i + 1) & array->mask) {
      // pairs with the release stores of key and value in put()
      const host::Handle key = array->slots[i].key.load(std::memory_order_acquire);
      if (key == handle) return array->slots[i].comm.load(std::memory_order_acquire);
      if (key == 0) return nullptr;
    }
  }

  // Registers or replaces; `handle` must not be 0 (no host has such a communicator).
  void insert(host::Handle handle, Comm* comm) {
    std::lock_guard<std::mutex> lock(mutex_);
    Array* array = current_.load(std::memory_order_relaxed);
    if ((array->used + 1) * 2 > array->mask + 1) {
      const Array* old = array;
      std::size_t live = 0;
      for (std::size_t i = 0; i <= old->mask; ++i) {
        live += old->slots[i].comm.load(std::memory_order_relaxed) != nullptr ? 1 : 0;
      }
      // Mostly removed keys: a copy of the same size is enough.
      array = grow(live * 4 > old->mask + 1 ? old->bits + 1 : old->bits);
      for (std::size_t i = 0; i <= old->mask; ++i) {
        Comm* moved = old->slots[i].comm.load(std::memory_order_relaxed);
        if (moved != nullptr) put(*array, old->slots[i].key.load(std::memory_order_relaxed), moved);
      }
      put(*array, handle, comm);
      current_.store(array, std::memory_order_release);  // pairs with the load in find()
      return;
    }
    put(*array, handle, comm);
  }

  // Forgets `handle` and returns what was registered for it, or null.
  Comm* erase(host::Handle handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    Array* array = current_.load(std::memory_order_relaxed);
    for (std::size_t i = array->home(handle);; i = (i + 1) & array->mask) {
      const host::Handle key = array->slots[i].key.load(std::memory_order_relaxed);
      if (key == handle && key != 0) {
        // pairs with the load in find()
        return array->slots[i].comm.exchange(nullptr, std::memory_order_acq_rel);
      }
      if (key == 0) return nullptr;
    }
  }

 private:
  static constexpr unsigned kFirstBits = 8;  // programs with more than 128 communicators are rare

  struct Slot {
    std::atomic<host::Handle> key{0};
    std::atomic<Comm*> comm{nullptr};
  };
  struct Array {
    explicit Array(unsigned size_bits)
        : bits(size_bits),
          mask((std::size_t{1} << size_bits) - 1),
          slots(std::make_unique<Slot[]>(mask + 1)) {}
    std::size_t home(host::Handle handle) const {
      // Fibonacci hashing: handles differ in low bits (integers) or in middle bits (addresses).
      return static_cast<std::size_t>((handle * 0x9E3779B97F4A7C15u) >> (64 - bits));
    }
    unsigned bits;
    std::size_t mask;
    std::size_t used = 0;  // slots with a key
    std::unique_ptr<Slot[]> slots;
  };

  Array* grow(unsigned bits) {
    arrays_.push_back(std::make_unique<Array>(bits));
    return arrays_.back().get();
  }

  static void put(Array& array, host::Handle handle, Comm* comm) {
    for (std::size_t i = array.home(handle);; i = (i + 1) & array.mask) {
      const host::Handle key = array.slots[i].key.load(std::memory_order_relaxed);
      if (key != 0 && key != handle) continue;
      array.slots[i].comm.store(comm, std::memory_order_release);  // pairs with find()
      if (key == 0) {
        ++array.used;
        array.slots[i].key.store(handle, std::memory_order_release);  // pairs with find()
      }
      return;
    }
  }

  std::atomic<Array*> current_{nullptr};
  std::mutex mutex_;  // of writers
  std::vector<std::unique_ptr<Array>> arrays_;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_COMM_TABLE_H_
