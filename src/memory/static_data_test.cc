// Tests of converting static data in place: contents, addresses, what the peer sees, forks.
#include "memory/static_data.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>

#include "memory/heap/process_heap.h"
#include "memory/reach.h"

namespace od::memory {
namespace {

constexpr std::size_t kValues = 300'000;
[[maybe_unused]] int in_data[4096] = {1, 2, 3};
[[maybe_unused]] double in_bss[kValues];
[[maybe_unused]] char untouched[32 << 20];

// Runs in a process of its own: memory that has changed its place does not change back.
template <typename Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define OD_REQUIRE(condition) \
  if (!(condition)) return __LINE__ % 200 + 10

[[maybe_unused]] const ReachService* started_service() {
  const char* const environment[] = {"PMI_RANK=0", nullptr};
  if (!heap::decide(environment, heap::Allocator::kLibc)) return nullptr;
  const ReachService* service = heap::reach_service();
  return service->prepare() != nullptr ? service : nullptr;
}

// Begins with static data shared; tells whether it is. An emulator of user programs has a thread of
// its own in each process, which the kernel counts and nobody may trust: there MPI_Init leaves
// static data alone, and what converts them is called by itself.
[[maybe_unused]] bool begin_with_static_data(const ReachService* service) {
  const int threads = thread_count();
  begin_reach(service, true, true, "");
  if (threads == 1) return reach_report().static_why.empty();
  if (reach_report().static_why.find("threads before MPI_Init") == std::string::npos) return false;
  std::string why;
  bool all = true;
  for (const StaticRange& range : find_static_ranges("")) {
    all = share_static_range(*service, range, &why) && all;
  }
  return all;
}

TEST(StaticData, FindsTheProgramsOwn) {
  const auto address = reinterpret_cast<std::uintptr_t>(&in_bss[kValues - 1]);
  const auto data = reinterpret_cast<std::uintptr_t>(&in_data[0]);
  int found = 0;
  for (const StaticRange& range : find_static_ranges("")) {
    EXPECT_TRUE(range.object.empty());
    EXPECT_EQ(range.start % 4096, 0u);
    EXPECT_LE(range.file_bytes, range.bytes);
    if (address - range.start < range.bytes) ++found;
    if (data - range.start < range.file_bytes) ++found;
  }
  EXPECT_EQ(found, 2);
}

TEST(StaticData, FindsChosenLibrariesButNeverTheCLibrary) {
  bool cxx = false;
  for (const StaticRange& range : find_static_ranges("libstdc++,libc.so,ld-linux")) {
    EXPECT_EQ(range.object.find("libc.so"), std::string::npos);
    EXPECT_EQ(range.object.find("ld-linux"), std::string::npos);
    cxx = cxx || range.object.find("libstdc++") != std::string::npos;
  }
  EXPECT_TRUE(cxx);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

TEST(StaticData, KeepsItsContentsAndIsTheFile) {
  EXPECT_EQ(
      in_child([] {
        in_bss[0] = 1.5;
        in_bss[kValues - 1] = 2.5;
        in_data[100] = 7;
        const ReachService* service = started_service();
        OD_REQUIRE(service != nullptr);
        const bool counted = thread_count() == 1;
        OD_REQUIRE(begin_with_static_data(service));
        OD_REQUIRE(!counted || reach_report().static_bytes > sizeof in_bss + sizeof untouched);
        OD_REQUIRE(in_bss[0] == 1.5 && in_bss[kValues - 1] == 2.5 && in_bss[5] == 0);
        OD_REQUIRE(in_data[0] == 1 && in_data[2] == 3 && in_data[100] == 7);
        const std::uint64_t offset = reach_offset(in_bss, sizeof in_bss);
        OD_REQUIRE(offset != kUnreachable);
        // As a peer sees it.
        const ReachOwn own = reach_own();
        OD_REQUIRE(own.fd >= 0 && offset + sizeof in_bss <= own.bytes);
        void* peer =
            mmap(nullptr, own.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, own.fd, 0);
        OD_REQUIRE(peer != MAP_FAILED);
        auto* seen = reinterpret_cast<double*>(static_cast<char*>(peer) + offset);
        OD_REQUIRE(seen[kValues - 1] == 2.5);
        seen[77] = 9.5;
        OD_REQUIRE(in_bss[77] == 9.5);
        in_bss[78] = 10.5;
        OD_REQUIRE(seen[78] == 10.5);
        return 0;
      }),
      0);
}

TEST(StaticData, WhatWasNotTouchedTakesNoMemory) {
  EXPECT_EQ(
      in_child([] {
        const ReachService* service = started_service();
        OD_REQUIRE(service != nullptr);
        OD_REQUIRE(begin_with_static_data(service));
        const ReachOwn own = reach_own();
        OD_REQUIRE(reach_offset(untouched, sizeof untouched) != kUnreachable);
        const auto offset = static_cast<off_t>(reach_offset(untouched, sizeof untouched));
        const off_t data = lseek(own.fd, offset + 4096, SEEK_DATA);
        OD_REQUIRE(data < 0 || data >= offset + (16 << 20) ||
                   // Where every program gets huge pages unasked, static data get theirs ahead.
                   service->huge_plan(sizeof untouched) > 0);
        return 0;
      }),
      0);
}

TEST(StaticData, IsLeftAloneWhileThereAreThreads) {
  EXPECT_EQ(in_child([] {
              const ReachService* service = started_service();
              OD_REQUIRE(service != nullptr);
              const int before = thread_count();
              std::thread sleeper([] { pause(); });
              begin_reach(service, true, true, "");
              const std::string said = std::to_string(before + 1) + " threads";
              OD_REQUIRE(reach_report().static_why.find(said) != std::string::npos);
              OD_REQUIRE(reach_offset(in_bss, 8) == kUnreachable);
              bool zero = false;
              void* block = heap::allocate(1 << 20, 0, &zero);
              OD_REQUIRE(block != nullptr && reach_offset(block, 1 << 20) != kUnreachable);
              sleeper.detach();
              return 0;
            }),
            0);
}

// What a child does to static data and blocks stays its own, and it sees what the parent had.
TEST(StaticData, ForkGivesCopies) {
  EXPECT_EQ(in_child([] {
              const ReachService* service = started_service();
              OD_REQUIRE(service != nullptr);
              OD_REQUIRE(begin_with_static_data(service));
              bool zero = false;
              auto* block = static_cast<int*>(heap::allocate(5 << 20, 0, &zero));
              OD_REQUIRE(block != nullptr);
              block[0] = 11;
              block[(5 << 18) - 1] = 12;
              in_bss[3] = 3.5;
              for (int round = 0; round < 20; ++round) {
                const int code = in_child([&] {
                  OD_REQUIRE(block[0] == 11 && block[(5 << 18) - 1] == 12 && in_bss[3] == 3.5);
                  OD_REQUIRE(in_data[1] == 2);
                  block[0] = -1;
                  block[1000] = -1;
                  in_bss[3] = -1;
                  in_data[1] = -1;
                  bool zero_too = false;
                  OD_REQUIRE(heap::allocate(1 << 20, 0, &zero_too) == nullptr);
                  heap::release(block);
                  // A grandchild finds private memory and copies nothing more.
                  return in_child([&] { return in_bss[3] == -1 ? 0 : 1; });
                });
                OD_REQUIRE(code == 0);
                OD_REQUIRE(block[0] == 11 && block[1000] == 0 && in_bss[3] == 3.5);
                OD_REQUIRE(in_data[1] == 2);
              }
              ReachUsage usage;
              service->usage(&usage);
              OD_REQUIRE(usage.fork_count == 20);
              return 0;
            }),
            0);
}

TEST(StaticData, ForkWorksWithoutDescriptors) {
  EXPECT_EQ(in_child([] {
              const ReachService* service = started_service();
              OD_REQUIRE(service != nullptr);
              OD_REQUIRE(begin_with_static_data(service));
              in_bss[9] = 9;
              bool zero = false;
              auto* block = static_cast<int*>(heap::allocate(1 << 20, 0, &zero));
              block[5] = 5;
              // The program closes what it does not know, and may open nothing more.
              for (int fd = 3; fd < 2000; ++fd) close(fd);
              const rlimit none = {0, 0};
              OD_REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
              OD_REQUIRE(service->descriptor() == -1);
              const int code = in_child([&] {
                OD_REQUIRE(block[5] == 5 && in_bss[9] == 9);
                block[5] = in_data[0] = 77;
                in_bss[9] = 77;
                return 0;
              });
              OD_REQUIRE(code == 0);
              OD_REQUIRE(block[5] == 5 && in_bss[9] == 9 && in_data[0] == 1);
              return 0;
            }),
            0);
}

#endif  // sanitizers keep their own records about these addresses

}  // namespace
}  // namespace od::memory
