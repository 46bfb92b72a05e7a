// Finds the host MPI library in this process: see host_library.h.
#include "host_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace od::loader {
namespace {

// Any address inside this loader.
const char kHere = 0;

bool StartsWith(const char* text, const char* prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

// Open MPI is known by a predefined handle that is part of its ABI; the standard ABI only by the
// name of the library, because libraries with an older ABI answer MPI_Abi_get_version as well; the
// MPICH family by the SONAMEs its ABI agreement reserves, or by a symbol all of them export.
od_abi Classify(const ElfView& elf, const char* path) {
  if (elf.Defines("ompi_mpi_comm_world")) return OD_ABI_OPENMPI;
  const char* name = elf.soname();
  if (*name == '\0') {
    const char* slash = strrchr(path, '/');
    name = slash != nullptr ? slash + 1 : path;
  }
  if (StartsWith(name, "libmpi_abi.so")) return OD_ABI_MPIABI;
  if (StartsWith(name, "libmpi.so.12") || StartsWith(name, "libmpich.so.12") ||
      elf.Defines("MPIR_Err_create_code")) {
    return OD_ABI_MPICH;
  }
  return OD_ABI_UNKNOWN;
}

}  // namespace

int HostSearch::Visit(dl_phdr_info* info, size_t, void* self_pointer) {
  auto& self = *static_cast<HostSearch*>(self_pointer);
  if (self.position_ == 0) {
    if (self.searched_ && info->dlpi_subs == self.seen_subs_) {
      if (info->dlpi_adds == self.seen_adds_ || self.host_.found) return 1;
    } else {
      // Objects have gone: what was known about the order, and the host itself, may be wrong.
      self.known_objects_ = 0;
      self.host_ = HostLibrary();
    }
    self.changed_ = true;
    self.searched_ = true;
    self.seen_adds_ = info->dlpi_adds;
    self.seen_subs_ = info->dlpi_subs;
  }
  const uint32_t position = self.position_++;
  // Position 0 is the program: one that contains a host MPI itself does not call through us.
  if (position == 0 || position < self.known_objects_ || self.host_.found) return 0;
  ElfView elf;
  if (!elf.Open(*info) || elf.Contains(&kHere) || !elf.Defines("PMPI_Init")) return 0;
  self.host_.found = true;
  self.host_.elf = elf;
  self.host_.path = info->dlpi_name;
  self.host_.abi = Classify(elf, info->dlpi_name);
  return 0;
}

bool HostSearch::Refresh() {
  position_ = 0;
  changed_ = false;
  dl_iterate_phdr(&Visit, this);
  if (changed_) known_objects_ = position_;
  return changed_;
}

namespace {

struct DefinitionSearch {
  const char* name;
  void* found;
};

int VisitDefinition(dl_phdr_info* info, size_t, void* search_pointer) {
  auto& search = *static_cast<DefinitionSearch*>(search_pointer);
  ElfView elf;
  if (!elf.Open(*info) || elf.Contains(&kHere) || !elf.Defines(search.name)) return 0;
  search.found = elf.PlainFunction(elf.Find(search.name));
  return search.found != nullptr;
}

}  // namespace

void* FindDefinition(const char* name) {
  DefinitionSearch search = {name, nullptr};
  dl_iterate_phdr(&VisitDefinition, &search);
  return search.found;
}

namespace {

// The file that /proc says is mapped at this loader's address.
bool PathFromMaps(char* buffer, size_t buffer_bytes) {
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const auto wanted = reinterpret_cast<uintptr_t>(&kHere);
  char line[4096 + 128];  // PATH_MAX and the columns before it
  size_t used = 0;
  bool found = false;
  while (!found) {
    const ssize_t got = read(file, line + used, sizeof(line) - used);
    if (got <= 0) break;
    used += static_cast<size_t>(got);
    char* begin = line;
    for (char* end; (end = static_cast<char*>(
                         memchr(begin, '\n', used - static_cast<size_t>(begin - line)))) != nullptr;
         begin = end + 1) {
      *end = '\0';
      char* rest = nullptr;
      const uintptr_t from = strtoull(begin, &rest, 16);
      const uintptr_t to = *rest == '-' ? strtoull(rest + 1, nullptr, 16) : 0;
      const char* path = strchr(begin, '/');
      if (wanted >= from && wanted < to && path != nullptr && strlen(path) < buffer_bytes) {
        strcpy(buffer, path);
        found = true;
        break;
      }
    }
    used -= static_cast<size_t>(begin - line);
    memmove(line, begin, used);
  }
  close(file);
  return found;
}

}  // namespace

const char* LoaderPath(char* buffer, size_t buffer_bytes) {
  Dl_info info;
  const char* name = dladdr(&kHere, &info) != 0 ? info.dli_fname : "";
  // A relative path (LD_PRELOAD=lib/...) is of no use once the program has changed its directory.
  if (name[0] != '/' && PathFromMaps(buffer, buffer_bytes)) return buffer;
  return name;
}

}  // namespace od::loader
