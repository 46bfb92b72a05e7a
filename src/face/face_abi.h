// Contract between the preloaded loader (liboverdrive.so) and a face
// (overdrive/liboverdrive-<abi>.so).
//
// The loader exports every MPI_X / PMPI_X of the interface text as a jump through its table of
// entries. At the first MPI call it looks which host MPI library the process has, loads the face
// made for that library's ABI and calls the face's od_face_bind once, before any MPI call has gone
// through:
//   * `host[i]` is the host's own function number i (PMPI_X, or MPI_X where the host has no
//     PMPI_X), null where the host has neither;
//   * `entries[i]` arrives filled with the host's function (null likewise); the face overwrites
//     the entries it takes over;
//   * the face must not take over an entry whose host[i] is null: the loader puts its own stub
//     there, because programs probe for such names and must find out that they are missing;
//   * everything that the pointers of od_loader_info lead to lives as long as the process.
// Function numbers come from the interface text, so both sides must have been generated from the
// same text: `interface_hash` and `count` say so, and a face that differs must refuse.
// This header is C as well as C++ and knows neither mpi.h nor any other header of the project.
#ifndef OVERDRIVE_SRC_FACE_FACE_ABI_H_
#define OVERDRIVE_SRC_FACE_FACE_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Raised whenever the meaning or the layout of anything below changes.
#define OD_FACE_ABI_VERSION 6u

// The binary interface of the host MPI library.
enum od_abi {
  OD_ABI_UNKNOWN = 0,  // a library that defines PMPI_Init but is none of the following
  OD_ABI_OPENMPI = 1,  // Open MPI: handles are pointers to its own structures
  OD_ABI_MPICH = 2,    // MPICH, Intel MPI, MVAPICH: handles are 32-bit integers
  OD_ABI_MPIABI = 3,   // the standard ABI of MPI 5.0 (libmpi_abi)
};

// What the loader knows of the host's PMIx library, if that has one.
struct od_pmix {
  // Set by a face: called when the host is about to make public what it has put.
  void (*before_commit)(void);
  // The library's functions PMIx_Put and PMIx_Get; null before the first commit.
  void* put;
  void* get;
};

struct od_loader_info {
  uint32_t version;         // OD_FACE_ABI_VERSION of the loader
  uint32_t size_bytes;      // sizeof(struct od_loader_info) of the loader
  uint64_t interface_hash;  // of the interface text's names, in order
  uint32_t count;           // number of functions: names, host and entries have this many elements
  uint32_t abi;             // enum od_abi
  uint32_t verbosity;       // 0 = silent; from 1 on a face says why it refuses
  uint32_t reserved;        // 0

  const char* const* names;  // "MPI_Abort", ... in the order of the interface text
  void* const* host;         // the host's function for each name, or null

  void* host_handle;        // dlopen handle of the host library; never closed
  const char* host_path;    // the path it was loaded from
  const char* host_soname;  // its SONAME, or "" if it has none
  const char* loader_path;  // where liboverdrive.so itself lies
  const char* face_path;    // where this face was loaded from

  // Any other symbol of the host (predefined handles such as ompi_mpi_comm_world, MPIR_*, ...),
  // looked up in the host library and its dependencies only; null if there is none. A face must use
  // this and not dlsym, which the loader interposes.
  void* (*host_symbol)(const char* name);

  // The loader's heap (an od::memory::ReachService, src/memory/reach_service.h), or null.
  const void* reach;

  struct od_pmix* pmix;

  // Names a function to be called before each dlopen of the process that may load something, on the
  // thread that calls it; null: none. Calls before the library is loaded, because dlopen itself is
  // continued by a jump.
  void (*set_dlopen_listener)(void (*listener)(void));

  // What the loader's overdrive_smpi_engine returns (include/overdrive/smpi_engine.h); null, as
  // long as the face sets nothing.
  const void** smpi_engine;

  // Guards of memory that is on its way (an od::memory::GuardService,
  // src/memory/guard/guard_service.h).
  const void* guards;
};

// Result of od_face_bind: 0 = bound, anything else = refused (the loader then uses the host alone).
enum od_bind_result {
  OD_BIND_OK = 0,
  OD_BIND_VERSION = 1,   // other OD_FACE_ABI_VERSION, interface_hash or count
  OD_BIND_ABI = 2,       // not the ABI this face was made for
  OD_BIND_HOST = 3,      // the host library lacks something that the face cannot do without
  OD_BIND_DISABLED = 4,  // switched off by the user's settings
};

// Exported by every face under the name OD_FACE_BIND_SYMBOL, with default visibility.
int od_face_bind(const struct od_loader_info* info, void** entries);
typedef int (*od_face_bind_fn)(const struct od_loader_info* info, void** entries);
#define OD_FACE_BIND_SYMBOL "od_face_bind"

#ifdef __cplusplus
}
#endif

#endif  // OVERDRIVE_SRC_FACE_FACE_ABI_H_
