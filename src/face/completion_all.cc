// MPI_Waitall and MPI_Testall over arrays of our requests, the host's, or both.
//
// Errors: the call returns MPI_ERR_IN_STATUS and then, only then, every status gets its MPI_ERROR.
#include "face/completion.h"

namespace od::face {
namespace {

// Per-request error codes in order of position, written to the statuses once there is a reason to.
class ErrorFields {
 public:
  explicit ErrorFields(MPI_Status* statuses) : statuses_(statuses) {}
  // To be called for every position in ascending order.
  void set(int i, int code) {
    if (code != MPI_SUCCESS && !any_) {
      any_ = true;
      if (statuses_ != MPI_STATUSES_IGNORE) {
        for (int j = 0; j < i; ++j) statuses_[j].MPI_ERROR = MPI_SUCCESS;
      }
    }
    if (any_ && statuses_ != MPI_STATUSES_IGNORE) statuses_[i].MPI_ERROR = code;
  }
  bool any() const { return any_; }

 private:
  MPI_Status* statuses_;
  bool any_ = false;
};

// Whether the request at a position of ours needs no more waiting.
inline bool settled(Rank& rank, MPI_Request handle) {
  const Request* request = our_request(rank, handle);
  return request == nullptr || is_inactive(*request) || is_complete(*request);
}

bool ours_settled(Rank& rank, int count, const MPI_Request* requests) {
  for (int i = 0; i < count; ++i) {
    if (is_driven(requests[i]) && !settled(rank, requests[i])) return false;
  }
  return true;
}

// Reports everything. `host` is the host's part with its result, or null without one. Requests of
// ours may be unfinished only if the host has reported an error.
int report_all(Rank& rank, int count, MPI_Request* requests, MPI_Status* statuses, HostPart* host,
               int host_error) {
  Blame blame;
  ErrorFields errors(statuses);
  int next_host = 0;
  for (int i = 0; i < count; ++i) {
    if (is_driven(requests[i])) {
      Request* request = our_request(rank, requests[i]);
      if (request == nullptr) {
        blame.note(nullptr, MPI_ERR_REQUEST);
        errors.set(i, MPI_ERR_REQUEST);
      } else if (is_inactive(*request)) {
        write_empty_status(status_at(statuses, i));
        errors.set(i, MPI_SUCCESS);
      } else if (!is_complete(*request)) {
        errors.set(i, MPI_ERR_PENDING);
      } else {
        errors.set(i, finish(rank, *request, &requests[i], status_at(statuses, i), blame));
      }
    } else if (requests[i] == abi::request_null()) {
      write_empty_status(status_at(statuses, i));
      errors.set(i, MPI_SUCCESS);
    } else {
      int code = MPI_SUCCESS;
      if (statuses != MPI_STATUSES_IGNORE) {
        const MPI_Status& theirs = host->statuses()[next_host];
        copy_status(statuses[i], theirs);
        if (host_error == MPI_ERR_IN_STATUS) code = theirs.MPI_ERROR;
      }
      errors.set(i, code);
      ++next_host;
    }
  }
  if (host != nullptr) host->put_back(rank, requests);
  if (host_error != MPI_SUCCESS) return host_error;  // the host has called an error handler
  return blame ? blame.raise_in_status() : MPI_SUCCESS;
}

int wait_all_ours(Rank& rank, int count, MPI_Request* requests, MPI_Status* statuses) {
  for (int i = 0; i < count; ++i) {
    if (!is_driven(requests[i])) continue;
    Request* request = our_request(rank, requests[i]);
    if (request != nullptr && !is_inactive(*request) && !is_complete(*request)) rank.wait(*request);
  }
  return report_all(rank, count, requests, statuses, nullptr, MPI_SUCCESS);
}

int test_host_part(HostPart& host, MPI_Status* statuses, bool* done) {
  HostCallScope scope(HostCallKind::kLocal);
  int flag = 0;
  const int error =
      OD_HOST(Testall)(host.size(), host.requests(), &flag,
                       statuses == MPI_STATUSES_IGNORE ? MPI_STATUSES_IGNORE : host.statuses());
  *done = flag != 0 || error != MPI_SUCCESS;
  return error;
}

// Waits for the host's part, in looks or at once. Looks go by MPI_Testsome, which reports errors as
// MPI_Waitall does; MPI_Testall of MPICH refuses persistent collectives that MPI_Waitall takes.
// What has been reported is not asked about again: MPICH would report a persistent collective for
// ever.
class HostWait {
 public:
  HostWait(HostPart& host, bool wants_statuses)
      : host_(host),
        wants_statuses_(wants_statuses),
        asked_(host.size()),
        completed_(host.size()),
        at_(host.size()) {
    for (int i = 0; i < host.size(); ++i) {
      asked_[i] = host.requests()[i];
      completed_[i] = false;
      set_status(i, nullptr, MPI_SUCCESS);
    }
  }

  // True when there is nothing to wait for any more, or something has failed.
  bool look(int* error) {
    ShortArray<MPI_Status> found(wants_statuses_ ? host_.size() : 0);
    int taken = 0;
    {
      HostCallScope scope(HostCallKind::kLocal);
      *error = OD_HOST(Testsome)(host_.size(), asked_.data(), &taken, at_.data(),
                                 wants_statuses_ ? found.data() : MPI_STATUSES_IGNORE);
    }
    const bool in_status = *error == MPI_ERR_IN_STATUS;
    if (*error != MPI_SUCCESS && !in_status) return true;
    if (taken == MPI_UNDEFINED) return true;
    for (int k = 0; k < taken; ++k) {
      settle(at_[k]);
      if (wants_statuses_) {
        set_status(at_[k], &found[k], in_status ? found[k].MPI_ERROR : MPI_SUCCESS);
      }
    }
    for (int i = 0; in_status && i < host_.size(); ++i) {
      if (!completed_[i]) set_status(i, nullptr, MPI_ERR_PENDING);
    }
    return *error != MPI_SUCCESS;
  }

