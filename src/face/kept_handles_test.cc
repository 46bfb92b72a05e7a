// Checks that the host frees what a collective needs after the last such collective, and only once.
#include "face/kept_handles.h"

#include <gtest/gtest.h>

#include "face/state.h"

namespace od::face {
namespace {

using Kind = KeptHandles::Kind;

constexpr host::Handle kOp = 0x98000001;
constexpr host::Handle kType = 0x8c000001;

int ops_freed = 0;
int types_freed = 0;
int free_op(MPI_Op* op) {
  EXPECT_EQ(abi::to_handle(*op), kOp);
  ++ops_freed;
  return MPI_SUCCESS;
}
int free_type(MPI_Datatype* type) {
  EXPECT_EQ(abi::to_handle(*type), kType);
  ++types_freed;
  return MPI_SUCCESS;
}

class KeptHandlesTest : public testing::Test {
 protected:
  KeptHandlesTest() {
    host_table[idx::Op_free] = reinterpret_cast<void*>(free_op);
    host_table[idx::Type_free] = reinterpret_cast<void*>(free_type);
    ops_freed = types_freed = 0;
  }
  KeptHandles kept_;
};

TEST_F(KeptHandlesTest, WhatNobodyNeedsIsTheHostsToFree) {
  EXPECT_FALSE(kept_.defer_free(Kind::op, kOp));
  const auto hold = kept_.keep(kOp, kType);
  EXPECT_FALSE(kept_.defer_free(Kind::op, kOp + 1));
  EXPECT_FALSE(kept_.defer_free(Kind::type, kOp));
}

TEST_F(KeptHandlesTest, FreedAfterTheLastUser) {
  auto first = kept_.keep(kOp, kType);
  auto second = kept_.keep(kOp, kType);
  EXPECT_TRUE(kept_.defer_free(Kind::op, kOp));
  first.reset();
  EXPECT_FALSE(kept_.any_ready());
  second.reset();
  EXPECT_TRUE(kept_.any_ready());
  EXPECT_EQ(ops_freed, 0);  // not by whoever completes
  kept_.sweep();
  EXPECT_EQ(ops_freed, 1);
  EXPECT_EQ(types_freed, 0);  // still the program's
  EXPECT_FALSE(kept_.any_ready());
  kept_.sweep();
  EXPECT_EQ(ops_freed, 1);
}

TEST_F(KeptHandlesTest, ASecondFreeIsTheHostsToRefuse) {
  const auto hold = kept_.keep(kOp, kType);
  EXPECT_TRUE(kept_.defer_free(Kind::type, kType));
  EXPECT_FALSE(kept_.defer_free(Kind::type, kType));
}

TEST_F(KeptHandlesTest, NothingIsFreedThatTheProgramKeeps) {
  kept_.keep(kOp, kType).reset();
  EXPECT_FALSE(kept_.any_ready());
  EXPECT_FALSE(kept_.defer_free(Kind::op, kOp));
}

}  // namespace
}  // namespace od::face
