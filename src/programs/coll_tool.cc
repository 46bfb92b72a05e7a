// overdrive-collectives: what the library knows and would decide about collectives, as JSON.
//
//   overdrive-collectives list
//   overdrive-collectives explain COLLECTIVE BYTES [--ranks N] [--nodes N] [--no-commute]
//                                 [--tuning FILE] [--intel] [--strict]
//   overdrive-collectives simulate COLLECTIVE BYTES [--ranks N] [--nodes N] [--algorithm NAME]
//                                 [--tuning FILE] [--most-steps N]
//   overdrive-collectives arrivals COLLECTIVE BYTES [--ranks N] [--nodes N] [--delay-us N]
//                                 [--tuning FILE] [--most-steps N]
//
// The environment counts as it would for a program. Exit status 0; 2 for wrong arguments; 3 if
// `--strict` makes what was found an error.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "coll/plan/hierarchy/node_steps.h"
#include "coll/plan/model/simulate.h"
#include "coll/plan/model/simulate_arrivals.h"
#include "coll/plan/registry.h"
#include "coll/plan/select/selection.h"
#include "topology/fingerprint.h"

namespace od::coll {
namespace {

constexpr const char* kUsage =
    "usage: overdrive-collectives list\n"
    "       overdrive-collectives explain COLLECTIVE BYTES [--ranks N] [--nodes N] [--no-commute]\n"
    "                             [--tuning FILE] [--intel] [--strict]\n"
    "       overdrive-collectives simulate COLLECTIVE BYTES [--ranks N] [--nodes N]\n"
    "                             [--algorithm NAME] [--tuning FILE]\n"
    "                             [--most-steps N]\n"
    "       overdrive-collectives timeline COLLECTIVE BYTES [--ranks N] [--nodes N]\n"
    "                             [--algorithm NAME] [--tuning FILE]\n"
    "       overdrive-collectives arrivals bcast|reduce|gather BYTES [--ranks N] [--nodes N]\n"
    "                             [--delay-us N] [--tuning FILE] [--most-steps N]\n"
    "simulate and timeline also take:\n"
    "       [--segment BYTES] [--pipeline BYTES] [--leaders N] [--radix N] [--window N]\n"
    "       [--inside shared|messages] [--flat] [--round-robin]\n"
    "and simulate takes [--switch NODES]: switches that add, so many nodes at each.\n";

struct Arguments {
  Collective collective{};
  std::uint64_t bytes = 0;
  Layout layout;
  bool commutative = true;
  std::string algorithm;
  // Of all ranks together: a million take about a second and 100 MB.
  double most_steps = 1e6;
  int delay_us = 40'000;  // of the last rank to come
  Parameters parameters;
  NodeDriver driver = NodeDriver::kShared;
  bool flat = false;
  bool round_robin = false;
  int switch_ports = 0;
  Selection::Options options;
};

int usage(const std::string& reason) {
  std::fprintf(stderr, "overdrive-collectives: %s\n%s", reason.c_str(), kUsage);
  return 2;
}

void write_parameters(JsonWriter& json, const Parameters& parameters) {
  json.open_object();
  if (parameters.radix != 0) json.member("radix", parameters.radix);
  if (parameters.segment_bytes != 0) json.member("segment", parameters.segment_bytes);
  if (parameters.window != 0) json.member("window", parameters.window);
  if (parameters.leaders != 0) json.member("leaders", parameters.leaders);
  if (parameters.pipeline_bytes != 0) json.member("pipeline", parameters.pipeline_bytes);
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
    json.member("message_size", info(collective).size_text());
    const Layout two_levels{.ranks = 4, .nodes = 2, .most_per_node = 2};
    const char* reason = why_not_hierarchical(algorithms(collective)[1], two_levels, true);
    json.member("hierarchical_why_not", reason == nullptr ? "" : reason);
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

int explain(const Arguments& arguments) {
  std::vector<std::string> issues;
  const Selection selection = Selection::load(Selection::environment(), arguments.options, issues);
  Explanation explanation;
  std::string error;
  const Decision decision =
      selection.decide(arguments.collective, arguments.layout, arguments.commutative,
                       arguments.bytes, &explanation, &error);
  JsonWriter json;
  json.open_object();
  json.member("collective", info(arguments.collective).name);
  json.member("message_size", info(arguments.collective).size_text());
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

Nodes nodes_of(const Arguments& arguments) {
  const Layout& layout = arguments.layout;
  if (!arguments.round_robin) return Nodes::in_blocks(layout.ranks, layout.most_per_node);
  std::vector<int> node_of;
  for (int rank = 0; rank < layout.ranks; ++rank) node_of.push_back(rank % layout.nodes);
  return Nodes(node_of);
}

double steps_of(const Schedule& schedule) { return static_cast<double>(schedule.steps.size()); }

// Runs the schedules of all ranks. Where there are too many steps, those of the leaders alone: the
// steps inside nodes are then closed forms.
bool simulated(const Decision& decision, const Arguments& arguments, const Machine& machine,
               Simulated& result, std::span<const double> come = {}) {
  const Layout& layout = arguments.layout;
  Shape shape;
  shape.unit_bytes = 8;
  shape.parameters = decision.parameters;
  const bool has_counts = info(arguments.collective).has_counts();
  // Not even one rank's schedule, where all have more steps than that for sure.
  if (layout.ranks <= arguments.most_steps) {
    shape.ranks = layout.ranks;
    shape.rank = layout.ranks / 2;
    shape.count = static_cast<std::int64_t>(arguments.bytes) / 8 / (has_counts ? layout.ranks : 1);
    const Nodes nodes = nodes_of(arguments);
    Schedule schedule;
    if (decision.mode == Mode::kFlat) {
      schedule = make_schedule(*decision.algorithm, shape);
    } else {
      // That of a leader.
      shape.rank -= nodes.position_of(shape.rank);
      schedule = make_hierarchical(*decision.algorithm, shape, nodes, arguments.driver);
    }
    if (steps_of(schedule) * layout.ranks <= arguments.most_steps) {
      result = simulate(decision, nodes, arguments.driver, arguments.bytes, machine, nullptr, come);
      return true;
    }
  }
  // Closed forms are for ranks that come together.
  if (!come.empty() || decision.mode == Mode::kFlat || layout.nodes > arguments.most_steps) {
    return false;
  }
  const HierarchyCost cost =
      hierarchy_cost(machine, arguments.collective, decision.algorithm->cost, decision.parameters,
                     layout.nodes, layout.most_per_node, static_cast<double>(arguments.bytes));
  shape.ranks = layout.nodes;
  shape.rank = layout.nodes / 2;
  shape.count = static_cast<std::int64_t>(cost.leader_bytes) / 8 / (has_counts ? layout.nodes : 1);
  const Schedule schedule = make_schedule(*decision.algorithm, shape);
  if (steps_of(schedule) * layout.nodes > arguments.most_steps) return false;
  result = simulate(*decision.algorithm, decision.parameters, layout.nodes, 1,
                    static_cast<std::uint64_t>(cost.leader_bytes), machine);
  result.last_ns += cost.first_ns + cost.last_ns + cost.rest_ns;
  return true;
}

int simulate_all(const Arguments& arguments) {
  std::vector<std::string> issues;
  const Selection selection = Selection::load({}, arguments.options, issues);
  for (const std::string& issue : issues) {
    std::fprintf(stderr, "overdrive-collectives: %s\n", issue.c_str());
  }
  Machine machine = selection.machine();
  machine.switch_ports = arguments.switch_ports;
  JsonWriter json;
  json.open_array();
  for (const Algorithm& algorithm : algorithms(arguments.collective)) {
    if (algorithm.is_host() ||
        (!arguments.algorithm.empty() && arguments.algorithm != algorithm.name)) {
      continue;
    }
    for (const Mode mode : {Mode::kFlat, Mode::kHierarchical}) {
      if (mode == Mode::kHierarchical && arguments.layout.most_per_node == 1) continue;
      const Layout& layout = arguments.layout;
      const char* reason = mode == Mode::kFlat
                               ? why_not(algorithm, {layout.ranks, arguments.commutative})
                               : why_not_hierarchical(algorithm, layout, arguments.commutative);
      if (reason != nullptr) continue;
      const Decision decision =
          selection.complete(algorithm, mode, arguments.parameters, layout, arguments.commutative);
      Simulated result;
      json.open_object();
      write_decision(json, decision);
      json.member("model_ns", rounded(selection.cost(decision, arguments.layout, arguments.bytes)));
      if (simulated(decision, arguments, machine, result)) {
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

// What happens when, by the simulator.
int time_line(const Arguments& arguments) {
  std::vector<std::string> issues;
  const Selection selection = Selection::load(Selection::environment(), arguments.options, issues);
  const Layout& layout = arguments.layout;
  const Nodes nodes = nodes_of(arguments);
  Decision decision = selection.decide(arguments.collective, nodes.layout(), arguments.commutative,
                                       arguments.bytes);
  const Algorithm* algorithm = decision.algorithm;
  if (!arguments.algorithm.empty()) {
    algorithm = find_algorithm(arguments.collective, arguments.algorithm);
  }
  if (algorithm == nullptr || algorithm->is_host()) {
    return usage("'" + arguments.algorithm + "' is no algorithm of Overdrive's");
  }
  decision = selection.complete(*algorithm, arguments.flat ? Mode::kFlat : Mode::kAuto,
                                arguments.parameters, nodes.layout(), arguments.commutative);
  const char* reason = decision.mode == Mode::kFlat
                           ? why_not(*algorithm, {layout.ranks, arguments.commutative})
                           : nullptr;
  if (reason != nullptr) return usage(std::string(algorithm->name) + " " + reason);
  TimeLine line;
  const Simulated result =
      simulate(decision, nodes, arguments.driver, arguments.bytes, selection.machine(), &line);
  const std::int64_t unit_bytes = info(arguments.collective).reduces ? 8 : 1;
  JsonWriter json;
  json.open_object();
  json.member("collective", info(arguments.collective).name);
  json.member("bytes", arguments.bytes);
  json.member("ranks", nodes.ranks());
  json.member("nodes", nodes.count());
  json.key("decision");
  json.open_object();
  write_decision(json, decision);
  json.close_object();
  json.member("last_ns", rounded(result.last_ns));
  json.key("node_of_rank");
  json.open_array();
  for (int rank = 0; rank < nodes.ranks(); ++rank) json.value(nodes.node_of(rank));
  json.close_array();
  json.key("steps");
  json.open_array();
  for (const TimedStep& timed : line.steps) {
    const Step& step = line.schedules[static_cast<std::size_t>(timed.rank)].steps[timed.step];
    const bool message = step.kind == StepKind::kSend || step.kind == StepKind::kReceive;
    json.open_object();
    json.member("rank", timed.rank);
    json.member("what", step_name(step));
    if (message) json.member("peer", step.peer);
    json.member("between_nodes", message && nodes.node_of(step.peer) != nodes.node_of(timed.rank));
    json.member("segment", static_cast<int>(step.segment));
    json.member("bytes", step.count * unit_bytes);
    json.member("begin_ns", rounded(timed.begin_ns));
    json.member("end_ns", rounded(timed.end_ns));
    json.close_object();
  }
  json.close_array();
  json.close_object();
  std::fputs(json.take().c_str(), stdout);
  return 0;
}

// What ranks wait that come at different times: by the usual algorithm, and by the one that depends
// on who comes first or last.
int arrivals(const Arguments& arguments) {
  if (find_algorithm(arguments.collective, "first_arrival") == nullptr) {
    return usage("arrivals: bcast, reduce, gather or scatter");
  }
  std::vector<std::string> issues;
  const Selection selection = Selection::load({}, arguments.options, issues);
  const Nodes nodes = nodes_of(arguments);
  const Decision plain =
      selection.own_choice(arguments.collective, nodes.layout(), true, arguments.bytes);
  const auto write = [](JsonWriter& json, const char* key, const Simulated& found) {
    json.key(key);
    json.open_object();
    json.member("inside_ns", rounded(found.inside_ns));
    json.member("last_ns", rounded(found.last_ns));
    json.close_object();
  };
  JsonWriter json;
  json.open_object();
  json.member("collective", info(arguments.collective).name);
  json.member("bytes", arguments.bytes);
  json.member("ranks", nodes.ranks());
  json.member("nodes", nodes.count());
  json.key("plain");
  json.open_object();
  write_decision(json, plain);
  json.close_object();
  json.key("patterns");
  json.open_array();
  for (const std::string_view name : kArrivalPatterns) {
    const std::vector<double> come = arrival_pattern(name, nodes, arguments.delay_us * 1e3);
    json.open_object();
    json.member("pattern", std::string(name));
    Simulated found;
    if (simulated(plain, arguments, selection.machine(), found, come)) write(json, "plain", found);
    write(json, "first_arrival",
          simulate_first_arrival(arguments.collective, nodes, arguments.bytes, selection.machine(),
                                 come));
    json.close_object();
  }
  json.close_array();
  json.close_object();
  std::fputs(json.take().c_str(), stdout);
  return 0;
}

// More than any machine has; a layout of so many ranks is still made in a second.
constexpr int kMostRanks = 1 << 24;

bool is_number(const std::string& option) {
  return option == "--ranks" || option == "--nodes" || option == "--most-steps" ||
         option == "--delay-us" || option == "--switch";
}

// Null if the option is no parameter of algorithms.
const ParameterName* parameter_of(const std::string& option) {
  static constexpr std::pair<const char*, ParameterName> kKnown[] = {
      {"--radix", ParameterName::kRadix},
      {"--segment", ParameterName::kSegment},
      {"--window", ParameterName::kWindow},
      {"--leaders", ParameterName::kLeaders},
      {"--pipeline", ParameterName::kPipeline}};
  for (const auto& [name, parameter] : kKnown) {
    if (option == name) return &parameter;
  }
  return nullptr;
}

int run(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "list" && argc == 2) return list();
  if ((command != "explain" && command != "simulate" && command != "timeline" &&
       command != "arrivals") ||
      argc < 4) {
    return usage("wrong arguments");
  }
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
    } else if (option == "--flat") {
      arguments.flat = true;
    } else if (option == "--round-robin") {
      arguments.round_robin = true;
    } else if (i + 1 == argc) {
      return usage(option + " is unknown, or its value is missing");
    } else if (option == "--inside") {
      const std::string way = argv[++i];
      if (way != "shared" && way != "messages") return usage("--inside: shared or messages");
      arguments.driver = way == "shared" ? NodeDriver::kShared : NodeDriver::kMessages;
    } else if (const ParameterName* parameter = parameter_of(option)) {
      std::string reason;
      if (!set_parameter(arguments.collective, nullptr, *parameter, argv[++i], arguments.parameters,
                         reason)) {
        return usage(option + ' ' + argv[i] + ": it " + reason);
      }
    } else if (is_number(option)) {
      const std::string text = argv[++i];
      int value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc{} || end != text.data() + text.size() || value < 1 ||
          value > kMostRanks) {
        return usage(option + ' ' + text + ": must be a number from 1 to " +
                     std::to_string(kMostRanks));
      }
      if (option == "--ranks") arguments.layout.ranks = value;
      if (option == "--nodes") arguments.layout.nodes = value;
      if (option == "--most-steps") arguments.most_steps = value;
      if (option == "--delay-us") arguments.delay_us = value;
      if (option == "--switch") arguments.switch_ports = value;
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
  layout = nodes_of(arguments).layout();
  if (command == "timeline") return time_line(arguments);
  if (command == "arrivals") return arrivals(arguments);
  return command == "explain" ? explain(arguments) : simulate_all(arguments);
}

}  // namespace
}  // namespace od::coll

int main(int argc, char** argv) { return od::coll::run(argc, argv); }
