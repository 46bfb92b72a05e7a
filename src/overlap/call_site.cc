// Unwinds to the program's frames: see call_site.h.
#include "overlap/call_site.h"

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace od::overlap {
namespace {

// Ours and those of the installed MPI that serve Fortran and C++, by the beginnings of file names.
constexpr const char* kBetween[] = {"liboverdrive", "libmpi_mpifh.", "libmpi_usempi",
                                    "libmpi_cxx.",  "libmpifort.",   "libmpichfort.",
                                    "libmpichf",    "libmpicxx.",    "libmpichcxx."};

const char* file_name_of(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

void mix(std::uint64_t& hash, const void* data, std::size_t bytes) {
  // FNV-1a: the same in every process.
  for (std::size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3ull;
  }
}

}  // namespace

bool CallSites::is_between(const char* file_name) {
  return std::any_of(std::begin(kBetween), std::end(kBetween), [&](const char* start) {
    return std::strncmp(file_name, start, std::strlen(start)) == 0;
  });
}

CallSites::CallSites() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& self = *static_cast<CallSites*>(data);
        if (!is_between(file_name_of(info->dlpi_name)) || self.ranges_ == kMostRanges) return 0;
        Range range{~std::uintptr_t{0}, 0};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
          const std::uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
          range.begin = std::min<std::uintptr_t>(range.begin, begin);
          range.end = std::max<std::uintptr_t>(range.end, begin + info->dlpi_phdr[i].p_memsz);
        }
        self.left_out_[self.ranges_++] = range;
        return 0;
      },
      this);
}

AddressChain CallSites::here() const {
  struct Walk {
    const CallSites* self;
    AddressChain chain{};
    std::size_t count = 0;
    int frames = 0;
  } walk{this};
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* data) {
        // Deeper than this library and another language's go together.
        constexpr int kMostFrames = 32;
        auto& found = *static_cast<Walk*>(data);
        const std::uintptr_t address = _Unwind_GetIP(context);
        if (address == 0) return _URC_END_OF_STACK;
        const auto first = found.self->left_out_.begin();
        const bool left_out = std::any_of(
            first, first + static_cast<std::ptrdiff_t>(found.self->ranges_),
            [&](const Range& range) { return range.begin <= address && address < range.end; });
        // The first frame is this function's.
        if (!left_out && found.frames > 0) found.chain.addresses[found.count++] = address;
        ++found.frames;
        return found.count < AddressChain::kMost && found.frames < kMostFrames ? _URC_NO_REASON
                                                                               : _URC_END_OF_STACK;
      },
      &walk);
  return walk.chain;
}

std::size_t CallSites::Hash::operator()(const AddressChain& chain) const {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  mix(hash, chain.addresses.data(), sizeof chain.addresses);
  return static_cast<std::size_t>(hash);
}

const CallSite& CallSites::site(const AddressChain& chain) {
  if (const auto found = known_.find(chain); found != known_.end()) return found->second;
  if (known_.size() >= kMostSites) return other_;
  CallSite& made = known_[chain];
  made.id = 0xcbf29ce484222325ull;
  for (const std::uintptr_t address : chain.addresses) {
    if (address == 0) break;
    Dl_info info{};
    link_map* map = nullptr;
    // One less: the call itself, where it is the last instruction of a function.
    const auto* const place = reinterpret_cast<const void*>(address - 1);
    std::string module = "?";
    std::uintptr_t offset = 0;
    if (dladdr1(place, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0) {
      module = file_name_of(info.dli_fname);
      offset = address - map->l_addr;
    }
    // Where the C library calls main() there is nothing to tell places apart by.
    if (!made.text.empty() && module.starts_with("libc.so")) break;
    char hex[24];
    std::snprintf(hex, sizeof hex, "+0x%llx", static_cast<unsigned long long>(offset));
    made.text += (made.text.empty() ? "" : " < ") + module + hex;
    mix(made.id, module.data(), module.size());
    mix(made.id, &offset, sizeof offset);
  }
  return made;
}

}  // namespace od::overlap
