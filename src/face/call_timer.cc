// Finds the program's call behind the libraries through which Fortran and C++ call MPI.
#include "face/call_timer.h"

#include <link.h>
#include <unwind.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace od::face {
namespace {

// Beginnings of their file names: Open MPI's, MPICH's and Intel MPI's.
constexpr const char* kLanguageLibraries[] = {"libmpi_mpifh.", "libmpi_usempi", "libmpi_cxx.",
                                              "libmpifort.",   "libmpichfort.", "libmpichf",
                                              "libmpicxx.",    "libmpichcxx."};

struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool has(std::uintptr_t address) const { return begin <= address && address < end; }
};

// Written once, when the face is bound, before any timed call.
std::array<Range, 8> ranges;
std::size_t range_count = 0;

bool in_language_library(std::uintptr_t address) {
  for (std::size_t i = 0; i < range_count; ++i) {
    if (ranges[i].has(address)) return true;
  }
  return false;
}

struct Search {
  std::uintptr_t place;
  bool in_library = false;
  int frames = 0;
};

_Unwind_Reason_Code look(_Unwind_Context* context, void* data) {
  // Deeper than any of these libraries goes.
  constexpr int kMostFrames = 24;
  auto& search = *static_cast<Search*>(data);
  const std::uintptr_t address = _Unwind_GetIP(context);
  if (in_language_library(address)) {
    search.in_library = true;
  } else if (search.in_library) {
    search.place = address;
    return _URC_END_OF_STACK;
  }
  return ++search.frames < kMostFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

}  // namespace

std::uintptr_t place_of_call(const void* return_address) {
  const auto address = reinterpret_cast<std::uintptr_t>(return_address);
  if (!in_language_library(address)) [[likely]]
    return address;
  Search search{address};
  _Unwind_Backtrace(look, &search);
  return search.place;
}

void find_language_libraries() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void*) {
        const char* slash = std::strrchr(info->dlpi_name, '/');
        const char* name = slash != nullptr ? slash + 1 : info->dlpi_name;
        bool known = false;
        for (const char* start : kLanguageLibraries) {
          known = known || std::strncmp(name, start, std::strlen(start)) == 0;
        }
        if (!known || range_count == ranges.size()) return 0;
        Range range{~std::uintptr_t{0}, 0};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
          const std::uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
          range.begin = begin < range.begin ? begin : range.begin;
          const std::uintptr_t end = begin + info->dlpi_phdr[i].p_memsz;
          range.end = end > range.end ? end : range.end;
        }
        ranges[range_count++] = range;
        return 0;
      },
      nullptr);
}

}  // namespace od::face
