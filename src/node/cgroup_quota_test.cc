// Checks the search for processor limits in directories that look like control group file systems.
#include "node/cgroup_quota.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace od::node {
namespace {

class CgroupQuotaTest : public testing::Test {
 protected:
  CgroupQuotaTest() {
    char name[] = "/tmp/cgroup_quota_test_XXXXXX";
    root_ = mkdtemp(name);
  }
  ~CgroupQuotaTest() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + "/" + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::string root_;
};

TEST_F(CgroupQuotaTest, NothingMeansNoLimit) {
  EXPECT_EQ(cgroup_quota(root_, "").millicores, 0u);
  EXPECT_EQ(cgroup_quota(root_, "0::/a/b\n").millicores, 0u);
  EXPECT_EQ(cgroup_quota(root_, "nonsense\n").millicores, 0u);
}

TEST_F(CgroupQuotaTest, TheLowestAncestorCounts) {
  write("a/cpu.max", "150000 100000\n");
  write("a/b/cpu.max", "max 100000\n");
  write("a/b/c/cpu.max", "400000 100000\n");
  const CgroupQuota quota = cgroup_quota(root_, "0::/a/b/c\n");
  EXPECT_EQ(quota.millicores, 1500u);
  EXPECT_NE(quota.group, 0u);
  EXPECT_EQ(cgroup_quota(root_, "0::/a/x\n").group, quota.group);
}

TEST_F(CgroupQuotaTest, TheRootOfAContainer) {
  write("cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_quota(root_, "0::/\n").millicores, 500u);
}

TEST_F(CgroupQuotaTest, VersionOne) {
  write("cpu/job/cpu.cfs_quota_us", "200000\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  write("cpu/free/cpu.cfs_quota_us", "-1\n");
  write("cpu/free/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_quota(root_, "5:memory:/x\n4:cpu,cpuacct:/job/step\n").millicores, 2000u);
  EXPECT_EQ(cgroup_quota(root_, "4:cpuacct,cpu:/free\n").millicores, 0u);
}

}  // namespace
}  // namespace od::node
