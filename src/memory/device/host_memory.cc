// Remembers where the main heap and the main stack lie, and knows each thread's own stack.

#include "memory/device/host_memory.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "memory/reach.h"

// Where the C library believes that the program break is; not everyone's C library tells.
extern "C" void* __curbrk __attribute__((weak));

namespace od::memory {
namespace {

// sbrk(0) says the same, but libraries that look after changes of memory put a system call behind
// it. UCX, which MPICH brings along, made messages from the heap two to three times as long by
// that. What moves the break, they as well, tells the C library.
std::uintptr_t program_break() {
  void* const* const known = &__curbrk;
  // Relaxed: another thread's malloc may be moving it, and an older answer was right as well.
  if (known != nullptr) {
    const void* const there = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (there != nullptr) return reinterpret_cast<std::uintptr_t>(there);
  }
  // Nobody has asked for it yet, as in programs with an allocator of their own.
  return reinterpret_cast<std::uintptr_t>(sbrk(0));
}

// Written in MPI_Init, before other threads ask. Relaxed: each stands for itself.
struct MainAreas {
  // Where the C library's main heap begins, or will begin; it ends at the program break.
  std::atomic<std::uintptr_t> heap_start{UINTPTR_MAX};
  // Where the mapping of the main thread's stack ends; 0 if it was not found.
  std::atomic<std::uintptr_t> stack_end{0};
};
constinit MainAreas main_areas;

// The calling thread's stack, as far as it is in use. Empty where that cannot be told, and for code
// that runs on a stack of its own making.
class OwnStack {
 public:
  bool contains(std::uintptr_t address) {
    const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (top_ == 0) find();
    return address >= frame && address < top_ && frame >= bottom_;
  }

 private:
  // With an unlimited stack the C library names the whole gap below it.
  static constexpr std::uintptr_t kMostBytes = std::uintptr_t{64} << 20;

  void find() {
    top_ = 1;
    const std::uintptr_t main_end = main_areas.stack_end.load(std::memory_order_relaxed);
    if (main_end != 0 && getpid() == syscall(SYS_gettid)) {
      rlimit limit = {};
      if (getrlimit(RLIMIT_STACK, &limit) != 0) return;
      bottom_ = main_end - std::min<std::uintptr_t>(limit.rlim_cur, kMostBytes);
      top_ = main_end;
      return;
    }
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    void* start = nullptr;
    std::size_t bytes = 0;
    if (pthread_attr_getstack(&attributes, &start, &bytes) == 0) {
      bottom_ = reinterpret_cast<std::uintptr_t>(start);
      top_ = bottom_ + bytes;
      if (bytes > kMostBytes) bottom_ = top_ - kMostBytes;
    }
    pthread_attr_destroy(&attributes);
  }

  std::uintptr_t bottom_ = 0;
  std::uintptr_t top_ = 0;  // 0: not asked yet
};

thread_local OwnStack own_stack __attribute__((tls_model("initial-exec")));

}  // namespace

void find_host_memory() {
  std::uintptr_t heap_start = program_break();
  std::uintptr_t stack_end = 0;
  if (std::FILE* const maps = std::fopen("/proc/self/maps", "re"); maps != nullptr) {
    char line[512];
    while (std::fgets(line, sizeof line, maps) != nullptr) {
      unsigned long from = 0;
      unsigned long to = 0;
      if (std::sscanf(line, "%lx-%lx", &from, &to) != 2) continue;
      if (std::strstr(line, "[heap]") != nullptr) heap_start = std::min(heap_start, from);
      if (std::strstr(line, "[stack]") != nullptr) stack_end = to;
    }
    std::fclose(maps);
  }
  main_areas.heap_start.store(heap_start, std::memory_order_relaxed);
  main_areas.stack_end.store(stack_end, std::memory_order_relaxed);
}

bool host_by_nature(const void* address) {
  if (reach_offset(address, 1) != kUnreachable) return true;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (own_stack.contains(at)) return true;
  return at >= main_areas.heap_start.load(std::memory_order_relaxed) && at < program_break();
}

}  // namespace od::memory
