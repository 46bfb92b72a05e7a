// PMIx_Commit, so that a face can leave a number for the job's other ranks among what the host
// makes public in its MPI_Init: whatever is put before travels with the host's own data.
//
// The host, or a plug-in of it, finds this function first because the loader is preloaded; the PMIx
// library itself may be known to that plug-in only. So it is looked for among all loaded objects.
#include <dlfcn.h>
#include <link.h>

#include <cstddef>

#include "elf_view.h"
#include "face/face_abi.h"
#include "process.h"

namespace od::loader {
namespace {

od_pmix g_pmix;

// The path of the object that defines the function, other than this one.
int look(dl_phdr_info* info, std::size_t, void* path) {
  ElfView view;
  if (!view.Open(*info) || view.Contains(reinterpret_cast<const void*>(&look))) return 0;
  if (!view.Defines("PMIx_Commit")) return 0;
  *static_cast<const char**>(path) = info->dlpi_name;
  return 1;
}

}  // namespace

od_pmix* Pmix() { return &g_pmix; }

}  // namespace od::loader

extern "C" __attribute__((visibility("default"))) int PMIx_Commit() {
  constexpr int kNotInitialised = -31;  // PMIX_ERR_INIT
  const char* path = nullptr;
  dl_iterate_phdr(od::loader::look, &path);
  // Whoever calls has the library loaded: the handle keeps nothing that would go otherwise.
  void* const library =
      path == nullptr ? nullptr : od::loader::RealDlopen()(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return kNotInitialised;
  const auto find = od::loader::RealDlsym();
  const auto commit = reinterpret_cast<int (*)()>(find(library, "PMIx_Commit"));
  od_pmix& pmix = *od::loader::Pmix();
  pmix.put = find(library, "PMIx_Put");
  pmix.get = find(library, "PMIx_Get");
  if (pmix.before_commit != nullptr) pmix.before_commit();
  return commit != nullptr ? commit() : kNotInitialised;
}
