// Records of places: joined over ranks, written, read again, and refused where they do not fit.
#include "overlap/trace.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace od::overlap {
namespace {

using coll::Collective;

constexpr CallKind kAlltoall{Collective::kAlltoall, 3, 65536};

SiteRecord record(std::uint64_t id, const CallKind& kind, std::uint64_t calls,
                  const std::vector<std::int64_t>& blocks) {
  SiteTable table;
  SiteRecord made = table.at(id, "app+0x" + std::to_string(id), kind);
  made.calls = calls;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    made.accesses.block_us[i] = blocks[i];
    made.accesses.block_count[i] = 1;
  }
  return made;
}

const Program kProgram{"app", "100 bytes"};

TEST(TraceTest, PlacesAndKindsHaveARecordEach) {
  SiteTable table;
  SiteRecord& first = table.at(1, "app+0x1", kAlltoall);
  first.calls = 5;
  CallKind other = kAlltoall;
  other.bytes = 1;
  EXPECT_EQ(table.at(1, "app+0x1", other).calls, 0u);
  EXPECT_EQ(table.at(2, "app+0x2", kAlltoall).calls, 0u);
  EXPECT_EQ(&table.at(1, "app+0x1", kAlltoall), &first);
  EXPECT_EQ(table.records().size(), 3u);
}

TEST(TraceTest, RanksAreAddedUp) {
  SiteRecord one = record(1, kAlltoall, 2, {10});
  one.comm_ns = 100;
  SiteRecord two = record(1, kAlltoall, 3, {30});
  two.comm_ns = 50;
  SiteRecord longest = record(2, kAlltoall, 1, {});
  longest.comm_ns = 1000;
  const std::vector<SiteRecord> all = {one, SiteRecord{}, two, longest};
  const std::vector<SiteRecord> joined = join_records(all);
  ASSERT_EQ(joined.size(), 2u);
  EXPECT_EQ(joined[0].id, 2u);
  EXPECT_EQ(joined[1].calls, 5u);
  EXPECT_EQ(joined[1].comm_ns, 150u);
  EXPECT_EQ(joined[1].accesses.block_us[0], 40);
  EXPECT_EQ(joined[1].accesses.block_count[0], 2);
}

TEST(TraceTest, TheModelStandsBesideWhatWasMeasured) {
  SiteRecord made = record(1, kAlltoall, 4, {});
  made.comm_ns = 400'000'000;
  made.comm_calls = 4;
  made.early = 2;
  made.init_ns = 20'000'000;
  made.unrelated_ns = 60'000'000;
  made.seen_calls = 2;
  made.hidden_ns = 50'000'000;
  const std::string text = site_table(std::vector{made});
  // Of one call: communication 100, its beginning 10, unrelated 30, so 30 can be hidden; 25 were.
  EXPECT_NE(text.find("100.000    10.000    30.000    30.000    25.000"), std::string::npos)
      << text;
  EXPECT_NE(text.find("app+0x1"), std::string::npos);
  EXPECT_EQ(site_table({}), "");
  EXPECT_NE(site_json(std::vector{made}).find("\"model_ns\": 30000000"), std::string::npos)
      << site_json(std::vector{made});
}

TEST(TraceTest, OrdersComeBackFromTheFile) {
  CallKind other = kAlltoall;
  other.bytes = 5;
  const std::vector<SiteRecord> records = {record(1, kAlltoall, 10, {30, 10, 20}),
                                           record(2, kAlltoall, 20, {20, 30, 10}),
                                           record(3, other, 1, {})};
  std::string issue;
  const Orders orders = Orders::parse(trace_text(records, kProgram), &kProgram, issue);
  EXPECT_EQ(issue, "");
  const Order* found = orders.find(kAlltoall);
  ASSERT_NE(found, nullptr);
  // Of the place with more calls.
  EXPECT_EQ(found->turn_of_rank, (std::vector<std::int32_t>{1, 2, 0}));
  EXPECT_EQ(orders.find(other), nullptr);
}

TEST(TraceTest, WhatDoesNotFitIsRefused) {
  const std::vector<SiteRecord> records = {record(1, kAlltoall, 10, {30, 10, 20})};
  const std::string text = trace_text(records, kProgram);
  const auto issue_of = [&](std::string changed, const Program& program) {
    std::string issue;
    EXPECT_TRUE(Orders::parse(changed, &program, issue).empty());
    return issue;
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    return at == std::string::npos ? changed : changed.replace(at, from.size(), to);
  };
  EXPECT_EQ(issue_of(text, {"app", "101 bytes"}), "the program has changed since");
  EXPECT_EQ(issue_of(text, {"other", "100 bytes"}), "the program has changed since");
  EXPECT_EQ(issue_of(with("\"version\": \"", "\"version\": \"0."), kProgram),
            "another version of Overdrive has written it");
  EXPECT_EQ(issue_of(with("\"overdrive_trace\": 2", "\"overdrive_trace\": 9"), kProgram),
            "another version of Overdrive has written it");
  EXPECT_EQ(issue_of("[]", kProgram), "it is no trace");
  for (const std::string& damaged :
       {text.substr(0, text.size() / 2), std::string(), with("\"alltoall\"", "\"alltonone\""),
        with("\"ranks\": 3", "\"ranks\": -3"), with("\"ranks\": 3", "\"ranks\": \"3\""),
        with("\"calls\": 10", "\"calls\": 1e99"), with("\"bytes\"", "\"bites\"")}) {
    const std::string issue = issue_of(damaged, kProgram);
    EXPECT_TRUE(issue.starts_with("it is damaged: line ")) << issue << " of " << damaged;
  }
}

TEST(TraceTest, FilesOfThisProgram) {
  char folder[] = "/tmp/overdrive-trace-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string traces = std::string(folder) + "/traces";
  const std::string path = trace_path(traces, own_program());
  EXPECT_NE(path.find(std::string("/") + program_invocation_short_name + ".json"),
            std::string::npos)
      << path;
  std::string note;
  EXPECT_EQ(read_trace(traces, note), "");
  EXPECT_EQ(note, "");
  const std::vector<SiteRecord> records = {record(1, kAlltoall, 10, {30, 10, 20})};
  EXPECT_EQ(write_trace(traces, records), "");
  EXPECT_EQ(write_trace(traces, records), "");  // in place of the older one
  EXPECT_EQ(read_trace(traces, note), trace_text(records, own_program()));
  EXPECT_EQ(note, "");
  // What is written counts, whatever the umask.
  for (const mode_t mask : {mode_t{0002}, mode_t{0777}}) {
    const mode_t usual = umask(mask);
    EXPECT_EQ(write_trace(traces, records), "");
    umask(usual);
    EXPECT_EQ(read_trace(traces, note), trace_text(records, own_program())) << note;
  }
  EXPECT_EQ(read_trace("off", note), "");
  std::ofstream(path, std::ios::trunc) << "{";
  EXPECT_EQ(read_trace(traces, note), "");
  EXPECT_NE(note.find(path + " does not count: it is damaged"), std::string::npos) << note;
  EXPECT_NE(write_trace(path, records), "");  // a file where the folder should be
  unlink(path.c_str());
  rmdir(traces.c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace od::overlap
