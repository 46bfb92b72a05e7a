// The face's side of the contract with the loader: od_face_bind.
//
// Runs once, at the first MPI call of the process, before the host's MPI_Init; it must not call the
// host. It may refuse, and then the loader uses the host alone.
#include <pthread.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"
#include "base/quiet_floats.h"
#include "engine/rank_state.h"
#include "face/call_timer.h"
#include "face/payload.h"
#include "face/state.h"
#include "face/window_calls.h"
#include "observe/call_times.h"
#include "observe/stats.h"
#include "topology/fingerprint.h"

// Once more, for the table: its functions need more than their declarations.
#define OD_FACE_DEFINE_TABLE 1
#include "face_entries.inc"
#undef OD_FACE_DEFINE_TABLE

namespace od::face {

#if defined(OD_FACE_OPENMPI)
abi::Predefined abi::predefined;
#endif

namespace {

// What the face calls without asking whether the host has it; all of it is older than MPI 3.1.
constexpr idx::Index kNeeded[] = {
    idx::Abort,
    idx::Allgather,
    idx::Allreduce,
    idx::Barrier,
    idx::Bcast,
    idx::Comm_create,
    idx::Comm_free,
    idx::Comm_group,
    idx::Comm_rank,
    idx::Comm_size,
    idx::Comm_split,
    idx::Comm_call_errhandler,
    idx::Comm_set_errhandler,
    idx::Comm_get_attr,
    idx::Comm_remote_group,
    idx::Comm_remote_size,
    idx::Comm_test_inter,
    idx::Grequest_complete,
    idx::Grequest_start,
    idx::Group_free,
    idx::Group_translate_ranks,
    idx::Improbe,
    idx::Imrecv,
    idx::Init,
    idx::Iprobe,
    idx::Irecv,
    idx::Isend,
    idx::Pack,
    idx::Pack_size,
    idx::Query_thread,
    idx::Reduce_local,
    idx::Request_get_status,
    idx::Test,
    idx::Testall,
    idx::Testany,
    idx::Testsome,
    idx::Test_cancelled,
    idx::Type_get_extent,
    idx::Unpack,
    idx::Wait,
};

// A child must not touch memory that it shares with its parent's neighbours.
void in_forked_child() {
  state.rank.store(nullptr, std::memory_order_relaxed);
  if (state.owned_rank != nullptr) state.owned_rank->state().smpi->forget();
  __atomic_store_n(state.loader->smpi_engine, nullptr, __ATOMIC_RELAXED);
}

}  // namespace
}  // namespace od::face

extern "C" __attribute__((visibility("default"))) int od_face_bind(const od_loader_info* info,
                                                                   void** entries) {
  using namespace od::face;
  if (info->version != OD_FACE_ABI_VERSION || info->size_bytes != sizeof *info ||
      info->count != OD_ENTRY_COUNT || info->interface_hash != OD_INTERFACE_HASH) {
    if (info->verbosity >= 1) {
      std::fprintf(stderr, "overdrive: %s was not built together with %s; not used\n",
                   info->face_path, info->loader_path);
    }
    return OD_BIND_VERSION;
  }
  if (info->abi != abi::kAbi) return OD_BIND_ABI;
  for (const idx::Index needed : kNeeded) {
    if (info->host[needed] == nullptr) {
      if (info->verbosity >= 1) {
        std::fprintf(stderr, "overdrive: %s has no %s; not used\n", info->host_path,
                     info->names[needed]);
      }
      return OD_BIND_HOST;
    }
  }
  state.loader = info;
  if (!abi::resolve_predefined(host_data_symbol)) {
    if (info->verbosity >= 1) {
      std::fprintf(stderr, "overdrive: %s lacks predefined handles; not used\n", info->host_path);
    }
    return OD_BIND_HOST;
  }
  od::config::Paths paths = od::config::standard_paths(environ);
  paths.fingerprint = [] { return od::topology::fingerprint(); };
  const od::QuietFloats quiet;
  state.loaded = od::config::load(od::config::overdrive_environment(environ), paths);
  if (state.loaded.settings.disable) return OD_BIND_DISABLED;
  FillEntries(entries, info->host);
  const od::config::Settings& settings = state.loaded.settings;
  const bool records = od::config::OutputType::names_output(settings.record);
  if (records || (settings.call_times &&
                  od::observe::stats_output(settings.stats) != od::observe::StatsOutput::kNone)) {
    find_language_libraries();
    od::observe::time_calls(info->names);
    if (records) od::observe::start_recording(info->names, od::now_ns());
    TimeEntries(entries);
  }
  pthread_atfork(nullptr, nullptr, in_forked_child);
  return OD_BIND_OK;
}
