// Tables of call times, their joining over threads and ranks, and what is said about places.
#include "observe/call_sites.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

namespace od::observe {
namespace {

CallSite site(const char* function, const char* module, std::uint64_t offset, std::uint64_t calls,
              std::uint64_t ns, std::uint64_t longest_ns) {
  CallSite made;
  std::strncpy(made.function, function, sizeof made.function - 1);
  std::strncpy(made.module, module, sizeof made.module - 1);
  made.offset = offset;
  made.calls = calls;
  made.ns = ns;
  made.longest_ns = longest_ns;
  return made;
}

TEST(CallTable, CountsByFunctionAndPlace) {
  CallTable table;
  table.add(3, 0x1000, 10);
  table.add(3, 0x1000, 30);
  table.add(3, 0x1008, 5);
  table.add(4, 0x1000, 7);
  std::vector<CallTime> found;
  table.add_to(found);
  ASSERT_EQ(found.size(), 3u);
  for (const CallTime& entry : found) {
    if (entry.function != 3 || entry.address != 0x1000) continue;
    EXPECT_EQ(entry.calls, 2u);
    EXPECT_EQ(entry.ns, 40u);
    EXPECT_EQ(entry.longest_ns, 30u);
  }
}

// More places than there is room for: no time is lost, and no search goes on for ever.
TEST(CallTable, KeepsTheTimeOfPlacesWithoutRoom) {
  CallTable table;
  for (std::uintptr_t i = 1; i <= 5000; ++i) table.add(1, 16 * i, 2);
  std::vector<CallTime> found;
  table.add_to(found);
  std::uint64_t calls = 0;
  bool rest = false;
  for (const CallTime& entry : found) {
    calls += entry.calls;
    rest = rest || entry.address == 0;
  }
  EXPECT_EQ(calls, 5000u);
  EXPECT_TRUE(rest);
}

TEST(CallTable, ThreadsHaveTheirOwnAndHandThemOn) {
  const auto sum = [] {
    std::uint64_t calls = 0;
    for (const CallTime& entry : all_call_times()) {
      if (entry.function == 77) calls += entry.calls;
    }
    return calls;
  };
  const CallTable* first = nullptr;
  std::thread([&] {
    first = own_call_table();
    own_call_table()->add(77, 0x10, 1);
  }).join();
  std::thread([&] {
    EXPECT_EQ(own_call_table(), first);  // its thread has ended
    own_call_table()->add(77, 0x10, 1);
  }).join();
  EXPECT_EQ(sum(), 2u);
  own_call_table()->add(77, 0x10, 1);
  EXPECT_EQ(sum(), 3u);
}

TEST(CallSites, AreJoinedOverRanksLongestFirst) {
  const CallSite all[] = {site("MPI_Send", "app", 0x10, 2, 100, 60), CallSite{},
                          site("MPI_Send", "app", 0x10, 1, 50, 50),
                          site("MPI_Recv", "app", 0x10, 1, 900, 900),
                          site("MPI_Send", "lib.so", 0x10, 1, 10, 10)};
  const std::vector<CallSite> joined = join_sites(all);
  ASSERT_EQ(joined.size(), 3u);
  EXPECT_STREQ(joined[0].function, "MPI_Recv");
  EXPECT_EQ(joined[1].calls, 3u);
  EXPECT_EQ(joined[1].ns, 150u);
  EXPECT_EQ(joined[1].longest_ns, 60u);
  EXPECT_STREQ(joined[2].module, "lib.so");
}

[[gnu::noinline]] std::uintptr_t place_in_this_function() {
  return reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
}

TEST(CallSites, NameModuleAndFunction) {
  const char* const names[] = {"MPI_Send"};
  const CallTime times[] = {
      {place_in_this_function(), 0, 1, 5, 5}, {0, 0, 1, 4, 4}, {1, 0, 1, 3, 3}};
  const std::vector<CallSite> sites = call_sites(times, names);
  ASSERT_EQ(sites.size(), 3u);
  EXPECT_STREQ(sites[0].module, program_invocation_short_name);
  EXPECT_STREQ(sites[1].module, "");
  EXPECT_STREQ(sites[2].module, "?");
  const std::vector<std::string> texts = describe_sites(sites);
  EXPECT_NE(texts[0].find(std::string(program_invocation_short_name) + "+0x"), std::string::npos)
      << texts[0];
  EXPECT_NE(texts[1].find("without room"), std::string::npos);
  EXPECT_EQ(texts[2], "?+0x1");
}

TEST(CallSites, TheTableShowsRanksAndPlaces) {
  const RankTime ranks[] = {{500'000'000, 1'000'000'000}, {250'000'000, 1'000'000'000}};
  const CallSite sites[] = {site("MPI_Recv", "nowhere", 0x20, 4, 750'000'000, 400'000'000)};
  const std::string text = call_table(ranks, sites);
  EXPECT_NE(text.find("0.750 s of 2.000 s of all ranks (37.5 %), from 25.0 % (rank 1) to 50.0 % "
                      "(rank 0)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("nowhere+0x20"), std::string::npos) << text;
  EXPECT_EQ(call_table({}, {}), "");
}

}  // namespace
}  // namespace od::observe
