// Random tuning files and rules: whatever they say, reading and deciding come back, and what is not
// accepted is named. The sanitizers' builds of the tests see what happens inside.
#include <gtest/gtest.h>

#include <cctype>
#include <iterator>
#include <random>
#include <string>

#include "coll/plan/select/selection.h"
#include "coll/plan/select/tuning_file.h"

namespace od::coll {
namespace {

constexpr int kTexts = 3000;

class Words {
 public:
  explicit Words(std::uint32_t seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return random_() % end; }
  Collective collective() { return static_cast<Collective>(below(kCollectives)); }

  std::string number() {
    static const std::string kNumbers[] = {"0",
                                           "1",
                                           "-1",
                                           "2",
                                           "8",
                                           "4K",
                                           "1M",
                                           "-",
                                           "1-2",
                                           "2-1",
                                           "4K-",
                                           "-64K",
                                           "1e3",
                                           "65536",
                                           "65537",
                                           "2147483648",
                                           "18446744073709551615",
                                           "16777216T",
                                           "inf",
                                           "",
                                           "x"};
    return kNumbers[below(std::size(kNumbers))];
  }

  std::string rules(Collective of) {
    static const std::string kMarks[] = {":", ";", ",", "@", "%", "/", "/flat", "/hierarchical",
                                         " "};
    std::string text;
    const auto known = algorithms(of);
    for (std::size_t i = 0, parts = 1 + below(10); i < parts; ++i) {
      switch (below(3)) {
        case 0:
          text += known[below(known.size())].name;
          break;
        case 1:
          text += number();
          break;
        default:
          text += kMarks[below(std::size(kMarks))];
      }
    }
    return text;
  }

  std::string json(int depth = 0) {
    static const std::string kPlain[] = {
        "null",  "true",    "1",           "-1",          "0.5",      "1e999", "-0",
        "1e300", "\"64K\"", "\"\\u0000\"", "\"\\ud800\"", "\"host\"", "[",     "}"};
    static const std::string kNames[] = {
        "format",     "version",    "rules",       "machine",    "near",
        "far",        "collective", "algorithm",   "mode",       "bytes",
        "ranks",      "nodes",      "commutative", "radix",      "segment",
        "window",     "leaders",    "pipeline",    "latency_ns", "rendezvous_bytes",
        "fingerprint"};
    if (depth > 4 || below(3) == 0) return kPlain[below(std::size(kPlain))];
    const bool object = below(2) == 0;
    std::string text(1, object ? '{' : '[');
    for (std::size_t i = 0, parts = below(5); i < parts; ++i) {
      if (i > 0) text += ',';
      if (object) text += '"' + kNames[below(std::size(kNames))] + "\": ";
      text += json(depth + 1);
    }
    return text + (object ? '}' : ']');
  }

  // A rule that is right but for some of its values.
  std::string rule() {
    const Collective of = collective();
    const auto known = algorithms(of);
    std::string text = std::string("{\"collective\": \"") + info(of).name +
                       "\", \"algorithm\": \"" + known[below(known.size())].name + '"';
    for (const char* name :
         {"bytes", "ranks", "radix", "segment", "window", "leaders", "pipeline"}) {
      if (below(3) == 0) text += std::string(", \"") + name + "\": " + json(3);
    }
    return text + '}';
  }

 private:
  std::mt19937 random_;
};

void decide_some(const Selection& selection, Words& words) {
  for (const Layout& layout : {Layout{8, 2, 4}, Layout{7, 7, 1}, Layout{3, 1, 3}}) {
    const Collective of = words.collective();
    const Decision decision =
        selection.decide(of, layout, words.below(2) == 0, std::uint64_t{1} << words.below(64));
    ASSERT_NE(decision.algorithm, nullptr);
    if (decision.algorithm->is_host() || decision.mode != Mode::kFlat || info(of).has_counts())
      continue;
    // What was decided can also be made.
    Shape shape;
    shape.ranks = layout.ranks;
    shape.count = 1000;
    shape.parameters = decision.parameters;
    make_schedule(*decision.algorithm, shape);
  }
}

TEST(SelectionFuzz, AnyRuleIsReadOrRefused) {
  static const char* const kEndings[] = {"",        "_LIST",    "_RADIX",    "_SEGMENT",
                                         "_WINDOW", "_LEADERS", "_PIPELINE", "_X"};
  for (int seed = 0; seed < kTexts; ++seed) {
    Words words(static_cast<std::uint32_t>(seed));
    Selection::Environment environment;
    std::vector<std::string> issues;
    for (int i = 0; i < 3; ++i) {
      const Collective of = words.collective();
      std::string name = info(of).name;
      for (char& c : name) c = static_cast<char>(std::toupper(c));
      environment.emplace_back(
          "OVERDRIVE_ADJUST_" + name + kEndings[words.below(std::size(kEndings))], words.rules(of));
    }
    SCOPED_TRACE(std::to_string(seed) + ": " + environment[0].first + '=' + environment[0].second);
    const Selection selection = Selection::load(environment, {}, issues);
    for (const std::string& issue : issues) EXPECT_NE(issue, "");
    decide_some(selection, words);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(SelectionFuzz, AnyTuningFileIsReadOrRefused) {
  for (int seed = 0; seed < kTexts; ++seed) {
    Words words(static_cast<std::uint32_t>(seed));
    std::string text = "{\"format\": \"overdrive-tuning\", \"version\": 1, \"rules\": [" +
                       words.rule() + ", " + words.rule() + "]}";
    if (words.below(4) == 0) text = words.json();
    for (std::size_t i = words.below(3); i > 0; --i) {
      text[words.below(text.size())] = static_cast<char>(words.below(256));
    }
    SCOPED_TRACE(std::to_string(seed) + ": " + text);
    const TuningFile file = parse_tuning(text, "any.json", "");
    for (const std::string& issue : file.issues)
      EXPECT_EQ(issue.rfind("any.json:", 0), 0u) << issue;
    EXPECT_TRUE(file.issues.empty() || file.rules.empty());
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace od::coll
