// Tests of looking for devices where there are none; the runtimes are tested over stand-ins for
// them (tests/device).
#include "memory/device/device_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <memory>

namespace od::memory {
namespace {

int found_runtimes = 0;
void count_found(const char*, const char*) { ++found_runtimes; }

TEST(DeviceMemory, NothingIsAskedWithoutARuntime) {
  begin_device_watch(count_found);
  EXPECT_FALSE(devices_possible());
  EXPECT_EQ(found_runtimes, 0);
}

TEST(DeviceMemory, LoadingALibraryRaisesTheFlag) {
  begin_device_watch(count_found);
  library_is_being_loaded();
  EXPECT_TRUE(devices_possible());
  begin_device_watch(count_found);
  EXPECT_FALSE(devices_possible());
}

TEST(DeviceMemory, MemoryOfTheHostIsNotADevices) {
  begin_device_watch(count_found);
  library_is_being_loaded();
  static char fixed = 0;
  std::array<char, 64> stack = {};
  const auto small = std::make_unique<char[]>(64);
  void* const mapped =
      mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  for (const void* address :
       {static_cast<const void*>(&fixed), static_cast<const void*>(&stack),
        static_cast<const void*>(small.get()), static_cast<const void*>(mapped),
        static_cast<const void*>(nullptr)}) {
    EXPECT_FALSE(on_device(address)) << address;
  }
  munmap(mapped, 4096);
}

TEST(DeviceMemory, WithoutARuntimeNothingIsCopied) {
  begin_device_watch(count_found);
  std::array<char, 8> here = {1, 2, 3};
  std::array<char, 8> there = {};
  const DeviceBlocks run{here.data(), 8, 1, 0};
  DeviceFailure failure;
  EXPECT_FALSE(
      copy_device_blocks(std::span(&run, 1), there.data(), CopyDirection::from_device, &failure));
  EXPECT_EQ(failure.runtime, nullptr);
  EXPECT_EQ(failure.address, here.data());
  EXPECT_EQ(failure.bytes, 8u);
  EXPECT_EQ(there[0], 0);
  EXPECT_EQ(device_usage().bytes, 0u);
}

}  // namespace
}  // namespace od::memory
