// What the loader knows about its process: see process.h.
#include "process.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace od::loader {
namespace {

// All names in one string, each ended by a NUL: no pointers that would have to be relocated in
// every process that starts.
constexpr char kNames[] =
#define OD_ENTRY(index, name) #name "\0"
#include "loader_entries.inc"
    ;

const char*
    g_names[OD_ENTRY_COUNT];  // filled at first use; threads that race write the same values
bool g_names_ready;

HostSearch g_search;  // constant once g_kept is set
bool g_kept;          // the host is there for good
bool g_restricted;    // some names are hidden
int g_lock;
void (*g_dlopen_listener)();

// A lock that is taken over after a while: a child that was forked while another thread held it
// would wait for ever. 100,000 yields are far longer than any holder takes, and still well under a
// second.
class Guard {
 public:
  Guard() {
    for (int i = 0; i < 100'000; ++i) {
      // Acquire pairs with the release in ~Guard.
      if (__atomic_exchange_n(&g_lock, 1, __ATOMIC_ACQUIRE) == 0) return;
      sched_yield();
    }
  }
  ~Guard() { __atomic_store_n(&g_lock, 0, __ATOMIC_RELEASE); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
};

// Finds the next definition of a libc function after this loader. The versions are those under
// which glibc has offered it: since 2.34 in libc itself, before that in libdl.
void* NextOf(const char* name) {
#if defined(__x86_64__)
  static constexpr const char* kVersions[] = {"GLIBC_2.34", "GLIBC_2.2.5"};
#else
  static constexpr const char* kVersions[] = {"GLIBC_2.34", "GLIBC_2.17"};
#endif
  for (const char* version : kVersions) {
    if (void* found = dlvsym(RTLD_NEXT, name, version)) return found;
  }
  return nullptr;
}

template <typename F>
F Cached(F* cache, const char* name) {
  // Relaxed: the value is the same whoever computes it, and it points to code that was there
  // before.
  F function = __atomic_load_n(cache, __ATOMIC_RELAXED);
  if (function == nullptr) {
    function = reinterpret_cast<F>(NextOf(name));
    if (function == nullptr) {
      const char* const parts[] = {"no C library provides ", name, nullptr};
      Say(parts);
      _exit(127);
    }
    __atomic_store_n(cache, function, __ATOMIC_RELAXED);
  }
  return function;
}

DlsymFn g_dlsym;
DlopenFn g_dlopen;

int OwnPhdr(dl_phdr_info* info, size_t, void* result) {
  auto* elf = static_cast<ElfView*>(result);
  return elf->Open(*info) && elf->Contains(od_stubs) ? 1 : 0;
}

// Makes pages of this loader's symbol table writable while it lives.
class WritablePages {
 public:
  WritablePages(const ElfView& own) {
    uintptr_t from = UINTPTR_MAX;
    uintptr_t to = 0;
    for (unsigned i = 0; i < OD_ENTRY_COUNT; ++i) {
      const auto at = reinterpret_cast<uintptr_t>(own.Find(Name(i)));
      if (at == 0) continue;
      if (at < from) from = at;
      if (at + sizeof(ElfW(Sym)) > to) to = at + sizeof(ElfW(Sym));
    }
    // The P names lie anywhere in the table too.
    char name[64] = "P";
    for (unsigned i = 0; i < OD_ENTRY_COUNT; ++i) {
      strcpy(name + 1, Name(i));
      const auto at = reinterpret_cast<uintptr_t>(own.Find(name));
      if (at == 0) continue;
      if (at < from) from = at;
      if (at + sizeof(ElfW(Sym)) > to) to = at + sizeof(ElfW(Sym));
    }
    if (from >= to) return;
    const uintptr_t page_bytes = getauxval(AT_PAGESZ);
    start_ = from & ~(page_bytes - 1);
    bytes_ = ((to + page_bytes - 1) & ~(page_bytes - 1)) - start_;
    usable_ = mprotect(reinterpret_cast<void*>(start_), bytes_, PROT_READ | PROT_WRITE) == 0;
  }
  ~WritablePages() {
    if (usable_) mprotect(reinterpret_cast<void*>(start_), bytes_, PROT_READ);
  }
  WritablePages(const WritablePages&) = delete;
  WritablePages& operator=(const WritablePages&) = delete;
  bool usable() const { return usable_; }

