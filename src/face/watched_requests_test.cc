// What hangs on requests of the host's: done once, by whoever completes the request, and not lost
// when the program frees it before it is complete.
#include "face/watched_requests.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "face/face_mpi.h"
#include "face/state.h"

namespace od::face {
namespace {

// Requests of the stand-in for the host that are over; it forgets each with the answer.
std::set<host::Handle>* over = nullptr;

int test_one(MPI_Request* request, int* flag, MPI_Status*) {
  *flag = over->erase(abi::to_handle(*request)) != 0 ? 1 : 0;
  return MPI_SUCCESS;
}
int wait_one(MPI_Request* request, MPI_Status*) {
  over->erase(abi::to_handle(*request));
  return MPI_SUCCESS;
}

MPI_Request handle(int number) {
  return abi::from_handle<MPI_Request>(static_cast<host::Handle>(number));
}

class Watched : public testing::Test {
 protected:
  Watched() {
    over = &over_;
    host_table[idx::Test] = reinterpret_cast<void*>(&test_one);
    host_table[idx::Wait] = reinterpret_cast<void*>(&wait_one);
  }
  ~Watched() override {
    state.detached.finish();
    host_table[idx::Test] = host_table[idx::Wait] = nullptr;
    over = nullptr;
  }
  // What is told when it is let go.
  std::shared_ptr<void> kept() {
    return {this, [this](void*) { ++let_go_; }};
  }
  // What is done needs no rank here.
  Rank& nobody() { return *reinterpret_cast<Rank*>(&nobody_); }

  WatchedRequests watched_;
  std::set<host::Handle> over_;
  int let_go_ = 0;
  int done_ = 0;
  char nobody_ = 0;
};

TEST_F(Watched, IsLetGoWhenItsRequestIsOverAndNotBefore) {
  EXPECT_FALSE(watched_.any());
  EXPECT_EQ(watched_.claim(handle(1)), nullptr);
  watched_.keep(handle(1), kept());
  watched_.add(handle(2), [this](Rank&) { ++done_; });
  EXPECT_TRUE(watched_.any());
  EXPECT_EQ(watched_.claim(handle(3)), nullptr);

  WatchedRequests::Entry* entry = watched_.claim(handle(1));
  ASSERT_NE(entry, nullptr);
  // Another thread with a new request of the same value.
  EXPECT_EQ(watched_.claim(handle(1)), nullptr);
  watched_.settle(nobody(), entry, false);
  EXPECT_EQ(let_go_, 0);
  entry = watched_.claim(handle(1));
  watched_.settle(nobody(), entry, true);
  EXPECT_EQ(let_go_, 1);
  EXPECT_EQ(watched_.claim(handle(1)), nullptr);

  watched_.completed(nobody(), watched_.claim(handle(2)));
  EXPECT_EQ(done_, 1);
  EXPECT_FALSE(watched_.any());
  watched_.completed(nobody(), nullptr);
  watched_.release(nullptr);
}

TEST_F(Watched, SeveralHangOnOneValue) {
  for (int i = 0; i < 3; ++i) watched_.keep(handle(7), kept());
  WatchedRequests::Entry* const first = watched_.claim(handle(7));
  WatchedRequests::Entry* const second = watched_.claim(handle(7));
  ASSERT_NE(first, second);
  watched_.completed(nobody(), second);
  EXPECT_EQ(let_go_, 1);
  watched_.release(first);
  for (int i = 0; i < 2; ++i) watched_.completed(nobody(), watched_.claim(handle(7)));
  EXPECT_EQ(let_go_, 3);
  EXPECT_FALSE(watched_.any());
}

TEST_F(Watched, WhatTheProgramFreesIsLetGoWhenTheHostIsDone) {
  watched_.add(handle(1), [this](Rank&) { ++done_; });
  EXPECT_FALSE(watched_.adopt(handle(1)));  // the host has to say what it thinks of that
  EXPECT_FALSE(watched_.adopt(handle(2)));
  watched_.keep(handle(2), kept());
  EXPECT_TRUE(watched_.adopt(handle(2)));
  EXPECT_EQ(watched_.claim(handle(2)), nullptr);
  watched_.keep(handle(3), kept());
  EXPECT_TRUE(watched_.adopt(handle(3)));
  EXPECT_EQ(let_go_, 0);
  over_.insert(2);
  watched_.keep(handle(4), kept());
  EXPECT_TRUE(watched_.adopt(handle(4)));
  EXPECT_EQ(let_go_, 1);
  state.detached.finish();
  EXPECT_EQ(let_go_, 3);
  watched_.completed(nobody(), watched_.claim(handle(1)));
  EXPECT_EQ(done_, 1);
}

}  // namespace
}  // namespace od::face
