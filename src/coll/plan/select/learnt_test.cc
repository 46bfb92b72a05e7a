// What was learnt survives the way through a file, and is found by the calls that it is about.
#include "coll/plan/select/learnt.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "coll/plan/select/selection.h"

namespace od::coll {
namespace {

constexpr Layout kTwoByFour{8, 2, 4};

Rule rule(Collective collective, const char* algorithm, Mode mode, std::uint64_t calls,
          Interval<std::uint64_t> bytes) {
  Rule made;
  made.algorithm = find_algorithm(collective, algorithm);
  EXPECT_NE(made.algorithm, nullptr) << algorithm;
  made.mode = mode;
  Condition condition;
  condition.bytes = bytes;
  condition.ranks = {8, 8};
  condition.nodes = {2, 2};
  condition.per_node = {4, 4};
  if (info(collective).reduces) condition.commutative = true;
  made.conditions = {condition};
  made.calls = calls;
  return made;
}

Selection with(const std::string& text, Selection::Environment environment = {}) {
  Selection::Options options;
  options.learnt_text = text;
  options.learnt_file = "learnt.json";
  options.fingerprint = "here";
  std::vector<std::string> issues;
  Selection selection = Selection::load(environment, options, issues);
  EXPECT_TRUE(issues.empty()) << issues.front();
  return selection;
}

std::string written(const LearntChoices& choices) {
  return choices.text("here", "Some \"MPI\" 1.0", "2026-11-30");
}

TEST(Learnt, IsFoundAgainWithItsParameters) {
  LearntChoices choices;
  EXPECT_TRUE(choices.empty());
  Rule ring =
      rule(Collective::kAllreduce, "segmented_ring", Mode::kHierarchical, 700, {4097, 8192});
  ring.parameters.segment_bytes = 65536;
  ring.parameters.leaders = 2;
  ring.parameters.pipeline_bytes = -1;
  choices.add(Collective::kAllreduce, ring, {{"segmented_ring/hierarchical", 12345}, {"host", 99}});
  choices.add(Collective::kBcast, rule(Collective::kBcast, "knomial", Mode::kFlat, 10, {}), {});
  choices.add(Collective::kGather, rule(Collective::kGather, "host", Mode::kFlat, 20, {0, 64}), {});
  const std::string text = written(choices);
  EXPECT_NE(text.find("\"segmented_ring/hierarchical us\": 12.3"), std::string::npos) << text;
  const TuningFile file = parse_tuning(text, "learnt.json", "here");
  ASSERT_TRUE(file.issues.empty()) << file.issues.front();
  EXPECT_EQ(file.host, "Some \"MPI\" 1.0");
  EXPECT_EQ(file.rules.size(), 3u);

  const Selection selection = with(text);
  const auto found = selection.learnt(Collective::kAllreduce, kTwoByFour, true, 8192);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->calls, 700u);
  EXPECT_STREQ(found->decision.algorithm->name, "segmented_ring");
  EXPECT_EQ(found->decision.mode, Mode::kHierarchical);
  EXPECT_EQ(found->decision.parameters, ring.parameters);
  EXPECT_EQ(way_name(found->decision), "segmented_ring/hierarchical");
  // Other sizes, operations and layouts are other calls.
  EXPECT_FALSE(selection.learnt(Collective::kAllreduce, kTwoByFour, true, 8193));
  EXPECT_FALSE(selection.learnt(Collective::kAllreduce, kTwoByFour, false, 8192));
  EXPECT_FALSE(selection.learnt(Collective::kAllreduce, {8, 4, 2}, true, 8192));
  EXPECT_EQ(selection.learnt(Collective::kBcast, kTwoByFour, true, 1 << 30)->decision.mode,
            Mode::kFlat);
  const auto host = selection.learnt(Collective::kGather, kTwoByFour, true, 1);
  ASSERT_TRUE(host.has_value());
  EXPECT_EQ(host->decision, host_decision(Collective::kGather));
  EXPECT_EQ(way_name(host->decision), "host");
}

// It begins with them, but they decide nothing by themselves.
TEST(Learnt, IsNoRule) {
  LearntChoices choices;
  choices.add(Collective::kBcast, rule(Collective::kBcast, "chain", Mode::kFlat, 10, {}), {});
  const std::string text = written(choices);
  const Selection without = with("");
  const Selection selection = with(text);
  bool ruled = true;
  EXPECT_EQ(selection.decide(Collective::kBcast, kTwoByFour, true, 64, nullptr, nullptr, &ruled),
            without.decide(Collective::kBcast, kTwoByFour, true, 64));
  EXPECT_FALSE(ruled);
  // Who lists what may be chosen is obeyed.
  const Selection listed = with(text, {{"OVERDRIVE_ADJUST_BCAST_LIST", "binomial"}});
  EXPECT_FALSE(listed.learnt(Collective::kBcast, kTwoByFour, true, 64));
  // As a tuning file it is one.
  std::vector<std::string> issues;
  Selection::Options options;
  options.tuning_file = "learnt.json";
  options.tuning_text = text;
  const Selection fixed = Selection::load({}, options, issues);
  EXPECT_TRUE(issues.empty());
  EXPECT_STREQ(fixed.decide(Collective::kBcast, kTwoByFour, true, 64).algorithm->name, "chain");
}

TEST(Learnt, MoreCallsKnowBetterAndOtherCallsStay) {
  LearntChoices choices;
  choices.add(Collective::kBcast, rule(Collective::kBcast, "chain", Mode::kFlat, 10, {}), {});
  choices.add(Collective::kBcast, rule(Collective::kBcast, "binary", Mode::kFlat, 30, {}), {});
  choices.add(Collective::kBcast, rule(Collective::kBcast, "linear", Mode::kFlat, 20, {}), {});
  LearntChoices before;
  before.add(Collective::kBcast, rule(Collective::kBcast, "knomial", Mode::kFlat, 90, {}), {});
  before.add(Collective::kBcast, rule(Collective::kBcast, "knomial", Mode::kFlat, 9, {0, 7}), {});
  TuningFile earlier = parse_tuning(written(before), "learnt.json", "here");
  // What somebody has written by hand is not ours to keep.
  earlier.rules.push_back({Collective::kBcast, {}});
  choices.keep(earlier);
  const TuningFile file = parse_tuning(written(choices), "learnt.json", "here");
  ASSERT_EQ(file.rules.size(), 2u);
  EXPECT_STREQ(file.rules[0].second.algorithm->name, "knomial");
  EXPECT_EQ(file.rules[0].second.calls, 9u);
  EXPECT_STREQ(file.rules[1].second.algorithm->name, "binary") << "this run has seen more lately";
}

TEST(Learnt, CallsAreWholeNumbers) {
  for (const char* calls : {"0", "-1", "1.5", "\"many\""}) {
    const TuningFile file =
        parse_tuning(std::string(R"({"format": "overdrive-tuning", "version": 1, "rules": [
          {"collective": "bcast", "algorithm": "chain", "calls": )") +
                         calls + "}]}",
                     "t.json", "");
    ASSERT_EQ(file.issues.size(), 1u) << calls;
    EXPECT_NE(file.issues.front().find("\"calls\""), std::string::npos) << file.issues.front();
  }
}

}  // namespace
}  // namespace od::coll
