// What the face of a process knows: the rank it serves and the tables that translate handles.
//
// A face stands between one program and one host library, so there is exactly one State per
// process: the entry points of a C interface have nowhere else to look. Everything that belongs to
// the rank itself is in Rank. State::rank is set by MPI_Init when there is something to serve, and
// cleared by MPI_Finalize and in forked children; while it is null every entry point hands its call
// to the host.
#ifndef OVERDRIVE_SRC_FACE_STATE_H_
#define OVERDRIVE_SRC_FACE_STATE_H_

#include <atomic>
#include <memory>

#include "config/settings.h"
#include "engine/engine.h"
#include "face/bsend_ledger.h"
#include "face/comm_table.h"
#include "face/deferred_frees.h"
#include "face/detached_sends.h"
#include "face/face_mpi.h"
#include "face/fallbacks.h"
#include "face/host_opinion.h"
#include "face/pending_idups.h"
#include "face/reductions.h"
#include "face/request_handles.h"
#include "face/watched_requests.h"
#include "node/roll_call.h"

namespace od::face {

struct State {
  // Relaxed accesses: set before the program has more than its main thread inside MPI.
  std::atomic<Rank*> rank{nullptr};
  int tag_ub = 0;
  // What the program has asked for where the host was initialised for more; -1: it was not.
  int own_thread_level = -1;

  CommTable comms;
  RequestHandles requests;
  BsendLedger bsend;
  WatchedRequests watched;
  PendingIdups idups;
  DetachedSends detached;
  DeferredFrees deferred;
  // Persistent requests of ours with a twin in the host. Relaxed: a thread that has such a request
  // has got it after it was counted.
  std::atomic<int> twins{0};
  Reductions reductions;
  HostOpinion opinion;
  Fallbacks fallbacks;

  std::unique_ptr<Rank>
      owned_rank;  // never destroyed before the process ends: peers read its memory
  host::HostTable host;
  config::LoadResult loaded;
  const od_loader_info* loader = nullptr;
  // From before the host's MPI_Init until all ranks have been found or missed. A rank that stays
  // passive may keep its roll call.
  std::unique_ptr<node::Board> board;
  std::unique_ptr<node::RollCall> roll_call;
  std::unique_ptr<node::Star> star;  // while joining, where the whole job is on this node
  // What HostTable::poll tests (host_binding.cc).
  MPI_Request poll_request{};
  bool has_poll_request = false;
};

// Constructed at load time and never destroyed: other libraries' destructors may still call MPI.
union StateHolder {
  StateHolder();
  ~StateHolder() {}
  State value;
};
extern StateHolder state_holder __attribute__((visibility("hidden")));
constinit inline State& state = state_holder.value;

// A data symbol of the host, such as a predefined handle. Executables that were not built as
// position independent code own a copy of it which the host uses as well, so the global scope comes
// first; it does not contain a host that was loaded privately (Python's), but then nobody can have
// a copy.
void* host_data_symbol(const char* name);

// The rank if this call is the program's and there is something to serve, else null.
inline Rank* serving() {
  if (InHostCall()) [[unlikely]]
    return nullptr;
  return state.rank.load(std::memory_order_relaxed);
}
// The rank even inside host calls: for what must be recognised wherever it turns up.
inline Rank* any_rank() { return state.rank.load(std::memory_order_relaxed); }

// --- handles
// ---------------------------------------------------------------------------------------

inline bool is_ours(MPI_Request request) { return state.requests.is_ours(abi::to_handle(request)); }
// The request behind a handle of ours, or null if it is stale.
inline Request* our_request(Rank& rank, MPI_Request request) {
  return rank.request_at(state.requests.index_of(abi::to_handle(request)));
}
// Whether a handle stands for a receive that has been started in the host under a handle of ours.
inline bool started_in_host(MPI_Request request) {
  if (state.twins.load(std::memory_order_relaxed) == 0 || !is_ours(request)) [[likely]]
    return false;
  Rank* rank = any_rank();
  const Request* ours = rank != nullptr ? our_request(*rank, request) : nullptr;
  return ours != nullptr && ours->in_host;
}
// Whether we, and not the host, complete what the handle stands for.
inline bool is_driven(MPI_Request request) { return is_ours(request) && !started_in_host(request); }
inline MPI_Request twin_of(const Request& request) {
  return abi::from_handle<MPI_Request>(request.host_twin);
}
// The handle by which the host knows a request that is not driven by us.
inline MPI_Request host_handle(MPI_Request request) {
  return is_ours(request) ? twin_of(*our_request(*any_rank(), request)) : request;
}
inline Comm* find_comm(MPI_Comm comm) { return state.comms.find(abi::to_handle(comm)); }

// A call of the host that all of `comm` come to before anybody returns; nothing where the host
// makes it itself, or if not `all`. Before the call's HostCallScope.
class HostEntry {
 public:
  explicit HostEntry(MPI_Comm comm, bool all = true)
      : rank_(all && !InHostCall() ? any_rank() : nullptr),
        entry_(rank_, rank_ != nullptr ? find_comm(comm) : nullptr) {}

 private:
  Rank* const rank_;
  const Rank::HostEntry entry_;
};

// --- constants
// -------------------------------------------------------------------------------------

inline int normal_source(int source) {
  return source == MPI_ANY_SOURCE ? host::kAnySource : source;
}
inline int normal_tag(int tag) { return tag == MPI_ANY_TAG ? host::kAnyTag : tag; }
inline int abi_source(int source) {
  if (source >= 0) [[likely]]
    return source;
  return source == host::kProcNull ? MPI_PROC_NULL : MPI_ANY_SOURCE;
}
inline int abi_tag(int tag) { return tag >= 0 ? tag : MPI_ANY_TAG; }

// --- communicators
// ---------------------------------------------------------------------------------

// Makes `handle` mean `comm`, or nobody's if `comm` is null (the host may have reused the handle).
void register_comm(host::Handle handle, Comm* comm);

// --- errors
// ----------------------------------------------------------------------------------------

// Calls the error handler of `comm` (of MPI_COMM_WORLD for 0) and returns `code`.
int raise_error(host::Handle comm, int code);
// The same for a communicator of ours, which may have been freed meanwhile.
int raise_error(const Comm* comm, int code);

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_STATE_H_
