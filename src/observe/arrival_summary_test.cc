// Checks which calls are kept, and what is told of them.
#include "observe/arrival_summary.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace od::observe {
namespace {

constexpr const char* kNames[] = {"MPI_Bcast", "MPI_Reduce"};

TEST(ArrivalStream, KeepsTheSameCallsOnAllRanksAndSomeOfEachOfThoseThatTakeTurns) {
  ArrivalStream one(1, 2);
  ArrivalStream other(1, 2);
  constexpr std::uint64_t kCalls = 100'000;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    one.add(static_cast<std::uint32_t>(i % 2), 0x1000, i);
    other.add(static_cast<std::uint32_t>(i % 2), 0x2000, 7 * i);
  }
  ASSERT_EQ(one.kept().size(), other.kept().size());
  EXPECT_LE(one.kept().size(), ArrivalStream::kMostKept);
  EXPECT_GT(one.kept().size(), ArrivalStream::kMostKept / 4);
  std::vector<std::size_t> of_function(2);
  for (std::size_t i = 0; i < one.kept().size(); ++i) {
    EXPECT_EQ(one.kept()[i].number, other.kept()[i].number);
    ++of_function[one.kept()[i].function];
  }
  EXPECT_GT(of_function[0], ArrivalStream::kMostKept / 16);
  EXPECT_GT(of_function[1], ArrivalStream::kMostKept / 16);
  EXPECT_EQ(one.calls(), kCalls);
}

TEST(ArrivalStream, WhoThinsLaterKeepsWhatOthersKeep) {
  ArrivalStream early(1, 2);
  ArrivalStream late(1, 2);
  early.thin(3);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    early.add(0, 0x1000, i);
    late.add(0, 0x1000, i);
  }
  EXPECT_EQ(late.kept().size(), 1000u);
  late.thin(3);
  ASSERT_EQ(early.kept().size(), late.kept().size());
  for (std::size_t i = 0; i < early.kept().size(); ++i) {
    EXPECT_EQ(early.kept()[i].number, late.kept()[i].number);
  }
}

CallSite site(const char* function, std::uint64_t offset) {
  CallSite made;
  std::snprintf(made.function, sizeof made.function, "%s", function);
  std::snprintf(made.module, sizeof made.module, "app");
  made.offset = offset;
  made.calls = 1;
  return made;
}

// Four ranks on two nodes; two calls and one of which a rank has told nothing.
std::vector<ToldArrival> told() {
  constexpr std::int64_t kUs = 1000;
  std::vector<ToldArrival> all;
  const std::int64_t late_us[4][2] = {{0, 0}, {5, 3000}, {40, 1}, {2, 2}};
  for (const auto& late : late_us) {
    all.push_back({.stream = 9, .number = 0, .ns = 1'000'000 + late[0] * kUs, .ranks = 4});
    all.push_back({.stream = 9, .number = 1, .ns = 9'000'000 + late[1] * kUs, .ranks = 4});
    all.push_back({.stream = 9, .number = 2, .ns = 9'500'000, .ranks = 4});
  }
  all.back().ranks = 0;
  return all;
}

TEST(ArrivalSummary, TellsHowFarApartRanksCameAndWhoWasLast) {
  const std::vector<CallSite> sites(4, site("MPI_Bcast", 64));
  const std::vector<int> nodes = {0, 0, 2, 2};
  const std::vector<ArrivalSummary> found = join_arrivals(told(), sites, nodes);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].calls, 2u);
  EXPECT_EQ(found[0].ranks, 4u);
  EXPECT_EQ(found[0].longest_ns, 3'000'000u);
  EXPECT_EQ(found[0].median_ns, 3'000'000u);   // the upper one of two
  EXPECT_EQ(found[0].on_node_ns, 3'000'000u);  // ranks 0 and 1 of the second call
  EXPECT_EQ(found[0].nodes_ns, 2000u);         // rank 3 was there first in the first call
  EXPECT_EQ(found[0].last_calls, 1u);
  EXPECT_EQ(found[0].last_rank, 1);
  EXPECT_EQ(found[0].classes[1], 1u);
  EXPECT_EQ(found[0].classes[3], 1u);
  const std::string table = arrival_table(found, 12'300);
  EXPECT_NE(table.find("MPI_Bcast"), std::string::npos);
  EXPECT_NE(table.find("known to 12.3 us"), std::string::npos);
  EXPECT_NE(table.find("1 (50 %)"), std::string::npos);
}

TEST(ArrivalSummary, PlacesOfTheLowestRankNameCalls) {
  std::vector<CallSite> sites = {site("MPI_Bcast", 64), site("MPI_Reduce", 80),
                                 site("MPI_Bcast", 164), site("MPI_Reduce", 180)};
  std::vector<ToldArrival> all = {
      {.stream = 1, .number = 0, .ns = 5, .ranks = 2, .site = 0},
      {.stream = 1, .number = 1, .ns = 50, .ranks = 2, .site = 1},
      {.stream = 1, .number = 0, .ns = 7, .ranks = 2, .site = 0},
      {.stream = 1, .number = 1, .ns = 90, .ranks = 2, .site = 1},
  };
  const std::vector<int> nodes = {0, 0};
  const std::vector<ArrivalSummary> found = join_arrivals(all, sites, nodes);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].site.offset, 80u);  // where more was lost
  EXPECT_EQ(found[1].site.offset, 64u);
  EXPECT_TRUE(arrival_table({}, 0).empty());
}

TEST(ArrivalSummary, FileOfARankHasItsCallsByCommunicator) {
  ArrivalStream first(0xabc, 2);
  first.add(0, 0, 100);
  first.add(1, 0, 200);
  ArrivalStream second(0xdef, 3);
  second.add(0, 0, 300);
  const std::vector<ArrivalStream> streams = {first, second};
  const std::vector<CallSite> sites = arrival_sites(streams, kNames);
  ASSERT_EQ(sites.size(), 2u);
  const auto later = [](std::uint64_t ns) { return static_cast<std::int64_t>(ns) + 1000; };
  std::string text = arrival_json(tell_arrivals(streams, sites, kNames, later), sites, {2, 5});
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  EXPECT_EQ(text,
            "{\"node\":2,\"clock_error_ns\":5,\"sites\":["
            "{\"function\":\"MPI_Bcast\",\"module\":\"\",\"offset\":0},"
            "{\"function\":\"MPI_Reduce\",\"module\":\"\",\"offset\":0}],\"communicators\":["
            "{\"id\":\"0000000000000abc\",\"ranks\":2,\"calls\":[[0,0,1100],[1,1,1200]]},"
            "{\"id\":\"0000000000000def\",\"ranks\":3,\"calls\":[[0,0,1300]]}]}");
}

}  // namespace
}  // namespace od::observe
