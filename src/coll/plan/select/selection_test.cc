// The notation of rules, their order, tuning files, tables, and the time of a look-up.
#include "coll/plan/select/selection.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <string>

#include "coll/plan/hierarchy/hierarchy.h"
#include "coll/plan/select/tuning_file.h"

namespace od::coll {
namespace {

using enum Collective;

struct Loaded {
  Selection selection;
  std::vector<std::string> issues;
};

Loaded with(Selection::Environment environment, Selection::Options options = {}) {
  Loaded result;
  result.selection = Selection::load(environment, options, result.issues);
  return result;
}

constexpr Layout kTwoByFour{8, 2, 4};
constexpr Layout kEightNodes{8, 8, 1};

std::string chosen(const Loaded& loaded, Collective collective, std::uint64_t bytes,
                   const Layout& layout = kEightNodes, bool commutative = true) {
  return loaded.selection.decide(collective, layout, commutative, bytes).algorithm->name;
}

TEST(Rules, TheFirstClauseThatMatchesCounts) {
  const Loaded loaded = with({{"OVERDRIVE_ADJUST_ALLREDUCE", "2:0-1023@4-8;1:1K-2K;ring"}});
  EXPECT_TRUE(loaded.issues.empty());
  EXPECT_EQ(chosen(loaded, kAllreduce, 0), "rabenseifner");
  EXPECT_EQ(chosen(loaded, kAllreduce, 1023), "rabenseifner");
  EXPECT_EQ(chosen(loaded, kAllreduce, 1024), "recursive_doubling");
  EXPECT_EQ(chosen(loaded, kAllreduce, 2048), "recursive_doubling");
  EXPECT_EQ(chosen(loaded, kAllreduce, 2049), "ring");
  // Not 4 to 8 ranks.
  EXPECT_EQ(chosen(loaded, kAllreduce, 1, {9, 9, 1}), "ring");
}

TEST(Rules, NamesNumbersSuffixesAndNodes) {
  const Loaded loaded =
      with({{"OVERDRIVE_ADJUST_BCAST",
             " knomial/flat : 4K , 1M-@8%4 ; 108:-64 ; scatter_ring/hier:%1 ; 0"}});
  EXPECT_TRUE(loaded.issues.empty());
  EXPECT_EQ(chosen(loaded, kBcast, 4096), "knomial");
  EXPECT_EQ(chosen(loaded, kBcast, 1 << 20, kTwoByFour), "knomial");
  EXPECT_EQ(chosen(loaded, kBcast, 64, kTwoByFour), "scatter_ring");
  EXPECT_EQ(chosen(loaded, kBcast, 65, kEightNodes), "scatter_ring");
  EXPECT_EQ(loaded.selection.decide(kBcast, kTwoByFour, true, 4096).mode, Mode::kFlat);
  EXPECT_EQ(loaded.selection.decide(kBcast, kTwoByFour, true, 64).mode, Mode::kHierarchical);
  Explanation explanation;
  loaded.selection.decide(kBcast, kTwoByFour, true, 65, &explanation);
  EXPECT_EQ(explanation.origin, "cost model");
  EXPECT_EQ(explanation.lines.size(), 4u);
}

TEST(Rules, EveryIntelNumberNamesAnAlgorithm) {
  for (const IntelNumber& number : intel_numbers()) {
    EXPECT_NE(find_algorithm(number.collective, number.name), nullptr)
        << info(number.collective).name << ' ' << number.number;
  }
  // "Topology aware" is the form with shared memory inside nodes.
  const Loaded loaded = with({{"OVERDRIVE_ADJUST_ALLREDUCE", "4"}});
  EXPECT_EQ(chosen(loaded, kAllreduce, 1, kTwoByFour), "reduce_bcast");
  EXPECT_EQ(loaded.selection.decide(kAllreduce, kTwoByFour, true, 1).mode, Mode::kHierarchical);
}

TEST(Rules, OldNamesFindTheirAlgorithms) {
  for (const OldName& name : old_names()) {
    int found = 0;
    for (const Algorithm& algorithm : algorithms()) {
      if (std::string_view(algorithm.name) != name.now) continue;
      ++found;
      EXPECT_EQ(find_algorithm(algorithm.collective, name.before), &algorithm);
    }
    EXPECT_GT(found, 0) << name.now;
  }
  EXPECT_EQ(find_algorithm(Collective::kBarrier, "two_trees"), nullptr);
}

TEST(Rules, MistakesNameTheClauseAndTheRemedy) {
  const auto issue = [](const char* name, const char* value) {
    const Loaded loaded = with({{name, value}});
    EXPECT_EQ(loaded.issues.size(), 1u) << value;
    EXPECT_EQ(chosen(loaded, kAllreduce, 100), chosen(with({}), kAllreduce, 100));
    return loaded.issues.empty() ? std::string() : loaded.issues.front();
  };
  EXPECT_NE(issue("OVERDRIVE_ADJUST_ALLREDUCE", "1;rign").find("did you mean ring?"),
            std::string::npos);
  EXPECT_NE(issue("OVERDRIVE_ADJUST_ALLREDUCE", "1;rign").find("clause 2"), std::string::npos);
  EXPECT_NE(issue("OVERDRIVE_ADJUST_ALLREDUCE", "77").find("number 77"), std::string::npos);
  EXPECT_NE(issue("OVERDRIVE_ADJUST_ALLREDUCE", "1:5-4").find("5-4"), std::string::npos);
  EXPECT_NE(issue("OVERDRIVE_ADJUST_ALLREDUCE", "1:x").find("sizes such as"), std::string::npos);
  EXPECT_NE(issue("OVERDRIVE_ADJUST_ALLREDUCE", "1:4@a").find("numbers of ranks"),
            std::string::npos);
  EXPECT_NE(issue("OVERDRIVE_ADJUST_ALLREDUCE", "1/numa").find("/numa"), std::string::npos);
  EXPECT_NE(issue("OVERDRIVE_ADJUST_ALREDUCE", "1").find("did you mean OVERDRIVE_ADJUST_ALLREDUCE"),
            std::string::npos);
  EXPECT_NE(issue("OVERDRIVE_ADJUST_ALLREDUCE_SEGMENT", "x").find("64K"), std::string::npos);
  EXPECT_NE(issue("OVERDRIVE_ADJUST_ALLREDUCE_RADIX", "0").find("from 2 to 65536"),
            std::string::npos);
}

// Values at and beyond the ends of what is accepted; and where they are accepted, every decision
// comes back (a radix of 1 once made the cost model count for ever).
TEST(Rules, ParametersAtTheirExtremes) {
  // The values are of one collective: the decisions about others do not depend on them.
  const auto issue = [](Collective of, const std::string& part, const std::string& value) {
    std::string name = info(of).name;
    for (char& c : name) c = static_cast<char>(std::toupper(c));
    const Loaded loaded = with({{"OVERDRIVE_ADJUST_" + name + part, value}});
    for (const Layout& layout : {kTwoByFour, kEightNodes, Layout{2, 1, 2}, Layout{1, 1, 1}}) {
      for (const std::uint64_t bytes : {0ull, 4096ull, 1ull << 40, ~0ull}) {
        loaded.selection.decide(of, layout, true, bytes);
      }
    }
    EXPECT_LE(loaded.issues.size(), 1u);
    return loaded.issues.empty() ? std::string() : loaded.issues.front();
  };
  for (std::size_t i = 0; i < kCollectives; ++i) {
    const auto of = static_cast<Collective>(i);
    SCOPED_TRACE(info(of).name);
    for (const char* part : {"_RADIX", "_SEGMENT", "_WINDOW", "_LEADERS", "_PIPELINE"}) {
      for (const char* wrong :
           {"0", "-2", "65537x", "99999999999999999999", " ", "1e3", "0x10", "\xc3\xbc", "+1"}) {
        EXPECT_EQ(issue(of, part, wrong).empty(), wrong[0] == ' ') << part << '=' << wrong;
      }
      EXPECT_EQ(issue(of, part, "65536"), "") << part;
      EXPECT_EQ(issue(of, part, "2"), "") << part;
    }
    // Only lines can be one; a tree cannot have one child per level.
    const bool lines = of == kBcast || of == kReduce;
    EXPECT_EQ(issue(of, "_RADIX", "1").empty(), lines);
    EXPECT_NE(issue(of, "_LEADERS", "100000").find("from 1 to 65536"), std::string::npos);
    EXPECT_EQ(issue(of, "_WINDOW", "-1"), "");
    EXPECT_EQ(issue(of, "_SEGMENT", "-1"), "");
    EXPECT_EQ(issue(of, "_SEGMENT", "1T"), "");
    EXPECT_NE(issue(of, "_SEGMENT", "1025G"), "");
  }
  EXPECT_NE(issue(kBcast, "_RADIX", "knomial:1").find("from 2 to 65536"), std::string::npos);
  EXPECT_EQ(issue(kBcast, "_RADIX", "chain:1"), "");
  const Loaded one =
      with({{"OVERDRIVE_ADJUST_BCAST", "knomial"}, {"OVERDRIVE_ADJUST_BCAST_RADIX", "1"}});
  EXPECT_EQ(one.selection.decide(kBcast, kEightNodes, true, 1).parameters.radix, 2);
}

TEST(Rules, ParametersForAllAndForOne) {
  const Loaded loaded = with({{"OVERDRIVE_ADJUST_BCAST", "knomial:0-9;chain"},
                              {"OVERDRIVE_ADJUST_BCAST_RADIX", "knomial:8"},
                              {"OVERDRIVE_ADJUST_BCAST_SEGMENT", "32K,chain:8K"},
                              {"OVERDRIVE_ADJUST_BCAST_LEADERS", "2"},
                              {"OVERDRIVE_ADJUST_BCAST_PIPELINE", "chain:256K"}});
  EXPECT_TRUE(loaded.issues.empty());
  const Parameters tree = loaded.selection.decide(kBcast, kEightNodes, true, 5).parameters;
  EXPECT_EQ(tree.radix, 8);
  EXPECT_EQ(tree.segment_bytes, 32 * 1024);
  // Only hierarchical forms have leaders and a pipeline.
  EXPECT_EQ(tree.leaders, 0);
  EXPECT_EQ(tree.pipeline_bytes, 0);
  const Parameters levels = loaded.selection.decide(kBcast, kTwoByFour, true, 5).parameters;
  EXPECT_EQ(levels.leaders, 2);
  EXPECT_EQ(levels.pipeline_bytes, kPipelineBytes);
  EXPECT_EQ(loaded.selection.decide(kBcast, kTwoByFour, true, 50).parameters.pipeline_bytes,
            256 * 1024);
  const Parameters chain = loaded.selection.decide(kBcast, kEightNodes, true, 50).parameters;
  EXPECT_EQ(chain.radix, 1);
  EXPECT_EQ(chain.segment_bytes, 8 * 1024);
}

// What is done inside nodes has names like everything else.
TEST(Rules, NameWhatANodeDoesInSharedMemory) {
  const Layout node{4, 1, 4};
  for (std::size_t i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    const Algorithm* const algorithm = find_algorithm(collective, "shared_memory");
    ASSERT_NE(algorithm, nullptr) << info(collective).name;
    EXPECT_EQ(find_algorithm(collective, 200), algorithm);
    EXPECT_EQ(algorithm->node_form, NodeForm::automatic);
    EXPECT_FALSE(with({}).selection.decide(collective, node, true, 64).algorithm->shares_memory())
        << "the model names what serves calls that shared memory cannot";
  }
  const Loaded loaded = with({{"OVERDRIVE_ADJUST_ALLREDUCE", "shared_slices:4K-;201:0-4K"},
                              {"OVERDRIVE_ADJUST_BCAST_LIST", "shared_memory"}});
  ASSERT_TRUE(loaded.issues.empty()) << loaded.issues.front();
  const Decision slices = loaded.selection.decide(kAllreduce, node, true, 8192);
  EXPECT_EQ(slices.algorithm->node_form, NodeForm::slices);
  EXPECT_EQ(slices.mode, Mode::kHierarchical);
  EXPECT_EQ(chosen(loaded, kAllreduce, 8, node), "shared_whole");
  EXPECT_EQ(chosen(loaded, kBcast, 8, node), "shared_memory");
  EXPECT_EQ(loaded.selection.decide(kBcast, node, true, 8).mode, Mode::kHierarchical);
  // Between nodes the algorithm that stands for it is between the leaders.
  EXPECT_EQ(loaded.selection.decide(kAllreduce, kTwoByFour, true, 8192).mode, Mode::kHierarchical);
}

TEST(Rules, TheListLimitsTheModel) {
  const Loaded loaded = with({{"OVERDRIVE_ADJUST_ALLREDUCE_LIST", "gather_scatter,ring"}});
  std::set<std::string> seen;
  for (std::uint64_t bytes = 1; bytes < 1u << 30; bytes *= 2) {
    seen.insert(chosen(loaded, kAllreduce, bytes));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"gather_scatter", "ring"}));
  // Only one of them can serve.
  EXPECT_EQ(chosen(loaded, kAllreduce, 1 << 29, kEightNodes, false), "gather_scatter");
}

