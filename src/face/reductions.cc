// The slow half of Reductions: predefined handles of this ABI, and what the host says of the rest.
#include "face/reductions.h"

#include <algorithm>
#include <iterator>

#include "coll/ops/predefined_types.h"
#include "face/host_opinion.h"
#include "face/predefined_constants.h"
#include "face/state.h"

namespace od::face {
namespace {

using coll::ops::Category;
using coll::ops::Family;
using coll::ops::Kind;
using coll::ops::Op;

// What the host knows of an operation that is not predefined.
bool find_own_op(MPI_Op op, bool* commutative) {
  if (op == abi::op_null()) return false;
  HostCallScope scope(HostCallKind::kLocal);
  int commutes = 0;
  if (OD_HOST(Op_commutative)(op, &commutes) != MPI_SUCCESS) return false;
  *commutative = commutes != 0;
  return true;
}

}  // namespace

struct Reductions::Predefined {
  struct Operation {
    MPI_Op handle;
    Op op;
  };
  struct Type {
    MPI_Datatype handle;
    Category category;
    Family family;
  };

  bool find_op(MPI_Op handle, Op* op) const {
    for (const Operation& each : operations) {
      if (each.handle != handle) continue;
      *op = each.op;
      return true;
    }
    return false;
  }

  coll::ops::Kernel kernel_for(Op op, MPI_Datatype handle, const p2p::Layout& layout) const {
    const auto type = std::find_if(std::begin(types), std::end(types),
                                   [&](const Type& each) { return each.handle == handle; });
    if (type == std::end(types) || !standard_allows(op, type->category)) return nullptr;
    const Kind kind = coll::ops::kind_of(type->family, static_cast<std::size_t>(layout.size));
    if (kind == Kind::none) return nullptr;
    if (static_cast<std::int64_t>(coll::ops::extent_bytes(kind)) != layout.extent) return nullptr;
    return coll::ops::find_kernel(op, kind);
  }

  // MPI_REPLACE and MPI_NO_OP are for one-sided communication; the host judges other uses of them.
  const Operation operations[14] = {
      {MPI_MAX, Op::max},         {MPI_MIN, Op::min},       {MPI_SUM, Op::sum},
      {MPI_PROD, Op::prod},       {MPI_LAND, Op::land},     {MPI_BAND, Op::band},
      {MPI_LOR, Op::lor},         {MPI_BOR, Op::bor},       {MPI_LXOR, Op::lxor},
      {MPI_BXOR, Op::bxor},       {MPI_MINLOC, Op::minloc}, {MPI_MAXLOC, Op::maxloc},
      {MPI_REPLACE, Op::replace}, {MPI_NO_OP, Op::no_op},
  };
#define OD_COUNT(name, category, family) +1
#define OD_TYPE(name, category, family) {MPI_##name, Category::category, Family::family},
  const Type types[0 OD_PREDEFINED_C_TYPES(OD_COUNT) OD_PREDEFINED_CXX_TYPES(OD_COUNT)
                       OD_PREDEFINED_FORTRAN_TYPES(OD_COUNT)
                           OD_PREDEFINED_SIZED_FORTRAN_TYPES(OD_COUNT)] = {
      // clang-format off
      OD_PREDEFINED_C_TYPES(OD_TYPE)
      OD_PREDEFINED_CXX_TYPES(OD_TYPE)
      OD_PREDEFINED_FORTRAN_TYPES(OD_TYPE)
      OD_PREDEFINED_SIZED_FORTRAN_TYPES(OD_TYPE)
      // clang-format on
  };
#undef OD_TYPE
#undef OD_COUNT
};

const Reductions::Predefined& Reductions::predefined() {
  std::call_once(once_, [this] { predefined_ = new Predefined; });
  return *predefined_;
}

bool Reductions::find_slow(MPI_Op op, MPI_Datatype type, const p2p::Layout& layout,
                           Reduction* found) {
  *found = {.op = abi::to_handle(op), .type = abi::to_handle(type)};
  const Predefined& known = predefined();
  Op known_op;
  if (!known.find_op(op, &known_op)) return find_own_op(op, &found->commutative);
  if (known_op == Op::replace || known_op == Op::no_op) return false;
  found->kernel = known.kernel_for(known_op, type, layout);
  if (found->kernel == nullptr && !host_accepts_reduction(op, type)) return false;
  // Handles of other datatypes are given to new ones after they were freed.
  if (layout.immortal) remember(*found);
  return true;
}

void Reductions::remember(const Reduction& reduction) {
  const std::lock_guard lock(mutex_);
  if (used_ == kSlots / 4 * 3) return;  // lookups end at an unused slot
  for (std::size_t i = home(reduction.op, reduction.type);; i = (i + 1) % kSlots) {
    Slot& slot = slots_[i];
    const host::Handle key = slot.op.load(std::memory_order_relaxed);
    if (key == reduction.op && slot.type == reduction.type) return;  // another thread was faster
    if (key != 0) continue;
    slot.type = reduction.type;
    slot.kernel = reduction.kernel;
    ++used_;
    slot.op.store(reduction.op, std::memory_order_release);  // pairs with find()
    return;
  }
}

}  // namespace od::face
