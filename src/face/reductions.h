// Finds what an operation computes on a datatype: a kernel of ours or the host's MPI_Reduce_local.
//
// Predefined operations on predefined datatypes have kernels wherever the standard allows the
// combination and the layout of the datatype in this host is the one that the kernels know. Other
// combinations go to the host if it accepts them. Predefined handles never change their meaning, so
// combinations are remembered in a table that is only added to and is read without a lock. The host
// is asked about a datatype only when the program has used it: hosts do not have all of them.
#ifndef OVERDRIVE_SRC_FACE_REDUCTIONS_H_
#define OVERDRIVE_SRC_FACE_REDUCTIONS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "coll/run/call.h"
#include "face/face_mpi.h"

namespace od::face {

class Reductions {
 public:
  // False if the host has to look at the combination. `layout` is that of `type`.
  bool find(MPI_Op op, MPI_Datatype type, const p2p::Layout& layout, Reduction* found) {
    const host::Handle op_handle = abi::to_handle(op);
    const host::Handle type_handle = abi::to_handle(type);
    for (std::size_t i = home(op_handle, type_handle);; i = (i + 1) % kSlots) {
      const Slot& slot = slots_[i];
      // Acquire: pairs with remember(), which fills the slot first.
      const host::Handle key = slot.op.load(std::memory_order_acquire);
      if (key == op_handle && slot.type == type_handle) [[likely]] {
        *found = {.kernel = slot.kernel, .op = op_handle, .type = type_handle};
        return true;
      }
      if (key == 0) return find_slow(op, type, layout, found);
    }
  }

 private:
  struct Slot {
    std::atomic<host::Handle> op{0};  // 0: unused
    host::Handle type = 0;
    coll::ops::Kernel kernel = nullptr;
  };
  static constexpr std::size_t kSlots = 1024;

  static std::size_t home(host::Handle op, host::Handle type) {
    const std::uint64_t mixed = (static_cast<std::uint64_t>(op) << 20 ^ type) * 0x9e3779b97f4a7c15u;
    return mixed >> 54;  // the highest ten bits
  }
  static_assert(kSlots == std::size_t{1} << (64 - 54));

  struct Predefined;  // the handles of this ABI, looked up when first needed
  const Predefined& predefined();
  bool find_slow(MPI_Op op, MPI_Datatype type, const p2p::Layout& layout, Reduction* found);
  void remember(const Reduction& reduction);

  Slot slots_[kSlots];
  std::size_t used_ = 0;
  std::mutex mutex_;  // of writers
  std::once_flag once_;
  const Predefined* predefined_ = nullptr;  // never freed, like State
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_REDUCTIONS_H_