TEST(Rules, IntelVariablesOnlyWhenAskedFor) {
  const Selection::Environment environment = {{"I_MPI_ADJUST_ALLREDUCE", "5"},
                                              {"I_MPI_ADJUST_ALLREDUCE_KN_RADIX", "9"}};
  Selection::Options accept;
  accept.accept_intel = true;
  EXPECT_EQ(chosen(with(environment, accept), kAllreduce, 1 << 29), "gather_scatter");
  EXPECT_TRUE(with(environment, accept).issues.empty());
  EXPECT_NE(chosen(with(environment), kAllreduce, 1 << 29), "gather_scatter");
  // Ours win.
  Selection::Environment both = environment;
  both.emplace_back("OVERDRIVE_ADJUST_ALLREDUCE", "ring");
  EXPECT_EQ(chosen(with(both, accept), kAllreduce, 1), "ring");
}

TEST(Rules, ReduceScatterStandsForItsBlockForm) {
  const Loaded loaded = with({{"OVERDRIVE_ADJUST_REDUCE_SCATTER", "2"}});
  EXPECT_EQ(chosen(loaded, kReduceScatterBlock, 10), "pairwise");
  const Loaded own = with({{"OVERDRIVE_ADJUST_REDUCE_SCATTER", "2"},
                           {"OVERDRIVE_ADJUST_REDUCE_SCATTER_BLOCK", "ring"}});
  EXPECT_EQ(chosen(own, kReduceScatterBlock, 10), "ring");
  EXPECT_EQ(chosen(own, kReduceScatter, 10), "pairwise");
}

