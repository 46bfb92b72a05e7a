// Decides for one point-to-point call whether it is ours, and hands requests to the program.
//
// A call is ours only if everything about it is known and valid: a served communicator, a local
// peer (or any source where local peers exist), a tag in range, a datatype we know, a plausible
// buffer. Everything else goes to the host, which serves remote peers and MPI_PROC_NULL and raises
// its own error for what is wrong. An error must be noticed before anything has been sent, which is
// why all checks stand here and none in the engine.
#ifndef OVERDRIVE_SRC_FACE_CALLS_H_
#define OVERDRIVE_SRC_FACE_CALLS_H_

#include "face/datatypes.h"
#include "face/device_buffers.h"
#include "face/state.h"
#include "face/status.h"

namespace od::face {

// Whether `buf` cannot be the address of data: a null pointer with a type that starts there. With
// absolute displacements a null pointer is MPI_BOTTOM.
inline bool null_data(const void* buf, std::int64_t count, const p2p::Layout& layout) {
  if (buf != nullptr || count == 0 || layout.size == 0) [[likely]]
    return false;
  switch (layout.shape) {
    case p2p::Shape::contiguous:
    case p2p::Shape::strided:
      return layout.lower == 0;
    case p2p::Shape::segments:
      return !layout.segments.empty() && layout.segments.front().offset == 0;
    case p2p::Shape::opaque:
      return false;
  }
  return false;
}

// The layout for a buffer of the program, or null if the host has to look at it.
inline const p2p::LayoutRef* usable_layout(const void* buf, std::int64_t count, MPI_Datatype type) {
  if (count < 0) [[unlikely]]
    return nullptr;
  const p2p::LayoutRef* layout = layout_of(abi::to_handle(type));
  if (layout == nullptr || null_data(buf, count, **layout)) [[unlikely]]
    return nullptr;
  return where_it_lies(buf, count, type, layout);
}

// The layout for a message without elements whose datatype is none, or not committed, if the host
// lets that pass: then the other side is ours and waits for it.
[[gnu::cold, gnu::noinline]] const p2p::LayoutRef* layout_of_nothing(MPI_Datatype type,
                                                                     bool receives);

// The communicator if a message to `dest` is ours, else null.
inline Comm* our_destination(MPI_Comm comm, int dest, int tag) {
  Comm* found = find_comm(comm);
  if (found == nullptr) return nullptr;
  if (static_cast<unsigned>(dest) >= static_cast<unsigned>(found->peer_count)) return nullptr;
  if (static_cast<unsigned>(tag) > static_cast<unsigned>(state.tag_ub)) [[unlikely]]
    return nullptr;
  return found->ours(dest) ? found : nullptr;
}

// The communicator if a receive or probe from `source` (of the ABI) is ours, else null.
inline Comm* our_source(MPI_Comm comm, int source, int tag) {
  Comm* found = find_comm(comm);
  if (found == nullptr) return nullptr;
  if (static_cast<unsigned>(tag) > static_cast<unsigned>(state.tag_ub) && tag != MPI_ANY_TAG)
      [[unlikely]] {
    return nullptr;
  }
  if (source == MPI_ANY_SOURCE) return found->any_local ? found : nullptr;
  if (static_cast<unsigned>(source) >= static_cast<unsigned>(found->peer_count)) return nullptr;
  // While a wildcard receive that the host may serve is pending, nothing may overtake it.
  return found->ours(source) || found->host_ordered() ? found : nullptr;
}

// The communicator if `source` (of the ABI) is a rank of another node in one that we serve in part:
// then receives of ours, from any source, may be older than one from there.
inline Comm* comm_of_other_node(MPI_Comm comm, int source, int tag) {
  Comm* found = find_comm(comm);
  if (found == nullptr || !found->any_local || found->all_local) return nullptr;
  if (static_cast<unsigned>(source) >= static_cast<unsigned>(found->peer_count)) return nullptr;
  const bool valid =
      tag == MPI_ANY_TAG || static_cast<unsigned>(tag) <= static_cast<unsigned>(state.tag_ub);
  return valid && !found->ours(source) ? found : nullptr;
}

// What a send or receive of ours needs; empty when the call belongs to the host.
struct Ours {
  Comm* comm = nullptr;
  const p2p::LayoutRef* layout = nullptr;
  explicit operator bool() const { return layout != nullptr; }
};

// Both are part of each entry point: their results stay in registers.
[[gnu::always_inline]] inline Ours our_send(const void* buf, std::int64_t count, MPI_Datatype type,
                                            int dest, int tag, MPI_Comm comm) {
  Comm* found = our_destination(comm, dest, tag);
  if (found == nullptr) return {};
  const p2p::LayoutRef* layout = usable_layout(buf, count, type);
  if (layout == nullptr && count == 0) [[unlikely]]
    layout = layout_of_nothing(type, false);
  return {found, layout};
}

[[gnu::always_inline]] inline Ours our_receive(const void* buf, std::int64_t count,
                                               MPI_Datatype type, int source, int tag,
                                               MPI_Comm comm) {
  Comm* found = our_source(comm, source, tag);
  if (found == nullptr) return {};
  const p2p::LayoutRef* layout = usable_layout(buf, count, type);
  if (layout == nullptr && count == 0) [[unlikely]]
    layout = layout_of_nothing(type, true);
  return {found, layout};
}

// Counts a message that goes to the host; messages to nobody are none.
inline void note_host_send(const Rank* rank, MPI_Comm comm, int dest) {
  if (rank == nullptr || dest == MPI_PROC_NULL) return;
  const Comm* found = find_comm(comm);
  const bool local = our_destination(comm, dest, 0) != nullptr;
  state.fallbacks.count(Fallbacks::Direction::send, found, local);
}
inline void note_host_receive(const Rank* rank, MPI_Comm comm, int source) {
  if (rank == nullptr || source == MPI_PROC_NULL) return;
  const Comm* found = find_comm(comm);
  const bool local = our_source(comm, source, 0) != nullptr;
  state.fallbacks.count(Fallbacks::Direction::receive, found, local);
}

// The host's non-blocking send of a mode.
template <SendMode kMode, typename Int>
int host_isend(const void* buf, Int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
               MPI_Request* request) {
  HostCallScope scope(HostCallKind::kMessageStart);
  if constexpr (kMode == SendMode::buffered) {
    return OD_HOST_SIZED(Ibsend)(buf, count, type, dest, tag, comm, request);
  } else if constexpr (kMode == SendMode::synchronous) {
    return OD_HOST_SIZED(Issend)(buf, count, type, dest, tag, comm, request);
  } else if constexpr (kMode == SendMode::ready) {
    return OD_HOST_SIZED(Irsend)(buf, count, type, dest, tag, comm, request);
  } else {
    return OD_HOST_SIZED(Isend)(buf, count, type, dest, tag, comm, request);
  }
}

// Complete, with everything the completing thread wrote visible.
inline bool is_complete(const Request& request) { return request.complete; }

// Gives the program the handle of a started request. Without handles left (address space limits)
// the operation cannot be named: an error, as when memory is exhausted.
inline int hand_out(Rank& rank, int error, Request* started, Comm& comm, MPI_Request* request) {
  if (error != host::kSuccess) [[unlikely]]
    return raise_error(&comm, error);
  const host::Handle handle = state.requests.handle_of(started->index);
  if (handle == 0) [[unlikely]] {
    rank.free_request(*started);
    return raise_error(&comm, MPI_ERR_NO_MEM);
  }
  *request = abi::from_handle<MPI_Request>(handle);
  return MPI_SUCCESS;
}

// Whether a buffered send may go ahead by what the program has attached.
inline bool bsend_fits(const Ours& ours, std::int64_t count) {
  return state.bsend.has_room(ours.comm->handle, count * (*ours.layout)->size);
}

// Waits for a host request and keeps our own progress going while there is reason to.
int wait_for_host(Rank& rank, MPI_Request* request, MPI_Status* status, const char* where);

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_CALLS_H_
