// MPI_Op_free: an operation that a pending collective computes with is freed after it.
#include "face/state.h"

using namespace od::face;

int od_MPI_Op_free(MPI_Op* op) {
  if (serving() != nullptr && op != nullptr &&
      state.kept.defer_free(KeptHandles::Kind::op, abi::to_handle(*op))) {
    *op = abi::op_null();
    return MPI_SUCCESS;
  }
  return OD_HOST(Op_free)(op);
}
