// MPI_Init, Init_thread, Finalize, Abort: where the rank comes to life and ends.
#include <cstdint>

#include "base/quiet_floats.h"
#include "engine/rank_state.h"
#include "face/datatypes.h"
#include "face/host_binding.h"
#include "face/state.h"
#include "face/status.h"
#include "memory/reach.h"
#include "node/wait.h"
#include "observe/log.h"

namespace od::face {
namespace {

// Requests that can have a handle; the engine's own limit is the same.
constexpr std::uint32_t kRequestCapacity = 1u << 20;

// Rank 0 speaks for all: settings are the same everywhere or the job is started wrongly.
void report_settings() {
  const config::LoadResult& loaded = state.loaded;
  if (state.host.world_rank == 0) {
    for (const config::Issue& issue : loaded.issues) {
      // A kernel that was updated since is nobody's mistake.
      const bool stale = issue.kind == config::Issue::Kind::kStale;
      log(stale ? Level::kWarning : Level::kError, "%s", issue.message.c_str());
    }
    if (loaded.must_stop) log(Level::kError, "stopping because `strict` is on");
  }
  if (loaded.must_stop) {
    state.host.world_barrier();  // so that the message comes out before the job ends
    state.host.abort(1);
  }
}

// The word of the host's objects at which its Fortran library looks, or -1: the host itself tells
// which one it reads of a block that says in every word which word it is.
template <typename T, typename ToFortran>
int fortran_word(ToFortran&& to_fortran) {
  constexpr int kMark = 7000;
  alignas(64) std::int32_t block[RequestHandles::kBlockWords];
  for (std::size_t i = 0; i < RequestHandles::kBlockWords; ++i) {
    block[i] = kMark + static_cast<int>(i);
  }
  const int word = to_fortran(reinterpret_cast<T>(block)) - kMark;
  return word >= 0 && word < static_cast<int>(RequestHandles::kBlockWords) ? word : -1;
}

void find_fortran_words() {
#if defined(OD_FACE_OPENMPI)
  if (!OD_HOST_HAS(Request_c2f) || !OD_HOST_HAS(Message_c2f)) return;
  HostCallScope scope(HostCallKind::kLocal);
  state.requests.set_fortran_words(
      fortran_word<MPI_Request>([](MPI_Request r) { return OD_HOST(Request_c2f)(r); }),
      fortran_word<MPI_Message>([](MPI_Message m) { return OD_HOST(Message_c2f)(m); }));
#endif
}

// After the host's MPI_Init. Collective over MPI_COMM_WORLD.
void begin() {
  const od::QuietFloats quiet;
  int provided = MPI_THREAD_SINGLE;
  bool usable;
  {
    HostCallScope scope(HostCallKind::kLocal);
    OD_HOST(Query_thread)(&provided);
    state.host = make_host_table();
    state.tag_ub = state.host.tag_ub;
    log_setup(state.host.world_rank, static_cast<int>(state.loaded.settings.verbose));
    report_settings();
    verify_status_layout();
    find_fortran_words();
    usable = state.requests.reserve(kRequestCapacity, abi::kPointerHandles);
  }
  config::Settings settings = state.loaded.settings;
  if (!usable) {
    log(Level::kError, "no address space for request handles; using the MPI library alone");
    settings.disable = true;  // takes part in joining, which is collective, but shares nothing
  }
  // MPI_THREAD_* constants increase with the level in every ABI.
  state.owned_rank = Rank::create(state.host, settings, provided >= MPI_THREAD_MULTIPLE);
  Rank* rank = state.owned_rank.get();
  if (rank == nullptr || !usable || !rank->active()) return;
  for (Comm* comm : {rank->world(), rank->self()}) {
    if (comm != nullptr) register_comm(comm->handle, comm);
  }
  state.rank.store(rank, std::memory_order_relaxed);
}

// Before the host's MPI_Init, which starts threads: with one thread registering costs nothing, and
// static data can change its place.
void prepare_process() {
  const od::QuietFloats quiet;
  node::register_expedited_barrier();
  const config::Settings& settings = state.loaded.settings;
  const bool all = settings.reach == config::ReachMode::kAll;
  memory::begin_reach(static_cast<const memory::ReachService*>(state.loader->reach),
                      all || settings.reach == config::ReachMode::kHeap,
                      all || settings.reach == config::ReachMode::kStatic,
                      settings.reach_libraries);
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Init(int* argc, char*** argv) {
  int error;
  prepare_process();
  {
    HostCallScope scope(HostCallKind::kProcess);
    error = OD_HOST(Init)(argc, argv);
  }
  if (error == MPI_SUCCESS) begin();
  return error;
}

int od_MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  int error;
  prepare_process();
  {
    HostCallScope scope(HostCallKind::kProcess);
    error = OD_HOST(Init_thread)(argc, argv, required, provided);
  }
  if (error == MPI_SUCCESS) begin();
  return error;
}

int od_MPI_Query_thread(int* provided) { return OD_HOST(Query_thread)(provided); }

int od_MPI_Finalize() {
  if (od::Rank* rank = serving()) {
    const od::QuietFloats quiet;
    rank->hand_over_receives();
    state.detached.finish();
    state.deferred.sweep(true);
    state.opinion.finish();
    state.fallbacks.add_to(rank->state().counters);
    rank->finalize();
    state.kept.sweep();
    state.rank.store(nullptr, std::memory_order_relaxed);
  } else if (state.owned_rank != nullptr && !InHostCall()) {
    state.owned_rank->finalize();  // collective over all ranks, also those without local peers
  }
  if (!InHostCall()) stop_polling();
  HostCallScope scope(HostCallKind::kProcess);
  return OD_HOST(Finalize)();
}

int od_MPI_Abort(MPI_Comm comm, int errorcode) {
  HostCallScope scope(HostCallKind::kProcess);
  return OD_HOST(Abort)(comm, errorcode);
}
