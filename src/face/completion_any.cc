// MPI_Waitany and MPI_Testany over arrays of our requests, the host's, or both.
#include "face/completion.h"

namespace od::face {
namespace {

// What one look at an array has found.
enum class Found : unsigned char { nothing, none_active, one };

// Looks for a completed request of ours and reports the first.
Found look_at_ours(Rank& rank, int count, MPI_Request* requests, int* index, MPI_Status* status,
                   Blame& blame) {
  bool active = false;
  for (int i = 0; i < count; ++i) {
    if (!is_driven(requests[i])) continue;
    Request* request = our_request(rank, requests[i]);
    if (request == nullptr) [[unlikely]] {
      blame.note(nullptr, MPI_ERR_REQUEST);
      *index = i;
      return Found::one;
    }
    if (is_inactive(*request)) continue;
    active = true;
    if (!is_complete(*request)) continue;
    finish(rank, *request, &requests[i], status, blame);
    *index = i;
    return Found::one;
  }
  return active ? Found::nothing : Found::none_active;
}

// Asks the host for one of its requests; *error is the host's, who has raised it.
Found look_at_host(Rank& rank, HostPart& host, MPI_Request* requests, int* index,
                   MPI_Status* status, int* error) {
  int at = MPI_UNDEFINED;
  int flag = 0;
  {
    HostCallScope scope(HostCallKind::kLocal);
    *error = OD_HOST(Testany)(host.size(), host.requests(), &at, &flag, status);
  }
  if (flag == 0 && *error == MPI_SUCCESS) return Found::nothing;
  host.put_back(rank, requests);
  if (at == MPI_UNDEFINED) return *error == MPI_SUCCESS ? Found::none_active : Found::one;
  *index = host.position(at);
  return Found::one;
}

int none_active(int* index, MPI_Status* status) {
  *index = MPI_UNDEFINED;
  write_empty_status(status);
  return MPI_SUCCESS;
}

int wait_any(Rank& rank, int count, MPI_Request* requests, int* index, MPI_Status* status,
             int host_count) {
  HostPart host(count, requests, host_count);
  bool host_active = host_count != 0;
  Rank::WaitLoop loop(rank, "MPI_Waitany", host_active);
  for (;;) {
    Blame blame;
    const Found ours = look_at_ours(rank, count, requests, index, status, blame);
    if (ours == Found::one) return blame.raise();
    if (host_active && (ours == Found::none_active || loop.host_turn())) {
      int error = MPI_SUCCESS;
      const Found theirs =
          loop.ask_host([&] { return look_at_host(rank, host, requests, index, status, &error); });
      if (theirs == Found::one) return error;
      host_active = theirs != Found::none_active;
    }
    if (ours == Found::none_active && !host_active) return none_active(index, status);
    loop.step();
  }
}

int test_any(Rank& rank, int count, MPI_Request* requests, int* index, int* flag,
             MPI_Status* status, int host_count) {
  Blame blame;
  *flag = 1;
  Found ours = look_at_ours(rank, count, requests, index, status, blame);
  if (ours == Found::nothing || rank.has_pending_work()) {
    if (ours != Found::one) {
      rank.progress();
      ours = look_at_ours(rank, count, requests, index, status, blame);
    }
  }
  if (ours == Found::one) return blame.raise();
  Found theirs = Found::none_active;
  if (host_count != 0) {
    HostPart host(count, requests, host_count);
    int error = MPI_SUCCESS;
    theirs = look_at_host(rank, host, requests, index, status, &error);
    if (theirs == Found::one) return error;
  }
  if (ours == Found::none_active && theirs == Found::none_active) return none_active(index, status);
  rank.nothing_found();
  *flag = 0;
  *index = MPI_UNDEFINED;
  return MPI_SUCCESS;
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Waitany(int count, MPI_Request* array_of_requests, int* index, MPI_Status* status) {
  od::Rank* rank = any_rank();
  if (rank != nullptr && count > 0 && array_of_requests != nullptr && index != nullptr) {
    const Census census = take_census(count, array_of_requests);
    if (!census.only_host() || (census.host != 0 && !host_alone(*rank))) {
      return wait_any(*rank, count, array_of_requests, index, status, census.host);
    }
  }
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST(Waitany)(count, array_of_requests, index, status);
}

int od_MPI_Testany(int count, MPI_Request* array_of_requests, int* index, int* flag,
                   MPI_Status* status) {
  od::Rank* rank = any_rank();
  if (rank != nullptr && count > 0 && array_of_requests != nullptr && index != nullptr &&
      flag != nullptr) {
    const Census census = take_census(count, array_of_requests);
    if (!census.only_host() || (census.host != 0 && !host_alone(*rank))) {
      return test_any(*rank, count, array_of_requests, index, flag, status, census.host);
    }
  }
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST(Testany)(count, array_of_requests, index, flag, status);
}
