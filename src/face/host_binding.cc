// The host MPI behind the engine's HostTable: each function converts handles and calls the host.
//
// Every call is marked as a host call (host_call_scope.h). Errors are handed up as codes; the host
// has called the communicator's error handler already.
#include "face/host_binding.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "face/face_mpi.h"
#include "face/host_requests.h"
#include "face/state.h"
#include "face/status.h"
#include "observe/log.h"

namespace od::face {
namespace {

using host::Handle;

// Engine code runs below calls of the program, which may or may not have prepared to block already;
// these functions must not prepare again.
constexpr HostCallKind kPlain = HostCallKind::kLocal;

MPI_Comm comm_of(Handle comm) { return abi::from_handle<MPI_Comm>(comm); }

int world_allgather(const void* send, void* recv, std::size_t bytes_per_rank) {
  if (state.star != nullptr) return state.star->allgather(send, recv, bytes_per_rank);
  HostCallScope scope(kPlain);
  const int bytes = static_cast<int>(bytes_per_rank);
  return OD_HOST(Allgather)(send, bytes, abi::byte(), recv, bytes, abi::byte(), abi::comm_world());
}

int world_barrier() {
  if (state.star != nullptr) return state.star->barrier();
  HostCallScope scope(kPlain);
  return OD_HOST(Barrier)(abi::comm_world());
}

int comm_size(Handle comm, int* size) {
  HostCallScope scope(kPlain);
  return OD_HOST(Comm_size)(comm_of(comm), size);
}

int comm_rank(Handle comm, int* rank) {
  HostCallScope scope(kPlain);
  return OD_HOST(Comm_rank)(comm_of(comm), rank);
}

int comm_test_inter(Handle comm, bool* inter) {
  HostCallScope scope(kPlain);
  int flag = 0;
  const int error = OD_HOST(Comm_test_inter)(comm_of(comm), &flag);
  *inter = flag != 0;
  return error;
}

int comm_remote_size(Handle comm, int* size) {
  HostCallScope scope(kPlain);
  return OD_HOST(Comm_remote_size)(comm_of(comm), size);
}

int comm_world_ranks(Handle comm, bool remote, int* world_ranks, int count) {
  HostCallScope scope(kPlain);
  MPI_Group group, world;
  int error = remote ? OD_HOST(Comm_remote_group)(comm_of(comm), &group)
                     : OD_HOST(Comm_group)(comm_of(comm), &group);
  if (error != MPI_SUCCESS) return error;
  error = OD_HOST(Comm_group)(abi::comm_world(), &world);
  if (error == MPI_SUCCESS) {
    std::vector<int> ranks(static_cast<std::size_t>(count));
    std::iota(ranks.begin(), ranks.end(), 0);
    error = OD_HOST(Group_translate_ranks)(group, count, ranks.data(), world, world_ranks);
    for (int i = 0; i < count; ++i) {
      if (world_ranks[i] == MPI_UNDEFINED) world_ranks[i] = -1;
    }
    OD_HOST(Group_free)(&world);
  }
  OD_HOST(Group_free)(&group);
  return error;
}

// By the leaders, and not by a collective between the groups: with Intel MPI 2021.18 those wait for
// ever on some communicators that the program may never use through the host.
int inter_exchange(const host::Leaders& leaders, std::uint64_t mine, std::uint64_t* theirs) {
  HostCallScope scope(kPlain);
  const MPI_Comm local = comm_of(leaders.local);
  std::uint64_t ours = 0;
  *theirs = 0;
  int rank = 0;
  int error = OD_HOST(Allreduce)(&mine, &ours, 1, abi::uint64(), abi::op_max(), local);
  if (error == MPI_SUCCESS) error = OD_HOST(Comm_rank)(local, &rank);
  if (error != MPI_SUCCESS) return error;
  int met = MPI_SUCCESS;
  if (rank == leaders.leader) {
    met = OD_HOST(Sendrecv)(&ours, 1, abi::uint64(), leaders.other_leader, leaders.tag, theirs, 1,
                            abi::uint64(), leaders.other_leader, leaders.tag,
                            comm_of(leaders.bridge), MPI_STATUS_IGNORE);
  }
  error = OD_HOST(Bcast)(theirs, 1, abi::uint64(), leaders.leader, local);
  if (met != MPI_SUCCESS) return met;
  // Nobody over there serves its side (communicators.cc): then neither do we.
  return error == MPI_SUCCESS && *theirs == 0 ? MPI_ERR_OTHER : error;
}

std::int64_t extent_of(MPI_Datatype type) {
  MPI_Aint lower = 0, extent = 0;
  OD_HOST(Type_get_extent)(type, &lower, &extent);
  return extent;
}

// A committed datatype of so many elements, more than an int can count.
int type_of_many(MPI_Datatype type, std::int64_t count, MPI_Datatype* out) {
  constexpr std::int64_t kStep = 1 << 30;
  if (count / kStep > INT_MAX) return MPI_ERR_COUNT;
  MPI_Datatype step = abi::type_null();
  int error = OD_HOST(Type_contiguous)(static_cast<int>(kStep), type, &step);
  if (error != MPI_SUCCESS) return error;
  const int lengths[2] = {static_cast<int>(count / kStep), static_cast<int>(count % kStep)};
  const MPI_Aint places[2] = {0, count / kStep * kStep * extent_of(type)};
  const MPI_Datatype types[2] = {step, type};
  error = OD_HOST(Type_create_struct)(2, lengths, places, types, out);
  OD_HOST(Type_free)(&step);
  if (error != MPI_SUCCESS) return error;
  error = OD_HOST(Type_commit)(out);
  if (error != MPI_SUCCESS) OD_HOST(Type_free)(out);
  return error;
}

// Calls a function of the host that starts a request: its form for counts of type int, or the large
// one where the count needs it; where the host has none (`large` is null: Open MPI up to 5) all
// elements are one of a datatype made for the call. After an error there is no request.
template <typename Small, typename Large, typename Buffer, typename... Rest>
int start_counted(Small* small, Large* large, Buffer* buf, std::int64_t count, Handle type,
                  Handle* request, Rest... rest) {
  HostCallScope scope(kPlain);
  auto datatype = abi::from_handle<MPI_Datatype>(type);
  MPI_Request started = abi::request_null();
  int error;
  if (count <= INT_MAX) {
    error = small(buf, static_cast<int>(count), datatype, rest..., &started);
  } else if (large != nullptr) {
    error = large(buf, count, datatype, rest..., &started);
  } else {
    error = type_of_many(datatype, count, &datatype);
    if (error == MPI_SUCCESS) {
      error = small(buf, 1, datatype, rest..., &started);
      // The host keeps it until the message is complete.
      OD_HOST(Type_free)(&datatype);
    }
  }
  *request = error == MPI_SUCCESS ? abi::to_handle(started) : 0;
  return error;
}

int iprobe(int source, int tag, Handle comm, bool* flag, host::Status* status) {
  HostCallScope scope(kPlain);
  MPI_Status raw;
  int yes = 0;
  const int error =
      OD_HOST(Iprobe)(source == host::kAnySource ? MPI_ANY_SOURCE : source,
                      tag == host::kAnyTag ? MPI_ANY_TAG : tag, comm_of(comm), &yes, &raw);
  *flag = error == MPI_SUCCESS && yes != 0;
  if (*flag) *status = read_status(raw);
  return error;
}

int improbe(int source, int tag, Handle comm, bool* flag, Handle* message, host::Status* status) {
  HostCallScope scope(kPlain);
  MPI_Message found = abi::message_null();
  MPI_Status raw;
  int yes = 0;
  const int error =
      OD_HOST(Improbe)(source == host::kAnySource ? MPI_ANY_SOURCE : source,
                       tag == host::kAnyTag ? MPI_ANY_TAG : tag, comm_of(comm), &yes, &found, &raw);
  *flag = error == MPI_SUCCESS && yes != 0;
  if (*flag) {
    *message = abi::to_handle(found);
    *status = read_status(raw);
  }
  return error;
}

int imrecv(void* buf, std::int64_t count, Handle type, Handle* message, Handle* request) {
  MPI_Message taken = abi::from_handle<MPI_Message>(*message);
  const int error =
      start_counted(OD_HOST(Imrecv), OD_HOST(Imrecv_c), buf, count, type, request, &taken);
  *message = abi::to_handle(taken);
  return error;
}

int errors_return(Handle comm, Handle* before) {
  HostCallScope scope(kPlain);
  MPI_Errhandler handler;
  const int error = OD_HOST(Comm_get_errhandler)(comm_of(comm), &handler);
  if (error != MPI_SUCCESS) return error;
  *before = abi::to_handle(handler);
  return OD_HOST(Comm_set_errhandler)(comm_of(comm), abi::errors_return());
}

void restore_errors(Handle comm, Handle before) {
  HostCallScope scope(kPlain);
  auto handler = abi::from_handle<MPI_Errhandler>(before);
  OD_HOST(Comm_set_errhandler)(comm_of(comm), handler);
  OD_HOST(Errhandler_free)(&handler);  // what MPI_Comm_get_errhandler gave counts as one more
}

// A generalized request of our own that is never complete: testing it makes the host progress with
// everything it has. (A probe does not: MPICH looks only where the message could come from, so that
// one-sided communication and collectives of other ranks stand still.)
int query_nothing(void*, MPI_Status*) { return MPI_SUCCESS; }
int free_nothing(void*) { return MPI_SUCCESS; }
int cancel_nothing(void*, int) { return MPI_SUCCESS; }

void poll() {
  HostCallScope scope(kPlain);
  if (!state.has_poll_request) {
    state.has_poll_request = OD_HOST(Grequest_start)(reinterpret_cast<void*>(query_nothing),
                                                     reinterpret_cast<void*>(free_nothing),
                                                     reinterpret_cast<void*>(cancel_nothing),
                                                     nullptr, &state.poll_request) == MPI_SUCCESS;
    if (!state.has_poll_request) return;
  }
  int flag = 0;
  OD_HOST(Test)(&state.poll_request, &flag, MPI_STATUS_IGNORE);
}

int comm_free(Handle* comm) {
  HostCallScope scope(kPlain);
  MPI_Comm freed = comm_of(*comm);
  const int error = OD_HOST(Comm_free)(&freed);
  *comm = abi::to_handle(freed);
  return error;
}

// Not MPI_Comm_dup: that copies attributes and calls the program's functions. MPI_Comm_create harms
// MPICH 5.0 (tests/collectives/created.c); Open MPI's MPI_Comm_split hangs beside MPI_Comm_idup.
int comm_dup(Handle comm, Handle* out) {
  HostCallScope scope(kPlain);
  MPI_Comm made = abi::comm_null();
  MPI_Group group;
  int error = OD_HOST(Comm_group)(comm_of(comm), &group);
  if (error != MPI_SUCCESS) return error;
  constexpr bool kCreates = abi::kAbi == OD_ABI_OPENMPI;
  error = kCreates ? OD_HOST(Comm_create)(comm_of(comm), group, &made)
                   : OD_HOST(Comm_split)(comm_of(comm), 0, 0, &made);
  OD_HOST(Group_free)(&group);
  *out = error == MPI_SUCCESS ? abi::to_handle(made) : 0;
  return error == MPI_SUCCESS ? OD_HOST(Comm_set_errhandler)(made, abi::errors_return()) : error;
}

int isend(const void* buf, std::int64_t count, Handle type, int dest, int tag, Handle comm,
          Handle* request) {
  return start_counted(OD_HOST(Isend), OD_HOST(Isend_c), buf, count, type, request, dest, tag,
                       comm_of(comm));
}

int irecv(void* buf, std::int64_t count, Handle type, int source, int tag, Handle comm,
          Handle* request) {
  return start_counted(OD_HOST(Irecv), OD_HOST(Irecv_c), buf, count, type, request,
                       source == host::kAnySource ? MPI_ANY_SOURCE : source,
                       tag == host::kAnyTag ? MPI_ANY_TAG : tag, comm_of(comm));
}

// By the older interface, whose positions are ints, this much is packed or unpacked per call.
constexpr std::int64_t kPackBytes = 1 << 30;

// Packs or unpacks `count` elements of `bytes` in parts. part(offset, elements, packed_offset,
// packed_bytes) does one: `elements` from `offset` on, which take `packed_bytes` when packed.
template <typename Part>
int in_parts(MPI_Datatype type, std::int64_t count, std::int64_t bytes, Part part) {
  if (count == 0) return MPI_SUCCESS;
  const std::int64_t size = bytes / count;
  if (size > INT_MAX) return MPI_ERR_COUNT;
  const std::int64_t step =
      bytes <= kPackBytes ? count : std::max<std::int64_t>(1, kPackBytes / size);
  const std::int64_t extent = step < count ? extent_of(type) : 0;
  for (std::int64_t done = 0; done < count; done += step) {
    const std::int64_t now = std::min(step, count - done);
    const int error =
        part(done * extent, static_cast<int>(now), done * size, static_cast<int>(now * size));
    if (error != MPI_SUCCESS) return error;
  }
  return MPI_SUCCESS;
}

int pack(const void* buf, std::int64_t count, Handle type, void* out, std::int64_t bytes) {
  HostCallScope scope(kPlain);
  const auto datatype = abi::from_handle<MPI_Datatype>(type);
  if (OD_HOST_HAS(Pack_c)) {
    MPI_Count position = 0;
    return OD_HOST(Pack_c)(buf, count, datatype, out, bytes, &position, abi::comm_self());
  }
  return in_parts(
      datatype, count, bytes, [&](std::int64_t offset, int elements, std::int64_t to, int room) {
        int position = 0;
        return OD_HOST(Pack)(static_cast<const char*>(buf) + offset, elements, datatype,
                             static_cast<char*>(out) + to, room, &position, abi::comm_self());
      });
}

int unpack(const void* in, std::int64_t bytes, void* buf, std::int64_t count, Handle type) {
  HostCallScope scope(kPlain);
  const auto datatype = abi::from_handle<MPI_Datatype>(type);
  if (OD_HOST_HAS(Unpack_c)) {
    MPI_Count position = 0;
    return OD_HOST(Unpack_c)(in, bytes, &position, buf, count, datatype, abi::comm_self());
  }
  return in_parts(datatype, count, bytes,
                  [&](std::int64_t offset, int elements, std::int64_t from, int size) {
                    int position = 0;
                    return OD_HOST(Unpack)(static_cast<const char*>(in) + from, size, &position,
                                           static_cast<char*>(buf) + offset, elements, datatype,
                                           abi::comm_self());
                  });
}

int reduce_local(const void* in, void* inout, std::int64_t count, Handle type, Handle op) {
  HostCallScope scope(kPlain);
  const auto datatype = abi::from_handle<MPI_Datatype>(type);
  const auto operation = abi::from_handle<MPI_Op>(op);
  if (count <= INT_MAX) {
    return OD_HOST(Reduce_local)(in, inout, static_cast<int>(count), datatype, operation);
  }
  // In parts: operations of the program that were made by MPI_Op_create know no larger counts.
  constexpr std::int64_t kStep = 1 << 30;
  const std::int64_t extent = extent_of(datatype);
  for (std::int64_t done = 0; done < count; done += kStep) {
    const int now = static_cast<int>(std::min(kStep, count - done));
    const int error =
        OD_HOST(Reduce_local)(static_cast<const char*>(in) + done * extent,
                              static_cast<char*>(inout) + done * extent, now, datatype, operation);
    if (error != MPI_SUCCESS) return error;
  }
  return MPI_SUCCESS;
}

int tag_ub() {
  HostCallScope scope(kPlain);
  int* value = nullptr;
  int flag = 0;
  OD_HOST(Comm_get_attr)(abi::comm_world(), MPI_TAG_UB, &value, &flag);
  return flag != 0 && value != nullptr ? *value : host::HostTable{}.tag_ub;
}

// An extension of hosts with fault tolerance, not in every mpi.h.
int (*host_comm_is_revoked)(MPI_Comm comm, int* flag) = nullptr;

bool comm_is_revoked(Handle comm) {
  int flag = 0;
  return host_comm_is_revoked(comm_of(comm), &flag) == MPI_SUCCESS && flag != 0;
}

int type_true_extent(Handle type, std::int64_t* lower, std::int64_t* extent) {
  HostCallScope scope(kPlain);
  MPI_Aint first = 0, bytes = 0;
  const int error =
      OD_HOST(Type_get_true_extent)(abi::from_handle<MPI_Datatype>(type), &first, &bytes);
  *lower = first;
  *extent = bytes;
  return error;
}

[[noreturn]] void abort_job(int code) {
  log_wait_until_read();
  HostCallScope scope(kPlain);
  OD_HOST(Abort)(abi::comm_world(), code);
  std::abort();  // a host whose MPI_Abort returns has failed to end the job
}

const char* version_text() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING + 1];
  int length = 0;
  const bool known = OD_HOST_HAS(Get_library_version) &&
                     OD_HOST(Get_library_version)(text, &length) == MPI_SUCCESS;
  return known ? text : "";
}

