// Several requests asked for at once, over a host that fails as a whole: what it has let go of in
// that call is not asked for again, and is not taken for a success. And a host that calls the
// program's error handler from within such a question.
#include "face/host_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "face/face_mpi.h"
#include "face/state.h"
#include "face/status.h"

namespace od::face {
namespace {

constexpr int kFailure = MPI_ERR_OTHER;
constexpr int kNull = 90;  // the null request where it is an address of the host's

// What the stand-in for the host has: requests are numbers, `gone` are no longer any.
struct Host {
  std::vector<host::Handle> lets_go;  // in the call for all, which fails then
  std::vector<host::Handle> over;     // successfully, when asked for one by one
  std::vector<host::Handle> gone;
  int stale_uses = 0;
};
Host* fake = nullptr;

bool contains(const std::vector<host::Handle>& list, host::Handle item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

int test_some(int count, MPI_Request requests[], int* done, int[], MPI_Status[]) {
  for (int i = 0; i < count; ++i) {
    const host::Handle handle = abi::to_handle(requests[i]);
    if (!contains(fake->lets_go, handle)) continue;
    fake->gone.push_back(handle);
    requests[i] = abi::request_null();
  }
  *done = 0;
  return kFailure;
}

int test_one(MPI_Request* request, int* flag, MPI_Status* status) {
  const host::Handle handle = abi::to_handle(*request);
  if (contains(fake->gone, handle)) ++fake->stale_uses;
  *flag = contains(fake->over, handle) ? 1 : 0;
  if (*flag != 0) {
    *request = abi::request_null();
    status->MPI_SOURCE = static_cast<int>(handle);
    status->MPI_TAG = 7;
    abi::set_payload(*status, 16, false);
  }
  return MPI_SUCCESS;
}

class HostRequests : public testing::Test {
 protected:
  HostRequests() {
    fake = &host_;
#if defined(OD_FACE_OPENMPI)
    abi::predefined.request_null = abi::from_handle<MPI_Request>(kNull);
#endif
    status_layout_verified = true;
    host_table[idx::Testsome] = reinterpret_cast<void*>(&test_some);
    host_table[idx::Test] = reinterpret_cast<void*>(&test_one);
  }
  ~HostRequests() override {
    host_table[idx::Testsome] = host_table[idx::Test] = nullptr;
    status_layout_verified = false;
#if defined(OD_FACE_OPENMPI)
    abi::predefined.request_null = nullptr;
#endif
    fake = nullptr;
  }

  Host host_;
};

TEST_F(HostRequests, AFailureOfAllSaysOfWhichAndTouchesNoneThatIsGone) {
  host_.lets_go = {11};
  host_.over = {13};
  host::Handle requests[] = {10, 11, 12, 13};
  int which[4] = {-1, -1, -1, -1};
  host::Status statuses[4];
  int done = -1;
  host_test_some(4, requests, &done, which, statuses);
  EXPECT_EQ(host_.stale_uses, 0);
  ASSERT_EQ(done, 2);
  EXPECT_EQ(which[0], 1);
  EXPECT_EQ(statuses[0].error, kFailure);
  EXPECT_EQ(statuses[0].bytes, 0);
  EXPECT_EQ(which[1], 3);
  EXPECT_EQ(statuses[1].error, MPI_SUCCESS);
  EXPECT_EQ(statuses[1].source, 13);
  EXPECT_EQ(statuses[1].bytes, 16);
  const host::Handle null = abi::to_handle(abi::request_null());
  EXPECT_EQ(requests[0], 10u);
  EXPECT_EQ(requests[1], null);
  EXPECT_EQ(requests[2], 12u);
  EXPECT_EQ(requests[3], null);
}

// --- a host that raises what it also returns --------------------------------------------------

using Handler = void(MPI_Comm* comm, int* code, ...);
Handler* hosts_handler = nullptr;  // what the program has made, as the host knows it
int handler_calls = 0;

void count_call(MPI_Comm*, int*, ...) { ++handler_calls; }

int create_handler(void* function, MPI_Errhandler*) {
  hosts_handler = reinterpret_cast<Handler*>(function);
  return MPI_SUCCESS;
}

void raise_by_host(int code) {
  MPI_Comm comm{};
  hosts_handler(&comm, &code);
}

int raising_test(MPI_Request* request, int* flag, MPI_Status*) {
  *request = abi::request_null();
  *flag = 1;
  raise_by_host(MPI_ERR_TRUNCATE);
  return MPI_ERR_TRUNCATE;
}

int raising_test_some(int, MPI_Request requests[], int* done, int which[], MPI_Status statuses[]) {
  requests[0] = abi::request_null();
  *done = 1;
  which[0] = 0;
  statuses[0].MPI_ERROR = MPI_ERR_TRUNCATE;
  raise_by_host(MPI_ERR_IN_STATUS);
  return MPI_ERR_IN_STATUS;
}

// The engine raises the error when it has ended what it does.
TEST_F(HostRequests, TheProgramsHandlerIsNotCalledInTheMiddleOfIt) {
  host_table[idx::Comm_create_errhandler] = reinterpret_cast<void*>(&create_handler);
  host_table[idx::Test] = reinterpret_cast<void*>(&raising_test);
  host_table[idx::Testsome] = reinterpret_cast<void*>(&raising_test_some);
  MPI_Errhandler handler{};
  ASSERT_EQ(od_MPI_Comm_create_errhandler(reinterpret_cast<void*>(&count_call), &handler),
            MPI_SUCCESS);
  handler_calls = 0;
  bool flag = false;
  host::Status status;
  host::Handle request = 5;
  EXPECT_EQ(host_test(&request, &flag, &status), MPI_ERR_TRUNCATE);
  EXPECT_TRUE(flag);
  request = 6;
  int done = 0;
  int which = -1;
  host_test_some(1, &request, &done, &which, &status);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(status.error, MPI_ERR_TRUNCATE);
  EXPECT_EQ(handler_calls, 0);
  raise_by_host(MPI_ERR_TRUNCATE);
  EXPECT_EQ(handler_calls, 1);
  host_table[idx::Comm_create_errhandler] = nullptr;
}

}  // namespace
}  // namespace od::face