TEST(Rules, WhatCannotServeFallsThrough) {
  const Selection::Environment environment = {
      {"OVERDRIVE_ADJUST_ALLREDUCE", "ring;recursive_doubling"}};
  EXPECT_EQ(chosen(with(environment), kAllreduce, 1 << 20, kEightNodes, false),
            "recursive_doubling");
  EXPECT_EQ(with(environment).selection.compile(kAllreduce, kEightNodes, false).error(), "");
  Selection::Options strict;
  strict.strict = true;
  Table table = with(environment, strict).selection.compile(kAllreduce, kEightNodes, false);
  EXPECT_NE(table.error().find("needs an operation that commutes"), std::string::npos);
  EXPECT_EQ(with(environment, strict).selection.compile(kAllreduce, kEightNodes, true).error(), "");
}

TEST(Rules, WhatHasNoHierarchicalFormIsFlat) {
  const Loaded loaded = with({{"OVERDRIVE_ADJUST_ALLTOALLV", "linear"},
                              {"OVERDRIVE_ADJUST_SCAN", "linear/hier;binomial"}});
  EXPECT_EQ(loaded.selection.decide(kAlltoallv, kTwoByFour, true, 0).mode, Mode::kFlat);
  EXPECT_EQ(loaded.selection.decide(kScan, kTwoByFour, true, 8).mode, Mode::kHierarchical);
  Layout robin = kTwoByFour;
  robin.contiguous = false;
  const Decision scan = loaded.selection.decide(kScan, robin, true, 8);
  EXPECT_EQ(scan.mode, Mode::kFlat);
  EXPECT_STREQ(scan.algorithm->name, "binomial");
  // On one node everything has one; the algorithm is for those who cannot go that way.
  const Decision inside = loaded.selection.decide(kAlltoallv, {4, 1, 4}, true, 0);
  EXPECT_EQ(inside.mode, Mode::kHierarchical);
}

