// What all completion functions share: reporting one request of ours, and splitting mixed arrays.
//
// Requests of an array are null, ours or the host's. The functions of completion_*.cc drive the two
// kinds together: our progress every round, the host's test functions on a compact copy of its part
// (HostPart), whose handles are put back when something has changed. A persistent request that is
// not active counts as null but keeps its handle.
#ifndef OVERDRIVE_SRC_FACE_COMPLETION_H_
#define OVERDRIVE_SRC_FACE_COMPLETION_H_

#include <cstddef>
#include <memory>

#include "face/calls.h"
#include "face/state.h"
#include "face/status.h"

namespace od::face {

// An array that lives on the stack unless it is long.
template <typename T>
class ShortArray {
 public:
  explicit ShortArray(int size) {
    if (size > kOnStack) heap_.reset(new T[static_cast<std::size_t>(size)]);
    data_ = heap_ ? heap_.get() : stack_;
  }
  T* data() { return data_; }
  T& operator[](int i) { return data_[i]; }

 private:
  static constexpr int kOnStack = 64;
  std::unique_ptr<T[]> heap_;
  T stack_[kOnStack];
  T* data_;
};

inline bool is_inactive(const Request& request) { return request.persistent && !request.active; }

// The first failed request of a call: whose error handler has to know.
class Blame {
 public:
  void note(const Comm* comm, int code) {
    if (code_ != MPI_SUCCESS) return;
    code_ = code;
    comm_ = comm == nullptr || comm->freed ? host::Handle{0} : comm->handle;
  }
  explicit operator bool() const { return code_ != MPI_SUCCESS; }
  int raise() const { return code_ == MPI_SUCCESS ? MPI_SUCCESS : raise_error(comm_, code_); }
  int raise_in_status() const { return raise_error(comm_, MPI_ERR_IN_STATUS); }

 private:
  int code_ = MPI_SUCCESS;
  host::Handle comm_ = 0;
};

// Reports a completed request of ours: status, handle, slot. Returns its error code.
inline int finish(Rank& rank, Request& request, MPI_Request* handle, MPI_Status* status,
                  Blame& blame) {
  const int error = request.status.error;
  if (error != host::kSuccess) [[unlikely]]
    blame.note(request.comm, error);
  write_status(status, request.status);
  const bool persistent = request.persistent;
  rank.release(request);
  if (!persistent) *handle = abi::request_null();
  return error;
}

struct Census {
  int ours = 0;
  int host = 0;
  int twins = 0;  // of the host's, those that the program has under a handle of ours
  // Whether the host can be given the array as it is, as far as that goes.
  bool only_host() const { return ours == 0 && twins == 0; }
};
inline Census take_census(int count, const MPI_Request* requests) {
  Census census;
  for (int i = 0; i < count; ++i) {
    if (started_in_host(requests[i])) [[unlikely]] {
      ++census.twins;
      ++census.host;
    } else if (is_ours(requests[i])) {
      ++census.ours;
    } else if (requests[i] != abi::request_null()) {
      ++census.host;
    }
  }
  return census;
}

// The host's requests of an array, together.
class HostPart {
 public:
  HostPart(int count, const MPI_Request* requests, int host_count)
      : now_(host_count),
        before_(host_count),
        position_(host_count),
        watched_(host_count),
        statuses_(host_count) {
    for (int i = 0; i < count; ++i) {
      if (is_driven(requests[i]) || requests[i] == abi::request_null()) continue;
      now_[size_] = before_[size_] = host_handle(requests[i]);
      watched_[size_] = state.watched.claim(requests[i]);
      position_[size_++] = i;
    }
  }
  int size() const { return size_; }
  MPI_Request* requests() { return now_.data(); }
  MPI_Status* statuses() { return statuses_.data(); }
  // Position of its i-th request in the program's array.
  int position(int i) { return position_[i]; }
  // Gives the program the handles as the host has left them, and does what hung on those that have
  // completed.
  void put_back(Rank& rank, MPI_Request* requests) {
    for (int i = 0; i < size_; ++i) {
      if (now_[i] == before_[i]) continue;
      requests[position_[i]] = now_[i];
      state.watched.completed(rank, watched_[i]);
      watched_[i] = nullptr;
    }
  }
  ~HostPart() {
    for (int i = 0; i < size_; ++i) state.watched.release(watched_[i]);
  }
  HostPart(const HostPart&) = delete;
  HostPart& operator=(const HostPart&) = delete;

 private:
  int size_ = 0;
  ShortArray<MPI_Request> now_;
  ShortArray<MPI_Request> before_;
  ShortArray<int> position_;
  ShortArray<WatchedRequests::Entry*> watched_;  // null for most
  ShortArray<MPI_Status> statuses_;
};

// Whether the host may get an array of its own requests as it is.
inline bool host_alone(Rank& rank) {
  return InHostCall() || (!rank.has_pending_work() && !state.watched.any());
}

inline MPI_Status* status_at(MPI_Status* statuses, int i) {
  return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];
}

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_COMPLETION_H_
