// How the entry points of collectives decide whose call it is, and their blocking, non-blocking and
// persistent forms.
//
// Unlike a message, a collective call must be served by the same side on all ranks. Whether it is
// ours may therefore depend only on what is equal everywhere: the engine decides by that
// (Rank::collective), and this file adds nothing for valid calls on a communicator that is served.
// Only calls that the host would refuse go to the host from one rank alone, so that it raises its
// error: everything that is wrong is noticed here, before the engine is asked. Arguments that are
// not significant at this rank are not looked at.
#ifndef OVERDRIVE_SRC_FACE_COLLECTIVES_H_
#define OVERDRIVE_SRC_FACE_COLLECTIVES_H_

#include <cstdint>
#include <utility>

#include "coll/run/call.h"
#include "face/calls.h"
#include "face/reductions.h"

namespace od::face {

using coll::Collective;

// The communicator if collectives on it may be ours.
inline Comm* collective_comm(MPI_Comm comm) {
  Comm* found = find_comm(comm);
  return found != nullptr && !found->inter ? found : nullptr;
}

inline bool valid_root(const Comm& comm, int root) {
  return static_cast<unsigned>(root) < static_cast<unsigned>(comm.size);
}

// --- filling in a call; false: the host has to look at it

// A call, and in which form the program makes it.
struct FaceCall : CollectiveCall {
  bool later = false;  // not blocking
};

// The layout of a buffer that no valid call has, if the host lets it pass: one at a null pointer,
// or without elements and with a datatype that is none. Null: the host has to raise its error.
[[gnu::cold, gnu::noinline]] const p2p::LayoutRef* odd_layout(const FaceCall& call, bool receives,
                                                              const void* buf, std::int64_t count,
                                                              MPI_Datatype type);

// The layout for elements of a buffer that may not be left out.
inline bool set_layout(p2p::LayoutRef& layout, const void* buf, std::int64_t count,
                       MPI_Datatype type) {
  if (buf == MPI_IN_PLACE) [[unlikely]]
    return false;
  const p2p::LayoutRef* usable = usable_layout(buf, count, type);
  if (usable == nullptr) [[unlikely]]
    return false;
  layout = *usable;
  return true;
}

inline bool set_odd_layout(const FaceCall& call, bool receives, p2p::LayoutRef& layout,
                           const void* buf, std::int64_t count, MPI_Datatype type) {
  const p2p::LayoutRef* odd = odd_layout(call, receives, buf, count, type);
  if (odd != nullptr) layout = *odd;
  return odd != nullptr;
}

inline bool set_send(FaceCall& call, const void* buf, std::int64_t count, MPI_Datatype type) {
  call.send = buf;
  call.send_count = count;
  return set_layout(call.send_type, buf, count, type) ||
         set_odd_layout(call, false, call.send_type, buf, count, type);
}

inline bool set_recv(FaceCall& call, void* buf, std::int64_t count, MPI_Datatype type) {
  call.recv = buf;
  call.recv_count = count;
  return set_layout(call.recv_type, buf, count, type) ||
         set_odd_layout(call, true, call.recv_type, buf, count, type);
}

inline void take_in_place(CollectiveCall& call) {
  call.in_place = true;
  if (coll::info(call.collective).scatters()) {
    call.recv = nullptr;
    call.recv_count = 0;
    call.recv_type = {};
    return;
  }
  call.send = nullptr;
  call.send_count = 0;
  call.send_type = {};
  call.send_blocks.clear();
  call.send_types.clear();
}

// Input and output are the same memory, described alike. That is forbidden. Some hosts refuse it;
// others do what MPI_IN_PLACE would, and programs that run on those must go on running.
[[gnu::cold, gnu::noinline]] bool settle_aliasing(CollectiveCall& call);

// The buffer that a rank with both may leave out, after the other one has been set: set() fills it
// in, aliased() tells whether it is the same memory as the other, described alike.
template <typename Set, typename Aliased>
inline bool set_or_leave_out(CollectiveCall& call, const void* buf, Set&& set, Aliased&& aliased) {
  if (buf == MPI_IN_PLACE) {
    call.in_place = true;
    return true;
  }
  if (!set()) return false;
  return !aliased() || settle_aliasing(call);
}

// Whether a rank's block of the larger buffer is the smaller buffer itself.
inline bool same_block(const void* small, std::int64_t count, MPI_Datatype small_type,
                       const void* large, const BlockPlace& block, MPI_Datatype large_type) {
  return count == block.count && count != 0 && small_type == large_type &&
         small == static_cast<const char*>(large) + block.offset_bytes;
}

// --- the three forms

// The host's turn in a measurement.
template <typename HostCall>
[[gnu::noinline]] int serve_measured(Rank& rank, Comm& comm, bool together, HostCall&& host_call) {
  int result = MPI_SUCCESS;
  {
    const Rank::HostEntry entry(together ? &rank : nullptr, &comm);
    HostCallScope scope(HostCallKind::kCollective);
    result = host_call();
  }
  const int error = rank.host_turn_ended(comm);
  if (result != MPI_SUCCESS || error == host::kSuccess) return result;
  return raise_error(&comm, error);
}

template <typename Fill, typename HostCall>
inline int serve(MPI_Comm comm, Collective collective, Fill&& fill, HostCall&& host_call) {
  // Others may return before all have come, at least from some calls.
  const bool together = collective == Collective::kBarrier;
  if (Rank* rank = serving()) {
    if (Comm* served = collective_comm(comm)) {
      FaceCall call;
      call.collective = collective;
      if (fill(*served, call)) [[likely]] {
        bool done = false;
        const int error = rank->collective(call, *served, &done);
        if (done) return error == host::kSuccess ? MPI_SUCCESS : raise_error(served, error);
        if (rank->in_host_turn(*served)) {
          return serve_measured(*rank, *served, together, host_call);
        }
      }
    }
  }
  const HostEntry entry(comm, together);
  HostCallScope scope(HostCallKind::kCollective);
  return host_call();
}

enum class Later : unsigned char { started, persistent };

template <Later kLater, typename Fill, typename HostCall>
inline int serve_later(MPI_Comm comm, MPI_Request* request, Collective collective, Fill&& fill,
                       HostCall&& host_call) {
  if (Rank* rank = serving(); rank != nullptr && request != nullptr) {
    if (Comm* served = collective_comm(comm)) {
      FaceCall call;
      call.collective = collective;
      call.later = true;
      if (fill(*served, call)) [[likely]] {
        bool done = false;
        Request* made = nullptr;
        const int error = kLater == Later::started
                              ? rank->icollective(std::move(call), *served, &made, &done)
                              : rank->collective_init(std::move(call), *served, &made, &done);
        if (done) return hand_out(*rank, error, made, *served, request);
      }
    }
  }
  HostCallScope scope(HostCallKind::kCollectiveStart);
  return host_call();
}

}  // namespace od::face