TEST(Model, LongScansOfRanksThatShareCoresStayInSharedMemory) {
  const Selection selection;
  Layout layout{8, 1, 8};
  constexpr std::uint64_t kLong = 600 << 10;
  EXPECT_EQ(selection.decide(kScan, layout, true, kLong).mode, Mode::kFlat);
  layout.shares_cores = true;
  for (const Collective collective : {kScan, kExscan}) {
    EXPECT_EQ(selection.decide(collective, layout, true, kLong).mode, Mode::kHierarchical);
    EXPECT_EQ(selection.decide(collective, layout, true, 64 << 20).mode, Mode::kFlat);
  }
}

TEST(Tables, SayTheSameAsDecide) {
  const Loaded loaded = with({{"OVERDRIVE_ADJUST_ALLREDUCE", "1:0-99;ring:5000-6000@8"}});
  for (const Layout& layout : {kEightNodes, kTwoByFour, Layout{7, 1, 7}, Layout{1, 1, 1}}) {
    for (std::size_t c = 0; c < kCollectives; ++c) {
      const auto collective = static_cast<Collective>(c);
      Table table = loaded.selection.compile(collective, layout, true);
      EXPECT_EQ(table.last_bytes().back(), std::numeric_limits<std::uint64_t>::max());
      // Sizes on the model's grid, and ends of rules.
      std::vector<std::uint64_t> sizes = {0, 1, 64, 65536, 1048576, 1ull << 30};
      if (collective == kAllreduce) sizes.insert(sizes.end(), {99, 5000, 6000});
      for (const std::uint64_t bytes : sizes) {
        EXPECT_EQ(table.at(bytes), loaded.selection.decide(collective, layout, true, bytes))
            << info(collective).name << ' ' << bytes;
      }
    }
  }
  Table table = loaded.selection.compile(kAllreduce, kEightNodes, true);
  EXPECT_STREQ(table.at(99).algorithm->name, "recursive_doubling");
  EXPECT_STREQ(table.at(5000).algorithm->name, "ring");
  EXPECT_STREQ(table.at(6000).algorithm->name, "ring");
}