 private:
  uintptr_t start_ = 0;
  size_t bytes_ = 0;
  bool usable_ = false;
};

// Offers or hides one name. The dynamic linker passes over a symbol whose value is 0.
void Offer(const ElfView& own, const char* name, unsigned index, bool visible) {
  auto* symbol = const_cast<ElfW(Sym)*>(own.Find(name));
  if (symbol == nullptr) return;
  const ElfW(Addr) value =
      visible ? reinterpret_cast<ElfW(Addr)>(od_stubs) + index * kEntryPointBytes - own.base() : 0;
  // Relaxed: another thread that binds a symbol right now sees the old or the new value; both are
  // whole.
  if (symbol->st_value != value) __atomic_store_n(&symbol->st_value, value, __ATOMIC_RELAXED);
}

// Offers the names that `host` defines; all of them if there is no host.
void AdjustNames(const HostLibrary& host) {
  if (!host.found && !g_restricted) return;
  ElfView own;
  if (dl_iterate_phdr(&OwnPhdr, &own) == 0) return;
  WritablePages pages(own);
  if (!pages.usable()) {
    const char* const parts[] = {"cannot hide functions that the MPI library lacks", nullptr};
    if (Verbosity() >= 1) Say(parts);
    return;
  }
  char p_name[64] = "P";
  for (unsigned i = 0; i < OD_ENTRY_COUNT; ++i) {
    const char* name = Name(i);
    strcpy(p_name + 1, name);
    Offer(own, name, i, !host.found || host.elf.Defines(name));
    Offer(own, p_name, i, !host.found || host.elf.Defines(p_name));
  }
  g_restricted = host.found;
}

// A host that is there when the program starts: names it lacks are hidden before the program can
// ask. Where there is none this costs a walk over the few objects of the process.
__attribute__((constructor)) void AdjustAtStart() { FindHostAndAdjustNames(); }

}  // namespace

DlsymFn RealDlsym() { return Cached(&g_dlsym, "dlsym"); }
void SetDlopenListener(void (*listener)()) {
  __atomic_store_n(&g_dlopen_listener, listener, __ATOMIC_RELEASE);  // pairs with the load below
}

void TellDlopenListener() {
  // Acquire: the face that the listener belongs to is ready; pairs with the release above.
  if (auto listener = __atomic_load_n(&g_dlopen_listener, __ATOMIC_ACQUIRE)) listener();
}

DlopenFn RealDlopen() { return Cached(&g_dlopen, "dlopen"); }

const char* Name(unsigned index) {
  // Acquire pairs with the release below.
  if (!__atomic_load_n(&g_names_ready, __ATOMIC_ACQUIRE)) {
    const char* name = kNames;
    for (const char*& entry : g_names) {
      __atomic_store_n(&entry, name, __ATOMIC_RELAXED);
      name += strlen(name) + 1;
    }
    __atomic_store_n(&g_names_ready, true, __ATOMIC_RELEASE);
  }
  return g_names[index];
}

int IndexOf(const char* name) {
  if (*name == 'P') ++name;
  if (strncmp(name, "MPI_", 4) != 0) return -1;
  for (unsigned i = 0; i < OD_ENTRY_COUNT; ++i) {
    if (strcmp(Name(i), name) == 0) return static_cast<int>(i);
  }
  return -1;
}

HostLibrary FindHostAndAdjustNames() {
  // Acquire pairs with the release in KeepHost: the search is not changed any more.
  if (__atomic_load_n(&g_kept, __ATOMIC_ACQUIRE)) return g_search.host();
  Guard guard;
  // The other thread may have kept it meanwhile. Relaxed: the guard orders it.
  if (__atomic_load_n(&g_kept, __ATOMIC_RELAXED)) return g_search.host();
  if (g_search.Refresh()) AdjustNames(g_search.host());
  return g_search.host();
}

void KeepHost(const HostLibrary& host) {
  Guard guard;
  // Something may have come or gone before the caller had its handle.
  if (g_search.Refresh()) AdjustNames(g_search.host());
  const HostLibrary& found = g_search.host();
  if (!found.found || found.elf.base() != host.elf.base()) return;
  // Release pairs with the acquire in FindHostAndAdjustNames.
  __atomic_store_n(&g_kept, true, __ATOMIC_RELEASE);
}

bool IsOurs(const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  const auto start = reinterpret_cast<uintptr_t>(od_stubs);
  return value >= start && value < start + OD_ENTRY_COUNT * kEntryPointBytes;
}

int Verbosity() {
  const char* text = getenv("OVERDRIVE_VERBOSE");
  return text != nullptr ? atoi(text) : 0;
}

bool Disabled() {
  const char* text = getenv("OVERDRIVE_DISABLE");
  if (text == nullptr) return false;
  static constexpr const char* kYes[] = {"1", "true", "yes", "on"};
  for (const char* yes : kYes) {
    if (strcasecmp(text, yes) == 0) return true;
  }
  return false;
}

void Say(const char* const* parts) {
  iovec pieces[16];
  int count = 0;
  auto add = [&](const char* text) { pieces[count++] = {const_cast<char*>(text), strlen(text)}; };
  add("overdrive: ");
  while (*parts != nullptr && count < 15) add(*parts++);
  add("\n");
  if (writev(STDERR_FILENO, pieces, count) < 0) return;  // nowhere left to say so
}

}  // namespace od::loader
