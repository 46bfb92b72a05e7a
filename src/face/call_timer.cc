// Finds the program's call behind the libraries through which Fortran and C++ call MPI.
//
// Unwinding takes microseconds. But how far a frame reaches at a given call in it is the same each
// time, unless it holds an array of variable size; so what an unwinding finds is remembered, and
// later ones are one read per frame. Two of 64 are done properly and compared: where a frame
// differs, that place is unwound properly ever after, and where the result does, all are.
#include "face/call_timer.h"

#include <link.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>

#include "base/clock.h"
#include "observe/call_times.h"

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

// By return address: the distance between the stack pointers of a function and of its caller, each
// at its call.
class Steps {
 public:
  static constexpr std::int64_t kUnknown = 0;
  static constexpr std::int64_t kVaries = -1;

  std::int64_t find(std::uintptr_t address) const {
    for (const Entry& entry : entries_) {
      // Acquire: pairs with the release in learn(); a step is that of the address beside it.
      const std::uintptr_t known = entry.address.load(std::memory_order_acquire);
      if (known == address) return entry.step.load(std::memory_order_relaxed);
      if (known == 0) break;
    }
    return kUnknown;
  }
  // Once the table is full, nothing more is learnt.
  void learn(std::uintptr_t address, std::int64_t step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Entry& entry : entries_) {
      const std::uintptr_t known = entry.address.load(std::memory_order_relaxed);
      if (known != 0 && known != address) continue;
      if (known == 0) {
        entry.step.store(step, std::memory_order_relaxed);
      } else if (entry.step.load(std::memory_order_relaxed) != step) {
        entry.step.store(kVaries, std::memory_order_relaxed);
      }
      // Release: pairs with the acquire in find().
      entry.address.store(address, std::memory_order_release);
      return;
    }
  }

 private:
  struct Entry {
    std::atomic<std::uintptr_t> address{0};
    std::atomic<std::int64_t> step{kUnknown};
  };
  // Programs use few functions of MPI; a search through all of them is still short.
  std::array<Entry, 48> entries_{};
  std::mutex mutex_;
};
constinit Steps steps;

struct Search {
  std::uintptr_t place;
  std::uintptr_t last_address = 0;  // in the frame below, if that is such a library's
  std::uintptr_t last_stack = 0;
  int frames = 0;
};

_Unwind_Reason_Code look(_Unwind_Context* context, void* data) {
  // Deeper than any of these libraries goes.
  constexpr int kMostFrames = 24;
  auto& search = *static_cast<Search*>(data);
  const std::uintptr_t address = _Unwind_GetIP(context);
  const std::uintptr_t stack = _Unwind_GetCFA(context);
  if (search.last_address != 0) {
    steps.learn(search.last_address, static_cast<std::int64_t>(stack - search.last_stack));
  }
  if (in_language_library(address)) {
    search.last_address = address;
    search.last_stack = stack;
  } else if (search.last_address != 0) {
    search.place = address;
    return _URC_END_OF_STACK;
  }
  return ++search.frames < kMostFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

std::uintptr_t unwound(std::uintptr_t address) {
  Search search{address};
  _Unwind_Backtrace(look, &search);
  return search.place;
}

// By what is remembered; 0: that is not enough.
std::uintptr_t remembered([[maybe_unused]] std::uintptr_t address,
                          [[maybe_unused]] const void* frame) {
#if defined(__x86_64__)
  constexpr int kMostHops = 4;
  // Above the saved frame pointer and the return address.
  std::uintptr_t stack = reinterpret_cast<std::uintptr_t>(frame) + 16;
  for (int hop = 0; hop < kMostHops; ++hop) {
    if (!in_language_library(address)) return address;
    const std::int64_t step = steps.find(address);
    if (step <= 0) return 0;
    stack += static_cast<std::uintptr_t>(step);
    std::memcpy(&address, reinterpret_cast<const void*>(stack - sizeof address), sizeof address);
  }
#endif
  return 0;
}

// Where calls are passed on by a library for another language, the place from which that was
// called; otherwise the address itself.
std::uintptr_t place_of_call(const void* return_address, const void* frame) {
  const auto address = reinterpret_cast<std::uintptr_t>(return_address);
  if (!in_language_library(address)) [[likely]]
    return address;
  static thread_local unsigned count __attribute__((tls_model("initial-exec"))) = 0;
  static constinit std::atomic<bool> right{true};
  // The first teaches, the second is the first that can be compared.
  const bool check = (count++ & 63u) < 2;
  // Relaxed: at worst some more calls of other threads are counted at a wrong place.
  const std::uintptr_t quick =
      right.load(std::memory_order_relaxed) ? remembered(address, frame) : 0;
  if (quick != 0 && !check) return quick;
  const std::uintptr_t place = unwound(address);
  if (quick != 0 && quick != place) right.store(false, std::memory_order_relaxed);
  return place;
}

}  // namespace

// Not inlined: they stand in a wrapper for every function.
[[gnu::noinline]] void CallTimer::begin(const void* return_address, const void* frame) {
  address_ = place_of_call(return_address, frame);
  timed_frame = reinterpret_cast<std::uintptr_t>(frame);
  start_ns_ = now_ns();
}

[[gnu::noinline]] void CallTimer::end() {
  const std::uint64_t end_ns = now_ns();
  timed_frame = 0;
  if (observe::CallTable* table = observe::own_call_table()) {
    table->add(function_, address_, end_ns - start_ns_);
  }
  if (observe::Recording* record = observe::own_recording()) {
    record->add(function_, start_ns_, end_ns, payload_);
  }
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
