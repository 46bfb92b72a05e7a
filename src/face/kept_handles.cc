// Counts the pending collectives that need a handle; the host frees it after the last one.
#include "face/kept_handles.h"

#include <utility>

#include "base/quiet_floats.h"
#include "face/state.h"

namespace od::face {

class KeptHandles::Hold {
 public:
  Hold(KeptHandles& owner, host::Handle op, host::Handle type)
      : owner_(owner), op_(op), type_(type) {}
  ~Hold() {
    owner_.release(Kind::op, op_);
    owner_.release(Kind::type, type_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  KeptHandles& owner_;
  host::Handle op_;
  host::Handle type_;
};

std::shared_ptr<const void> KeptHandles::keep(host::Handle op, host::Handle type) {
  auto hold = std::make_shared<Hold>(*this, op, type);
  const QuietFloats quiet;  // the tables may grow
  const std::lock_guard lock(mutex_);
  ++ops_[op].users;
  ++types_[type].users;
  kept_count_.store(ops_.size() + types_.size(), std::memory_order_relaxed);
  return hold;
}

void KeptHandles::release(Kind kind, host::Handle handle) {
  const std::lock_guard lock(mutex_);
  Entries& of_kind = entries(kind);
  const auto found = of_kind.find(handle);
  if (--found->second.users != 0) return;
  if (found->second.freed) {
    ready_.push_back({kind, handle});
    ready_count_.store(ready_.size(), std::memory_order_relaxed);
  }
  of_kind.erase(found);
  kept_count_.store(ops_.size() + types_.size(), std::memory_order_relaxed);
}

bool KeptHandles::defer_free(Kind kind, host::Handle handle) {
  if (kept_count_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(mutex_);
  Entries& of_kind = entries(kind);
  const auto found = of_kind.find(handle);
  if (found == of_kind.end() || found->second.freed) return false;
  found->second.freed = true;
  return true;
}

void KeptHandles::sweep() {
  std::vector<Ready> ready;
  {
    const std::lock_guard lock(mutex_);
    std::swap(ready, ready_);
    ready_count_.store(0, std::memory_order_relaxed);
  }
  HostCallScope scope(HostCallKind::kLocal);
  for (const Ready& each : ready) {
    if (each.kind == Kind::op) {
      MPI_Op op = abi::from_handle<MPI_Op>(each.handle);
      OD_HOST(Op_free)(&op);
    } else {
      MPI_Datatype type = abi::from_handle<MPI_Datatype>(each.handle);
      OD_HOST(Type_free)(&type);
    }
  }
}

}  // namespace od::face
