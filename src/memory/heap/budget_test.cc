// Limits of control groups of both versions and memory nodes, read from trees made for the test.
#include "memory/heap/budget.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace od::memory::heap {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// A tree of files as the system shows them.
class BudgetTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/overdrive-budget-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  Budget Read() {
    Budget budget;
    budget.init((root_ / "groups").c_str(), (root_ / "mount").c_str());
    return budget;
  }
  bool OneNode() { return within_one_node((root_ / "nodes").c_str()); }

  std::filesystem::path root_;
};

std::uint64_t MachineBytes() {
  struct sysinfo machine;
  return sysinfo(&machine) == 0 ? machine.totalram * machine.mem_unit : 0;
}

TEST_F(BudgetTest, WithoutGroupsTheMachineIsTheLimit) {
  const Budget budget = Read();
  EXPECT_EQ(budget.limit_bytes(), MachineBytes());
  EXPECT_GT(budget.free_bytes(), 0u);
  EXPECT_GE(budget.keep_bytes(), 32 * kMiB);
  EXPECT_FALSE(budget.may_commit(MachineBytes(), 0));
  EXPECT_FALSE(budget.may_commit(4096, MachineBytes())) << "everything is committed already";
}

TEST_F(BudgetTest, TheLimitsOfAGroupAndThoseAboveItCount) {
  Write("groups", "0::/job/step/task");
  Write("mount/job/step/task/memory.max", "max");
  Write("mount/job/step/memory.max", std::to_string(512 * kMiB));
  Write("mount/job/step/memory.current", std::to_string(500 * kMiB));
  Write("mount/job/memory.max", std::to_string(256 * kMiB));
  Write("mount/job/memory.current", std::to_string(56 * kMiB));
  const Budget budget = Read();
  EXPECT_EQ(budget.limit_bytes(), 256 * kMiB);
  EXPECT_EQ(budget.free_bytes(), 12 * kMiB) << "the fullest group decides";
  EXPECT_LE(budget.keep_bytes(), 8 * kMiB);
  Write("mount/job/step/memory.current", std::to_string(600 * kMiB));
  EXPECT_EQ(budget.free_bytes(), 0u);
  EXPECT_FALSE(budget.may_commit(4096, 0));
}

TEST_F(BudgetTest, Version1AndMixedMountsAreRead) {
  Write("groups", "9:name=systemd:/x\n4:cpuset,memory:/job\n0::/other");
  Write("mount/memory/job/memory.limit_in_bytes", std::to_string(128 * kMiB));
  Write("mount/memory/job/memory.usage_in_bytes", std::to_string(28 * kMiB));
  Write("mount/memory/memory.limit_in_bytes", "9223372036854771712");
  Write("mount/unified/other/memory.max", std::to_string(200 * kMiB));
  Write("mount/unified/other/memory.current", "0");
  const Budget budget = Read();
  EXPECT_EQ(budget.limit_bytes(), 128 * kMiB);
  EXPECT_EQ(budget.free_bytes(), 100 * kMiB);
}

TEST_F(BudgetTest, AContainerSeesItsLimitAtTheRoot) {
  Write("groups", "0::/outside/of/the/container");
  Write("mount/memory.max", std::to_string(64 * kMiB));
  Write("mount/memory.current", std::to_string(4 * kMiB));
  EXPECT_EQ(Read().free_bytes(), 60 * kMiB);
}

TEST_F(BudgetTest, NonsenseIsNoLimit) {
  Write("groups", "nonsense\n7:memory\n::\n0::/" + std::string(1000, 'x'));
  EXPECT_EQ(Read().limit_bytes(), MachineBytes());
}

TEST_F(BudgetTest, OneNodeIsOneNode) {
  EXPECT_TRUE(OneNode()) << "a kernel without nodes";
  Write("nodes/has_memory", "0");
  EXPECT_TRUE(OneNode());
}

TEST_F(BudgetTest, ProcessorsOfSeveralNodes) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  std::string all;
  int first = -1;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &mine)) continue;
    if (first < 0) first = i;
    all += (all.empty() ? "" : ",") + std::to_string(i);
  }
  Write("nodes/has_memory", "0,3");
  Write("nodes/node0/cpulist", all);
  Write("nodes/node3/cpulist", "");
  EXPECT_TRUE(OneNode()) << "the other node has no processor of ours";
  Write("nodes/node3/cpulist", "0-1023");
  EXPECT_FALSE(OneNode());
  Write("nodes/node0/cpulist", "");
  EXPECT_TRUE(OneNode());
  Write("nodes/node3/cpulist", "");
  EXPECT_FALSE(OneNode()) << "unknown";
  Write("nodes/node3/cpulist", std::to_string(first) + "-" + std::to_string(first));
  EXPECT_TRUE(OneNode());
}

}  // namespace
}  // namespace od::memory::heap
