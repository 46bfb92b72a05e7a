// Places ranks on machines that are made up: two sockets, eight NUMA nodes, hardware threads, and
// jobs that may use odd parts of them.
#include "topology/pin_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "topology/crowding.h"

namespace od::topology {
namespace {

// Sockets, NUMA nodes of each, caches of each, cores of each; second hardware threads have the
// numbers after all first ones, as Linux gives them.
struct Shape {
  int sockets;
  int numas;
  int caches;
  int cores;
  int threads = 1;
};

std::unique_ptr<PinTopology> machine(const Shape& shape) {
  auto made = std::make_unique<PinTopology>();
  const int all = shape.sockets * shape.numas * shape.caches * shape.cores;
  const int of_cache = shape.cores;
  const int of_numa = of_cache * shape.caches;
  const int of_socket = of_numa * shape.numas;
  for (int core = 0; core < all; ++core) {
    for (int thread = 0; thread < shape.threads; ++thread) {
      PinTopology::Cpu& cpu = made->cpus[static_cast<std::size_t>(core + thread * all)];
      cpu.online = true;
      cpu.core = static_cast<std::int16_t>(core);
      cpu.cache = static_cast<std::int16_t>(core / of_cache * of_cache);
      cpu.numa = static_cast<std::int16_t>(core / of_numa * of_numa);
      cpu.socket = static_cast<std::int16_t>(core / of_socket * of_socket);
    }
  }
  return made;
}

CpuSet online(const PinTopology& topology) {
  CpuSet set;
  for (int i = 0; i < kMaxCpus; ++i) {
    if (topology.cpus[static_cast<std::size_t>(i)].online) set.add(i);
  }
  return set;
}

// The places of all ranks, separated by blanks.
std::string places(const PinTopology& topology, const CpuSet& allowed, const char* policy,
                   int ranks, int threads = 1) {
  config::PinRequest request;
  if (config::parse_pin(policy, &request) != nullptr) return "wrong policy";
  std::string text;
  for (int rank = 0; rank < ranks; ++rank) {
    const PinPlace place = place_rank(topology, allowed, request, rank, ranks, threads);
    text += (rank == 0 ? "" : " ") +
            (place.problem != nullptr ? std::string("!") : format_cpu_list(place.cpus));
  }
  return text;
}

std::string places(const PinTopology& topology, const char* policy, int ranks, int threads = 1) {
  return places(topology, online(topology), policy, ranks, threads);
}

TEST(PinPlan, TwoSockets) {
  const auto node = machine({2, 1, 1, 4});
  EXPECT_EQ(places(*node, "compact", 3), "0 1 2");
  EXPECT_EQ(places(*node, "scatter", 5), "0 4 1 5 2");
  EXPECT_EQ(places(*node, "core", 4), "0 2 4 6");
  EXPECT_EQ(places(*node, "core", 8), "0 1 2 3 4 5 6 7");
  EXPECT_EQ(places(*node, "socket", 4), "0-3 0-3 4-7 4-7");
  EXPECT_EQ(places(*node, "list:6,0-1", 3), "6 0 1");
  EXPECT_EQ(places(*node, "list:6,8", 3), "6 ! !");  // not there; no place for the third
}

TEST(PinPlan, EightNumaNodesWithTwoCachesEach) {
  const auto node = machine({2, 4, 2, 2});
  EXPECT_EQ(places(*node, "numa", 8), "0-3 4-7 8-11 12-15 16-19 20-23 24-27 28-31");
  EXPECT_EQ(places(*node, "numa", 4), "0-3 8-11 16-19 24-27");
  EXPECT_EQ(places(*node, "cache", 16).substr(0, 11), "0-1 2-3 4-5");
  // Over sockets first, then NUMA nodes, then caches, then cores.
  EXPECT_EQ(places(*node, "scatter", 17), "0 16 4 20 8 24 12 28 2 18 6 22 10 26 14 30 1");
}

TEST(PinPlan, HardwareThreadsStayWithTheirCore) {
  const auto node = machine({1, 1, 1, 4, 2});
  EXPECT_EQ(places(*node, "compact", 4), "0,4 1,5 2,6 3,7");
  // Shared only as far as necessary, and then by hardware threads.
  EXPECT_EQ(places(*node, "compact", 6), "0 4 1,5 2 6 3,7");
  EXPECT_EQ(places(*node, "scatter", 6), "0 1 2,6 3,7 4 5");
  EXPECT_EQ(places(*node, "core", 8), "0 4 1 5 2 6 3 7");
  EXPECT_EQ(places(*node, "compact", 9), "0,4 0,4 0,4 1 5 2 6 3 7");
}

TEST(PinPlan, ThreadsGetCores) {
  const auto node = machine({2, 2, 1, 4});
  EXPECT_EQ(places(*node, "compact", 3, 4), "0-3 4-7 8-11");
  EXPECT_EQ(places(*node, "scatter", 3, 4), "0-3 8-11 4-7");
  EXPECT_EQ(places(*node, "core", 2, 4), "0-3 8-11");
  // Not as many as asked for where they do not suffice.
  EXPECT_EQ(places(*node, "compact", 8, 4), "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15");
  EXPECT_EQ(places(*node, "compact", 3, 100), "0-4 5-9 10-14");
}

TEST(PinPlan, OnlyWhatTheJobMayUse) {
  const auto node = machine({2, 1, 2, 2, 2});
  // One core of the first socket, its second thread excluded, and three of the other.
  const CpuSet allowed = parse_cpu_list("1,4-6,12-14");
  EXPECT_EQ(places(*node, allowed, "compact", 4), "1 4,12 5,13 6,14");
  EXPECT_EQ(places(*node, allowed, "scatter", 4), "1 4,12 6,14 5,13");
  EXPECT_EQ(places(*node, allowed, "socket", 2), "1 4-6,12-14");
  EXPECT_EQ(places(*node, allowed, "list:0-1", 2), "! 1");
  EXPECT_EQ(places(*node, parse_cpu_list("200"), "compact", 1), "!");
}

TEST(PinPlan, EveryRankHasItsPlaceAndCoresAreSharedEvenly) {
  for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{2, 2, 3, 2, 2}, Shape{1, 2, 1, 5, 4}}) {
    const auto node = machine(shape);
    const CpuSet all = online(*node);
    const int cores = count_cores(*node, all);
    for (const char* policy : {"compact", "scatter", "core", "cache", "numa", "socket"}) {
      for (int ranks = 1; ranks <= 3 * all.count(); ++ranks) {
        config::PinRequest request;
        ASSERT_EQ(config::parse_pin(policy, &request), nullptr);
        std::vector<int> users(kMaxCpus, 0);
        for (int rank = 0; rank < ranks; ++rank) {
          const PinPlace place = place_rank(*node, all, request, rank, ranks, 1);
          ASSERT_EQ(place.problem, nullptr);
          ASSERT_FALSE(place.cpus.empty());
          if (request.policy > config::PinPolicy::kCore) continue;
          ASSERT_EQ(count_cores(*node, place.cpus), 1);
          const auto cpu = static_cast<std::size_t>(place.cpus.first());
          ++users[static_cast<std::size_t>(node->cpus[cpu].core)];
        }
        if (request.policy > config::PinPolicy::kCore) continue;
        for (int cpu = 0; cpu < cores; ++cpu) {
          const int count = users[static_cast<std::size_t>(cpu)];
          ASSERT_GE(count, ranks / cores) << policy << ' ' << ranks;
          ASSERT_LE(count, (ranks + cores - 1) / cores) << policy << ' ' << ranks;
        }
      }
    }
  }
}