// Also where `size * ranks` no longer fits into 64 bits (times: bench/coll/od_select.cc).
TEST(Tables, EverySizeHasAnAlgorithm) {
  const Loaded loaded = with({});
  Table table = loaded.selection.compile(kAllreduce, {4096, 64, 64}, true);
  for (std::uint64_t size = 1; size != 0; size *= 2) {
    for (const std::uint64_t bytes : {size - 1, size, size + size / 2}) {
      const Decision& decision = table.at(bytes);
      ASSERT_NE(decision.algorithm, nullptr) << bytes;
      EXPECT_EQ(decision.algorithm->collective, kAllreduce) << bytes;
    }
  }
}

// Where ranks share a node the model goes through leaders, but for what the network does as well.
TEST(Model, ChoosesLevelsWhereNodesHaveSeveralRanks) {
  const Loaded loaded = with({});
  const auto mode = [&](Collective collective, std::uint64_t bytes, const Layout& layout) {
    return loaded.selection.decide(collective, layout, true, bytes).mode;
  };
  for (const Collective collective : {kBcast, kReduce, kAllreduce, kBarrier, kAllgather}) {
    for (const std::uint64_t bytes : {8u, 4096u, 65536u}) {
      EXPECT_EQ(mode(collective, bytes, {64, 8, 8}), Mode::kHierarchical)
          << info(collective).name << ' ' << bytes;
      EXPECT_EQ(mode(collective, bytes, {8, 8, 1}), Mode::kFlat);
    }
  }
  EXPECT_EQ(mode(kBcast, 4 << 20, {64, 8, 8}), Mode::kHierarchical);
  EXPECT_EQ(mode(kAllreduce, 4 << 20, {64, 8, 8}), Mode::kHierarchical);
}

// What is between two ranks of one node, or stands by where shared memory cannot be used.
TEST(Model, ChoosesSensiblyForTwoRanks) {
  const Loaded loaded = with({{"OVERDRIVE_ADJUST_ALLREDUCE", "0"}});
  const Layout pair{2, 1, 2};
  EXPECT_EQ(chosen(loaded, kAllreduce, 8, pair), "recursive_doubling");
  EXPECT_EQ(chosen(loaded, kAllreduce, 1024, pair), "recursive_doubling");
  const std::string large = chosen(loaded, kAllreduce, 4 << 20, pair);
  EXPECT_TRUE(large == "rabenseifner" || large == "ring" || large == "segmented_ring") << large;
  EXPECT_EQ(loaded.selection.decide(kAllreduce, pair, true, 8).mode, Mode::kHierarchical);
  EXPECT_EQ(loaded.selection.decide(kAllreduce, pair, true, 4 << 20).mode, Mode::kHierarchical);
}

// Both ranks of a pair copy a long message, while in shared memory the root waits for the reader.
TEST(Model, LongBlocksOfAPairGoAsMessages) {
  const Loaded loaded = with({});
  const auto decide = [&](Collective collective, std::uint64_t bytes, const Layout& layout) {
    return loaded.selection.decide(collective, layout, true, bytes);
  };
  for (const Collective collective : {kBcast, kGather, kScatter}) {
    EXPECT_EQ(decide(collective, 4096, {2, 1, 2}).mode, Mode::kHierarchical);
    for (const std::uint64_t bytes : {8u << 10, 64u << 10, 1u << 20, 64u << 20}) {
      const Decision decision = decide(collective, bytes, {2, 1, 2});
      EXPECT_EQ(decision.mode, Mode::kFlat) << info(collective).name << ' ' << bytes;
      // One message, whatever it is called.
      EXPECT_STREQ(decision.algorithm->name, "linear") << info(collective).name << ' ' << bytes;
      EXPECT_EQ(decide(collective, bytes, {3, 1, 3}).mode, Mode::kHierarchical);
    }
  }
  for (const Collective collective : {kReduce, kAllgather, kAlltoall}) {
    EXPECT_EQ(decide(collective, 1 << 20, {2, 1, 2}).mode, Mode::kHierarchical);
  }
}

TEST(Model, EveryAlgorithmHasACost) {
  const Machine machine;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.is_host()) continue;
    for (const int ranks : {1, 2, 3, 8, 100, 4096}) {
      for (const double bytes : {0.0, 8.0, 65536.0, 1e9}) {
        const Estimate estimate(machine, algorithm.collective, ranks, std::min(ranks, 4), bytes);
        const double cost = algorithm.cost(estimate, bytes, algorithm.defaults);
        EXPECT_TRUE(cost >= 0 && cost < 1e18) << algorithm.name << ' ' << ranks << ' ' << bytes;
      }
    }
  }
}

