// MPI_Request_get_status_all, _any and _some: looking at requests without completing them.
#include "face/completion.h"

namespace od::face {
namespace {

enum class Look : unsigned char { idle, pending, complete };

// Looks at a request of ours; only complete and idle ones have a status.
Look look(Rank& rank, MPI_Request handle, MPI_Status* status) {
  const Request* request = our_request(rank, handle);
  if (request == nullptr || is_inactive(*request)) {
    write_empty_status(status);
    return Look::idle;
  }
  if (!is_complete(*request)) return Look::pending;
  write_status(status, request->status);
  return Look::complete;
}

// Looks at a host request.
int look_at_host(MPI_Request request, bool* done, MPI_Status* status) {
  HostCallScope scope(HostCallKind::kLocal);
  int flag = 0;
  const int error = OD_HOST(Request_get_status)(request, &flag, status);
  *done = flag != 0;
  return error;
}

// Visits every request once: found(position) for complete ones; status(n) says where the status of
// the next one goes. Returns the host's error.
struct Tally {
  int active = 0;
  int complete = 0;
};
template <typename StatusOf, typename FoundAt>
int visit(Rank& rank, int count, const MPI_Request* requests, Tally* tally, StatusOf&& status_of,
          FoundAt&& found_at) {
  for (int i = 0; i < count; ++i) {
    if (requests[i] == abi::request_null()) continue;
    MPI_Status* status = status_of(i, tally->complete);
    if (is_driven(requests[i])) {
      const Look seen = look(rank, requests[i], status);
      if (seen == Look::idle) continue;
      ++tally->active;
      if (seen == Look::pending) continue;
    } else {
      ++tally->active;
      bool done = false;
      const int error = look_at_host(host_handle(requests[i]), &done, status);
      if (error != MPI_SUCCESS) return error;
      if (!done) continue;
    }
    ++tally->complete;
    if (!found_at(i)) return MPI_SUCCESS;
  }
  return MPI_SUCCESS;
}

// The rank if the array needs us, with one round of progress done.
Rank* rank_for(int count, const MPI_Request* requests) {
  Rank* rank = any_rank();
  if (rank == nullptr || count <= 0 || requests == nullptr) return nullptr;
  const bool ours = !take_census(count, requests).only_host();
  if (ours || (!InHostCall() && rank->has_pending_work())) rank->progress();
  return ours ? rank : nullptr;
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Request_get_status_all(int count, const MPI_Request* array_of_requests, int* flag,
                                  MPI_Status* array_of_statuses) {
  od::Rank* rank = flag != nullptr ? rank_for(count, array_of_requests) : nullptr;
  if (rank == nullptr) {
    HostCallScope scope(HostCallKind::kLocal);
    return OD_HOST(Request_get_status_all)(count, array_of_requests, flag, array_of_statuses);
  }
  Tally tally;
  const int error = visit(
      *rank, count, array_of_requests, &tally,
      [&](int i, int) { return status_at(array_of_statuses, i); }, [](int) { return true; });
  if (error != MPI_SUCCESS) return error;
  *flag = tally.complete == tally.active ? 1 : 0;
  if (*flag == 0) rank->nothing_found();
  if (*flag != 0 && array_of_statuses != MPI_STATUSES_IGNORE) {
    for (int i = 0; i < count; ++i) {
      if (array_of_requests[i] == abi::request_null()) write_empty_status(&array_of_statuses[i]);
    }
  }
  return MPI_SUCCESS;
}

int od_MPI_Request_get_status_any(int count, const MPI_Request* array_of_requests, int* index,
                                  int* flag, MPI_Status* status) {
  od::Rank* rank =
      flag != nullptr && index != nullptr ? rank_for(count, array_of_requests) : nullptr;
  if (rank == nullptr) {
    HostCallScope scope(HostCallKind::kLocal);
    return OD_HOST(Request_get_status_any)(count, array_of_requests, index, flag, status);
  }
  *index = MPI_UNDEFINED;
  Tally tally;
  const int error = visit(
      *rank, count, array_of_requests, &tally, [&](int, int) { return status; },
      [&](int i) {
        *index = i;
        return false;
      });
  if (error != MPI_SUCCESS) return error;
  *flag = tally.complete != 0 || tally.active == 0 ? 1 : 0;
  if (*flag == 0) rank->nothing_found();
  if (tally.active == 0) write_empty_status(status);
  return MPI_SUCCESS;
}

int od_MPI_Request_get_status_some(int incount, const MPI_Request* array_of_requests, int* outcount,
                                   int* array_of_indices, MPI_Status* array_of_statuses) {
  od::Rank* rank = outcount != nullptr && array_of_indices != nullptr
                       ? rank_for(incount, array_of_requests)
                       : nullptr;
  if (rank == nullptr) {
    HostCallScope scope(HostCallKind::kLocal);
    return OD_HOST(Request_get_status_some)(incount, array_of_requests, outcount, array_of_indices,
                                            array_of_statuses);
  }
  Tally tally;
  const int error = visit(
      *rank, incount, array_of_requests, &tally,
      [&](int, int found) { return status_at(array_of_statuses, found); },
      [&](int i) {
        array_of_indices[tally.complete - 1] = i;
        return true;
      });
  if (error != MPI_SUCCESS) return error;
  *outcount = tally.active == 0 ? MPI_UNDEFINED : tally.complete;
  if (*outcount == 0) rank->nothing_found();
  return MPI_SUCCESS;
}