// MPICH and Intel MPI refuse a message that ends inside a basic element of a type with gaps: they
// copy whole elements only. Open MPI copies what there is.
int split_element_error(const char* version) {
  constexpr char kMpich[] = "MPICH Version:";
  if (std::strstr(version, "Intel") != nullptr) return MPI_ERR_TRUNCATE;
  const char* found = std::strstr(version, kMpich);
  if (found == nullptr) return 0;
  return std::atoi(found + sizeof(kMpich) - 1) >= 5 ? MPI_ERR_TYPE : MPI_ERR_TRUNCATE;
}

}  // namespace

int world_broadcast(void* data, std::size_t bytes) {
  if (state.star != nullptr) return state.star->broadcast(data, bytes);
  HostCallScope scope(kPlain);
  return OD_HOST(Bcast)(data, static_cast<int>(bytes), abi::byte(), 0, abi::comm_world());
}

bool world_meets(std::uint64_t limit_ns) {
  // Looks that find nothing cost the ranks that share the core; the first ones come at once.
  constexpr std::uint64_t kEagerNs = 1'000'000;
  constexpr unsigned kPauseMicroseconds = 200;
  // Standing still (a suspended job) is no waiting.
  constexpr std::uint64_t kLongestStepNs = 100'000'000;
  HostCallScope scope(kPlain);
  if (!OD_HOST_HAS(Ibarrier)) return OD_HOST(Barrier)(abi::comm_world()) == MPI_SUCCESS;
  MPI_Request request = abi::request_null();
  if (OD_HOST(Ibarrier)(abi::comm_world(), &request) != MPI_SUCCESS) return false;
  std::uint64_t last_ns = now_ns();
  for (std::uint64_t waited_ns = 0; waited_ns < limit_ns;) {
    int done = 0;
    if (OD_HOST(Test)(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done != 0) return true;
    if (waited_ns > kEagerNs) {
      usleep(kPauseMicroseconds);
    } else {
      sched_yield();
    }
    const std::uint64_t now = now_ns();
    waited_ns += std::min(now - last_ns, kLongestStepNs);
    last_ns = now;
  }
  return false;
}

void stop_polling() {
  if (!state.has_poll_request) return;
  state.has_poll_request = false;
  HostCallScope scope(kPlain);
  OD_HOST(Grequest_complete)(state.poll_request);
  OD_HOST(Wait)(&state.poll_request, MPI_STATUS_IGNORE);
}

host::HostTable make_host_table() {
  host::HostTable table;
  table.comm_world = abi::to_handle(abi::comm_world());
  table.comm_self = abi::to_handle(abi::comm_self());
  table.request_null = abi::to_handle(abi::request_null());
  table.message_null = abi::to_handle(abi::message_null());
  table.byte_type = abi::to_handle(abi::byte());
  table.message_no_proc = abi::to_handle(abi::message_no_proc());
  table.err_truncate = MPI_ERR_TRUNCATE;
  table.err_buffer = MPI_ERR_BUFFER;
  table.err_no_mem = MPI_ERR_NO_MEM;
  table.err_intern = MPI_ERR_INTERN;
  table.err_in_status = MPI_ERR_IN_STATUS;
  table.err_pending = MPI_ERR_PENDING;
  comm_rank(table.comm_world, &table.world_rank);
  comm_size(table.comm_world, &table.world_size);
  table.tag_ub = tag_ub();
  table.version_text = version_text();
  table.few_long_messages = std::strstr(table.version_text, "MPICH") != nullptr;
  int provided = MPI_THREAD_SINGLE;
  OD_HOST(Query_thread)(&provided);
  // MPI_THREAD_* constants increase with the level in every ABI.
  table.thread_level = provided >= MPI_THREAD_MULTIPLE     ? host::ThreadLevel::multiple
                       : provided >= MPI_THREAD_SERIALIZED ? host::ThreadLevel::serialized
                                                           : host::ThreadLevel::single;
  table.err_split_element = split_element_error(table.version_text);
  table.world_allgather = world_allgather;
  table.world_barrier = world_barrier;
  table.comm_size = comm_size;
  table.comm_rank = comm_rank;
  table.comm_test_inter = comm_test_inter;
  table.comm_remote_size = comm_remote_size;
  table.comm_world_ranks = comm_world_ranks;
  table.inter_exchange = inter_exchange;
  table.iprobe = iprobe;
  table.improbe = improbe;
  table.imrecv = imrecv;
  table.test = host_test;
  table.test_some = host_test_some;
  table.cancel = host_cancel;
  table.request_free = host_request_free;
  table.errors_return = errors_return;
  table.restore_errors = restore_errors;
  table.poll = poll;
  table.pack = pack;
  table.unpack = unpack;
  table.comm_dup = comm_dup;
  table.comm_free = comm_free;
  table.isend = isend;
  table.irecv = irecv;
  table.reduce_local = reduce_local;
  host_comm_is_revoked =
      reinterpret_cast<int (*)(MPI_Comm, int*)>(state.loader->host_symbol("MPIX_Comm_is_revoked"));
  if (host_comm_is_revoked != nullptr) table.comm_is_revoked = comm_is_revoked;
  table.type_true_extent = type_true_extent;
  table.abort = abort_job;
  return table;
}

}  // namespace od::face
