// Checks that terms survive the way from rank to rank, and that what differed is named.
#include "engine/job_terms.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace od {
namespace {

using Names = std::vector<std::string>;

TEST(JobTerms, EqualTermsHaveEqualTexts) {
  const config::Settings settings;
  EXPECT_EQ(terms_text(settings, {}), terms_text(settings, {}));
  EXPECT_EQ(claim_of("a", 0, true).hash, claim_of("a", 1, true).hash);
  EXPECT_NE(claim_of("a", 0, true).hash, claim_of("b", 0, true).hash);
}

TEST(JobTerms, WhatIsNotAgreedStaysOwn) {
  config::Settings other;
  other.verbose = 3;
  other.spin_ns = 77;
  EXPECT_EQ(terms_text(other, {}), terms_text(config::Settings{}, {}));
}

TEST(JobTerms, EveryAgreedSettingIsTakenOver) {
  config::Settings first;
  JobTerms first_terms;
  first.collectives = false;
  first.stats = "a:b\n12:c";
  first.inline_max_bytes = 129;
  first.fastbox_bytes = 4099;
  first.test_remote.pairs = {{0, 1}, {2, 3}};
  first_terms.rules = {{"OVERDRIVE_ADJUST_BCAST", "binomial"}};
  first_terms.tuning_text = std::string("{\0}", 3);
  first_terms.learnt_text = "{1}";
  first_terms.trace_text = "[1:2]";
  first_terms.issues = {"line 1", "line 2"};
  const std::string text = terms_text(first, first_terms);

  config::Settings second;
  JobTerms second_terms;
  second.verbose = 2;
  second_terms.rules = {{"OVERDRIVE_ADJUST_GATHER", "linear"}};
  const Names different = take_terms(text, second, second_terms);
  EXPECT_EQ(terms_text(second, second_terms), text);
  EXPECT_EQ(second.verbose, 2);
  EXPECT_EQ(second.stats, first.stats);
  EXPECT_EQ(second_terms.issues, first_terms.issues);
  EXPECT_EQ(second_terms.learnt_text, first_terms.learnt_text);
  EXPECT_EQ(second_terms.trace_text, first_terms.trace_text);
  EXPECT_EQ(different, (Names{"stats", "inline_max", "fastbox_bytes", "collectives", "test_remote",
                              "OVERDRIVE_ADJUST_GATHER"}));
  EXPECT_TRUE(take_terms(text, second, second_terms).empty());
}

TEST(JobTerms, TheFileOfTheTunedLibraryIsFoundByItself) {
  char folder[] = "/tmp/overdrive-terms-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string base = folder;
  ASSERT_EQ(mkdir((base + "/overdrive").c_str(), 0755), 0);
  const std::string path = base + "/overdrive/tuning-open-mpi-v4.1.4.json";
  const char* before = getenv("XDG_CONFIG_HOME");
  const std::string kept = before != nullptr ? before : "";
  setenv("XDG_CONFIG_HOME", folder, 1);
  constexpr const char* kVersion = "Open MPI v4.1.4, package: somebody's";
  config::Settings settings;
  EXPECT_EQ(tuning_path(settings, kVersion), "") << "there is none";
  std::ofstream(path) << R"({"format": "overdrive-tuning", "version": 1, "fingerprint": "other",
                             "rules": []})";
  EXPECT_EQ(tuning_path(settings, kVersion), path);
  EXPECT_EQ(tuning_path(settings, "Open MPI v4.1.5, package"), "");
  EXPECT_EQ(tuning_path(settings, ""), "");
  const JobTerms foreign = own_terms(settings, kVersion);
  EXPECT_EQ(foreign.tuning_text, "");
  EXPECT_TRUE(foreign.issues.empty()) << "never stops a job";
  ASSERT_EQ(foreign.notes.size(), 1u);
  EXPECT_NE(foreign.notes.front().find("made for \"other\""), std::string::npos);
  std::ofstream(path) << R"({"format": "overdrive-tuning", )";
  const JobTerms damaged = own_terms(settings, kVersion);
  EXPECT_EQ(damaged.tuning_text, "");
  EXPECT_EQ(damaged.issues.size(), 1u);
  EXPECT_TRUE(damaged.notes.empty());
  std::ofstream(path) << R"({"format": "overdrive-tuning", "version": 1, "rules": []})";
  EXPECT_NE(own_terms(settings, kVersion).tuning_text, "");
  settings.tuning = "off";
  EXPECT_EQ(tuning_path(settings, kVersion), "");
  settings.tuning = "/some/where";
  EXPECT_EQ(tuning_path(settings, kVersion), "/some/where");
  unlink(path.c_str());
  rmdir((base + "/overdrive").c_str());
  rmdir(folder);
  before != nullptr ? setenv("XDG_CONFIG_HOME", kept.c_str(), 1) : unsetenv("XDG_CONFIG_HOME");
}

TEST(JobTerms, ATextThatIsCutShortIsReadAsFarAsItGoes) {
  const std::string text = terms_text({}, {});
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    config::Settings settings;
    JobTerms terms;
    take_terms(text.substr(0, bytes), settings, terms);
    EXPECT_EQ(terms_text(settings, {}), text);
  }
}

}  // namespace
}  // namespace od
