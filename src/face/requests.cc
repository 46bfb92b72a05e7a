// MPI_Start, Startall, Request_free, Cancel, and the conversions of request and message handles.
#include <algorithm>

#include "face/completion.h"

namespace od::face {
namespace {

int start_host(MPI_Request* request) {
  HostCallScope scope(HostCallKind::kMessageStart);
  return OD_HOST(Start)(request);
}

// Starts one persistent request of ours.
int start_ours(Rank& rank, MPI_Request handle) {
  Request* request = our_request(rank, handle);
  if (request != nullptr && request->host_twin != 0 && !request->active) {
    // Behind older receives of ours that may get the message, or where a probe may have taken it.
    request->in_host = !request->comm->host_ordered();
    if (request->in_host) {
      MPI_Request twin = twin_of(*request);
      return start_host(&twin);
    }
  }
  if (request == nullptr || !request->persistent || request->active) {
    return raise_error(request != nullptr ? request->comm : nullptr, MPI_ERR_REQUEST);
  }
  if (request->kind == RequestKind::send && request->mode == SendMode::buffered &&
      !state.bsend.has_room(request->comm->handle, request->count * request->layout->size)) {
    return raise_error(request->comm, MPI_ERR_BUFFER);
  }
  const int error = rank.start(*request);
  return error == host::kSuccess ? MPI_SUCCESS : raise_error(request->comm, error);
}

// Whether a handle that becomes an integer is one of ours; the integer then is the same in C's and
// Fortran's numbering. Hosts with integer handles use the handle itself.
template <typename T>
bool to_integer(T handle, int* value) {
  const host::Handle wide = abi::to_handle(handle);
  if (!state.requests.is_ours(wide)) return false;
  *value = abi::kPointerHandles ? state.requests.fortran_of(state.requests.index_of(wide))
                                : static_cast<int>(wide);
  return true;
}

template <typename T>
bool from_integer(int value, T* handle) {
  if constexpr (abi::kPointerHandles) {
    if (!state.requests.is_our_fortran(value)) return false;
    const auto index = static_cast<std::uint32_t>(value - RequestHandles::kFirstFortran);
    *handle = abi::from_handle<T>(state.requests.handle_of(index));
    return true;
  } else {
    const auto wide = static_cast<host::Handle>(static_cast<std::uint32_t>(value));
    if (!state.requests.is_ours(wide)) return false;
    *handle = abi::from_handle<T>(wide);
    return true;
  }
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Start(MPI_Request* request) {
  if (request == nullptr || !is_ours(*request)) return start_host(request);
  od::Rank* rank = any_rank();
  return rank != nullptr ? start_ours(*rank, *request) : MPI_ERR_REQUEST;
}

int od_MPI_Startall(int count, MPI_Request* array_of_requests) {
  od::Rank* rank = any_rank();
  if (rank == nullptr || count <= 0 || array_of_requests == nullptr ||
      std::none_of(array_of_requests, array_of_requests + count, is_ours)) {
    HostCallScope scope(HostCallKind::kMessageStart);
    return OD_HOST(Startall)(count, array_of_requests);
  }
  for (int i = 0; i < count; ++i) {
    const int error = is_ours(array_of_requests[i]) ? start_ours(*rank, array_of_requests[i])
                                                    : start_host(&array_of_requests[i]);
    if (error != MPI_SUCCESS) return error;
  }
  return MPI_SUCCESS;
}

int od_MPI_Request_free(MPI_Request* request) {
  if (request == nullptr || !is_ours(*request)) {
    if (request != nullptr && serving() != nullptr && state.watched.adopt(*request)) [[unlikely]] {
      *request = abi::request_null();
      return MPI_SUCCESS;
    }
    HostCallScope scope(HostCallKind::kLocal);
    return OD_HOST(Request_free)(request);
  }
  od::Rank* rank = any_rank();
  od::Request* ours = rank != nullptr ? our_request(*rank, *request) : nullptr;
  if (ours == nullptr) return raise_error(od::host::Handle{0}, MPI_ERR_REQUEST);
  if (ours->kind == od::RequestKind::collective && !ours->persistent) {
    return raise_error(ours->comm, MPI_ERR_REQUEST);  // has to be completed
  }
  if (ours->host_twin != 0) {
    MPI_Request twin = twin_of(*ours);
    HostCallScope scope(HostCallKind::kLocal);
    const int error = OD_HOST(Request_free)(&twin);
    if (error != MPI_SUCCESS) return error;
    ours->in_host = false;
    state.twins.fetch_sub(1, std::memory_order_relaxed);
  }
  rank->free_request(*ours);
  *request = abi::request_null();
  return MPI_SUCCESS;
}

int od_MPI_Cancel(MPI_Request* request) {
  if (request == nullptr || !is_ours(*request)) {
    HostCallScope scope(HostCallKind::kLocal);
    return OD_HOST(Cancel)(request);
  }
  od::Rank* rank = any_rank();
  od::Request* ours = rank != nullptr ? our_request(*rank, *request) : nullptr;
  if (ours == nullptr) return raise_error(od::host::Handle{0}, MPI_ERR_REQUEST);
  if (ours->kind == od::RequestKind::collective) return raise_error(ours->comm, MPI_ERR_REQUEST);
  if (ours->in_host) {
    MPI_Request twin = twin_of(*ours);
    HostCallScope scope(HostCallKind::kLocal);
    return OD_HOST(Cancel)(&twin);
  }
  // Cancelling an inactive request is an error of the program that hosts let pass.
  if (!is_inactive(*ours)) rank->cancel(*ours);
  return MPI_SUCCESS;
}

od::face::abi::Fint od_MPI_Request_c2f(MPI_Request request) {
  int value;
  return to_integer(request, &value) ? value : OD_HOST(Request_c2f)(request);
}
MPI_Request od_MPI_Request_f2c(od::face::abi::Fint request) {
  MPI_Request handle;
  return from_integer(request, &handle) ? handle : OD_HOST(Request_f2c)(request);
}
int od_MPI_Request_toint(MPI_Request request) {
  int value;
  return to_integer(request, &value) ? value : OD_HOST(Request_toint)(request);
}
MPI_Request od_MPI_Request_fromint(int request) {
  MPI_Request handle;
  return from_integer(request, &handle) ? handle : OD_HOST(Request_fromint)(request);
}
od::face::abi::Fint od_MPI_Message_c2f(MPI_Message message) {
  int value;
  return to_integer(message, &value) ? value : OD_HOST(Message_c2f)(message);
}
MPI_Message od_MPI_Message_f2c(od::face::abi::Fint message) {
  MPI_Message handle;
  return from_integer(message, &handle) ? handle : OD_HOST(Message_f2c)(message);
}
int od_MPI_Message_toint(MPI_Message message) {
  int value;
  return to_integer(message, &value) ? value : OD_HOST(Message_toint)(message);
}
MPI_Message od_MPI_Message_fromint(int message) {
  MPI_Message handle;
  return from_integer(message, &handle) ? handle : OD_HOST(Message_fromint)(message);
}
