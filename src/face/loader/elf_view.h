// The dynamic symbol table of an object that the dynamic linker has loaded, read where it lies.
//
// Used in place of dlsym where a lookup must concern exactly one object, must not take references,
// or must see symbols that are hidden (st_value 0). Allocates nothing and takes no lock; the caller
// sees to it that the object is not unloaded meanwhile (inside dl_iterate_phdr, or with a handle
// open).
#ifndef OVERDRIVE_SRC_FACE_LOADER_ELF_VIEW_H_
#define OVERDRIVE_SRC_FACE_LOADER_ELF_VIEW_H_

#include <elf.h>
#include <link.h>
#include <stdint.h>

namespace od::loader {

class ElfView {
 public:
  ElfView() = default;

  // False if the object has no dynamic section or no hash table to look names up in.
  bool Open(const dl_phdr_info& info);
  // The same from its dynamic section alone; where the object ends is not known then. Calls nothing
  // of the C library, so it can be used while a sanitizer is still finding its functions.
  bool Open(uintptr_t base, const ElfW(Dyn) * dynamic);

  // The symbol-table entry with this name, hidden or not; null if the object does not define it.
  const ElfW(Sym) * Find(const char* name) const;

  // Whether the object offers `name` to others.
  bool Defines(const char* name) const {
    const ElfW(Sym)* symbol = Find(name);
    return symbol != nullptr && symbol->st_value != 0;
  }

  // The address of a function of which there is one version and no choice to make at run time; null
  // for any other symbol, which dlsym has to be asked for.
  void* PlainFunction(const ElfW(Sym) * symbol) const;

  const char* soname() const { return soname_; }  // "" if it has none
  uintptr_t base() const { return base_; }
  bool Contains(const void* address) const {
    const auto value = reinterpret_cast<uintptr_t>(address);
    return value >= start_ && value < end_;
  }

 private:
  bool Matches(uint32_t index, const char* name) const;

  uintptr_t base_ = 0;
  uintptr_t start_ = UINTPTR_MAX;  // of the loaded segments
  uintptr_t end_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const uint32_t* gnu_hash_ = nullptr;
  const uint32_t* sysv_hash_ = nullptr;
  const ElfW(Half) * versions_ = nullptr;  // by symbol; null if nothing has a version
  const char* soname_ = "";
};

}  // namespace od::loader

#endif  // OVERDRIVE_SRC_FACE_LOADER_ELF_VIEW_H_
