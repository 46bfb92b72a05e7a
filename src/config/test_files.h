// Test support: a folder for the configuration files of a test, and where a setting came from.
#ifndef OVERDRIVE_CONFIG_TEST_FILES_H_
#define OVERDRIVE_CONFIG_TEST_FILES_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "config/settings.h"

namespace od::config {

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    umask(022);  // files that a group can write would not count
    const char* base = getenv("TMPDIR");
    directory_ = std::string(base != nullptr ? base : "/tmp") + "/od-config-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  static const Origin& origin(const LoadResult& result, const std::string& name) {
    for (std::size_t i = 0; i < kSettingCount; ++i) {
      if (name == setting_infos()[i].name) return result.origins[i];
    }
    ADD_FAILURE() << "no setting " << name;
    return result.origins[0];
  }

  std::string directory_;
};

}  // namespace od::config

#endif  // OVERDRIVE_CONFIG_TEST_FILES_H_
