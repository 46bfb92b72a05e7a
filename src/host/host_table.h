// The host MPI as the engine sees it: a table of functions over plain integer-wide handles.
//
// The face of an ABI fills one HostTable at start; everything below the face uses the host only
// through it and therefore compiles without mpi.h. Handles are widened to `Handle`; sources and
// tags are normalised (kAnySource, kAnyTag); statuses are neutral. Every function returns kSuccess
// or the host's own error code, unchanged, so that the face can hand it to the program.
#ifndef OVERDRIVE_HOST_HOST_TABLE_H_
#define OVERDRIVE_HOST_HOST_TABLE_H_

#include <cstddef>
#include <cstdint>

namespace od::host {

// Any host handle (an int in the MPICH family, a pointer elsewhere), widened.
using Handle = std::uintptr_t;

inline constexpr int kSuccess = 0;     // MPI_SUCCESS is 0 in every ABI
inline constexpr int kAnySource = -1;  // normalised by the face
inline constexpr int kAnyTag = -1;     // normalised by the face
inline constexpr int kProcNull = -2;   // normalised by the face; never reaches the engine's queues

// What a completed operation reports. `bytes` is the size of the received data.
struct Status {
  int source = kAnySource;
  int tag = kAnyTag;
  int error = kSuccess;  // host error code
  bool cancelled = false;
  std::int64_t bytes = 0;
};

// Which threads may call the host: in the order of MPI_THREAD_*, as far as it matters to the
// engine.
enum class ThreadLevel : unsigned char {
  single,      // the program's only
  serialized,  // any, one at a time
  multiple,    // any
};

// How the two groups of a new inter-communicator reach each other: one rank of each, its leader,
// meets the other group's on a communicator and tells the rest of its own group.
struct Leaders {
  Handle local = 0;      // this group
  int leader = 0;        // its leader there
  Handle bridge = 0;     // the leader alone: where it meets the other one,
  int other_leader = 0;  // which has this rank there,
  int tag = 0;           // and by which tag
};

struct HostTable {
  // Handles the engine needs by value.
  Handle comm_world = 0;
  Handle comm_self = 0;
  Handle request_null = 0;
  Handle message_null = 0;
  Handle message_no_proc = 0;
  Handle byte_type = 0;  // MPI_BYTE

  // Error codes (classes are valid codes in every MPI) in the host's numbering.
  int err_truncate = 0;
  int err_split_element = 0;  // of a message that ends inside a basic element; 0: not an error
  int err_buffer = 0;
  int err_no_mem = 0;
  int err_intern = 0;
  int err_in_status = 0;
  int err_pending = 0;

  int world_rank = 0;
  int world_size = 1;
  int tag_ub = 32767;  // the highest tag; the least that MPI allows unless the host says more
  const char* version_text = "";
  // Whether few long messages to another node are faster than many that need no handshake. (MPICH 4
  // over UCX and TCP: 16 messages of 64 KiB take 2.5 ms, 2 of 512 KiB 0.9.)
  bool few_long_messages = false;
  ThreadLevel thread_level = ThreadLevel::single;  // for which it was initialised

  // Collectives on MPI_COMM_WORLD that joining a node needs; blocking, called inside MPI_Init only.
  int (*world_allgather)(const void* send, void* recv, std::size_t bytes_per_rank) = nullptr;
  int (*world_barrier)() = nullptr;

  // Communicators. `world_ranks` fills one world rank (or -1 when not in MPI_COMM_WORLD) per rank
  // of the local group (remote = false) or of the remote group of an inter-communicator.
  int (*comm_size)(Handle comm, int* size) = nullptr;
  int (*comm_rank)(Handle comm, int* rank) = nullptr;
  int (*comm_test_inter)(Handle comm, bool* inter) = nullptr;
  int (*comm_remote_size)(Handle comm, int* size) = nullptr;
  int (*comm_world_ranks)(Handle comm, bool remote, int* world_ranks, int count) = nullptr;
  // Blocking exchange between the groups of a new inter-communicator: returns in *theirs the
  // maximum of the other group's values.
  int (*inter_exchange)(const Leaders& leaders, std::uint64_t mine,
                        std::uint64_t* theirs) = nullptr;

  // Messages that arrive through the host on communicators that span nodes: looked at, taken out.
  int (*iprobe)(int source, int tag, Handle comm, bool* flag, Status* status) = nullptr;
  int (*improbe)(int source, int tag, Handle comm, bool* flag, Handle* message,
                 Status* status) = nullptr;
  int (*imrecv)(void* buf, std::int64_t count, Handle type, Handle* message,
                Handle* request) = nullptr;
  int (*test)(Handle* request, bool* flag, Status* status) = nullptr;
  // The same for several at once, for which the host makes progress once: *done of them are over,
  // which[i] says which and statuses[i] how. Their handles are null then.
  static constexpr int kMostTested = 32;
  void (*test_some)(int count, Handle* requests, int* done, int* which, Status* statuses) = nullptr;
  int (*cancel)(Handle* request) = nullptr;
  int (*request_free)(Handle* request) = nullptr;
  // Makes errors of a communicator come back as codes and nothing else; *before says what was so
  // far.
  int (*errors_return)(Handle comm, Handle* before) = nullptr;
  void (*restore_errors)(Handle comm, Handle before) = nullptr;
  // Drives the host's own progress without completing anything of the program's.
  void (*poll)() = nullptr;

  // Packing of datatypes whose shape the engine does not flatten; `bytes` is count * size, both
  // ways: hosts end the job when they are asked to unpack less.
  int (*pack)(const void* buf, std::int64_t count, Handle type, void* out,
              std::int64_t bytes) = nullptr;
  int (*unpack)(const void* in, std::int64_t bytes, void* buf, std::int64_t count,
                Handle type) = nullptr;

  // Collectives between nodes and on data that the host has to compute with.
  // A communicator of the engine's own over the ranks of the intra-communicator `comm`, in the same
  // order: no attributes, errors are returned, unknown to the program. Collective; blocks inside
  // the host without preparing for it (the caller has, or nothing is pending).
  int (*comm_dup)(Handle comm, Handle* out) = nullptr;
  int (*comm_free)(Handle* comm) = nullptr;
  // Whether a communicator has been revoked (fault tolerance); null: this host knows no such thing.
  bool (*comm_is_revoked)(Handle comm) = nullptr;
  // Any count. After an error *request is 0.
  int (*isend)(const void* buf, std::int64_t count, Handle type, int dest, int tag, Handle comm,
               Handle* request) = nullptr;
  int (*irecv)(void* buf, std::int64_t count, Handle type, int source, int tag, Handle comm,
               Handle* request) = nullptr;
  // Where the data of one element lies, relative to its address.
  int (*type_true_extent)(Handle type, std::int64_t* lower, std::int64_t* extent) = nullptr;
  // inout = in op inout, for any count.
  int (*reduce_local)(const void* in, void* inout, std::int64_t count, Handle type,
                      Handle op) = nullptr;

  // Ends the job; used when a peer process has died.
  // Does not return. (No attribute: not every compiler converts a lambda to such a pointer.)
  void (*abort)(int code) = nullptr;
};

}  // namespace od::host

#endif  // OVERDRIVE_HOST_HOST_TABLE_H_
