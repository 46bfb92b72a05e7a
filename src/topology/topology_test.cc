// Tests of topology with machines made of files: processor lists, quotas, caches.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "topology/cache_claim.h"
#include "topology/cpu_set.h"
#include "topology/cpu_share.h"
#include "topology/fingerprint.h"
#include "topology/machine.h"

namespace od::topology {
namespace {

// A directory tree that stands for a machine's root.
class FakeRoot {
 public:
  FakeRoot() {
    path_ = "/tmp/od-root-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no temporary directory";
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path file = path_ + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

CpuSet cpus(const char* text) { return parse_cpu_list(text); }

TEST(CpuSet, ListsReadAndWrite) {
  EXPECT_EQ(format_cpu_list(cpus("0-3,8,10-11")), "0-3,8,10-11");
  EXPECT_EQ(cpus("0-3,8\n").count(), 5);
  EXPECT_EQ(format_cpu_list(cpus("")), "");
  EXPECT_EQ(format_cpu_list(cpus("62-66")), "62-66");
  EXPECT_EQ(cpus("0-99999").count(), kMaxCpus);
  EXPECT_EQ(cpus("junk").count(), 0);
  EXPECT_EQ(cpus("63,64").next(63), 64);
  EXPECT_EQ(cpus("5").next(5), -1);
  EXPECT_EQ(cpus("4095").first(), 4095);
  EXPECT_FALSE(cpus("1").contains(-1));
  EXPECT_FALSE(cpus("1").contains(kMaxCpus));
}

TEST(CpuSet, OwnAffinityIsNotEmpty) { EXPECT_GE(own_affinity().count(), 1); }

TEST(CpuQuota, NoneOnABareMachine) {
  FakeRoot root;
  EXPECT_EQ(read_cpu_quota(root.path()).milli_cpus, 0u);
  root.write("/proc/self/cgroup", "nonsense\n0::/a/b\n");
  root.write("/proc/self/mountinfo", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
  EXPECT_EQ(read_cpu_quota(root.path()).milli_cpus, 0u);
}

TEST(CpuQuota, Version2TakesTheTightestOnTheWayUp) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/jobs/step/task\n");
  root.write("/proc/self/mountinfo",
             "25 1 0:22 / /proc rw - proc proc rw\n"
             "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  root.write("/sys/fs/cgroup/jobs/cpu.max", "800000 100000\n");
  root.write("/sys/fs/cgroup/jobs/step/cpu.max", "150000 100000\n");
  root.write("/sys/fs/cgroup/jobs/step/task/cpu.max", "max 100000\n");
  const CpuQuota quota = read_cpu_quota(root.path());
  EXPECT_EQ(quota.milli_cpus, 1500u);
  EXPECT_NE(quota.group, 0u);
  root.write("/proc/self/cgroup", "0::/jobs/step/other\n");
  EXPECT_EQ(read_cpu_quota(root.path()).group, quota.group) << "they share the limit above them";
}

TEST(CpuQuota, Version1WithPartOfTheTreeMounted) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "3:cpuset:/docker/abc\n1:cpu,cpuacct:/docker/abc/sub\n");
  root.write("/proc/self/mountinfo",
             "40 31 0:40 /docker/abc /sys/fs/cgroup/cpu\\040x rw - cgroup cgroup rw,cpu,cpuacct\n");
  root.write("/sys/fs/cgroup/cpu x/cpu.cfs_quota_us", "250000\n");
  root.write("/sys/fs/cgroup/cpu x/cpu.cfs_period_us", "100000\n");
  root.write("/sys/fs/cgroup/cpu x/sub/cpu.cfs_quota_us", "-1\n");
  root.write("/sys/fs/cgroup/cpu x/sub/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read_cpu_quota(root.path()).milli_cpus, 2500u);
}

TEST(CpuQuota, GroupOutsideTheNamespaceUsesTheMountPoint) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/../other\n");
  root.write("/proc/self/mountinfo", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
  root.write("/cg/cpu.max", "50000 100000\n");
  EXPECT_EQ(read_cpu_quota(root.path()).milli_cpus, 500u);
}

CpuShare share(const char* affinity, std::uint64_t milli_cpus = 0, std::uint64_t group = 0) {
  return {cpus(affinity), {milli_cpus, group}};
}

NodeLoad load_of(const std::vector<CpuShare>& ranks) { return node_load(ranks, 8); }

TEST(NodeLoad, MasksCount) {
  EXPECT_FALSE(load_of({share("0-1"), share("0-1")}).oversubscribed);
  EXPECT_TRUE(load_of({share("0-1"), share("0-1"), share("0-1")}).oversubscribed);
  EXPECT_FALSE(load_of({share("0"), share("1")}).oversubscribed);
  EXPECT_TRUE(load_of({share("3"), share("3")}).oversubscribed);
  // Eight processors on the whole, but two ranks are pinned to the same one.
  EXPECT_TRUE(load_of({share("3"), share("3"), share("0-7")}).oversubscribed);
  EXPECT_EQ(load_of({share("0-1"), share("4-5")}).usable_cpus, 4);
}

TEST(NodeLoad, UnknownMaskMeansAll) {
  EXPECT_EQ(load_of({share("")}).usable_cpus, 8);
  EXPECT_EQ(node_load({}, 0).usable_cpus, 1);
}

TEST(NodeLoad, QuotasCountOncePerGroup) {
  // Two ranks in one container with two processors.
  EXPECT_FALSE(load_of({share("0-7", 2000, 5), share("0-7", 2000, 5)}).oversubscribed);
  EXPECT_TRUE(load_of({share("0-7", 1500, 5), share("0-7", 1500, 5)}).oversubscribed);
  // One container each.
  EXPECT_FALSE(load_of({share("0-7", 1000, 5), share("0-7", 1000, 7)}).oversubscribed);
  EXPECT_EQ(load_of({share("0-7", 1000, 5), share("0-7", 3000, 7)}).usable_cpus, 4);
  EXPECT_EQ(load_of({share("0-7", 300, 5)}).usable_cpus, 1);
}

void add_cpu(FakeRoot& root, int id, int core, int package, int node, const char* l3_list) {
  const std::string directory = "/sys/devices/system/cpu/cpu" + std::to_string(id);
  root.write(directory + "/topology/core_id", std::to_string(core) + "\n");
  root.write(directory + "/topology/physical_package_id", std::to_string(package) + "\n");
  root.write(directory + "/node" + std::to_string(node) + "/x", "");
  const auto cache = [&](int index, const char* level, const char* type, const char* size,
                         const std::string& list) {
    const std::string base = directory + "/cache/index" + std::to_string(index);
    root.write(base + "/level", level);
    root.write(base + "/type", type);
    root.write(base + "/size", size);
    root.write(base + "/coherency_line_size", "64\n");
    root.write(base + "/shared_cpu_list", list);
  };
  const std::string self = std::to_string(id);
  cache(0, "1\n", "Data\n", "32K\n", self);
  cache(1, "1\n", "Instruction\n", "64K\n", self);
  cache(2, "2\n", "Unified\n", "1024K\n", self);
  cache(3, "3\n", "Unified\n", "32M\n", l3_list);
}

TEST(Machine, ReadsCachesAndNearness) {
  FakeRoot root;
  root.write("/sys/devices/system/cpu/online", "0-4\n");
  add_cpu(root, 0, 0, 0, 0, "0-1,4");
  add_cpu(root, 1, 1, 0, 0, "0-1,4");
  add_cpu(root, 2, 2, 0, 0, "2");
  add_cpu(root, 3, 0, 1, 1, "3");
  add_cpu(root, 4, 0, 0, 0, "0-1,4");
  const std::vector<Cpu> found = read_online_cpus(root.path());
  ASSERT_EQ(found.size(), 5u);
  ASSERT_EQ(found[0].caches.size(), 3u);
  EXPECT_EQ(found[0].cache_bytes(1), 32u << 10);
  EXPECT_EQ(found[0].cache_bytes(2), 1u << 20);
  EXPECT_EQ(found[0].cache_bytes(3), 32u << 20);
  EXPECT_EQ(found[0].cache_bytes(4), 0u);
  EXPECT_EQ(found[0].caches[0].line_bytes, 64);
  EXPECT_EQ(found[3].numa_node, 1);
  EXPECT_EQ(nearness(found[0], found[4]), Nearness::kSameCore);
  EXPECT_EQ(nearness(found[0], found[1]), Nearness::kSharedCache);
  EXPECT_EQ(nearness(found[0], found[2]), Nearness::kSamePackage);
  EXPECT_EQ(nearness(found[0], found[3]), Nearness::kApart);
  EXPECT_EQ(nearness(found[0], read_cpu(7, root.path())), Nearness::kUnknown);
}

TEST(Fingerprint, NamesProcessorCachesKernelAndVersion) {
  FakeRoot root;
  root.write("/proc/cpuinfo",
             "processor\t: 0\nmodel\t\t: 17\nmodel name\t: Fast \"Chip\" 9\nstepping\t: 1\n");
  root.write("/sys/devices/system/cpu/online", "0-1\n");
  const std::string cache = "/sys/devices/system/cpu/cpu0/cache/index0/";
  root.write(cache + "level", "1\n");
  root.write(cache + "type", "Data\n");
  root.write(cache + "size", "48K\n");
  root.write(cache + "shared_cpu_list", "0\n");
  const std::string text = fingerprint(root.path());
  EXPECT_EQ(text.find("Fast Chip 9; L1 48K; Linux "), 0u) << text;
  EXPECT_NE(text.find("; Overdrive " OVERDRIVE_VERSION), std::string::npos) << text;
  EXPECT_EQ(text, fingerprint(root.path()));
}

TEST(Fingerprint, OddMachinesHaveOneToo) {
  FakeRoot root;
  EXPECT_NE(fingerprint(root.path()).find("caches unknown"), std::string::npos);
  root.write("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n");
  EXPECT_EQ(fingerprint(root.path()).find("ARM 0x41 0xd0c; "), 0u);
}

TEST(CacheClaim, NamesTheLastCacheThatAllProcessorsOfARankShare) {
  FakeRoot root;
  for (int cpu = 0; cpu < 4; ++cpu) add_cpu(root, cpu, cpu, 0, 0, cpu < 2 ? "0-1" : "2-3");
  const CacheClaim first = read_cache_claim(cpus("1"), root.path());
  EXPECT_EQ(first.group, 0);
  EXPECT_EQ(first.private_bytes, 1u << 20);
  EXPECT_EQ(first.shared_bytes, 32u << 20);
  EXPECT_EQ(read_cache_claim(cpus("2-3"), root.path()).group, 2);
  EXPECT_EQ(read_cache_claim(cpus("0-3"), root.path()).group, CacheClaim::kUnknown) << "not bound";
  EXPECT_EQ(read_cache_claim(cpus(""), root.path()).group, CacheClaim::kUnknown);
  EXPECT_EQ(read_cache_claim(cpus("9"), root.path()).group, CacheClaim::kUnknown);
}

TEST(CacheClaim, SyntheticMachinesSpreadRanksInTheirOrder) {
  const auto groups = [](const char* description, int ranks) {
    std::string text;
    for (int i = 0; i < ranks; ++i) {
      text += std::to_string(synthetic_group(description, i, ranks)) + " ";
    }
    return text;
  };
  EXPECT_EQ(groups("pack:2 core:2 pu:1", 4), "0 0 1 1 ");
  EXPECT_EQ(groups("pack:2 core:2 pu:1", 3), "0 0 1 ");
  EXPECT_EQ(groups("pack:2 core:1 pu:1", 5), "0 0 0 1 1 ");
  EXPECT_EQ(groups("Package:1 [numa] L3Cache:2(size=32MB) core:2 pu:2", 8), "0 0 0 0 1 1 1 1 ");
  EXPECT_EQ(groups("core:4 pu:1", 4), "0 0 0 0 ");
  EXPECT_EQ(groups("pack:x", 1), "-1 ");
  EXPECT_EQ(groups("pack:60000 core:60000", 1), "-1 ");
  EXPECT_EQ(groups("", 1), "-1 ");
}

TEST(Machine, RealMachineHasSomething) {
  EXPECT_GE(online_cpus().count(), 1);
  EXPECT_GE(read_online_cpus().size(), 1u);
  own_cache_sizes();  // must not fail, whatever it finds
}

}  // namespace
}  // namespace od::topology