TEST(PinPlan, ReadsWhatLinuxTells) {
  const auto root = std::filesystem::path(testing::TempDir()) / "pin-plan-sys";
  const auto put = [&](const std::string& name, const char* text) {
    const auto path = root / "sys/devices/system" / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  };
  put("cpu/online", "0-2,5");
  put("cpu/cpu0/topology/core_cpus_list", "0,2");
  put("cpu/cpu1/topology/thread_siblings_list", "1");
  put("cpu/cpu0/topology/package_cpus_list", "0-2");
  put("cpu/cpu5/topology/package_cpus_list", "5");
  put("cpu/cpu0/cache/index2/shared_cpu_list", "0,2");
  put("node/online", "0-1");
  put("node/node0/cpulist", "0-3");
  put("node/node1/cpulist", "5");
  const auto found = std::make_unique<PinTopology>();
  ASSERT_TRUE(read_pin_topology(root.c_str(), found.get()));
  EXPECT_EQ(format_cpu_list(online(*found)), "0-2,5");
  EXPECT_EQ(found->cpus[2].core, 0);
  EXPECT_EQ(found->cpus[5].core, 5);
  EXPECT_EQ(found->cpus[1].socket, 0);
  EXPECT_EQ(found->cpus[5].socket, 5);
  EXPECT_EQ(found->cpus[2].cache, 0);
  EXPECT_EQ(found->cpus[1].cache, 0);  // not told: the NUMA node
  EXPECT_EQ(found->cpus[5].numa, 5);
  EXPECT_FALSE(found->cpus[3].online);
  EXPECT_FALSE(read_pin_topology("/nowhere", found.get()));
  std::filesystem::remove_all(root);
}

std::vector<RankPlace> ranks_on(const std::vector<std::string>& lists) {
  std::vector<RankPlace> ranks;
  for (const std::string& list : lists) {
    ranks.push_back({static_cast<int>(ranks.size()), parse_cpu_list(list)});
  }
  return ranks;
}

TEST(Crowding, TwoRanksOnACoreWhileOthersIdle) {
  const auto node = machine({1, 1, 1, 4, 2});
  const CpuSet all = online(*node);
  // Two hardware threads of one core.
  const auto found = crowding(*node, all, ranks_on({"0", "4", "1"}), 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("ranks 0-1 share 1 core while 2 cores are idle"), std::string::npos)
      << found[0];
  EXPECT_TRUE(crowding(*node, all, ranks_on({"0-7", "0-7", "0-7"}), 1).empty());
  EXPECT_TRUE(crowding(*node, all, ranks_on({"0", "1", "", "2"}), 1).empty());
  // No core is idle: there is nothing better.
  EXPECT_TRUE(crowding(*node, parse_cpu_list("0"), ranks_on({"0", "0"}), 1).empty());
}

TEST(Crowding, ThreadsThatShareACore) {
  const auto node = machine({1, 1, 1, 4});
  const auto found = crowding(*node, online(*node), ranks_on({"0-1", "2-3"}), 4);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("4 OpenMP threads of rank 0 share 2 cores"), std::string::npos)
      << found[0];
  EXPECT_NE(found[0].find("OMP_NUM_THREADS to 2"), std::string::npos) << found[0];
  EXPECT_TRUE(crowding(*node, online(*node), ranks_on({"0-1", "2-3"}), 2).empty());
}

}  // namespace
}  // namespace od::topology
