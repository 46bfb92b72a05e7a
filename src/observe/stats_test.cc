// Tests of the statistics: the table over ranks, the JSON of one rank, the paths.
#include "observe/stats.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace od::observe {
namespace {

TEST(Counters, TableIsSound) {
  const std::set<std::string> groups = {"messages",  "in_network", "bytes",   "matching",
                                        "buffering", "copying",    "waiting", "host",
                                        "setup",     "smpi",       "overlap"};
  std::set<std::string> names;
  for (const CounterInfo& info : kCounterInfos) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(groups.count(info.group)) << info.name;
    EXPECT_GT(std::string(info.doc).size(), 5u) << info.name;
    // The statistics table must not grow over 150 columns.
    EXPECT_LE(std::string(info.name).size(), 22u) << info.name;
    EXPECT_LE(std::string(info.doc).size(), 66u) << info.name;
  }
  EXPECT_EQ(names.size(), kCounterCount);
}

TEST(StatsTable, AddsSumsAndKeepsPeaks) {
  std::vector<Counters> ranks(3);
  ranks[0].sends_inline = 5;
  ranks[1].sends_inline = 7;
  ranks[0].unexpected_peak = 4;
  ranks[2].unexpected_peak = 9;
  JobFacts facts;
  facts.size = 3;
  facts.version = "1.2.3";
  facts.host_library = "Some MPI";
  facts.elapsed_ns = 1'500'000'000;
  const std::string table = stats_table(ranks, facts);
  EXPECT_EQ(table.find("overdrive 1.2.3 statistics: 3 ranks, 1.500 s, over Some MPI\n"), 0u);
  const auto row = [&](const std::string& name) {
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string first;
      std::uint64_t total = 0, smallest = 0, largest = 0;
      if (words >> first >> total >> smallest >> largest && first == name) {
        return std::vector<std::uint64_t>{total, smallest, largest};
      }
    }
    return std::vector<std::uint64_t>{};
  };
  EXPECT_EQ(row("sends_inline"), (std::vector<std::uint64_t>{12, 0, 7}));
  EXPECT_EQ(row("unexpected_peak"), (std::vector<std::uint64_t>{9, 0, 9}));
  EXPECT_TRUE(row("sends_cell").empty());
  EXPECT_EQ(table.find("bytes\n"), std::string::npos);  // a group without counts has no heading
}

TEST(StatsTable, SaysWhenThereIsNothing) {
  const std::vector<Counters> ranks(1);
  EXPECT_NE(stats_table(ranks, {}).find("nothing was counted"), std::string::npos);
}

TEST(StatsOutput, FollowsTheSetting) {
  for (const char* text : {"", "0", "off", "no", "false"}) {
    EXPECT_EQ(stats_output(text), StatsOutput::kNone) << text;
  }
  for (const char* text : {"1", "on", "yes", "true"}) {
    EXPECT_EQ(stats_output(text), StatsOutput::kTable) << text;
  }
  for (const char* text : {"out.json", "/x/%r", "2"}) {
    EXPECT_EQ(stats_output(text), StatsOutput::kFile) << text;
  }
}

TEST(StatsTable, NamesTheHostWithoutTabs) {
  EXPECT_EQ(title_of("MPICH Version:\t4.0.2\nMPICH Release date:\tnow\n"), "MPICH Version: 4.0.2");
  EXPECT_EQ(title_of("\t Open MPI  v4.1.4,\r\n"), "Open MPI v4.1.4,");
  EXPECT_EQ(title_of(""), "");
}

TEST(StatsPath, ReplacesRank) {
  EXPECT_EQ(stats_path("out/%r.json", 12), "out/12.json");
  EXPECT_EQ(stats_path("out", 3), "out.3");
  EXPECT_EQ(stats_path("100%%-%r%", 1), "100%-1%");
}

TEST(StatsFile, HoldsEveryCounter) {
  std::string directory = "/tmp/od-stats-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  Counters counters;
  counters.bytes_stream = 1'000'000'000'000;
  JobFacts facts;
  facts.rank = 2;
  facts.host_library = "MPI \"x\"";
  EXPECT_EQ(write_rank_file(directory + "/s.%r.json", facts.rank, "statistics",
                            stats_json(counters, facts)),
            "");
  std::stringstream text;
  text << std::ifstream(directory + "/s.2.json").rdbuf();
  for (const CounterInfo& info : kCounterInfos) {
    EXPECT_NE(text.str().find('"' + std::string(info.name) + "\": "), std::string::npos);
  }
  EXPECT_NE(text.str().find("\"bytes_stream\": 1000000000000"), std::string::npos);
  EXPECT_NE(text.str().find("\"rank\": 2"), std::string::npos);
  EXPECT_NE(text.str().find("MPI \\\"x\\\""), std::string::npos);
  unlink((directory + "/s.2.json").c_str());
  rmdir(directory.c_str());
  const std::string error = write_rank_file(directory + "/s.%r.json", facts.rank, "statistics",
                                            stats_json(counters, facts));
  EXPECT_NE(error.find("cannot write statistics to"), std::string::npos);
}

}  // namespace
}  // namespace od::observe
