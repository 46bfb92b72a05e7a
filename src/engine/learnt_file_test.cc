// Which files of what was learnt count, and that the others stay as they are.
#include "engine/learnt_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "engine/job_terms.h"
#include "topology/fingerprint.h"

namespace od {
namespace {

constexpr const char* kVersion = "Open MPI v4.1.4, package: somebody's";

class LearntFileTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_), nullptr); }
  void TearDown() override {
    unlink(path().c_str());
    rmdir(folder_);
  }
  std::string path() const { return std::string(folder_) + "/learnt.json"; }
  void write(const std::string& host, const std::string& fingerprint, const char* rules = "") {
    std::ofstream(path())
        << "{\"format\": \"overdrive-tuning\", \"version\": 1, \"fingerprint\": \"" << fingerprint
        << "\",\n\"host\": \"" << host << "\", \"rules\": [" << rules << "]}";
  }

  char folder_[32] = "/tmp/overdrive-learnt-XXXXXX";
  std::string here_ = topology::fingerprint();
};

TEST_F(LearntFileTest, TheFirstRunHasNone) {
  const LearntFile file = read_learnt(path(), kVersion);
  EXPECT_EQ(file.text, "");
  EXPECT_EQ(file.issue, "");
}

TEST_F(LearntFileTest, OneOfTheSameLibraryCounts) {
  write("Open MPI v4.1.4", here_,
        R"({"collective": "bcast", "algorithm": "chain", "ranks": 8, "calls": 9})");
  const LearntFile file = read_learnt(path(), kVersion);
  EXPECT_EQ(file.issue, "");
  EXPECT_NE(file.text, "");
  ASSERT_EQ(file.content.rules.size(), 1u);
}

TEST_F(LearntFileTest, OfAnotherLibraryOrMachineNothingIsTaken) {
  write("MPICH Version: 4.0.2", here_);
  const LearntFile other = read_learnt(path(), kVersion);
  EXPECT_EQ(other.text, "");
  EXPECT_NE(other.issue.find("'MPICH Version: 4.0.2', and this is 'Open MPI v4.1.4'"),
            std::string::npos)
      << other.issue;
  EXPECT_NE(other.issue.find("name another one with `learn_file`"), std::string::npos);
  write("Open MPI v4.1.4", "some other machine");
  EXPECT_NE(read_learnt(path(), kVersion).issue.find("another kind of machine"), std::string::npos);
}

TEST_F(LearntFileTest, AMistakeIsNamedWithItsLine) {
  std::ofstream(path()) << "{\"format\": \"overdrive-tuning\",\n\"version\": 1,";
  const LearntFile damaged = read_learnt(path(), kVersion);
  EXPECT_EQ(damaged.text, "");
  EXPECT_NE(damaged.issue.find(path() + ":2"), std::string::npos) << damaged.issue;
}

TEST_F(LearntFileTest, IsHandedRoundWithTheTerms) {
  write("Open MPI v4.1.4", here_);
  config::Settings settings;
  EXPECT_EQ(own_terms(settings, kVersion).learnt_text, "") << "only on request";
  settings.learn_file = path();
  JobTerms first = own_terms(settings, kVersion);
  ASSERT_NE(first.learnt_text, "");
  EXPECT_TRUE(first.issues.empty());
  JobTerms second;
  config::Settings others = settings;
  EXPECT_TRUE(take_terms(terms_text(settings, first), others, second).empty());
  EXPECT_EQ(second.learnt_text, first.learnt_text);
  // Whoever does not learn needs none.
  settings.learn = config::LearnMode::kOff;
  EXPECT_EQ(own_terms(settings, kVersion).learnt_text, "");
  settings.learn = config::LearnMode::kNodes;
  // The user has named it, so he is told.
  write("MPICH Version: 4.0.2", here_);
  EXPECT_EQ(own_terms(settings, kVersion).issues.size(), 1u);
}

}  // namespace
}  // namespace od
