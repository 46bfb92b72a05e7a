// Tests of host memory by nature: heap, and the stacks of the main thread and of others.
//
// A thread finds its stack with its first question: what is set up for the main thread's (that no
// file can be opened) stands in the first test.
#include "memory/device/host_memory.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <thread>

extern "C" void* __curbrk __attribute__((weak));

namespace {
int sbrk_calls = 0;
}

// As libraries replace it that look after changes of memory.
extern "C" void* sbrk(std::intptr_t by) noexcept {
  ++sbrk_calls;
  return reinterpret_cast<void* (*)(std::intptr_t)>(dlsym(RTLD_NEXT, "sbrk"))(by);
}

namespace od::memory {
namespace {

// Where a function's frame lies: sanitizers put variables elsewhere.
inline __attribute__((always_inline)) const void* here() { return __builtin_frame_address(0); }

TEST(HostMemory, StackOfTheMainThreadWithoutReadingTheMappingsAgain) {
  find_host_memory();

  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  const auto* const frame = static_cast<const char*>(here());
  const bool own = host_by_nature(frame) && host_by_nature(frame - 64);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(maps, nullptr) << "this test cannot fail";
  EXPECT_TRUE(own);
}

TEST(HostMemory, StackOfAnotherThreadIsItsOwnOnly) {
  find_host_memory();
  const void* const main_stack = here();
  bool own = false;
  bool foreign = true;
  std::thread([&] {
    own = host_by_nature(here());
    foreign = host_by_nature(main_stack);
  }).join();
  EXPECT_TRUE(own);
  EXPECT_FALSE(foreign);
  EXPECT_TRUE(host_by_nature(main_stack));
}

TEST(HostMemory, MainHeapAndNothingBeyondIt) {
  find_host_memory();
  const void* const end = sbrk(0);
  void* const more = sbrk(4096);
  ASSERT_NE(more, reinterpret_cast<void*>(-1));
  EXPECT_TRUE(host_by_nature(more));
  sbrk(-4096);
  EXPECT_FALSE(host_by_nature(end));
  void* const mapped = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_FALSE(host_by_nature(mapped));
  munmap(mapped, 4096);
}

TEST(HostMemory, AsksNobodyWhereTheHeapEnds) {
  find_host_memory();
  const char* const end = static_cast<const char*>(sbrk(0));
  const int before = sbrk_calls;
  EXPECT_GT(before, 0) << "this test cannot fail";
  EXPECT_FALSE(host_by_nature(end));
  EXPECT_EQ(sbrk_calls, before);
}

// As in a program whose allocator does not use it: then everything below the heap would seem to be
// in it, where accelerators have their memory.
TEST(HostMemory, TheHeapEndsNowhereUntilSomebodyAsks) {
  if (&__curbrk == nullptr) GTEST_SKIP() << "this C library does not tell where the break is";
  ASSERT_NE(sbrk(0), nullptr);  // in a process by itself nobody may have asked yet
  void* const before = __curbrk;
  ASSERT_NE(before, nullptr);
  __curbrk = nullptr;
  find_host_memory();
  EXPECT_FALSE(host_by_nature(reinterpret_cast<const void*>(0x200000000)));
  EXPECT_EQ(__curbrk, before);
  __curbrk = before;
}

}  // namespace
}  // namespace od::memory
