// Tests of calibration files: used, stale, cut off, nonsense, switched off, overridden.
#include "config/calibration.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "config/settings.h"
#include "config/test_files.h"

namespace od::config {
namespace {

using State = CalibrationUse::State;

std::string this_machine() { return "Processor X; Linux 6.1; Overdrive 9"; }

class CalibrationTest : public FilesTest {
 protected:
  void SetUp() override {
    FilesTest::SetUp();
    file_ = directory_ + "/calibration.toml";
  }
  LoadResult load_with(const std::string& text, const Env& environment = {}) {
    write("calibration.toml", text);
    return load(environment, paths());
  }
  Paths paths() const {
    Paths paths;
    paths.user_file = user_file_;
    paths.calibration_file = file_;
    paths.fingerprint = this_machine;
    return paths;
  }
  static std::string good(
      const std::string& thresholds = "near_pull_min = \"4K\"\nfar_push_min = \"1T\"\n",
      const std::string& count = "2") {
    return "[calibration]\nfingerprint = \"" + this_machine() +
           "\"\ndate = \"2025-01-02\"\nthresholds = " + count + "\n[copy]\n" + thresholds;
  }
  // Ignored with one message that says `part` and what to do; built-in values.
  static void expect_ignored(const LoadResult& result, const std::string& part,
                             Issue::Kind kind = Issue::Kind::kBadFile) {
    EXPECT_EQ(result.calibration.state, State::kIgnored);
    EXPECT_NE(result.calibration.why.find(part), std::string::npos) << result.calibration.why;
    ASSERT_EQ(result.issues.size(), 1u);
    EXPECT_EQ(result.issues[0].kind, kind);
    EXPECT_NE(result.issues[0].message.find(part), std::string::npos) << result.issues[0].message;
    EXPECT_NE(result.issues[0].message.find("`overdrive calibrate`"), std::string::npos);
    for (const Origin& origin : result.origins) EXPECT_NE(origin.source, Source::kCalibration);
    EXPECT_EQ(result.settings.near_pull_min_bytes, Settings{}.near_pull_min_bytes);
  }
  std::string file_;
  std::string user_file_;
};

TEST_F(CalibrationTest, ReplacesBuiltInValues) {
  const LoadResult result = load_with(good());
  EXPECT_TRUE(result.issues.empty());
  EXPECT_EQ(result.calibration.state, State::kUsed);
  EXPECT_EQ(result.calibration.date, "2025-01-02");
  EXPECT_EQ(result.settings.near_pull_min_bytes, 4 * kKiB);
  EXPECT_EQ(result.settings.far_push_min_bytes, kTiB);
  EXPECT_EQ(origin(result, "near_pull_min").source, Source::kCalibration);
  EXPECT_EQ(origin(result, "near_pull_min").place, file_ + ":6");
  EXPECT_EQ(origin(result, "near_push_min").source, Source::kBuiltIn);
  EXPECT_STREQ(source_name(Source::kCalibration), "calibration");
}

TEST_F(CalibrationTest, EverySourceOfTheUserIsAboveIt) {
  user_file_ = write("user.toml", "near_pull_min = \"8K\"\n");
  const LoadResult result = load_with(good(), {{"OVERDRIVE_FAR_PUSH_MIN", "1M"}});
  EXPECT_EQ(result.settings.near_pull_min_bytes, 8 * kKiB);
  EXPECT_EQ(origin(result, "near_pull_min").source, Source::kUserFile);
  EXPECT_EQ(result.settings.far_push_min_bytes, kMiB);
  EXPECT_EQ(origin(result, "far_push_min").source, Source::kEnvironment);
}

TEST_F(CalibrationTest, AbsentIsSilent) {
  const LoadResult result = load({}, paths());
  EXPECT_TRUE(result.issues.empty());
  EXPECT_EQ(result.calibration.state, State::kNone);
}

TEST_F(CalibrationTest, OfAnotherMachineIsStaleAndNoReasonToStop) {
  std::string text = good();
  text.replace(text.find("Linux 6.1"), 9, "Linux 6.2");
  const LoadResult result = load_with(text, {{"OVERDRIVE_STRICT", "1"}});
  expect_ignored(result, "Linux 6.2", Issue::Kind::kStale);
  EXPECT_FALSE(result.must_stop);
}

TEST_F(CalibrationTest, CutOffAnywhereIsNoticed) {
  const std::string whole = good();
  for (std::size_t length = 0; length + 1 < whole.size(); ++length) {
    const LoadResult result = load_with(whole.substr(0, length));
    EXPECT_EQ(result.calibration.state, State::kIgnored) << whole.substr(0, length);
    EXPECT_EQ(result.issues.size(), 1u);
    EXPECT_EQ(result.settings.near_pull_min_bytes, Settings{}.near_pull_min_bytes);
  }
}

TEST_F(CalibrationTest, NonsenseIsRefusedAsAWhole) {
  expect_ignored(load_with(good("near_pull_min = \"4K\"\nfar_push_min = \"blue\"\n")), "blue");
  expect_ignored(load_with(good("near_pull_min = \"4K\"\nfar_push_min = -1\n")), "far_push_min");
  expect_ignored(load_with(good("near_pull_min = \"4K\"\nfar_threshold = \"1ns\"\n")),
                 "far_threshold");
  expect_ignored(load_with(good("near_pull_min = \"4K\"\nnear_magic = \"1K\"\n")), "near_magic");
  expect_ignored(load_with(good("near_pull_min = \"4K\"\ndisable = true\n")), "disable");
  expect_ignored(load_with(good("near_pull_min = \"4K\"\n")), "incomplete");
  expect_ignored(load_with(good("", "0")), "incomplete");
  expect_ignored(load_with("near_pull_min = \"4K\"\n"), "which machine");
  expect_ignored(load_with(std::string("\0\xff\xfe garbage [[[", 16)), "");
  EXPECT_TRUE(load_with("[[[", {{"OVERDRIVE_STRICT", "1"}}).must_stop);
}

TEST_F(CalibrationTest, SettingSwitchesItOffOrNamesAnotherFile) {
  LoadResult result = load_with(good(), {{"OVERDRIVE_CALIBRATION", "off"}});
  EXPECT_EQ(result.calibration.state, State::kOff);
  EXPECT_TRUE(result.issues.empty());
  EXPECT_EQ(result.settings.near_pull_min_bytes, Settings{}.near_pull_min_bytes);
  // A broken file that is switched off is not even looked at.
  EXPECT_TRUE(load_with("[[[", {{"OVERDRIVE_CALIBRATION", "off"}}).issues.empty());

  const std::string other = write("other.toml", good("near_pull_min = \"16K\"\n", "1"));
  result = load_with(good(), {{"OVERDRIVE_CALIBRATION", other}});
  EXPECT_EQ(result.calibration.state, State::kUsed);
  EXPECT_EQ(result.calibration.file, other);
  EXPECT_EQ(result.settings.near_pull_min_bytes, 16 * kKiB);
  // The setting may also stand in a file.
  user_file_ = write("user.toml", "calibration = \"" + other + "\"\n");
  EXPECT_EQ(load_with(good()).settings.near_pull_min_bytes, 16 * kKiB);
  unlink(other.c_str());
  expect_ignored(load_with(good(), {{"OVERDRIVE_CALIBRATION", other}}), "no such file");
}

}  // namespace
}  // namespace od::config