  int wait() {
    ShortArray<MPI_Status> found(wants_statuses_ ? host_.size() : 0);
    int error;
    {
      HostCallScope scope(HostCallKind::kBlocking);
      error = OD_HOST(Waitall)(host_.size(), asked_.data(),
                               wants_statuses_ ? found.data() : MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < host_.size(); ++i) {
      if (completed_[i]) continue;
      settle(i);
      if (!wants_statuses_) continue;
      set_status(i, &found[i], error == MPI_ERR_IN_STATUS ? found[i].MPI_ERROR : MPI_SUCCESS);
    }
    return error;
  }

 private:
  // The host has left the handle as the program is to have it.
  void settle(int i) {
    host_.requests()[i] = asked_[i];
    asked_[i] = abi::request_null();
    completed_[i] = true;
  }

  void set_status(int i, const MPI_Status* status, int code) {
    if (!wants_statuses_) return;
    MPI_Status& out = host_.statuses()[i];
    if (status != nullptr) {
      copy_status(out, *status);
    } else {
      write_empty_status(&out);
    }
    out.MPI_ERROR = code;
  }

  HostPart& host_;
  bool wants_statuses_;
  ShortArray<MPI_Request> asked_;
  ShortArray<bool> completed_;
  ShortArray<int> at_;
};

int wait_all_mixed(Rank& rank, int count, MPI_Request* requests, MPI_Status* statuses,
                   int host_count) {
  HostPart host(count, requests, host_count);
  HostWait host_wait(host, statuses != MPI_STATUSES_IGNORE);
  Rank::WaitLoop loop(rank, "MPI_Waitall", true);
  bool host_done = false;
  int host_error = MPI_SUCCESS;
  int next = 0;  // everything of ours before it is settled
  for (;;) {
    while (next < count && (!is_driven(requests[next]) || settled(rank, requests[next]))) ++next;
    const bool ours_done = next == count;
    if (!host_done && ours_done && !rank.has_pending_work()) {
      host_error = host_wait.wait();
      host_done = true;
    } else if (!host_done && (ours_done || loop.host_turn())) {
      host_done = loop.ask_host([&] { return host_wait.look(&host_error); });
    }
    if (host_error != MPI_SUCCESS || (ours_done && host_done)) break;
    loop.step();
  }
  return report_all(rank, count, requests, statuses, &host, host_error);
}

// MPI_Testall must leave everything as it is unless all are complete, so the host's part may only
// be tested when ours is; until then the host gets its progress from a call that changes nothing.
int test_all_mixed(Rank& rank, int count, MPI_Request* requests, int* flag, MPI_Status* statuses,
                   int host_count) {
  if (!ours_settled(rank, count, requests)) {
    rank.progress();
    if (!ours_settled(rank, count, requests)) {
      rank.host().poll();
      rank.nothing_found();
      *flag = 0;
      return MPI_SUCCESS;
    }
  } else if (rank.has_pending_work()) {
    rank.progress();
  }
  HostPart host(count, requests, host_count);
  bool done = false;
  const int error = test_host_part(host, statuses, &done);
  *flag = done ? 1 : 0;
  return done ? report_all(rank, count, requests, statuses, &host, error) : MPI_SUCCESS;
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Waitall(int count, MPI_Request* array_of_requests, MPI_Status* array_of_statuses) {
  od::Rank* rank = any_rank();
  if (rank == nullptr || count <= 0 || array_of_requests == nullptr) {
    HostCallScope scope(HostCallKind::kBlocking);
    return OD_HOST(Waitall)(count, array_of_requests, array_of_statuses);
  }
  const Census census = take_census(count, array_of_requests);
  if (census.host == 0 && census.ours != 0) {
    return wait_all_ours(*rank, count, array_of_requests, array_of_statuses);
  }
  if (census.only_host() && (census.host == 0 || host_alone(*rank))) {
    HostCallScope scope(HostCallKind::kBlocking);
    return OD_HOST(Waitall)(count, array_of_requests, array_of_statuses);
  }
  return wait_all_mixed(*rank, count, array_of_requests, array_of_statuses, census.host);
}

int od_MPI_Testall(int count, MPI_Request* array_of_requests, int* flag,
                   MPI_Status* array_of_statuses) {
  od::Rank* rank = any_rank();
  if (rank == nullptr || count <= 0 || array_of_requests == nullptr || flag == nullptr) {
    HostCallScope scope(HostCallKind::kLocal);
    return OD_HOST(Testall)(count, array_of_requests, flag, array_of_statuses);
  }
  const Census census = take_census(count, array_of_requests);
  if (census.only_host() && (census.host == 0 || host_alone(*rank))) {
    HostCallScope scope(HostCallKind::kLocal);
    return OD_HOST(Testall)(count, array_of_requests, flag, array_of_statuses);
  }
  if (census.host != 0) {
    return test_all_mixed(*rank, count, array_of_requests, flag, array_of_statuses, census.host);
  }
  if (!ours_settled(*rank, count, array_of_requests)) {
    rank->progress();
    if (!ours_settled(*rank, count, array_of_requests)) {
      rank->nothing_found();
      *flag = 0;
      return MPI_SUCCESS;
    }
  }
  *flag = 1;
  return report_all(*rank, count, array_of_requests, array_of_statuses, nullptr, MPI_SUCCESS);
}
