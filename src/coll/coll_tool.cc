// overdrive-collectives: what the library knows and would decide about collectives, as JSON.
//
//   overdrive-collectives list
//   overdrive-collectives explain COLLECTIVE BYTES [--ranks N] [--nodes N] [--no-commute]
//                                 [--tuning FILE] [--intel] [--strict]
//   overdrive-collectives simulate COLLECTIVE BYTES [--ranks N] [--nodes N] [--algorithm NAME]
//                                 [--tuning FILE] [--most-steps N]
//
// The environment counts as it would for a program. Exit status 0; 2 for wrong arguments; 3 if
// `--strict` makes what was found an error.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "coll/model/simulate.h"
#include "coll/registry.h"
#include "coll/select/selection.h"
#include "config/json_text.h"
#include "topology/fingerprint.h"

namespace od::coll {
namespace {

using config::JsonWriter;

constexpr const char* kUsage =
    "usage: overdrive-collectives list\n"
    "       overdrive-collectives explain COLLECTIVE BYTES [--ranks N] [--nodes N] [--no-commute]\n"
    "                             [--tuning FILE] [--intel] [--strict]\n"
    "       overdrive-collectives simulate COLLECTIVE BYTES [--ranks N] [--nodes N]\n"
    "                             [--algorithm NAME] [--tuning FILE]\n"
    "                             [--most-steps N]\n";

struct Arguments {
  Collective collective{};
  std::uint64_t bytes = 0;
  Layout layout;
  bool commutative = true;
  std::string algorithm;
  // Of all ranks together: a million take about a second and 100 MB.
  double most_steps = 1e6;
  Selection::Options options;
};

void write_parameters(JsonWriter& json, const Parameters& parameters) {
  json.open_object();
  if (parameters.radix != 0) json.member("radix", parameters.radix);
  if (parameters.segment_bytes != 0) json.member("segment", parameters.segment_bytes);
  if (parameters.window != 0) json.member("window", parameters.window);
  if (parameters.leaders != 0) json.member("leaders", parameters.leaders);
  json.close_object();
}

std::int64_t rounded(double value) { return static_cast<std::int64_t>(std::llround(value)); }

void write_decision(JsonWriter& json, const Decision& decision) {
  json.member("algorithm", decision.algorithm->name);
  json.member("number", decision.algorithm->number);
  json.member("mode", mode_name(decision.mode));
  json.key("parameters");
  write_parameters(json, decision.parameters);
}

int list() {
  JsonWriter json;
  json.open_array();
  for (std::size_t i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    json.open_object();
    json.member("collective", info(collective).name);
    json.member("message_size", info(collective).size_rule);
    json.key("algorithms");
    json.open_array();
    for (const Algorithm& algorithm : algorithms(collective)) {
      json.open_object();
      json.member("name", algorithm.name);
      json.member("number", algorithm.number);
      json.key("intel_numbers");
      json.open_array();
      for (const IntelNumber& number : intel_numbers()) {
        if (number.collective != collective || number.name != std::string_view(algorithm.name)) {
          continue;
        }
        json.open_object();
        json.member("number", number.number);
        json.member("hierarchical", number.hierarchical);
        json.close_object();
      }
      json.close_array();
      json.key("needs");
      json.open_array();
      if ((algorithm.needs & kNeedsCommutative) != 0) json.value("an operation that commutes");
      if ((algorithm.needs & kNeedsEvenRanks) != 0) json.value("an even number of ranks");
      json.close_array();
      json.key("takes");
      json.open_array();
      if ((algorithm.takes & kTakesRadix) != 0) json.value("radix");
      if ((algorithm.takes & kTakesSegment) != 0) json.value("segment");
      if ((algorithm.takes & kTakesWindow) != 0) json.value("window");
      json.close_array();
      json.key("defaults");
      write_parameters(json, algorithm.defaults);
      json.member("doc", algorithm.doc);
      json.close_object();
    }
    json.close_array();
    json.close_object();
  }
  json.close_array();
  std::fputs(json.take().c_str(), stdout);
  return 0;
}

Selection::Environment environment() {
  Selection::Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) {
      result.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return result;
}

int explain(const Arguments& arguments) {
  std::vector<std::string> issues;
  const Selection selection = Selection::load(environment(), arguments.options, issues);
  Explanation explanation;
  std::string error;
  const Decision decision =
      selection.decide(arguments.collective, arguments.layout, arguments.commutative,
                       arguments.bytes, &explanation, &error);
  JsonWriter json;
  json.open_object();
  json.member("collective", info(arguments.collective).name);
  json.member("message_size", info(arguments.collective).size_rule);
  json.member("bytes", arguments.bytes);
  json.member("ranks", arguments.layout.ranks);
  json.member("nodes", arguments.layout.nodes);
  json.member("ranks_per_node", arguments.layout.most_per_node);
  json.member("commutative", arguments.commutative);
  json.key("decision");
  json.open_object();
  write_decision(json, decision);
  json.member("origin", explanation.origin);
  json.close_object();
  json.key("rules");
  json.open_array();
  for (const Explanation::Line& line : explanation.lines) {
    json.open_object();
    json.member("origin", line.origin);
    json.member("rule", line.rule);
    json.member("verdict", line.verdict);
    json.close_object();
  }
  json.close_array();
  json.key("candidates");
  json.open_array();
  for (const Explanation::Candidate& candidate : explanation.candidates) {
    json.open_object();
    write_decision(json, candidate.decision);
    json.member("model_ns", rounded(candidate.cost_ns));
    json.member("why_not", candidate.why_not);
    json.close_object();
  }
  json.close_array();
  json.key("issues");
  json.open_array();
  for (const std::string& issue : issues) json.value(issue);
  if (!error.empty()) json.value(error);
  json.close_array();
  json.close_object();
  std::fputs(json.take().c_str(), stdout);
  return arguments.options.strict && (!error.empty() || !issues.empty()) ? 3 : 0;
}

// Runs the schedules between those ranks that take part in them.
bool simulated(const Decision& decision, const Arguments& arguments, const Machine& machine,
               Simulated& result) {
  const Layout& layout = arguments.layout;
  const bool flat = decision.mode == Mode::kFlat;
  const int ranks = flat ? layout.ranks : layout.nodes;
  const int per_node = flat ? layout.most_per_node : 1;
  double bytes = static_cast<double>(arguments.bytes);
  if (!flat) bytes = leader_bytes(arguments.collective, layout.most_per_node, bytes);
  // Not even one rank's schedule, where all have more steps than that for sure.
  if (ranks > arguments.most_steps) return false;
  Shape shape;
  shape.ranks = ranks;
  shape.rank = ranks / 2;
  shape.count = static_cast<std::int64_t>(bytes) / 8;
  shape.unit_bytes = 8;
  shape.parameters = decision.parameters;
  if (info(arguments.collective).has_counts) shape.count /= ranks;
  const auto steps = static_cast<double>(make_schedule(*decision.algorithm, shape).steps.size());
  if (steps * ranks > arguments.most_steps) return false;
  result = simulate(*decision.algorithm, decision.parameters, ranks, per_node,
                    static_cast<std::uint64_t>(bytes), machine);
  if (!flat) {
    const double inside = node_cost(machine, arguments.collective, layout.most_per_node,
                                    layout.ranks, static_cast<double>(arguments.bytes));
    result.last_ns += inside;
  }
  return true;
}

int simulate_all(const Arguments& arguments) {
  std::vector<std::string> issues;
  const Selection selection = Selection::load({}, arguments.options, issues);
  for (const std::string& issue : issues) {
    std::fprintf(stderr, "overdrive-collectives: %s\n", issue.c_str());
  }
  JsonWriter json;
  json.open_array();
  for (const Algorithm& algorithm : algorithms(arguments.collective)) {
    if (algorithm.is_host() ||
        (!arguments.algorithm.empty() && arguments.algorithm != algorithm.name)) {
      continue;
    }
    for (const Mode mode : {Mode::kFlat, Mode::kHierarchical}) {
      if (mode == Mode::kHierarchical && arguments.layout.most_per_node == 1) continue;
      const int ranks = mode == Mode::kFlat ? arguments.layout.ranks : arguments.layout.nodes;
      if (why_not(algorithm, {ranks, arguments.commutative}) != nullptr) continue;
      const Decision decision{&algorithm, mode, effective_parameters(algorithm, {})};
      Simulated result;
      json.open_object();
      write_decision(json, decision);
      json.member("model_ns", rounded(selection.cost(decision, arguments.layout, arguments.bytes)));
      if (simulated(decision, arguments, selection.machine(), result)) {
        json.member("simulated_ns", rounded(result.last_ns));
        json.member("messages", result.messages);
        json.member("bytes_between_nodes", result.far_bytes);
      }
      json.close_object();
    }
  }
  json.close_array();
  std::fputs(json.take().c_str(), stdout);
  return 0;
}

int usage(const std::string& reason) {
  std::fprintf(stderr, "overdrive-collectives: %s\n%s", reason.c_str(), kUsage);
  return 2;
}

int run(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "list" && argc == 2) return list();
  if ((command != "explain" && command != "simulate") || argc < 4) return usage("wrong arguments");
  Arguments arguments;
  if (!find_collective(argv[2], arguments.collective)) {
    return usage(std::string("'") + argv[2] + "' is no collective");
  }
  if (!parse_bytes(argv[3], arguments.bytes)) {
    return usage(std::string("'") + argv[3] + "' is no size; write 65536 or 64K");
  }
  arguments.layout.ranks = 2;
  for (int i = 4; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--no-commute") {
      arguments.commutative = false;
    } else if (option == "--intel") {
      arguments.options.accept_intel = true;
    } else if (option == "--strict") {
      arguments.options.strict = true;
    } else if (i + 1 == argc) {
      return usage(option + " is unknown, or its value is missing");
    } else if (option == "--ranks" || option == "--nodes" || option == "--most-steps") {
      const std::string text = argv[++i];
      char* end = nullptr;
      const long value = std::strtol(text.c_str(), &end, 10);
      if (text.empty() || *end != 0 || value < 1 || value > 1'000'000'000) {
        return usage(option + " " + text + ": must be a number from 1 on");
      }
      if (option == "--ranks") arguments.layout.ranks = static_cast<int>(value);
      if (option == "--nodes") arguments.layout.nodes = static_cast<int>(value);
      if (option == "--most-steps") arguments.most_steps = static_cast<double>(value);
    } else if (option == "--tuning") {
      arguments.options.tuning_file = argv[++i];
      arguments.options.fingerprint = topology::fingerprint();
    } else if (option == "--algorithm") {
      arguments.algorithm = argv[++i];
    } else {
      return usage(option + " is unknown");
    }
  }
  Layout& layout = arguments.layout;
  if (layout.nodes > layout.ranks) return usage("there are more nodes than ranks");
  layout.most_per_node = (layout.ranks + layout.nodes - 1) / layout.nodes;
  return command == "explain" ? explain(arguments) : simulate_all(arguments);
}

}  // namespace
}  // namespace od::coll

int main(int argc, char** argv) { return od::coll::run(argc, argv); }