// ---- Tuning files.

TuningFile parsed(const std::string& rules, const std::string& extra = "") {
  return parse_tuning("{\"format\": \"overdrive-tuning\",\n \"version\": 1,\n" + extra +
                          "\"rules\": [\n" + rules + "\n]}",
                      "t.json", "this machine");
}

TEST(TuningFile, HoldsRulesAndTheMachine) {
  const TuningFile file = parsed(
      R"({"collective": "allreduce", "algorithm": "ring", "mode": "flat", "bytes": ["64K", null],
          "ranks": 8, "ranks_per_node": [1, 4], "nodes": [2, 2], "commutative": true,
          "segment": "16K", "pipeline": "1M", "leaders": 2, "evidence": {"median_us": 3.5}},
         {"collective": "bcast", "algorithm": 108})",
      R"("fingerprint": "this machine", "machine": {"far": {"latency_ns": 9000}},)");
  ASSERT_TRUE(file.issues.empty()) << file.issues.front();
  ASSERT_EQ(file.rules.size(), 2u);
  EXPECT_EQ(file.rules[0].first, kAllreduce);
  const Rule& rule = file.rules[0].second;
  EXPECT_STREQ(rule.algorithm->name, "ring");
  EXPECT_EQ(rule.mode, Mode::kFlat);
  EXPECT_EQ(rule.parameters.segment_bytes, 16384);
  EXPECT_EQ(rule.parameters.pipeline_bytes, 1 << 20);
  EXPECT_EQ(rule.parameters.leaders, 2);
  EXPECT_EQ(rule.origin, "t.json:4");
  ASSERT_EQ(rule.conditions.size(), 1u);
  EXPECT_EQ(rule.conditions[0].bytes.min, 65536u);
  EXPECT_TRUE(rule.conditions[0].fits({8, 2, 4}, true));
  EXPECT_FALSE(rule.conditions[0].fits({8, 2, 4}, false));
  EXPECT_FALSE(rule.conditions[0].fits({8, 4, 2}, true));
  EXPECT_FALSE(rule.conditions[0].fits({8, 1, 8}, true));
  ASSERT_TRUE(file.machine.has_value());
  EXPECT_EQ(file.machine->far.latency_ns, 9000);
  EXPECT_STREQ(file.rules[1].second.algorithm->name, "scatter_ring");
}

