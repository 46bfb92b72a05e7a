// Asks the host MPI what has become of its requests: each function converts handles and calls it.
#include "face/host_requests.h"

#include "face/face_mpi.h"
#include "face/state.h"
#include "face/status.h"

namespace od::face {
namespace {

// As in host_binding.cc: the call of the program has prepared, if it has to.
constexpr HostCallKind kEngineCall = HostCallKind::kLocal;

// A host call about requests, which tells of their errors by what it returns.
class Question {
 public:
  Question() { engine_asks_host = true; }
  ~Question() { engine_asks_host = false; }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

 private:
  HostCallScope scope_{kEngineCall};
};

}  // namespace

using host::Handle;

int host_test(Handle* request, bool* flag, host::Status* status) {
  Question question;
  MPI_Request tested = abi::from_handle<MPI_Request>(*request);
  MPI_Status raw{};
  int yes = 0;
  const int error = OD_HOST(Test)(&tested, &yes, &raw);
  *flag = yes != 0 || error != MPI_SUCCESS;
  *request = abi::to_handle(tested);
  // A truncated message has a source and a tag as well.
  if (*flag) *status = read_status(raw);
  status->error = error;
  return error;
}

void host_test_some(int count, Handle* requests, int* done, int* which, host::Status* statuses) {
  MPI_Request tested[host::HostTable::kMostTested];
  MPI_Status raw[host::HostTable::kMostTested];
  for (int i = 0; i < count; ++i) tested[i] = abi::from_handle<MPI_Request>(requests[i]);
  int error;
  *done = 0;
  {
    Question question;
    error = OD_HOST(Testsome)(count, tested, done, which, raw);
  }
  if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) [[unlikely]] {
    // What has failed as a whole (a peer is gone) one by one says of which. The host may have let
    // go of some already: nobody can tell any more how they ended, which is an error like the
    // call's.
    *done = 0;
    for (int i = 0; i < count; ++i) {
      bool flag = true;
      host::Status& status = statuses[*done];
      requests[i] = abi::to_handle(tested[i]);
      if (tested[i] == abi::request_null()) {
        status = {};
        status.error = error;
      } else {
        host_test(&requests[i], &flag, &status);
      }
      if (flag) which[(*done)++] = i;
    }
    return;
  }
  if (*done < 0) *done = 0;  // MPI_UNDEFINED: none is active
  for (int i = 0; i < *done; ++i) {
    requests[which[i]] = abi::to_handle(tested[which[i]]);
    statuses[i] = read_status(raw[i]);
    statuses[i].error = error == MPI_ERR_IN_STATUS ? raw[i].MPI_ERROR : MPI_SUCCESS;
  }
}

int host_cancel(Handle* request) {
  HostCallScope scope(kEngineCall);
  MPI_Request cancelled = abi::from_handle<MPI_Request>(*request);
  return OD_HOST(Cancel)(&cancelled);
}

int host_request_free(Handle* request) {
  HostCallScope scope(kEngineCall);
  MPI_Request freed = abi::from_handle<MPI_Request>(*request);
  const int error = OD_HOST(Request_free)(&freed);
  *request = abi::to_handle(freed);
  return error;
}

}  // namespace od::face
