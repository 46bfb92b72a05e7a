// Finds the host MPI library among the objects loaded in this process and tells its ABI.
//
// The host library is the first object in load order, other than the program itself and this
// loader, that defines PMPI_Init. Nothing is loaded, referenced or allocated here.
#ifndef OVERDRIVE_SRC_FACE_LOADER_HOST_LIBRARY_H_
#define OVERDRIVE_SRC_FACE_LOADER_HOST_LIBRARY_H_

#include "../face_abi.h"
#include "elf_view.h"

namespace od::loader {

struct HostLibrary {
  bool found = false;
  od_abi abi = OD_ABI_UNKNOWN;
  ElfView elf;
  const char* path = "";  // as the dynamic linker knows it; valid while the object is loaded
};

// The search, which remembers how far it has come so that repeating it is cheap while nothing new
// has been loaded. Not thread-safe.
class HostSearch {
 public:
  // Looks again if objects came or went. Returns true if the answer may differ from the last one.
  bool Refresh();
  const HostLibrary& host() const { return host_; }

 private:
  static int Visit(dl_phdr_info* info, size_t size, void* self);

  HostLibrary host_;
  uint64_t seen_adds_ = 0;  // of the dynamic linker's own counters
  uint64_t seen_subs_ = 0;
  bool searched_ = false;
  // State of one walk:
  uint32_t position_ = 0;       // objects visited in this walk
  uint32_t known_objects_ = 0;  // objects that need no second look
  bool changed_ = false;
};

// The function of this name in the first loaded object, other than this loader, that defines it;
// null if none does.
void* FindDefinition(const char* name);

// The path of this loader as an absolute one where that can be found out; `buffer` may hold the
// result.
const char* LoaderPath(char* buffer, size_t buffer_bytes);

}  // namespace od::loader

#endif  // OVERDRIVE_SRC_FACE_LOADER_HOST_LIBRARY_H_
