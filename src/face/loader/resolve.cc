// The first MPI call of a process: finds the host library, loads the face for it and fills the
// entries.
//
// od_resolve may be entered by several threads at once and, while it works, again by the thread
// that does the work (if code it loads calls MPI). One thread resolves; others wait; the same
// thread again gets the host's function. Entries are written with release stores after everything
// they lead to is in place; the entry points read them with acquire loads. On x86-64 these are
// plain loads; on aarch64 a branch to a loaded address orders nothing: what the code there reads
// may have been read before the address was.
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guarding.h"
#include "process.h"

namespace od::loader {
namespace {

enum State : int { kNew = 0, kBusy = 1, kDone = 2 };

// Whoever resolves is the only writer of everything here, until g_state is kDone. Without a host it
// is kNew again: one may still come.
int g_state;
long g_resolver;                 // thread id of the one that resolves
void* g_host[OD_ENTRY_COUNT];    // the host's functions
void* g_filled[OD_ENTRY_COUNT];  // what the entries are going to be
char g_loader_path[PATH_MAX];
char g_face_path[PATH_MAX];
char g_host_path[PATH_MAX];
void* g_host_handle;
od_loader_info g_info;

void* HostSymbol(const char* name) { return RealDlsym()(g_host_handle, name); }

// The function that dlsym would find in the host, null if the host does not define it. The usual
// case is answered by the symbol table: hundreds of functions are looked up in every process.
void* HostFunction(const ElfView& elf, const char* name) {
  const ElfW(Sym)* symbol = elf.Find(name);
  if (symbol == nullptr || symbol->st_value == 0) return nullptr;
  void* plain = elf.PlainFunction(symbol);
  return plain != nullptr ? plain : HostSymbol(name);
}

const char* AbiName(od_abi abi) {
  switch (abi) {
    case OD_ABI_OPENMPI:
      return "openmpi";
    case OD_ABI_MPICH:
      return "mpich";
    case OD_ABI_MPIABI:
      return "mpiabi";
    default:
      return nullptr;
  }
}

[[noreturn]] void Fail(const char* name, const char* reason, const char* path, const char* end) {
  const char* const parts[] = {"symbol lookup error: ",
                               program_invocation_name,
                               ": undefined symbol: ",
                               name,
                               reason,
                               path,
                               end,
                               nullptr};
  Say(parts);
  _exit(127);  // as the dynamic linker does
}

// Writes directory + name to g_face_path; false if that is too long.
bool ComposeFacePath(const char* directory, size_t directory_bytes, const char* middle,
                     const char* abi) {
  static constexpr char kStem[] = "liboverdrive-";
  static constexpr char kEnd[] = ".so";
  if (directory_bytes + strlen(middle) + sizeof(kStem) + strlen(abi) + sizeof(kEnd) > PATH_MAX) {
    return false;
  }
  memcpy(g_face_path, directory, directory_bytes);
  char* end = stpcpy(g_face_path + directory_bytes, middle);
  end = stpcpy(end, kStem);
  end = stpcpy(end, abi);
  strcpy(end, kEnd);
  return true;
}

bool FindFacePath(const char* abi) {
  if (const char* directory = getenv("OVERDRIVE_FACE_DIR"); directory != nullptr && *directory) {
    return ComposeFacePath(directory, strlen(directory), "/", abi);
  }
  const char* slash = strrchr(g_info.loader_path, '/');
  const size_t bytes = slash != nullptr ? static_cast<size_t>(slash - g_info.loader_path) + 1 : 0;
  return ComposeFacePath(g_info.loader_path, bytes, "overdrive/", abi);
}

const char* Refusal(int result) {
  switch (result) {
    case OD_BIND_VERSION:
      return "it belongs to another version of Overdrive";
    case OD_BIND_ABI:
      return "it is not made for this MPI library";
    case OD_BIND_HOST:
      return "the MPI library lacks something it needs";
    case OD_BIND_DISABLED:
      return "switched off";
    default:
      return "it refused";
  }
}

// Lets the face take its entries. Any failure leaves the host's functions in `entries`.
void BindFace(const HostLibrary& host, void** entries) {
  const bool speak = g_info.verbosity >= 1;
  const char* abi = AbiName(host.abi);
  if (abi == nullptr) {
    const char* const parts[] = {"not used: ", g_info.host_path,
                                 " is no MPI library that Overdrive knows", nullptr};
    if (speak) Say(parts);
    return;
  }
  if (!FindFacePath(abi)) return;
  void* face = RealDlopen()(g_face_path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* bind = face != nullptr ? RealDlsym()(face, OD_FACE_BIND_SYMBOL) : nullptr;
  if (bind == nullptr) {
    const char* error = dlerror();
    const char* const parts[] = {"not used: ", error != nullptr ? error : g_face_path, nullptr};
    if (speak) Say(parts);
    return;
  }
  g_info.face_path = g_face_path;
  const int result = reinterpret_cast<od_face_bind_fn>(bind)(&g_info, entries);
  if (result == OD_BIND_OK) return;
  for (unsigned i = 0; i < OD_ENTRY_COUNT; ++i) entries[i] = g_host[i];
  const char* const parts[] = {"not used: ", g_face_path, ": ", Refusal(result), nullptr};
  if (speak) Say(parts);
}

void* MissingStub(unsigned index) {
  return const_cast<unsigned char*>(od_missing + index * kStubBytes);
}

// What is right in a process without an MPI library, for those who ask before they use one.
int NotYet(int* flag) {
  *flag = 0;
  return 0;  // MPI_SUCCESS in every ABI
}

// The function that a process without a host calls: that of a library which stands in for MPI in
// sequential programs (MUMPS brings one), as if this loader were not there. References that are
// weak, null without us, are not null with us; who has one asks next whether MPI is initialised.
void* WithoutHost(unsigned index) {
  char p_name[64] = "P";
  strcpy(p_name + 1, Name(index));
  const char* const names[] = {Name(index), p_name};
  for (const char* name : names) {
    // Also in what was loaded for the use of some objects only; names with versions are dlsym's.
    if (void* const other = FindDefinition(name)) return other;
    if (void* const other = RealDlsym()(RTLD_NEXT, name)) return other;
  }
  if (strcmp(Name(index), "MPI_Initialized") == 0 || strcmp(Name(index), "MPI_Finalized") == 0) {
    return reinterpret_cast<void*>(&NotYet);
  }
  Fail(Name(index), " (no MPI library is loaded)", "", "");
}

// Null: the entries are filled for good. Else there is no host as yet, and this call goes there.
void* Resolve(unsigned index) {
  const HostLibrary host = FindHostAndAdjustNames();
  if (!host.found) return WithoutHost(index);
  // Keeps the library in the process from here on.
  g_host_handle = RealDlopen()(host.path, RTLD_LAZY | RTLD_NOLOAD);
  if (g_host_handle == nullptr) Fail(Name(index), " (cannot get hold of ", host.path, ")");
  strncpy(g_host_path, host.path, sizeof(g_host_path) - 1);
  KeepHost(host);

  static const char* names[OD_ENTRY_COUNT];
  char p_name[64] = "P";
  for (unsigned i = 0; i < OD_ENTRY_COUNT; ++i) {
    names[i] = Name(i);
    strcpy(p_name + 1, names[i]);
    g_host[i] = HostFunction(host.elf, p_name);
    if (g_host[i] == nullptr) g_host[i] = HostFunction(host.elf, names[i]);
    g_filled[i] = g_host[i];
  }
  const int verbosity = Verbosity();
  g_info.version = OD_FACE_ABI_VERSION;
  g_info.size_bytes = sizeof(g_info);
  g_info.interface_hash = OD_INTERFACE_HASH;
  g_info.count = OD_ENTRY_COUNT;
  g_info.abi = host.abi;
  g_info.verbosity = verbosity > 0 ? static_cast<uint32_t>(verbosity) : 0;
  g_info.names = names;
  g_info.host = g_host;
  g_info.host_handle = g_host_handle;
  g_info.host_path = g_host_path;
  g_info.host_soname = host.elf.soname();
  g_info.loader_path = LoaderPath(g_loader_path, sizeof(g_loader_path));
  g_info.face_path = "";
  g_info.host_symbol = &HostSymbol;
  g_info.reach = HeapService();
  g_info.pmix = Pmix();
  g_info.set_dlopen_listener = &SetDlopenListener;
  g_info.smpi_engine = SmpiEngine();
  g_info.guards = GuardingService();
  if (!Disabled()) BindFace(host, g_filled);

  for (unsigned i = 0; i < OD_ENTRY_COUNT; ++i) {
    if (g_host[i] == nullptr) g_filled[i] = MissingStub(i);
    // Release: see the head of this file; pairs with the stubs, which load before they jump.
    __atomic_store_n(&od_entry[i], g_filled[i], __ATOMIC_RELEASE);
  }
  return nullptr;
}

}  // namespace

void* const* ResolvedEntries() {
  // While the face is being loaded there is nothing to watch yet. Acquire pairs with the release in
  // od_resolve.
  return __atomic_load_n(&g_state, __ATOMIC_ACQUIRE) == kDone ? g_filled : nullptr;
}

}  // namespace od::loader

void* od_resolve(unsigned index) {
  using namespace od::loader;
  const long self = syscall(SYS_gettid);
  for (;;) {
    int expected = kNew;
    // Acquire pairs with the releases of kDone and kNew below.
    if (__atomic_compare_exchange_n(&g_state, &expected, kBusy, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE)) {
      __atomic_store_n(&g_resolver, self, __ATOMIC_RELAXED);
      void* const other = Resolve(index);
      __atomic_store_n(&g_state, other == nullptr ? kDone : kNew, __ATOMIC_RELEASE);
      return other != nullptr ? other : __atomic_load_n(&od_entry[index], __ATOMIC_RELAXED);
    }
    // Acquire pairs with the same releases. Loading a face takes milliseconds at most.
    while (__atomic_load_n(&g_state, __ATOMIC_ACQUIRE) == kBusy) {
      if (__atomic_load_n(&g_resolver, __ATOMIC_RELAXED) == self) {
        return g_host[index] != nullptr ? g_host[index] : MissingStub(index);
      }
      sched_yield();
    }
    // Else there is no host, and this call has to look for itself.
    if (__atomic_load_n(&g_state, __ATOMIC_ACQUIRE) == kDone) {
      // Here again: calls are watched (guarding.h), or this one was when it began.
      SettleCall(index);
      return g_filled[index];
    }
  }
}

void od_report_missing(unsigned index) {
  using namespace od::loader;
  Fail(Name(index), " (the MPI library ", g_host_path, " does not provide it)");
}