// Defines the entry points of one collective in one size of counts. `parameters` is a macro over
// the types of counts and displacements that gives the parameters before the communicator,
// `arguments` their names in parentheses; fill_<fill>(comm, call, arguments...) fills the call in.
#define OD_LIST(...) __VA_ARGS__
#define OD_FILL(fill, arguments)                         \
  [&](od::Comm& served, od::face::FaceCall& call) {      \
    return fill_##fill(served, call, OD_LIST arguments); \
  }
#define OD_COLLECTIVE_SIZED(Name, IName, kind, fill, parameters, arguments, suffix, Int, Displ) \
  int od_MPI_##Name##suffix(parameters(Int, Displ), MPI_Comm comm) {                            \
    using namespace od::face;                                                                   \
    return serve(comm, Collective::kind, OD_FILL(fill, arguments),                              \
                 [&] { return OD_HOST(Name##suffix)(OD_LIST arguments, comm); });               \
  }                                                                                             \
  int od_MPI_##IName##suffix(parameters(Int, Displ), MPI_Comm comm, MPI_Request* request) {     \
    using namespace od::face;                                                                   \
    return serve_later<Later::started>(                                                         \
        comm, request, Collective::kind, OD_FILL(fill, arguments),                              \
        [&] { return OD_HOST(IName##suffix)(OD_LIST arguments, comm, request); });              \
  }                                                                                             \
  int od_MPI_##Name##_init##suffix(parameters(Int, Displ), MPI_Comm comm, MPI_Info info,        \
                                   MPI_Request* request) {                                      \
    using namespace od::face;                                                                   \
    return serve_later<Later::persistent>(                                                      \
        comm, request, Collective::kind, OD_FILL(fill, arguments),                              \
        [&] { return OD_HOST(Name##_init##suffix)(OD_LIST arguments, comm, info, request); });  \
  }
#define OD_COLLECTIVE(Name, IName, kind, fill, parameters, arguments)             \
  OD_COLLECTIVE_SIZED(Name, IName, kind, fill, parameters, arguments, , int, int) \
  OD_COLLECTIVE_SIZED(Name, IName, kind, fill, parameters, arguments, _c, MPI_Count, MPI_Aint)

#endif  // OVERDRIVE_SRC_FACE_COLLECTIVES_H_
