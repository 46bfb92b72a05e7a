// What happens before dlsym and dlopen, which the loader interposes and continues with a jump.
//
// Programs that load MPI themselves ask the process for MPI functions by name, and decide by the
// answer what the MPI library can do or whether there is one at all. They must get the answer they
// would get without this loader in the process, and where they get a function it must be ours:
//   * asking the whole process (RTLD_DEFAULT, the handle of the program): while no MPI library is
//     loaded our names do not count; afterwards the symbol table offers just what the library has;
//   * asking the MPI library itself by its handle: the answer is our entry point in place of its
//     own, or else requests made here would meet functions of the host that do not know them;
//   * asking for a function that changes mappings, to patch it: the next one behind ours;
//   * everything else goes to the real function with the caller's own return address.
#include <dlfcn.h>

#include "process.h"

using od::loader::Continuation;
using od::loader::FindHostAndAdjustNames;
using od::loader::HostLibrary;
using od::loader::RealDlopen;
using od::loader::RealDlsym;

namespace {

// Compares by hand: sanitizers look functions up before they are ready to have strncmp called.
bool IsMpiName(const char* name) {
  if (name == nullptr) return false;
  if (name[0] == 'P') ++name;
  return name[0] == 'M' && name[1] == 'P' && name[2] == 'I' && name[3] == '_';
}

// Functions that this loader stands before and communication libraries patch: they write a jump
// into what they find under the name.
bool IsMappingName(const char* name) {
  static constexpr const char* kNames[] = {"madvise", "mmap",   "mmap64",
                                           "munmap",  "mremap", "mprotect"};
  for (const char* each : kNames) {
    const char* own = each;
    const char* asked = name;
    for (; *own == *asked && *own != '\0'; ++own, ++asked) {
    }
    if (*own == *asked) return true;
  }
  return false;
}

Continuation Answer(void* value) { return {reinterpret_cast<void*>(&od_answer), value}; }

// No MPI library is loaded and somebody asks the process for an MPI function.
Continuation WithoutHost(void* handle, const char* name) {
  const auto real = RealDlsym();
  const Continuation unchanged = {reinterpret_cast<void*>(real), handle};
  void* found = real(handle, name);
  if (found == nullptr || !od::loader::IsOurs(found)) return unchanged;
  // Who would have answered without us?
  if (void* next = real(RTLD_NEXT, name)) return Answer(next);
  // Nobody: let the real function fail, with its own message, by asking an object that has no such
  // name.
  void* libc = RealDlopen()("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc == nullptr) return Answer(nullptr);
  return {reinterpret_cast<void*>(real), libc};
}

}  // namespace

Continuation od_before_dlsym(void* handle, const char* name, void* caller) {
  const auto real = RealDlsym();
  const Continuation unchanged = {reinterpret_cast<void*>(real), handle};
  if (name != nullptr && handle != RTLD_NEXT && IsMappingName(name)) {
    // Theirs must come behind ours, not in its place: they call the kernel themselves.
    void* const found = real(handle, name);
    void* const next = real(RTLD_NEXT, name);
    return found != nullptr && next != nullptr && od::loader::IsOwnMapping(found) ? Answer(next)
                                                                                  : unchanged;
  }
  if (!IsMpiName(name) || handle == RTLD_NEXT) return unchanged;
  const int index = od::loader::IndexOf(name);
  if (index < 0) return unchanged;
  const HostLibrary host = FindHostAndAdjustNames();
  const bool whole_process =
      handle == RTLD_DEFAULT || handle == RealDlopen()(nullptr, RTLD_LAZY | RTLD_NOLOAD);
  if (whole_process) return host.found ? unchanged : WithoutHost(handle, name);
  if (!host.found || host.elf.Contains(caller)) return unchanged;
  void* found = real(handle, name);
  if (found == nullptr || !host.elf.Contains(found)) return unchanged;
  return Answer(const_cast<unsigned char*>(od_stubs + static_cast<unsigned>(index) *
                                                          od::loader::kEntryPointBytes));
}

void* od_before_dlopen(const char* file, int flags) {
  FindHostAndAdjustNames();
  // The program itself, or what has to be there already, is not loaded.
  if (file != nullptr && (flags & RTLD_NOLOAD) == 0) od::loader::TellDlopenListener();
  return reinterpret_cast<void*>(RealDlopen());
}
