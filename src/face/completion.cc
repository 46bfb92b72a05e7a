// MPI_Wait, MPI_Test and MPI_Request_get_status: completion of one request.
#include "face/completion.h"

namespace od::face {
namespace {

// A handle in our range that stands for nothing (any more).
int stale_request() { return raise_error(host::Handle{0}, MPI_ERR_REQUEST); }

[[gnu::noinline]] int wait_host_request(MPI_Request* request, MPI_Status* status) {
  Rank* rank = serving();
  const MPI_Request before = request != nullptr ? *request : abi::request_null();
  WatchedRequests::Entry* const watched = rank != nullptr ? state.watched.claim(before) : nullptr;
  int error;
  if (rank != nullptr && before != abi::request_null() && rank->has_pending_work()) {
    error = wait_for_host(*rank, request, status, "MPI_Wait");
  } else {
    HostCallScope scope(HostCallKind::kBlocking);
    error = OD_HOST(Wait)(request, status);
  }
  if (watched != nullptr) {
    state.watched.settle(*rank, watched, error == MPI_SUCCESS && *request != before);
  }
  return error;
}

[[gnu::noinline]] int test_host_request(MPI_Request* request, int* flag, MPI_Status* status) {
  Rank* rank = serving();
  if (rank != nullptr && rank->has_pending_work()) rank->progress();
  const MPI_Request before = request != nullptr ? *request : abi::request_null();
  WatchedRequests::Entry* const watched = rank != nullptr ? state.watched.claim(before) : nullptr;
  int error;
  {
    HostCallScope scope(HostCallKind::kLocal);
    error = OD_HOST(Test)(request, flag, status);
  }
  if (watched != nullptr) {
    state.watched.settle(*rank, watched, error == MPI_SUCCESS && *request != before);
  }
  return error;
}

}  // namespace

int wait_for_host(Rank& rank, MPI_Request* request, MPI_Status* status, const char* where) {
  Rank::WaitLoop loop(rank, where, true);
  for (;;) {
    {
      HostCallScope scope(HostCallKind::kLocal);
      int flag = 0;
      const int error = OD_HOST(Test)(request, &flag, status);
      if (error != MPI_SUCCESS || flag != 0) return error;
    }
    if (!rank.has_pending_work()) {
      HostCallScope scope(HostCallKind::kBlocking);
      return OD_HOST(Wait)(request, status);
    }
    loop.step();
  }
}

}  // namespace od::face

using namespace od::face;

int od_MPI_Wait(MPI_Request* request, MPI_Status* status) {
  if (request == nullptr || !is_ours(*request)) return wait_host_request(request, status);
  od::Rank* rank = any_rank();
  od::Request* ours = rank != nullptr ? our_request(*rank, *request) : nullptr;
  if (ours == nullptr) [[unlikely]]
    return stale_request();
  if (ours->in_host) [[unlikely]] {
    MPI_Request twin = twin_of(*ours);
    return wait_host_request(&twin, status);
  }
  if (is_inactive(*ours)) {
    write_empty_status(status);
    return MPI_SUCCESS;
  }
  if (!is_complete(*ours)) rank->wait(*ours);
  Blame blame;
  finish(*rank, *ours, request, status, blame);
  return blame.raise();
}

int od_MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  if (request == nullptr || flag == nullptr || !is_ours(*request)) {
    return test_host_request(request, flag, status);
  }
  od::Rank* rank = any_rank();
  od::Request* ours = rank != nullptr ? our_request(*rank, *request) : nullptr;
  if (ours == nullptr) [[unlikely]]
    return stale_request();
  if (ours->in_host) [[unlikely]] {
    MPI_Request twin = twin_of(*ours);
    return test_host_request(&twin, flag, status);
  }
  if (is_inactive(*ours)) {
    *flag = 1;
    write_empty_status(status);
    return MPI_SUCCESS;
  }
  if (!is_complete(*ours) && !rank->test(*ours)) {
    rank->nothing_found(ours->comm, ours->peer);
    *flag = 0;
    return MPI_SUCCESS;
  }
  *flag = 1;
  Blame blame;
  finish(*rank, *ours, request, status, blame);
  return blame.raise();
}

int od_MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  if (flag == nullptr || !is_driven(request)) {
    od::Rank* rank = serving();
    if (rank != nullptr && rank->has_pending_work()) rank->progress();
    const MPI_Request theirs = flag == nullptr ? request : host_handle(request);
    HostCallScope scope(HostCallKind::kLocal);
    return OD_HOST(Request_get_status)(theirs, flag, status);
  }
  od::Rank* rank = any_rank();
  od::Request* ours = rank != nullptr ? our_request(*rank, request) : nullptr;
  if (ours == nullptr) [[unlikely]]
    return stale_request();
  if (is_inactive(*ours)) {
    *flag = 1;
    write_empty_status(status);
    return MPI_SUCCESS;
  }
  *flag = is_complete(*ours) || rank->test(*ours) ? 1 : 0;
  if (*flag != 0) {
    write_status(status, ours->status);
  } else {
    rank->nothing_found(ours->comm, ours->peer);
  }
  return MPI_SUCCESS;
}
