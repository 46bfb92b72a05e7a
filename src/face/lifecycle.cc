// MPI_Init, Init_thread, Finalize, Abort: where the rank comes to life and ends.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/quiet_floats.h"
#include "coll/shm/slot_layout.h"
#include "config/settings_types.h"
#include "engine/job_terms.h"
#include "engine/rank_state.h"
#include "face/datatypes.h"
#include "face/host_binding.h"
#include "face/program_functions.h"
#include "face/smpi_messages.h"
#include "face/state.h"
#include "face/status.h"
#include "face/window_calls.h"
#include "memory/device/device_memory.h"
#include "memory/device/host_memory.h"
#include "memory/reach.h"
#include "memory/shadow.h"
#include "node/boards.h"
#include "node/identity.h"
#include "node/launcher.h"
#include "node/roll_call.h"
#include "node/wait.h"
#include "observe/log.h"

namespace od::face {
namespace {

// Whether the host calls end_rank() in its MPI_Finalize, after what the program does there.
bool ends_in_host = false;

// Requests that can have a handle; the engine's own limit is the same.
constexpr std::uint32_t kRequestCapacity = 1u << 20;

// `kept` goes when the program has completed a request of the host's (smpi/service.h).
bool let_go_with(const void* request, std::shared_ptr<void> kept) {
  const MPI_Request handle = *static_cast<const MPI_Request*>(request);
  if (serving() == nullptr || is_ours(handle) || handle == abi::request_null()) return false;
  state.watched.keep(handle, std::move(kept));
  return true;
}

// What is wrong with the settings of this rank.
void report_settings() {
  for (const config::Issue& issue : state.loaded.issues) {
    // A kernel that was updated since is nobody's mistake.
    const bool stale = issue.kind == config::Issue::Kind::kStale;
    log(stale ? Level::kWarning : Level::kError, "%s", issue.message.c_str());
  }
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Whether it is the name of a setting that this rank was not given a value for.
bool is_built_in(const std::string& name) {
  for (std::size_t i = 0; i < config::kSettingCount; ++i) {
    if (name == config::setting_infos()[i].name) {
      return state.loaded.origins[i].source == config::Source::kBuiltIn;
    }
  }
  return false;
}

// Rank 0's terms become everybody's, and somebody says what is wrong with the settings: collective,
// false when the ranks could not agree or one of them (`fit`) cannot take part.
bool agree_on_terms(config::Settings& settings, JobTerms& terms, bool fit) {
  const auto rank = static_cast<std::size_t>(state.host.world_rank);
  const auto complaints = static_cast<std::size_t>(
      std::count_if(state.loaded.issues.begin(), state.loaded.issues.end(),
                    [](const auto& i) { return i.kind != config::Issue::Kind::kStale; }));
  std::string text = terms_text(settings, terms);
  std::vector<TermsClaim> claims(static_cast<std::size_t>(state.host.world_size));
  claims[rank] = claim_of(text, complaints, fit);
  if (claims.size() > 1) {
    const TermsClaim mine = claims[rank];
    if (state.host.world_allgather(&mine, claims.data(), sizeof mine) != host::kSuccess) {
      return false;
    }
  }
  const auto differs = [&](const TermsClaim& claim) { return claim.hash != claims[0].hash; };
  if (std::any_of(claims.begin(), claims.end(), differs)) {
    text.resize(claims[0].bytes);
    if (world_broadcast(text.data(), text.size()) != host::kSuccess) return false;
    std::vector<std::string> different = take_terms(text, settings, terms);
    // Who has been given no value is content with rank 0's.
    std::erase_if(different, is_built_in);
    if (!different.empty()) {
      log(Level::kError, "rank 0 has another value of %s than this rank; rank 0's counts",
          joined(different).c_str());
    }
  }
  // The lowest rank that has something to complain about speaks for all.
  const auto speaker = static_cast<std::size_t>(
      std::find_if(claims.begin(), claims.end(), [](const auto& c) { return c.complaints > 0; }) -
      claims.begin());
  if (speaker == rank || (rank == 0 && speaker == claims.size())) report_settings();
  if (settings.strict && speaker < claims.size()) {
    // The others wait for the end, so that the message comes out before it.
    if (speaker == rank) log(Level::kError, "stopping because `strict` is on");
    if (speaker != rank) state.host.world_barrier();
    state.host.abort(1);
  }
  return std::all_of(claims.begin(), claims.end(), [](const auto& c) { return c.fit != 0; });
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

#if !defined(OD_FACE_OPENMPI)
bool is_on(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return false;
  bool value = false;
  std::string reason;
  return config::BoolType::parse(text, value, reason) && value;
}
#endif

// Whether the job was started with fault tolerance (ULFM): a rank may then die without ending the
// job, and the survivors interrupt each other. All of that is between the program and the host, so
// everything is left to it. How the job was started, and so the same on all ranks. Empty, or how.
std::string_view fault_tolerance() {
#if defined(OD_FACE_OPENMPI)
  // Open MPI 5, after its MPI_Init.
  const auto* const enabled =
      static_cast<const volatile bool*>(state.loader->host_symbol("ompi_ftmpi_enabled"));
  if (enabled != nullptr && *enabled) return "mpi_ft_enable, mpiexec --with-ft";
#else
  for (const char* variable : {"MPIR_CVAR_ENABLE_FT", "MPIR_PARAM_ENABLE_FT", "MPICH_ENABLE_FT"}) {
    if (is_on(variable)) return variable;
  }
#endif
  return {};
}

void report_runtime(const char* library, const char* runtime) {
  if (runtime != nullptr) {
    log(Level::kInfo, "%s: buffers on devices are copied through own memory (%s)", runtime,
        library);
  } else {
    log(Level::kWarning,
        "%s lacks functions that copies of device memory need: buffers on its devices are not "
        "known as such",
        library);
  }
}

// What has to be equal for two ranks to understand each other.
std::uint64_t build_key() {
  std::uint64_t key = 1;
  const auto add = [&key](const char* text) {
    for (; *text != '\0'; ++text) key = node::mix_hash(key, static_cast<unsigned char>(*text));
  };
  add(OVERDRIVE_VERSION);
  for (const config::SettingInfo& info : config::setting_infos()) add(info.name);
  for (const std::uint64_t number :
       {std::uint64_t{node::kRegionVersion}, std::uint64_t{coll::shm::kSlotVersion},
        std::uint64_t{sizeof(node::Identity)}, std::uint64_t{sizeof(node::RegionHeader)},
        std::uint64_t{sizeof(observe::Counters)}}) {
    key = node::mix_hash(key, number);
  }
  return key;
}

// Ends the job because other ranks wait for what they will not get.
void end_job(const std::string& missing) {
  log(Level::kError,
      "ending the job: %s, and the other ranks cannot be told to do without. Start all ranks with "
      "Overdrive and the same settings, or none (OVERDRIVE_DISABLE=1)",
      missing.c_str());
  state.host.abort(1);
}

// Whether this rank goes on: all ranks of the job are here and have understood that. Without
// evidence they meet inside the host, which is given up after a while.
bool everybody_here() {
  constexpr std::uint64_t kMeetingLimitNs = 20'000'000'000;
  node::Muster muster =
      state.roll_call->meet(state.host.world_rank, state.host.world_size, state.board.get());
  switch (muster.attendance) {
    case node::Attendance::incomplete:
      if (muster.speaks) {
        log(Level::kError,
            "this job runs over the installed MPI alone: %s. Start all ranks with Overdrive to "
            "have them accelerated, or none (OVERDRIVE_DISABLE=1) to be rid of this message",
            muster.missing.c_str());
      }
      return false;
    case node::Attendance::unspeakable:
      end_job(muster.missing);
      return false;
    case node::Attendance::everybody:
      state.star = std::move(muster.star);
      if (state.star != nullptr || state.host.world_size == 1) return true;
      break;
    case node::Attendance::unknown:
      if (!muster.missing.empty()) {
        log(Level::kWarning, "the ranks of this node could not find each other by sockets: %s",
            muster.missing.c_str());
      }
      break;
  }
  if (!world_meets(kMeetingLimitNs)) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    end_job("rank " + std::to_string(state.host.world_rank) + " on " + name + " has waited " +
            std::to_string(kMeetingLimitNs / 1'000'000'000) +
            " s in MPI_Init for ranks on other nodes that seem to run without Overdrive");
    return false;
  }
  return true;
}

// The thread level for which parts of ours want the host to be initialised, whatever the program
// asks for: any, where there may be non-blocking collectives between nodes (settings_table.h,
// `progress`); one at a time, where a thread of ours calls the host in turn with the program's.
int wanted_thread_level() {
  const config::Settings& settings = state.loaded.settings;
  if (settings.disable || !settings.collectives) return MPI_THREAD_SINGLE;
  if (settings.progress != config::ProgressMode::kOff &&
      (!settings.test_remote.empty() || !node::launch_view(environ).whole_job_is_local())) {
    return MPI_THREAD_MULTIPLE;
  }
  return settings.overlap != config::OverlapMode::kOff ? MPI_THREAD_SERIALIZED : MPI_THREAD_SINGLE;
}

// The host's MPI_Init_thread for the highest level. `required`: what the program asks for, which it
// gets told as far as it gets it.
int init_with_threads(int* argc, char*** argv, int required, int* provided) {
  int granted = MPI_THREAD_SINGLE;
  const int error = OD_HOST(Init_thread)(argc, argv, MPI_THREAD_MULTIPLE, &granted);
  if (error != MPI_SUCCESS) return error;
  *provided = state.own_thread_level = std::min(required, granted);
  return error;
}

// In MPI_Finalize, when the program will communicate no more, and the host still works.
void end_rank() {
  if (Rank* const rank = any_rank()) {
    const od::QuietFloats quiet;
    rank->hand_over_receives();
    state.detached.finish();
    state.deferred.sweep(true);
    state.opinion.finish();
    state.fallbacks.add_to(rank->state().counters);
    rank->finalize();
    state.rank.store(nullptr, std::memory_order_relaxed);
  } else if (state.owned_rank != nullptr) {
    state.owned_rank->finalize();  // collective over all ranks, also those without local peers
  }
  stop_polling();
}

// After the host's MPI_Init. Collective over the ranks of MPI_COMM_WORLD that have Overdrive.
void begin() {
  const od::QuietFloats quiet;
  int provided = MPI_THREAD_SINGLE;
  config::Settings& settings = state.loaded.settings;
  JobTerms terms;
  {
    HostCallScope scope(HostCallKind::kLocal);
    OD_HOST(Query_thread)(&provided);
    state.host = make_host_table();
    if (state.own_thread_level >= 0) provided = state.own_thread_level;
    state.tag_ub = state.host.tag_ub;
    log_setup(state.host.world_rank, static_cast<int>(settings.verbose));
    const bool all_here = everybody_here();
    if (state.roll_call->done()) state.roll_call.reset();
#if defined(OD_FACE_OPENMPI)
    state.loader->pmix->before_commit = nullptr;
#endif
    state.board.reset();
    if (!all_here) return;
    if (const std::string_view how = fault_tolerance(); !how.empty()) {
      state.star.reset();
      if (state.host.world_rank == 0) {
        log(Level::kWarning, "fault tolerance is on (%.*s): everything is left to the MPI library",
            static_cast<int>(how.size()), how.data());
      }
      return;
    }
    const bool usable = state.requests.reserve(kRequestCapacity, abi::kPointerHandles);
    if (!usable) log(Level::kError, "no address space for request handles");
    terms = own_terms(settings, state.host.version_text);
    if (!agree_on_terms(settings, terms, usable)) {
      state.star.reset();
      if (state.host.world_rank == 0 || !usable) {
        log(Level::kError,
            "this job runs over the installed MPI alone: not all ranks can take part");
      }
      return;
    }
    verify_status_layout();
    find_fortran_words();
  }
  state.owned_rank = Rank::create(state.host, settings, provided >= MPI_THREAD_MULTIPLE, &terms);
  state.star.reset();
  Rank* rank = state.owned_rank.get();
  if (rank != nullptr) {
    ends_in_host = call_at_end(end_rank);
    rank->state().smpi->set_follow(let_go_with);
    offer_short_messages(*rank->state().smpi);
    __atomic_store_n(state.loader->smpi_engine, rank->state().smpi->engine(), __ATOMIC_RELAXED);
  }
  if (rank == nullptr || !rank->active()) return;
  for (Comm* comm : {rank->world(), rank->self()}) {
    if (comm != nullptr) register_comm(comm->handle, comm);
  }
  // Last: MPI libraries load plug-ins while they start.
  if (settings.device_memory) {
    memory::begin_device_watch(report_runtime);
    state.loader->set_dlopen_listener(memory::library_is_being_loaded);
  }
  rank->rest_in(at_rest);
  state.rank.store(rank, std::memory_order_relaxed);
}

#if defined(OD_FACE_OPENMPI)
void before_pmix_commit() {
  auto* const board = static_cast<node::PmixBoard*>(state.board.get());
  if (board == nullptr) return;
  const od_pmix& pmix = *state.loader->pmix;
  board->publish(reinterpret_cast<node::PmixBoard::Put>(pmix.put),
                 reinterpret_cast<node::PmixBoard::Get>(pmix.get));
}
#endif

// Before the host is initialised for the first time: by MPI_Init, or by a session before that, and
// then MPI_Init synchronises the job no more. Threads may initialise sessions at the same time, and
// the host must not be ahead of any of them.
std::mutex announcing;
bool announced = false;

// Tells the other ranks that this one is here.
void announce() {
  const std::lock_guard lock(announcing);
  if (announced) return;
  announced = true;
  node::LaunchView view = node::launch_view(environ);
#if !defined(OD_FACE_OPENMPI)
  node::tell_spawned_apart(environ, view);
#endif
  state.roll_call = std::make_unique<node::RollCall>(view, build_key(), OVERDRIVE_VERSION);
  state.roll_call->announce();
  // On one node sockets tell everything.
  if (!view.known || view.whole_job_is_local()) return;
#if defined(OD_FACE_OPENMPI)
  state.board = std::make_unique<node::PmixBoard>(environ, build_key());
  state.loader->pmix->before_commit = before_pmix_commit;
#else
  state.board = std::make_unique<node::HydraBoard>(environ, view.rank, build_key());
#endif
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
  if (settings.device_memory) memory::find_host_memory();
  memory::use_guard_service(state.loader->guards);
  announce();
}

// The host's MPI_Init has failed: this rank is not here.
void leave_process() {
#if defined(OD_FACE_OPENMPI)
  state.loader->pmix->before_commit = nullptr;
#endif
  state.board.reset();
  state.roll_call.reset();
  announced = false;
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Init(int* argc, char*** argv) {
  int error;
  prepare_process();
  {
    HostCallScope scope(HostCallKind::kProcess);
    const int wanted = wanted_thread_level();
    int provided;
    if (wanted == MPI_THREAD_MULTIPLE) {
      error = init_with_threads(argc, argv, MPI_THREAD_SINGLE, &provided);
    } else if (wanted > MPI_THREAD_SINGLE && OD_HOST_HAS(Init_thread)) {
      error = OD_HOST(Init_thread)(argc, argv, wanted, &provided);
    } else {
      error = OD_HOST(Init)(argc, argv);
    }
  }
  if (error == MPI_SUCCESS) {
    begin();
  } else {
    leave_process();
  }
  return error;
}

int od_MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  int error;
  prepare_process();
  {
    HostCallScope scope(HostCallKind::kProcess);
    const int wanted = wanted_thread_level();
    // MPI_THREAD_* constants increase with the level in every ABI; a program may be given more than
    // it has asked for.
    error = wanted == MPI_THREAD_MULTIPLE && required < wanted
                ? init_with_threads(argc, argv, required, provided)
                : OD_HOST(Init_thread)(argc, argv, std::max<int>(required, wanted), provided);
  }
  if (error == MPI_SUCCESS) {
    begin();
  } else {
    leave_process();
  }
  return error;
}

int od_MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session) {
  {
    const od::QuietFloats quiet;
    announce();
  }
  HostCallScope scope(HostCallKind::kProcess);
  return OD_HOST(Session_init)(info, errhandler, session);
}

int od_MPI_Query_thread(int* provided) {
  const int error = OD_HOST(Query_thread)(provided);
  if (error == MPI_SUCCESS && state.own_thread_level >= 0 && !InHostCall()) {
    *provided = state.own_thread_level;
  }
  return error;
}

int od_MPI_Finalize() {
  if (!ends_in_host && !InHostCall()) end_rank();
  HostCallScope scope(HostCallKind::kProcess);
  return OD_HOST(Finalize)();
}

// Nothing of ours is finished before: crash handlers call this in the middle of what we do, with
// the rank's lock held.
int od_MPI_Abort(MPI_Comm comm, int errorcode) {
  HostCallScope scope(HostCallKind::kLocal);
  return OD_HOST(Abort)(comm, errorcode);
}
