// Probes and matched probes, and the receives of matched messages.
//
// A message handle of ours is a request handle of kind message. On a communicator that spans nodes
// the engine looks at both sides for a wildcard probe, and what it finds is ours even if it came
// through the host.
#include "face/calls.h"

namespace od::face {
namespace {

bool is_our_message(MPI_Message message) { return state.requests.is_ours(abi::to_handle(message)); }

// The matched message behind a handle, or null with an error raised.
Request* our_message(Rank& rank, MPI_Message message) {
  Request* found = rank.request_at(state.requests.index_of(abi::to_handle(message)));
  return found != nullptr && found->kind == RequestKind::message ? found : nullptr;
}

int hand_out_message(Rank& rank, Request* found, MPI_Message* message) {
  const host::Handle handle = state.requests.handle_of(found->index);
  if (handle == 0) [[unlikely]] {
    const Comm* comm = found->comm;
    rank.free_request(*found);
    return raise_error(comm, MPI_ERR_NO_MEM);
  }
  *message = abi::from_handle<MPI_Message>(handle);
  return MPI_SUCCESS;
}

// Not a rank of the communicator: the host's blocking call says so, its non-blocking one need not.
bool is_nobody(MPI_Comm comm, int source) {
  const Comm* const found = find_comm(comm);
  return found != nullptr && source != MPI_ANY_SOURCE &&
         static_cast<unsigned>(source) >= static_cast<unsigned>(found->peer_count);
}

// Blocks in the host, or asks it again and again while we have work of our own.
template <typename Once>
int until_found(Rank* rank, const char* where, Once&& once) {
  Rank::WaitLoop loop(*rank, where, true);
  for (;;) {
    int flag = 0;
    int error;
    {
      HostCallScope scope(HostCallKind::kLocal);
      error = once(&flag);
    }
    if (error != MPI_SUCCESS || flag != 0) return error;
    loop.step();
  }
}

template <typename Int>
int mrecv(void* buf, Int count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
  Rank* rank = any_rank();
  if (rank != nullptr && message != nullptr && is_our_message(*message)) {
    Request* matched = our_message(*rank, *message);
    if (matched == nullptr) return raise_error(host::Handle{0}, MPI_ERR_REQUEST);
    const Comm* comm = matched->comm;
    if (count < 0) return raise_error(comm, MPI_ERR_COUNT);
    const p2p::LayoutRef* layout = layout_of(abi::to_handle(type));
    if (layout == nullptr) return raise_error(comm, MPI_ERR_TYPE);
    if (null_data(buf, count, **layout)) return raise_error(comm, MPI_ERR_BUFFER);
    layout = where_it_lies(buf, count, type, layout);
    host::Status result;
    const int error = rank->mrecv(buf, count, *layout, *matched, &result);
    *message = abi::message_null();
    write_status(status, result);
    return error == host::kSuccess ? MPI_SUCCESS : raise_error(comm, error);
  }
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST_SIZED(Mrecv)(buf, count, type, message, status);
}

template <typename Int>
int imrecv(void* buf, Int count, MPI_Datatype type, MPI_Message* message, MPI_Request* request) {
  Rank* rank = any_rank();
  if (rank != nullptr && message != nullptr && request != nullptr && is_our_message(*message)) {
    Request* matched = our_message(*rank, *message);
    if (matched == nullptr) return raise_error(host::Handle{0}, MPI_ERR_REQUEST);
    Comm* comm = matched->comm;
    if (count < 0) return raise_error(comm, MPI_ERR_COUNT);
    const p2p::LayoutRef* layout = layout_of(abi::to_handle(type));
    if (layout == nullptr) return raise_error(comm, MPI_ERR_TYPE);
    if (null_data(buf, count, **layout)) return raise_error(comm, MPI_ERR_BUFFER);
    layout = where_it_lies(buf, count, type, layout);
    Request* started = nullptr;
    const int error = rank->imrecv(buf, count, *layout, *matched, &started);
    *message = abi::message_null();
    return hand_out(*rank, error, started, *comm, request);
  }
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST_SIZED(Imrecv)(buf, count, type, message, request);
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status* status) {
  od::Rank* rank = serving();
  if (rank != nullptr) {
    if (od::Comm* found = our_source(comm, source, tag)) {
      od::host::Status result;
      rank->probe(normal_source(source), normal_tag(tag), *found, &result);
      write_status(status, result);
      return MPI_SUCCESS;
    }
    if (rank->has_pending_work() && !is_nobody(comm, source)) {
      return until_found(rank, "MPI_Probe", [&](int* flag) {
        return OD_HOST(Iprobe)(source, tag, comm, flag, status);
      });
    }
  }
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST(Probe)(source, tag, comm, status);
}

int od_MPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  od::Rank* rank = serving();
  if (rank != nullptr) {
    od::Comm* found = flag != nullptr ? our_source(comm, source, tag) : nullptr;
    if (found != nullptr) {
      od::host::Status result;
      const bool there = rank->iprobe(normal_source(source), normal_tag(tag), *found, &result);
      if (there) write_status(status, result);
      if (!there) rank->nothing_found(found, normal_source(source));
      *flag = there ? 1 : 0;
      return MPI_SUCCESS;
    }
    if (rank->has_pending_work()) rank->progress();
  }
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST(Iprobe)(source, tag, comm, flag, status);
}

int od_MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
  od::Rank* rank = serving();
  if (rank != nullptr) {
    od::Comm* found = message != nullptr ? our_source(comm, source, tag) : nullptr;
    if (found != nullptr) {
      od::host::Status result;
      od::Request* matched = nullptr;
      rank->mprobe(normal_source(source), normal_tag(tag), *found, &matched, &result);
      write_status(status, result);
      return hand_out_message(*rank, matched, message);
    }
    if (rank->has_pending_work() && !is_nobody(comm, source)) {
      return until_found(rank, "MPI_Mprobe", [&](int* flag) {
        return OD_HOST(Improbe)(source, tag, comm, flag, message, status);
      });
    }
  }
  HostCallScope scope(HostCallKind::kBlocking);
  return OD_HOST(Mprobe)(source, tag, comm, message, status);
}

int od_MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message,
                   MPI_Status* status) {
  od::Rank* rank = serving();
  if (rank != nullptr) {
    od::Comm* found =
        flag != nullptr && message != nullptr ? our_source(comm, source, tag) : nullptr;
    if (found != nullptr) {
      od::host::Status result;
      od::Request* matched = nullptr;
      if (!rank->improbe(normal_source(source), normal_tag(tag), *found, &matched, &result)) {
        rank->nothing_found(found, normal_source(source));
        *flag = 0;
        return MPI_SUCCESS;
      }
      *flag = 1;
      write_status(status, result);
      return hand_out_message(*rank, matched, message);
    }
    if (rank->has_pending_work()) rank->progress();
  }
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST(Improbe)(source, tag, comm, flag, message, status);
}

int od_MPI_Mrecv(void* buf, int count, MPI_Datatype datatype, MPI_Message* message,
                 MPI_Status* status) {
  return mrecv(buf, count, datatype, message, status);
}
int od_MPI_Mrecv_c(void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* message,
                   MPI_Status* status) {
  return mrecv(buf, count, datatype, message, status);
}
int od_MPI_Imrecv(void* buf, int count, MPI_Datatype datatype, MPI_Message* message,
                  MPI_Request* request) {
  return imrecv(buf, count, datatype, message, request);
}
int od_MPI_Imrecv_c(void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* message,
                    MPI_Request* request) {
  return imrecv(buf, count, datatype, message, request);
}
