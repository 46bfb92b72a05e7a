// The dynamic symbol table of a loaded object: see elf_view.h.
#include "elf_view.h"

namespace od::loader {
namespace {

// The GNU hash function of symbol names.
uint32_t GnuHash(const char* name) {
  uint32_t hash = 5381;
  for (const char* p = name; *p != '\0'; ++p) hash = hash * 33 + static_cast<unsigned char>(*p);
  return hash;
}

// The hash function of the original ELF tables.
uint32_t SysvHash(const char* name) {
  uint32_t hash = 0;
  for (const char* p = name; *p != '\0'; ++p) {
    hash = (hash << 4) + static_cast<unsigned char>(*p);
    const uint32_t high = hash & 0xf0000000u;
    hash = (hash ^ (high >> 24)) & ~high;
  }
  return hash;
}

}  // namespace

bool ElfView::Open(const dl_phdr_info& info) {
  const ElfW(Dyn)* dynamic = nullptr;
  uintptr_t start = UINTPTR_MAX;
  uintptr_t end = 0;
  for (unsigned i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    const uintptr_t from = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(from);
    } else if (header.p_type == PT_LOAD) {
      if (from < start) start = from;
      if (from + header.p_memsz > end) end = from + header.p_memsz;
    }
  }
  const bool open = Open(info.dlpi_addr, dynamic);
  start_ = start;
  end_ = end;
  return open;
}

bool ElfView::Open(uintptr_t base, const ElfW(Dyn) * dynamic) {
  *this = ElfView();
  base_ = base;
  if (dynamic == nullptr) return false;
  // The dynamic linker has added the base to these addresses, except in the vDSO and on machines
  // where the section is read-only; an address below the base has not been relocated.
  auto address = [this](const ElfW(Dyn) & entry) {
    const uintptr_t value = entry.d_un.d_ptr;
    return value < base_ ? value + base_ : value;
  };
  uintptr_t soname_offset = 0;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        symbols_ = reinterpret_cast<const ElfW(Sym)*>(address(*dynamic));
        break;
      case DT_STRTAB:
        strings_ = reinterpret_cast<const char*>(address(*dynamic));
        break;
      case DT_GNU_HASH:
        gnu_hash_ = reinterpret_cast<const uint32_t*>(address(*dynamic));
        break;
      case DT_HASH:
        sysv_hash_ = reinterpret_cast<const uint32_t*>(address(*dynamic));
        break;
      case DT_VERSYM:
        versions_ = reinterpret_cast<const ElfW(Half)*>(address(*dynamic));
        break;
      case DT_SONAME:
        soname_offset = dynamic->d_un.d_val;
        break;
      default:
        break;
    }
  }
  if (strings_ != nullptr && soname_offset != 0) soname_ = strings_ + soname_offset;
  return symbols_ != nullptr && strings_ != nullptr &&
         (gnu_hash_ != nullptr || sysv_hash_ != nullptr);
}

bool ElfView::Matches(uint32_t index, const char* name) const {
  const ElfW(Sym)& symbol = symbols_[index];
  if (symbol.st_shndx == SHN_UNDEF) return false;
  // By hand: strcmp may be a sanitizer's, which is not ready when its allocator is looked for.
  const char* own = strings_ + symbol.st_name;
  for (; *own == *name; ++own, ++name) {
    if (*own == '\0') return true;
  }
  return false;
}

void* ElfView::PlainFunction(const ElfW(Sym) * symbol) const {
  // Both word sizes keep the type in the lower half.
  if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC) return nullptr;
  if (versions_ != nullptr && versions_[symbol - symbols_] != VER_NDX_GLOBAL) return nullptr;
  return reinterpret_cast<void*>(base_ + symbol->st_value);
}

const ElfW(Sym) * ElfView::Find(const char* name) const {
  if (gnu_hash_ != nullptr) {
    const uint32_t bucket_count = gnu_hash_[0];
    const uint32_t first_symbol = gnu_hash_[1];
    const uint32_t bloom_count = gnu_hash_[2];
    const uint32_t bloom_shift = gnu_hash_[3];
    const auto* bloom = reinterpret_cast<const ElfW(Addr)*>(gnu_hash_ + 4);
    const auto* buckets = reinterpret_cast<const uint32_t*>(bloom + bloom_count);
    const uint32_t* chains = buckets + bucket_count;
    if (bucket_count == 0 || bloom_count == 0) return nullptr;
    const uint32_t hash = GnuHash(name);
    constexpr uint32_t kWordBits = sizeof(ElfW(Addr)) * 8;
    const ElfW(Addr) word = bloom[(hash / kWordBits) % bloom_count];
    const ElfW(Addr) bits = (ElfW(Addr){1} << (hash % kWordBits)) |
                            (ElfW(Addr){1} << ((hash >> bloom_shift) % kWordBits));
    if ((word & bits) != bits) return nullptr;
    uint32_t index = buckets[hash % bucket_count];
    if (index < first_symbol) return nullptr;
    for (;; ++index) {
      const uint32_t entry = chains[index - first_symbol];
      if ((entry | 1) == (hash | 1) && Matches(index, name)) return &symbols_[index];
      if ((entry & 1) != 0) return nullptr;  // the lowest bit marks the end of a chain
    }
  }
  const uint32_t bucket_count = sysv_hash_[0];
  const uint32_t* buckets = sysv_hash_ + 2;
  const uint32_t* chains = buckets + bucket_count;
  if (bucket_count == 0) return nullptr;
  for (uint32_t i = buckets[SysvHash(name) % bucket_count]; i != 0; i = chains[i]) {
    if (Matches(i, name)) return &symbols_[i];
  }
  return nullptr;
}

}  // namespace od::loader