TEST(TuningFile, MistakesNameLineAndRemedy) {
  const auto issue = [](const std::string& rules, const std::string& extra = "") {
    const TuningFile file = parsed(rules, extra);
    EXPECT_TRUE(file.rules.empty());
    EXPECT_EQ(file.issues.size(), 1u);
    return file.issues.empty() ? std::string() : file.issues.front();
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  std::string text = issue("{\"collective\": \"bcast\",\n \"algorithm\": \"knomail\"}");
  EXPECT_TRUE(has(text, "t.json:5: ") && has(text, "did you mean knomial?")) << text;
  text = issue("{\"collective\": \"bcast\",\n \"algorithm\": \"knomial\",\n\"byte\": 3\n}");
  EXPECT_TRUE(has(text, "t.json:6: ") && has(text, "did you mean \"bytes\"?")) << text;
  text = issue("{\"collective\": \"bcast\",\n \"algorithm\": 999\n}");
  EXPECT_TRUE(has(text, "t.json:5: ") && has(text, "number 999")) << text;
  text = issue("{\"algorithm\": 1}");
  EXPECT_TRUE(has(text, "t.json:4: ") && has(text, "\"collective\" is missing")) << text;
  text = issue("{\"collective\": \"bcast\", \"algorithm\": 1, \"ranks\": [4,\n2]}");
  EXPECT_TRUE(has(text, "ends before it begins")) << text;
  text = issue("{\"collective\": \"bcast\",\n\"algorithm\" 1}");
  EXPECT_TRUE(has(text, "t.json:5: ") && has(text, "syntax error")) << text;
  text = issue("", "\"fingerprint\": \"another\",\n");
  EXPECT_TRUE(has(text, "t.json:3: ") && has(text, "another")) << text;
}

// Whatever the path names, the answer comes at once.
TEST(TuningFile, OddFilesAreRefused) {
  const auto issue = [](const std::string& path) {
    const TuningFile file = read_tuning_file(path, "");
    EXPECT_TRUE(file.rules.empty());
    return file.issues.size() == 1 ? file.issues.front() : std::string();
  };
  EXPECT_NE(issue("/dev/zero").find("is not a regular file"), std::string::npos);
  EXPECT_NE(issue("/proc").find("is not a regular file"), std::string::npos);
  EXPECT_NE(issue("/nowhere/rules.json").find("does not exist"), std::string::npos);
  const std::string path = "selection_test.tuning";
  const auto with_text = [&](const std::string& text) {
    std::ofstream(path) << text;
    const std::string found = issue(path);
    unlink(path.c_str());
    return found;
  };
  EXPECT_NE(with_text(std::string(16 << 20, ' ') + "{}").find("larger than 16 MiB"),
            std::string::npos);
  EXPECT_NE(with_text(std::string(1 << 20, '[')).find("nested too deeply"), std::string::npos);
  std::string many = "[1";
  for (int i = 0; i < 300'000; ++i) many += ",1";
  EXPECT_NE(with_text(many + "]").find("more than 200000 values"), std::string::npos);
}

TEST(TuningFile, ParametersHaveTheLimitsOfVariables) {
  for (const char* wrong : {"\"radix\": 1", "\"radix\": 65537", "\"leaders\": 0", "\"window\": 1.5",
                            "\"window\": -2", "\"segment\": 1e300", "\"segment\": \"16777215T\"",
                            "\"pipeline\": null", "\"segment\": 0"}) {
    const TuningFile file = parsed(
        std::string("{\"collective\": \"bcast\", \"algorithm\": \"knomial\", ") + wrong + "}");
    ASSERT_EQ(file.issues.size(), 1u) << wrong;
    EXPECT_NE(file.issues[0].find("must be"), std::string::npos) << file.issues[0];
  }
}

TEST(TuningFile, ComesAfterTheEnvironment) {
  const std::string path =
      ::testing::TempDir() + "overdrive_tuning_test_" + std::to_string(getpid()) + ".json";
  FILE* stream = fopen(path.c_str(), "w");
  ASSERT_NE(stream, nullptr);
  fputs(R"({"format": "overdrive-tuning", "version": 1, "rules": [
    {"collective": "bcast", "algorithm": "binary", "bytes": [0, 100]},
    {"collective": "bcast", "algorithm": "chain"}]})",
        stream);
  fclose(stream);
  Selection::Options options;
  options.tuning_file = path;
  const Loaded loaded = with({{"OVERDRIVE_ADJUST_BCAST", "linear:0-50;0:200"}}, options);
  EXPECT_EQ(chosen(loaded, kBcast, 50), "linear");
  EXPECT_EQ(chosen(loaded, kBcast, 51), "binary");
  EXPECT_EQ(chosen(loaded, kBcast, 101), "chain");
  EXPECT_EQ(chosen(loaded, kBcast, 200), "chain");
  remove(path.c_str());
  EXPECT_EQ(with({}, options).issues.size(), 1u);
}

TEST(Selection, AlternativesComeCheapestFirstAndCanServe) {
  const Selection selection;
  for (std::size_t i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const Layout& layout : {kTwoByFour, kEightNodes, Layout{4, 1, 4}}) {
      for (const std::uint64_t bytes : {8, 65536, 4 << 20}) {
        const Decision usual = selection.decide(collective, layout, true, bytes);
        if (usual.algorithm->is_host()) continue;
        const std::vector<Decision> found =
            selection.alternatives(usual, layout, true, bytes, 8, 8, 4);
        EXPECT_LE(found.size(), 4u);
        double last = 0;
        for (const Decision& each : found) {
          EXPECT_FALSE(each == usual);
          EXPECT_FALSE(each.algorithm->is_host() || each.algorithm->works_elsewhere());
          EXPECT_STRNE(each.algorithm->name, "first_arrival");
          if (&each == &found[0] && each.parameters.segment_bytes == kLongSegmentBytes) continue;
          const bool first_in_segments = &each == &found[0] &&
                                         usual.parameters.segment_bytes <= 0 &&
                                         each.parameters.segment_bytes > 0;
          if (first_in_segments) continue;
          EXPECT_GE(selection.cost(each, layout, bytes), last);
          last = selection.cost(each, layout, bytes);
          EXPECT_EQ(each.mode == Mode::kHierarchical
                        ? why_not_hierarchical(*each.algorithm, layout, true)
                        : why_not(*each.algorithm, {layout.ranks, true}),
                    nullptr);
        }
      }
    }
  }
  const Decision ring = selection.decide(kAllreduce, kEightNodes, true, 4 << 20);
  EXPECT_GE(selection.alternatives(ring, kEightNodes, true, 4 << 20, 8, 8, 4).size(), 2u);
  EXPECT_TRUE(selection.alternatives(ring, kEightNodes, true, 4 << 20, 8, 8, 0).empty());
}

