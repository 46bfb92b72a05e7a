// The slow half of the type cache, and the MPI calls that change what it knows.
#include "face/datatypes.h"

#include <new>
#include <utility>

#include "base/quiet_floats.h"
#include "face/face_mpi.h"
#include "face/state.h"
#include "face/type_shape.h"
#include "p2p/staging.h"

namespace od::face {

TypeCacheHolder::TypeCacheHolder() { new (&value) TypeCache(make_layout); }
TypeCacheHolder type_cache_holder;

const p2p::LayoutRef* TypeCache::find_slow(host::Handle type) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(type);
    if (found != entries_.end()) {
      // Release: pairs with find().
      slot(type).store(found->second, std::memory_order_release);
      return &found->second->layout;
    }
  }
  const QuietFloats quiet;
  // Without the lock: the host is asked, and it may take locks of its own.
  std::unique_ptr<p2p::Layout> layout = make_(type);
  if (layout == nullptr) return nullptr;
  return insert(type, p2p::LayoutRef(layout.release()));
}

const p2p::LayoutRef* TypeCache::insert(host::Handle type, p2p::LayoutRef layout) {
  const std::lock_guard lock(mutex_);
  Entry*& entry = entries_[type];
  if (entry == nullptr) {  // else another thread was faster
    if (unused_.empty()) {
      entry = &memory_.emplace_back();
    } else {
      entry = unused_.back();
      unused_.pop_back();
    }
    entry->layout = std::move(layout);
    entry->type.store(type, std::memory_order_release);  // pairs with find()
  }
  slot(type).store(entry, std::memory_order_release);  // pairs with find()
  return &entry->layout;
}

const p2p::LayoutRef* TypeCache::find_on_device(host::Handle type) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(type);
  if (found == entries_.end()) return nullptr;
  Entry& entry = *found->second;
  if (!entry.on_device) {
    entry.on_device = p2p::LayoutRef(p2p::layout_on_device(entry.layout).release());
  }
  return &entry.on_device;
}

void TypeCache::drop_locked(host::Handle type, std::pair<p2p::LayoutRef, p2p::LayoutRef>* dropped) {
  const auto found = entries_.find(type);
  if (found == entries_.end()) return;
  Entry* const entry = found->second;
  entries_.erase(found);
  if (slot(type).load(std::memory_order_relaxed) == entry) {
    slot(type).store(nullptr, std::memory_order_relaxed);
  }
  // Whoever reads the entry for another handle must not take it for that one: the type goes first.
  entry->type.store(0, std::memory_order_relaxed);
  std::swap(dropped->first, entry->layout);
  std::swap(dropped->second, entry->on_device);
  unused_.push_back(entry);
}

void TypeCache::committed(host::Handle type) {
  const QuietFloats quiet;                            // the set may grow
  std::pair<p2p::LayoutRef, p2p::LayoutRef> dropped;  // released later: that may call the host
  const std::lock_guard lock(mutex_);
  // Should the handle have been recycled behind our back, the old layout must not survive.
  if (committed_.insert(type).second) drop_locked(type, &dropped);
}

bool TypeCache::known_as_committed(host::Handle type) {
  const std::lock_guard lock(mutex_);
  return committed_.count(type) != 0;
}

void TypeCache::freed(host::Handle type) {
  std::pair<p2p::LayoutRef, p2p::LayoutRef> dropped;
  const std::lock_guard lock(mutex_);
  drop_locked(type, &dropped);
}

}  // namespace od::face

using namespace od::face;

int od_MPI_Type_commit(MPI_Datatype* datatype) {
  const int error = OD_HOST(Type_commit)(datatype);
  if (error == MPI_SUCCESS && datatype != nullptr) {
    type_cache_holder.value.committed(abi::to_handle(*datatype));
  }
  return error;
}

int od_MPI_Type_dup(MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const int error = OD_HOST(Type_dup)(oldtype, newtype);
  // A duplicate is as committed as its original.
  if (error == MPI_SUCCESS && type_cache_holder.value.known_as_committed(abi::to_handle(oldtype))) {
    type_cache_holder.value.committed(abi::to_handle(*newtype));
  }
  return error;
}

int od_MPI_Type_free(MPI_Datatype* datatype) {
  // Before the host: as soon as it has freed the type, another thread may get the handle anew.
  if (datatype != nullptr) type_cache_holder.value.freed(abi::to_handle(*datatype));
  return OD_HOST(Type_free)(datatype);
}
