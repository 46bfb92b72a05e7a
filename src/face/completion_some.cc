// MPI_Waitsome and MPI_Testsome over arrays of our requests, the host's, or both.
#include "face/completion.h"

namespace od::face {
namespace {

// Collects what a call reports: positions, statuses and errors of completed requests.
class Collector {
 public:
  Collector(Rank& rank, int count, MPI_Request* requests, int* indices, MPI_Status* statuses,
            int host_count)
      : rank_(rank),
        count_(count),
        requests_(requests),
        indices_(indices),
        statuses_(statuses),
        host_(count, requests, host_count),
        host_active_(host_count != 0),
        codes_(count) {}

  // Takes every completed request of ours.
  void sweep_ours() {
    ours_active_ = false;
    for (int i = 0; i < count_; ++i) {
      if (!is_driven(requests_[i])) continue;
      Request* request = our_request(rank_, requests_[i]);
      if (request == nullptr) [[unlikely]] {
        blame_.note(nullptr, MPI_ERR_REQUEST);
        add(i, MPI_ERR_REQUEST);
        continue;
      }
      if (is_inactive(*request)) continue;
      ours_active_ = true;
      if (!is_complete(*request)) continue;
      const int error =
          finish(rank_, *request, &requests_[i], status_at(statuses_, found_), blame_);
      add(i, error);
    }
  }

  void sweep_host() {
    ShortArray<int> at(host_.size());
    int taken = 0;
    {
      HostCallScope scope(HostCallKind::kLocal);
      host_error_ = OD_HOST(Testsome)(
          host_.size(), host_.requests(), &taken, at.data(),
          statuses_ == MPI_STATUSES_IGNORE ? MPI_STATUSES_IGNORE : host_.statuses());
    }
    if (host_error_ != MPI_SUCCESS && host_error_ != MPI_ERR_IN_STATUS) return;
    if (taken == MPI_UNDEFINED) {
      host_active_ = false;
      return;
    }
    for (int k = 0; k < taken; ++k) {
      int code = MPI_SUCCESS;
      if (statuses_ != MPI_STATUSES_IGNORE) {
        const MPI_Status& theirs = host_.statuses()[k];
        copy_status(statuses_[found_], theirs);
        if (host_error_ == MPI_ERR_IN_STATUS) code = theirs.MPI_ERROR;
      }
      add(host_.position(at[k]), code);
    }
    host_.put_back(rank_, requests_);
  }

  bool host_active() const { return host_active_; }
  bool ours_active() const { return ours_active_; }
  bool done() const { return found_ != 0 || host_error_ != MPI_SUCCESS || none_active(); }
  bool none_active() const { return found_ == 0 && !ours_active_ && !host_active_; }

  int result(int* outcount) {
    if (host_error_ != MPI_SUCCESS && host_error_ != MPI_ERR_IN_STATUS) return host_error_;
    *outcount = none_active() ? MPI_UNDEFINED : found_;
    const bool failed = blame_ || host_error_ == MPI_ERR_IN_STATUS;
    if (!failed) return MPI_SUCCESS;
    if (statuses_ != MPI_STATUSES_IGNORE) {
      for (int k = 0; k < found_; ++k) statuses_[k].MPI_ERROR = codes_[k];
    }
    // The host has called an error handler for its own.
    return host_error_ != MPI_SUCCESS ? host_error_ : blame_.raise_in_status();
  }

 private:
  void add(int position, int code) {
    indices_[found_] = position;
    codes_[found_] = code;
    ++found_;
  }

  Rank& rank_;
  int count_;
  MPI_Request* requests_;
  int* indices_;
  MPI_Status* statuses_;
  HostPart host_;
  bool host_active_;
  bool ours_active_ = false;
  int found_ = 0;
  int host_error_ = MPI_SUCCESS;
  ShortArray<int> codes_;
  Blame blame_;
};

int wait_some(Rank& rank, int count, MPI_Request* requests, int* outcount, int* indices,
              MPI_Status* statuses, int host_count) {
  Collector collector(rank, count, requests, indices, statuses, host_count);
  Rank::WaitLoop loop(rank, "MPI_Waitsome", host_count != 0);
  for (;;) {
    collector.sweep_ours();
    if (collector.host_active() && (!collector.ours_active() || loop.host_turn())) {
      loop.ask_host([&] { collector.sweep_host(); });
    }
    if (collector.done()) return collector.result(outcount);
    loop.step();
  }
}

int test_some(Rank& rank, int count, MPI_Request* requests, int* outcount, int* indices,
              MPI_Status* statuses, int host_count) {
  rank.progress();
  Collector collector(rank, count, requests, indices, statuses, host_count);
  collector.sweep_ours();
  if (collector.host_active()) collector.sweep_host();
  if (!collector.done()) rank.nothing_found();
  return collector.result(outcount);
}

// Whether the call is for us, or the host gets it as it is. With `*host_count` of its requests.
bool served_here(Rank* rank, int count, MPI_Request* requests, const int* outcount,
                 const int* indices, int* host_count) {
  if (rank == nullptr || count <= 0 || requests == nullptr || outcount == nullptr ||
      indices == nullptr) {
    return false;
  }
  const Census census = take_census(count, requests);
  *host_count = census.host;
  return !census.only_host() || (census.host != 0 && !host_alone(*rank));
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Waitsome(int incount, MPI_Request* array_of_requests, int* outcount,
                    int* array_of_indices, MPI_Status* array_of_statuses) {
  od::Rank* rank = any_rank();
  int host_count = 0;
  if (served_here(rank, incount, array_of_requests, outcount, array_of_indices, &host_count)) {
    return wait_some(*rank, incount, array_of_requests, outcount, array_of_indices,
                     array_of_statuses, host_count);
  }
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST(Waitsome)(incount, array_of_requests, outcount, array_of_indices,
                           array_of_statuses);
}

int od_MPI_Testsome(int incount, MPI_Request* array_of_requests, int* outcount,
                    int* array_of_indices, MPI_Status* array_of_statuses) {
  od::Rank* rank = any_rank();
  int host_count = 0;
  if (served_here(rank, incount, array_of_requests, outcount, array_of_indices, &host_count)) {
    return test_some(*rank, incount, array_of_requests, outcount, array_of_indices,
                     array_of_statuses, host_count);
  }
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST(Testsome)(incount, array_of_requests, outcount, array_of_indices,
                           array_of_statuses);
}
