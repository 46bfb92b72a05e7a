// Tests of loading: precedence, sources, errors with file and line, unknown names, limits.
#include "config/settings.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "config/test_files.h"

namespace od::config {
namespace {

using SettingsTest = FilesTest;

TEST_F(SettingsTest, NothingGivenIsBuiltIn) {
  const LoadResult result = load({}, {});
  EXPECT_TRUE(result.issues.empty());
  EXPECT_FALSE(result.must_stop);
  EXPECT_FALSE(result.settings.disable);
  EXPECT_EQ(result.settings.pool_bytes, 2 * kMiB);
  EXPECT_EQ(result.settings.unmatched_wait_ns, 50'000u);
  EXPECT_EQ(result.settings.stats, "0");
  for (const Origin& origin : result.origins) EXPECT_EQ(origin.source, Source::kBuiltIn);
}

TEST_F(SettingsTest, EnvironmentSetsEveryType) {
  const LoadResult result = load({{"OVERDRIVE_DISABLE", "yes"},
                                  {"OVERDRIVE_VERBOSE", "3"},
                                  {"OVERDRIVE_EAGER_MAX", "128K"},
                                  {"OVERDRIVE_STALL_REPORT", "30s"},
                                  {"OVERDRIVE_WAIT", "Sleep"},
                                  {"OVERDRIVE_STATS", "out/%r.json"},
                                  {"OVERDRIVE_TEST_REMOTE", "1-0,2-3"}},
                                 {});
  EXPECT_TRUE(result.issues.empty());
  EXPECT_TRUE(result.settings.disable);
  EXPECT_EQ(result.settings.verbose, 3);
  EXPECT_EQ(result.settings.eager_max_bytes, 128 * kKiB);
  EXPECT_EQ(result.settings.stall_report_ns, 30 * kSecond);
  EXPECT_EQ(result.settings.wait, WaitMode::kSleep);
  EXPECT_EQ(result.settings.stats, "out/%r.json");
  EXPECT_TRUE(result.settings.test_remote.contains(0, 1));
  EXPECT_TRUE(result.settings.test_remote.contains(3, 2));
  EXPECT_FALSE(result.settings.test_remote.contains(0, 2));
  EXPECT_EQ(origin(result, "wait").source, Source::kEnvironment);
  EXPECT_EQ(origin(result, "wait").place, "OVERDRIVE_WAIT");
}

TEST_F(SettingsTest, PrecedenceAndSources) {
  const Paths paths{write("project.toml", "verbose = 2\npool_bytes = \"4M\"\n"),
                    write("user.toml", "verbose = 1\npool_bytes = \"8M\"\ncell_bytes = 8192\n")};
  const LoadResult result = load({{"OVERDRIVE_VERBOSE", "3"}}, paths);
  EXPECT_TRUE(result.issues.empty());
  EXPECT_EQ(result.settings.verbose, 3);
  EXPECT_EQ(result.settings.pool_bytes, 4 * kMiB);
  EXPECT_EQ(result.settings.cell_bytes, 8 * kKiB);
  EXPECT_EQ(origin(result, "verbose").source, Source::kEnvironment);
  EXPECT_EQ(origin(result, "pool_bytes").source, Source::kProjectFile);
  EXPECT_EQ(origin(result, "pool_bytes").place, paths.project_file + ":2");
  EXPECT_EQ(origin(result, "cell_bytes").source, Source::kUserFile);
  EXPECT_EQ(origin(result, "cell_bytes").place, paths.user_file + ":3");
  EXPECT_EQ(origin(result, "spin").source, Source::kBuiltIn);
}

TEST_F(SettingsTest, CommandLineIsNamedAsSource) {
  const LoadResult result = load({{"OVERDRIVE_VERBOSE", "2"},
                                  {"OVERDRIVE_SPIN", "1ms"},
                                  {"OVERDRIVE_COMMAND_LINE", "verbose,stats"}},
                                 {});
  EXPECT_TRUE(result.issues.empty());
  EXPECT_EQ(origin(result, "verbose").source, Source::kCommandLine);
  EXPECT_EQ(origin(result, "spin").source, Source::kEnvironment);
}

TEST_F(SettingsTest, TablesOfFilesAreGroups) {
  const LoadResult good =
      load({}, {write("a.toml", "[wait]\nspin = \"1ms\"\n[copy]\ncopy = \"ordinary\"\n"), ""});
  EXPECT_TRUE(good.issues.empty());
  EXPECT_EQ(good.settings.spin_ns, kMillisecond);
  EXPECT_EQ(good.settings.copy, CopyMode::kOrdinary);

  const LoadResult bad = load({}, {write("b.toml", "[copy]\nspin = \"1ms\"\n"), ""});
  ASSERT_EQ(bad.issues.size(), 1u);
  EXPECT_NE(bad.issues[0].message.find("b.toml:2"), std::string::npos);
  EXPECT_NE(bad.issues[0].message.find("[wait]"), std::string::npos);
  EXPECT_EQ(bad.settings.spin_ns, 0u);
}

TEST_F(SettingsTest, FileValuesMayBeNative) {
  const LoadResult result = load(
      {},
      {write("a.toml", "stats = true\ndisable = true\ntest_remote = [\"0-1\", \"4-2\"]\n"), ""});
  EXPECT_TRUE(result.issues.empty());
  EXPECT_EQ(result.settings.stats, "1");
  EXPECT_TRUE(result.settings.disable);
  EXPECT_TRUE(result.settings.test_remote.contains(2, 4));
}

TEST_F(SettingsTest, BadValueKeepsLowerSourceAndSaysSo) {
  const LoadResult result =
      load({{"OVERDRIVE_SPIN", "30"}, {"OVERDRIVE_VERBOSE", "9"}, {"OVERDRIVE_WAIT", "snooze"}},
           {write("a.toml", "spin = \"2ms\"\n"), ""});
  ASSERT_EQ(result.issues.size(), 3u);
  EXPECT_EQ(result.issues[0].kind, Issue::Kind::kBadValue);
  EXPECT_EQ(result.issues[0].message,
            "OVERDRIVE_SPIN: '30' cannot be the value of spin: it needs a unit: ns, us, ms or s, "
            "such as 50us or 30s; using 2ms (project file)");
  EXPECT_NE(result.issues[1].message.find("out of range: 0 to 3"), std::string::npos);
  EXPECT_NE(result.issues[2].message.find("auto, spin, yield, sleep"), std::string::npos);
  EXPECT_EQ(result.settings.spin_ns, 2 * kMillisecond);
  EXPECT_EQ(result.settings.verbose, 0);
  EXPECT_FALSE(result.must_stop);
}

// What tests and builds of a checkout read by themselves reaches the jobs that they start.
TEST_F(SettingsTest, VariablesOfTheTestSuiteAreKnown) {
  for (const char* const name : {"OVERDRIVE_TESTS_BUILD", "OVERDRIVE_TEST_LIBRARY",
                                 "OVERDRIVE_TEST_TIME_SCALE", "OVERDRIVE_HOSTS_DIR"}) {
    EXPECT_TRUE(load({{name, "1"}}, {"", ""}).issues.empty()) << name;
  }
}

TEST_F(SettingsTest, BadValuesOfFilesNameFileAndLine) {
  const std::string path = write("a.toml", "# comment\n\neager_max = \"64Q\"\nspin = 1.5\n");
  const LoadResult result = load({}, {path, ""});
  ASSERT_EQ(result.issues.size(), 2u);
  EXPECT_EQ(result.issues[0].message.find(path + ":3: "), 0u);
  EXPECT_EQ(result.issues[1].message.find(path + ":4: "), 0u);
}

TEST_F(SettingsTest, BrokenFileIsIgnoredWithLine) {
  const std::string path = write("a.toml", "verbose = 2\nspin = = 3\n");
  const LoadResult result = load({{"OVERDRIVE_SPIN", "1ms"}}, {path, ""});
  ASSERT_EQ(result.issues.size(), 1u);
  EXPECT_EQ(result.issues[0].kind, Issue::Kind::kBadFile);
  EXPECT_EQ(result.issues[0].message.find(path + ":2: "), 0u);
  EXPECT_EQ(result.settings.verbose, 0);
  EXPECT_EQ(result.settings.spin_ns, kMillisecond);
}

TEST_F(SettingsTest, MissingFileIsSilentOddFileIsNot) {
  EXPECT_TRUE(
      load({}, {directory_ + "/none.toml", directory_ + "/no/such/dir.toml"}).issues.empty());
  const LoadResult result = load({}, {directory_, ""});
  ASSERT_EQ(result.issues.size(), 1u);
  EXPECT_NE(result.issues[0].message.find("not a regular file"), std::string::npos);

  const std::string fifo = directory_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(load({}, {fifo, ""}).issues.size(), 1u);  // and does not hang
}

TEST_F(SettingsTest, FilesOfOtherSystemsAreRead) {
  const std::string text = "\xef\xbb\xbfverbose = 1\r\n\tspin\t= \"1ms\"\r\n";
  const LoadResult result = load({}, {write("project.toml", text), ""});
  EXPECT_TRUE(result.issues.empty());
  EXPECT_EQ(result.settings.verbose, 1);
  EXPECT_EQ(result.settings.spin_ns, 1'000'000);
}

TEST_F(SettingsTest, ProjectFilesNameNoFilesToWrite) {
  const std::string text = "stats = \"/tmp/x\"\ntimeline = \"y\"\nverbose = 1\n";
  const LoadResult result = load({}, {write("project.toml", text), ""});
  ASSERT_EQ(result.issues.size(), 2u);
  EXPECT_NE(result.issues[0].message.find("project.toml:1: '/tmp/x' cannot be the value of stats"),
            std::string::npos);
  EXPECT_NE(result.issues[1].message.find("OVERDRIVE_TIMELINE"), std::string::npos);
  EXPECT_EQ(result.settings.stats, "0");
  EXPECT_EQ(result.settings.timeline, "");
  EXPECT_EQ(result.settings.verbose, 1);
  // The table names no file, and the user's own file may.
  EXPECT_TRUE(load({}, {write("project.toml", "stats = true\n"), ""}).issues.empty());
  EXPECT_EQ(load({}, {"", write("user.toml", text)}).settings.stats, "/tmp/x");
}

TEST_F(SettingsTest, FilesThatOthersCanWriteAreIgnored) {
  const std::string file = write("project.toml", "verbose = 1\n");
  ASSERT_EQ(chmod(file.c_str(), 0666), 0);
  for (const Paths& paths : {Paths{file, ""}, Paths{"", file}}) {
    const LoadResult result = load({}, paths);
    ASSERT_EQ(result.issues.size(), 1u);
    EXPECT_EQ(result.issues[0].kind, Issue::Kind::kBadFile);
    EXPECT_NE(result.issues[0].message.find("can be written by others"), std::string::npos);
    EXPECT_EQ(result.settings.verbose, 0);
  }
}

// No text whatever does more than be refused with a message, or be accepted within its range.
TEST_F(SettingsTest, EverySettingAtItsExtremes) {
  std::vector<std::string> texts = {"0",
                                    "1",
                                    "-1",
                                    "+1",
                                    "00",
                                    "1e9",
                                    "0x10",
                                    " ",
                                    "\t",
                                    "\n",
                                    "\xc3\xbc",
                                    "\xff",
                                    "%s%n",
                                    "2147483647",
                                    "2147483648",
                                    "-2147483649",
                                    "9223372036854775808",
                                    "18446744073709551615",
                                    "18446744073709551616",
                                    "16777215T",
                                    "16777216T",
                                    "99999999999999999999s",
                                    "1.5K",
                                    "1.",
                                    ".5",
                                    "1 K",
                                    "1KK",
                                    "0-0",
                                    "0-",
                                    "-",
                                    ",",
                                    "0-1,",
                                    "4294967296-1"};
  texts.push_back(std::string(5000, '9'));
  texts.push_back(std::string(5000, ','));
  for (const SettingInfo& info : setting_infos()) {
    std::vector<std::string> own = texts;
    own.push_back(info.min_text());
    own.push_back(info.max_text());
    for (const std::string& text : own) {
      const LoadResult result = load({{variable_name(info.name), text}}, {});
      const std::string value = info.value_text(result.settings);
      if (!result.issues.empty()) {
        EXPECT_NE(result.issues[0].message.find(info.name), std::string::npos) << text;
        continue;
      }
      // What was accepted reads back to itself.
      Settings again;
      std::string reason;
      EXPECT_TRUE(value.empty() || info.assign(again, value, reason)) << info.name << ' ' << text;
      EXPECT_EQ(info.value_text(again), value) << info.name << ' ' << text;
    }
  }
}

TEST_F(SettingsTest, DeepFilesAreRefusedNotFollowed) {
  std::string keys = "a";
  for (int i = 0; i < 200'000; ++i) keys += ".a";
  const std::string lists(100'000, '[');
  std::string tables;
  for (int i = 0; i < 100'000; ++i) tables += "{a=";
  for (const std::string& text : {keys + "=1\n", '[' + keys + "]\n", "a=" + lists + "\n",
                                  "a=" + tables + "\n", "[[" + keys + "]]\n"}) {
    const LoadResult result = load({}, {write("deep.toml", text), ""});
    EXPECT_FALSE(result.issues.empty());
  }
}

TEST_F(SettingsTest, LettersBeyondAsciiStandInValuesAndCommentsOnly) {
  for (const char* line : {"\u00e9 = 1", "\"\u00e9\" = 1", "[caf\u00e9]", "spin = \u2000'1ms'"}) {
    const std::string path = write("a.toml", std::string("verbose = 2\n") + line + '\n');
    const LoadResult result = load({}, {path, ""});
    ASSERT_EQ(result.issues.size(), 1u) << line;
    EXPECT_EQ(result.issues[0].message.find(path + ":2: "), 0u) << result.issues[0].message;
  }
  const LoadResult result = load({}, {write("b.toml", "# \u00e9\ntuning = '/caf\u00e9'\n"), ""});
  EXPECT_TRUE(result.issues.empty());
  EXPECT_EQ(result.settings.tuning, "/caf\u00e9");
}

TEST_F(SettingsTest, RulesForCollectivesAreNotSettings) {
  const LoadResult result = load({{"OVERDRIVE_ADJUST_ALLREDUCE", "ring"}}, {});
  EXPECT_TRUE(result.issues.empty());
}

TEST_F(SettingsTest, UnknownNamesGetSuggestions) {
  const LoadResult result = load(
      {{"OVERDRIVE_EAGERMAX", "1K"}, {"OVERDRIVE_verbsoe", "1"}, {"OVERDRIVE_QQQQQQQQQQQQ", "1"}},
      {write("a.toml", "pool_byte = 3\n"), ""});
  ASSERT_EQ(result.issues.size(), 4u);
  EXPECT_NE(result.issues[0].message.find("did you mean pool_bytes?"), std::string::npos);
  EXPECT_NE(result.issues[1].message.find("did you mean OVERDRIVE_EAGER_MAX?"), std::string::npos);
  EXPECT_NE(result.issues[2].message.find("did you mean OVERDRIVE_VERBOSE?"), std::string::npos);
  EXPECT_NE(result.issues[3].message.find("overdrive info"), std::string::npos);
  for (const Issue& issue : result.issues) EXPECT_EQ(issue.kind, Issue::Kind::kUnknownName);
}

TEST_F(SettingsTest, StrictStops) {
  EXPECT_TRUE(load({{"OVERDRIVE_STRICT", "1"}, {"OVERDRIVE_SPIN", "x"}}, {}).must_stop);
  EXPECT_TRUE(load({{"OVERDRIVE_SPNI", "0"}, {"OVERDRIVE_STRICT", "1"}}, {}).must_stop);
  EXPECT_FALSE(load({{"OVERDRIVE_STRICT", "1"}}, {}).must_stop);
}

TEST_F(SettingsTest, EmptyVariableCountsAsUnset) {
  const LoadResult result = load({{"OVERDRIVE_SPIN", ""}, {"OVERDRIVE_DISABLE", ""}}, {});
  EXPECT_TRUE(result.issues.empty());
  EXPECT_EQ(origin(result, "spin").source, Source::kBuiltIn);
}

TEST_F(SettingsTest, SizesThatDoNotFitTogetherAreAdjusted) {
  const LoadResult result = load({{"OVERDRIVE_POOL_BYTES", "64K"},
                                  {"OVERDRIVE_INLINE_MAX", "1K"},
                                  {"OVERDRIVE_CELL_BYTES", "100000"},
                                  {"OVERDRIVE_FASTBOX_BYTES", "1K"}},
                                 {});
  EXPECT_EQ(result.settings.cell_bytes, 16 * kKiB);
  EXPECT_EQ(result.settings.inline_max_bytes, 512u);
  ASSERT_EQ(result.issues.size(), 3u);
  for (const Issue& issue : result.issues) EXPECT_EQ(issue.kind, Issue::Kind::kAdjusted);
}

TEST_F(SettingsTest, ChoicesNameTheirWords) {
  for (const SettingInfo& info : setting_infos()) {
    SCOPED_TRACE(info.name);
    const std::string words = '|' + info.choices() + '|';
    EXPECT_EQ(words != "||", std::string_view(info.type) == "choice");
    if (words == "||") continue;
    for (const std::string& bound : {info.min_text(), info.max_text()}) {
      EXPECT_NE(words.find('|' + bound + '|'), std::string::npos) << words;
    }
  }
}

TEST_F(SettingsTest, TableIsSound) {
  std::set<std::string> names;
  const Settings defaults;
  for (const SettingInfo& info : setting_infos()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_GT(std::string(info.doc).size(), 20u) << info.name;
    // The default itself must be acceptable, and its text must read back as the same value.
    Settings copy;
    std::string reason;
    EXPECT_TRUE(info.assign(copy, info.value_text(defaults), reason)) << info.name << " " << reason;
    EXPECT_EQ(info.value_text(copy), info.value_text(defaults)) << info.name;
  }
  EXPECT_TRUE(load({}, {}).issues.empty());
}

TEST_F(SettingsTest, EnvironmentIsFilteredAndPathsFollowTheSpecification) {
  const char* environment[] = {"PATH=/bin", "OVERDRIVE_VERBOSE=2", "OVERDRIVE_STATS=a=b", "HOME=/h",
                               nullptr};
  const Env env = overdrive_environment(environment);
  ASSERT_EQ(env.size(), 2u);
  EXPECT_EQ(env[1].second, "a=b");
  EXPECT_TRUE(overdrive_environment(nullptr).empty());
  EXPECT_EQ(standard_paths(environment).user_file, "/h/.config/overdrive/config.toml");
  EXPECT_EQ(standard_paths(environment).calibration_file, "/h/.config/overdrive/calibration.toml");
  const char* xdg[] = {"HOME=/h", "XDG_CONFIG_HOME=/x", nullptr};
  EXPECT_EQ(standard_paths(xdg).user_file, "/x/overdrive/config.toml");
  EXPECT_EQ(standard_paths(nullptr).user_file, "");
}

}  // namespace
}  // namespace od::config