TEST(Selection, TheFirstAlternativeToShortSegmentsIsLongOnes) {
  constexpr std::uint64_t kBytes = 1 << 20;
  const Algorithm& chain = *find_algorithm(kBcast, "chain");
  const Selection selection;
  const Decision usual = selection.complete(chain, Mode::kHierarchical, {}, kEightNodes, true);
  EXPECT_EQ(usual.parameters.segment_bytes, 16 << 10);
  Decision with_long = usual;
  with_long.parameters.segment_bytes = kLongSegmentBytes;
  const auto first = [&](const Selection& from, const Decision& decision, std::uint64_t bytes) {
    return from.alternatives(decision, kEightNodes, true, bytes, 2, 2, 2).at(0);
  };
  EXPECT_TRUE(first(selection, usual, kBytes) == with_long);
  EXPECT_FALSE(first(selection, usual, kLongSegmentBytes) == with_long) << "there is one segment";
  Decision set = usual;
  set.parameters.segment_bytes = 32 << 10;
  EXPECT_FALSE(first(selection, set, kBytes) == with_long) << "somebody has set another length";
}

TEST(Selection, BetweenTwoNodesWaysThatSendTheSameAreOneAlternative) {
  constexpr std::uint64_t kBytes = 1 << 20;
  const Selection selection;
  const auto whole = [&](const char* name) {
    return selection.complete(*find_algorithm(kBcast, name), Mode::kHierarchical, {}, kTwoByFour,
                              true);
  };
  const auto names = [&](const Decision& usual, std::size_t most) {
    std::vector<std::string> found;
    for (const Decision& each :
         selection.alternatives(usual, kTwoByFour, true, kBytes, 8, 8, most)) {
      if (each.mode == Mode::kHierarchical) found.emplace_back(each.algorithm->name);
    }
    return found;
  };
  for (const char* usual : {"linear", "binomial", "knomial"}) {
    for (const std::string& name : names(whole(usual), 20)) {
      EXPECT_TRUE(name != "linear" && name != "binomial" && name != "knomial") << usual;
    }
  }
  EXPECT_EQ(std::ranges::count_if(names(whole("chain"), 20),
                                  [](const std::string& name) {
                                    return name == "linear" || name == "binomial" ||
                                           name == "knomial";
                                  }),
            1);
}

TEST(Selection, TheFirstAlternativeToWholeMessagesIsTheCheapestInSegments) {
  constexpr std::uint64_t kBytes = 1 << 20;
  const Selection selection;
  const Decision usual = selection.complete(*find_algorithm(kBcast, "linear"), Mode::kHierarchical,
                                            {}, kTwoByFour, true);
  const std::vector<Decision> found =
      selection.alternatives(usual, kTwoByFour, true, kBytes, 1.25, 1.25, 2);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].parameters.segment_bytes, 16 << 10);
  EXPECT_LE(found[1].parameters.segment_bytes, 0);
}

TEST(Selection, OneAlternativeIsOfAnotherAlgorithm) {
  const Selection selection;
  for (const Layout& layout : {kEightNodes, kTwoByFour}) {
    for (const std::uint64_t bytes : {64u, 10u << 10, 64u << 10, 1u << 20}) {
      for (const Algorithm& algorithm : algorithms(kBcast)) {
        if (algorithm.is_host() || why_not_hierarchical(algorithm, layout, true) != nullptr) {
          continue;
        }
        const Decision usual = selection.complete(algorithm, Mode::kHierarchical, {}, layout, true);
        const std::vector<Decision> found =
            selection.alternatives(usual, layout, true, bytes, 1e6, 1e6, 2);
        ASSERT_EQ(found.size(), 2u);
        EXPECT_TRUE(found[0].algorithm != &algorithm || found[1].algorithm != &algorithm)
            << algorithm.name << ", " << bytes << " bytes";
      }
    }
  }
}

TEST(Selection, TheOneOfAnotherAlgorithmMayBeFurtherFromTheBest) {
  const Selection selection;
  constexpr std::uint64_t kBytes = 10 << 10;
  const Decision usual = selection.decide(kBcast, kEightNodes, true, kBytes);
  const std::vector<Decision> found =
      selection.alternatives(usual, kEightNodes, true, kBytes, 1, 2, 2);
  ASSERT_FALSE(found.empty());
  const double best = selection.cost(usual, kEightNodes, kBytes);
  for (const Decision& each : found) {
    EXPECT_NE(each.algorithm, usual.algorithm);
    EXPECT_LE(selection.cost(each, kEightNodes, kBytes), 2 * best);
  }
  EXPECT_TRUE(selection.alternatives(usual, kEightNodes, true, kBytes, 1, 1, 2).empty());
}

}  // namespace
}  // namespace od::coll
