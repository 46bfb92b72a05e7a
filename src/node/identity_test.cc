// Checks the conclusions that are drawn from everybody's identities.
#include "node/identity.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "node/region_layout.h"

namespace od::node {
namespace {

Identity on_cores(std::uint64_t mask, std::uint64_t host = 1) {
  Identity identity = {};
  identity.node_key = identity.host_key = host;
  identity.flags = kIdentityShares;
  identity.cpus[0] = mask;
  return identity;
}

// The start time of this process as another one sees it.
std::uint64_t start_time_seen_by_others() {
  int ends[2];
  if (pipe(ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    bool ended = false;
    const std::uint64_t start = process_start_time(static_cast<std::uint32_t>(getppid()), &ended);
    _exit(write(ends[1], &start, sizeof start) == sizeof start ? 0 : 1);
  }
  close(ends[1]);
  std::uint64_t start = 0;
  const bool told = read(ends[0], &start, sizeof start) == sizeof start;
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return told ? start : 0;
}

// What /proc shows of the process itself is the kernel's: in emulators it is not.
bool kernel_shows_own_file() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream after(text.substr(text.rfind(')') + 1));
  std::string word;
  for (int field = 3; field <= 20 && after >> word;) ++field;
  return word != "0";
}

TEST(Identity, DescribesThisProcess) {
  const Identity me = identify(1);
  EXPECT_EQ(me.pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_EQ(me.uid, geteuid());
  EXPECT_NE(me.pid_namespace, 0u);
  // Others take this process for dead if they see another one.
  EXPECT_EQ(me.start_time, kernel_shows_own_file() ? start_time_seen_by_others() : 0u);
  EXPECT_GT(me.free_descriptors, 0u);
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  int count = 0;
  for (const std::uint64_t word : me.cpus) count += std::popcount(word);
  EXPECT_EQ(count, CPU_COUNT(&set));
  const Identity again = identify(1);
  EXPECT_EQ(me.node_key, again.node_key);
  EXPECT_NE(me.nonce[0], again.nonce[0]);
  EXPECT_NE(me.socket_name, me.nonce[0]);
  EXPECT_NE(identify(2).node_key, me.node_key);
}

TEST(Identity, KeysDiffer) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t a = 0; a < 100; ++a) {
    for (std::uint64_t b = 0; b < 100; ++b) keys.insert(mix_hash(mix_hash(1, a), b));
  }
  EXPECT_EQ(keys.size(), 10000u);
}

TEST(Candidates, SameKeyAndWilling) {
  std::vector<Identity> all = {on_cores(1, 7), on_cores(1, 8), on_cores(1, 7), on_cores(1, 7)};
  all[3].flags = 0;
  EXPECT_EQ(sharing_candidates(all, 0), (std::vector<int>{0, 2}));
  EXPECT_EQ(sharing_candidates(all, 1), (std::vector<int>{1}));
  EXPECT_TRUE(sharing_candidates(all, 3).empty());
}

TEST(Candidates, TheSurplusOfALargeNodeStaysOutside) {
  const std::vector<Identity> all(kMaxLocalRanks + 3, on_cores(1));
  EXPECT_EQ(sharing_candidates(all, 5).size(), kMaxLocalRanks);
  EXPECT_TRUE(sharing_candidates(all, kMaxLocalRanks).empty());
}

TEST(Processors, CountedOverAllMasksOfTheHost) {
  EXPECT_FALSE(too_few_processors({on_cores(3), on_cores(3)}, 0));
  EXPECT_TRUE(too_few_processors({on_cores(3), on_cores(3), on_cores(3)}, 0));
  EXPECT_FALSE(too_few_processors({on_cores(1), on_cores(2)}, 0));
  EXPECT_FALSE(too_few_processors({on_cores(3), on_cores(3), on_cores(3, 9)}, 0));
  EXPECT_TRUE(too_few_processors({on_cores(1), on_cores(1), on_cores(0xf0)}, 0))
      << "two ranks are pinned to one core";
  EXPECT_FALSE(too_few_processors({on_cores(0), on_cores(0)}, 0)) << "masks unknown";
}

TEST(Processors, QuotaOfASharedGroupIsShared) {
  std::vector<Identity> all = {on_cores(0xff), on_cores(0xff)};
  for (Identity& identity : all) {
    identity.quota_group = 5;
    identity.quota_millicores = 1500;
  }
  EXPECT_TRUE(too_few_processors(all, 0));
  all[1].quota_group = 6;
  EXPECT_FALSE(too_few_processors(all, 0));
}

TEST(StartTime, OfProcesses) {
  bool ended = true;
  EXPECT_NE(process_start_time(static_cast<std::uint32_t>(getppid()), &ended), 0u);
  EXPECT_FALSE(ended);
  EXPECT_EQ(process_start_time(0x3fffffff, &ended), 0u);
}

// Launchers may take their time to wait for a rank that was killed.
TEST(StartTime, OfAProcessThatNobodyHasWaitedFor) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) pause();
  const auto pid = static_cast<std::uint32_t>(child);
  bool ended = true;
  const std::uint64_t start = process_start_time(pid, &ended);
  EXPECT_FALSE(ended);
  kill(child, SIGKILL);
  siginfo_t end;
  ASSERT_EQ(waitid(P_PID, pid, &end, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process_start_time(pid, &ended), start);
  EXPECT_TRUE(ended);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace od::node
