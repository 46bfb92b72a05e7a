// Random settings files and variables: whatever they say, loading comes back, and what it does not
// accept it names. Words and marks are those of the notation, so that texts get past its beginning;
// the sanitizers' builds of the tests see what happens inside.
#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <string>

#include "config/test_files.h"

namespace od::config {
namespace {

using SettingsFuzzTest = FilesTest;

constexpr int kTexts = 800;

class Words {
 public:
  explicit Words(std::uint32_t seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return random_() % end; }

  // Something that may stand for a value.
  std::string value() {
    static const std::string kValues[] = {
        "1",      "0",      "-1",     "4K",          "1.5M", "50us", "1e9",
        "true",   "\"4K\"", "'auto'", "\"\\u00e9\"", "[",    "]",    "[\"0-1\", \"2-3\"]",
        "{",      "}",      "{a=1}",  "1979-05-27",  "0x1F", "nan",  "inf",
        "\"\"\"", "'''",    "\"",     "1_000",       "+4",   "\xff", "\xc3\xa9"};
    switch (below(4)) {
      case 0: {
        const SettingInfo& info = any();
        return '"' + (below(2) == 0 ? info.min_text() : info.max_text()) + '"';
      }
      case 1:
        return std::string(below(40), static_cast<char>(below(256)));
      default:
        return kValues[below(std::size(kValues))];
    }
  }
  const SettingInfo& any() { return setting_infos()[below(kSettingCount)]; }

  std::string file() {
    static const std::string kMarks[] = {" = ", "=", ".",    "\n", "[", "]",  "[[", "]]",
                                         "#",   ",", "\r\n", "\"", "'", "\\", "\0", "\t"};
    std::string text;
    for (std::size_t i = 0, parts = 1 + below(30); i < parts; ++i) {
      switch (below(5)) {
        case 0:
          text += std::string(any().name) + " = " + value() + '\n';
          break;
        case 1:
          text += '[' + std::string(any().group) + "]\n";
          break;
        case 2:
          text += any().name;
          break;
        case 3:
          text += value();
          break;
        default:
          text += kMarks[below(std::size(kMarks))];
      }
    }
    // Bytes that are turned over, lost or doubled.
    for (std::size_t i = below(4); i > 0 && !text.empty(); --i) {
      const std::size_t at = below(text.size());
      if (below(2) == 0) {
        text[at] = static_cast<char>(below(256));
      } else {
        text.erase(at, 1 + below(8));
      }
    }
    return text;
  }

 private:
  std::mt19937 random_;
};

void expect_sound(const LoadResult& result) {
  for (const Issue& issue : result.issues) EXPECT_FALSE(issue.message.empty());
  for (std::size_t i = 0; i < kSettingCount; ++i) {
    const SettingInfo& info = setting_infos()[i];
    const std::string value = info.value_text(result.settings);
    Settings again;
    std::string reason;
    EXPECT_TRUE(value.empty() || info.assign(again, value, reason))
        << info.name << " = " << value << ": " << reason;
  }
}

TEST_F(SettingsFuzzTest, AnyFileIsReadOrRefused) {
  for (int seed = 0; seed < kTexts; ++seed) {
    const std::string text = Words(static_cast<std::uint32_t>(seed)).file();
    SCOPED_TRACE(std::to_string(seed) + ": " + text);
    expect_sound(load({}, {write("any.toml", text), ""}));
    if (HasFailure()) return;
  }
}

TEST_F(SettingsFuzzTest, AnyVariableIsReadOrRefused) {
  for (int seed = 0; seed < kTexts; ++seed) {
    Words words(static_cast<std::uint32_t>(seed));
    Env environment;
    for (int i = 0; i < 4; ++i) {
      std::string name = variable_name(words.any().name);
      if (words.below(8) == 0) name[words.below(name.size())] = static_cast<char>(words.below(256));
      if (name.rfind("OVERDRIVE_", 0) != 0) continue;
      environment.emplace_back(name, words.value());
    }
    SCOPED_TRACE(seed);
    expect_sound(load(environment, {}));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace od::config
