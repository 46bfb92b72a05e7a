// Checks a tuning file value by value.
#include "coll/plan/select/tuning_file.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/nearest_name.h"
#include "coll/plan/select/json_tree.h"
#include "config/trusted_file.h"

namespace od::coll {
namespace {

using Kind = JsonValue::Kind;

// Ends the reading of a file; caught in parse_tuning.
struct Mistake {
  int line;
  std::string what;
};

[[noreturn]] void fail(const JsonValue& value, const std::string& what) {
  throw Mistake{value.line, what};
}

const JsonValue& needed(const JsonValue& object, const char* name) {
  const JsonValue* value = object.find(name);
  if (value == nullptr) fail(object, std::string("\"") + name + "\" is missing");
  return *value;
}

std::string text_of(const JsonValue& value, const char* name) {
  if (value.kind != Kind::kString) {
    fail(value, std::string("\"") + name + "\" must be a string, not " + value.kind_name());
  }
  return value.text;
}

double number_of(const JsonValue& value, const char* name, double least) {
  if (value.kind != Kind::kNumber || !(value.number >= least)) {
    fail(value, std::string("\"") + name + "\" must be a number that is not below " +
                    std::to_string(static_cast<int>(least)));
  }
  return value.number;
}

std::int64_t long_of(const JsonValue& value, const char* name, int least, std::int64_t most) {
  const double number = number_of(value, name, least);
  if (number != std::floor(number) || number > static_cast<double>(most)) {
    fail(value,
         std::string("\"") + name + "\" must be a whole number up to " + std::to_string(most));
  }
  return static_cast<std::int64_t>(number);
}

int whole_of(const JsonValue& value, const char* name, int least) {
  return static_cast<int>(long_of(value, name, least, std::numeric_limits<int>::max()));
}

// A whole number or a string in the notation of the environment.
std::string notation_of(const JsonValue& value, const char* name) {
  if (value.kind == Kind::kString) return value.text;
  return std::to_string(long_of(value, name, -1, 1ll << 40));
}

std::uint64_t bytes_of(const JsonValue& value, const char* name) {
  std::uint64_t bytes = 0;
  if (value.kind == Kind::kString && parse_bytes(value.text, bytes)) return bytes;
  // Doubles hold whole numbers up to 2^53.
  if (value.kind == Kind::kNumber && value.number >= 0 && value.number <= 9007199254740992.0 &&
      value.number == std::floor(value.number)) {
    return static_cast<std::uint64_t>(value.number);
  }
  fail(value,
       std::string("\"") + name + "\" must be a number of bytes, or a string such as \"64K\"");
}

template <class T, class Read>
Interval<T> interval_of(const JsonValue& value, const char* name, Read read) {
  Interval<T> interval;
  if (value.kind != Kind::kArray) {
    interval.min = interval.max = read(value, name);
    return interval;
  }
  if (value.items.size() != 2) {
    fail(value, std::string("\"") + name + "\" must be one value or [first, last]");
  }
  if (value.items[0].kind != Kind::kNull) interval.min = read(value.items[0], name);
  if (value.items[1].kind != Kind::kNull) interval.max = read(value.items[1], name);
  if (interval.min > interval.max) {
    fail(value, std::string("\"") + name + "\" ends before it begins");
  }
  return interval;
}

// One of the words must be the name of every member.
void check_names(const JsonValue& object, const std::vector<std::string>& known) {
  for (const auto& [name, value] : object.members) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_name(name, known);
    fail(value, "\"" + name + "\" is not known here" +
                    (nearest.empty() ? std::string() : "; did you mean \"" + nearest + "\"?"));
  }
}

// More than any program makes of one kind.
constexpr std::int64_t kMostCalls = std::int64_t{1} << 50;

std::pair<Collective, Rule> rule_of(const JsonValue& object, const std::string& path) {
  if (object.kind != Kind::kObject) {
    fail(object, std::string("a rule must be an object, not ") + object.kind_name());
  }
  check_names(object, {"collective", "algorithm", "mode", "bytes", "ranks", "ranks_per_node",
                       "nodes", "commutative", "radix", "segment", "window", "leaders", "pipeline",
                       "calls", "evidence", "comment"});
  const JsonValue& collective_value = needed(object, "collective");
  Collective collective{};
  if (!find_collective(text_of(collective_value, "collective"), collective)) {
    fail(collective_value, "'" + collective_value.text + "' is no collective");
  }
  Rule rule;
  rule.origin = path + ':' + std::to_string(object.line);
  const JsonValue& algorithm = needed(object, "algorithm");
  Named named;
  std::string reason;
  const std::string name = algorithm.kind == Kind::kNumber
                               ? std::to_string(whole_of(algorithm, "algorithm", 0))
                               : text_of(algorithm, "algorithm");
  if (!parse_algorithm(collective, name, named, reason)) fail(algorithm, "the rule " + reason);
  rule.algorithm = named.algorithm;
  rule.mode = named.mode;
  if (const JsonValue* mode = object.find("mode")) {
    const std::string word = text_of(*mode, "mode");
    if (word != "flat" && word != "hierarchical" && word != "auto") {
      fail(*mode, "\"mode\" must be \"flat\", \"hierarchical\" or \"auto\"");
    }
    rule.mode = word == "flat" ? Mode::kFlat : (word == "auto" ? Mode::kAuto : Mode::kHierarchical);
  }
  Condition condition;
  const auto ranks = [](const JsonValue& value, const char* what) {
    return whole_of(value, what, 1);
  };
  if (const JsonValue* value = object.find("bytes")) {
    condition.bytes = interval_of<std::uint64_t>(*value, "bytes", bytes_of);
  }
  if (const JsonValue* value = object.find("ranks")) {
    condition.ranks = interval_of<int>(*value, "ranks", ranks);
  }
  if (const JsonValue* value = object.find("ranks_per_node")) {
    condition.per_node = interval_of<int>(*value, "ranks_per_node", ranks);
  }
  if (const JsonValue* value = object.find("nodes")) {
    condition.nodes = interval_of<int>(*value, "nodes", ranks);
  }
  if (const JsonValue* value = object.find("commutative")) {
    if (value->kind != Kind::kBool) fail(*value, "\"commutative\" must be true or false");
    condition.commutative = value->truth;
  }
  if (!(condition == Condition{})) rule.conditions.push_back(condition);
  if (const JsonValue* value = object.find("calls")) {
    rule.calls = static_cast<std::uint64_t>(long_of(*value, "calls", 1, kMostCalls));
  }
  static constexpr std::pair<const char*, ParameterName> kParameters[] = {
      {"radix", ParameterName::kRadix},
      {"segment", ParameterName::kSegment},
      {"window", ParameterName::kWindow},
      {"leaders", ParameterName::kLeaders},
      {"pipeline", ParameterName::kPipeline}};
  for (const auto& [name, parameter] : kParameters) {
    const JsonValue* v = object.find(name);
    if (v == nullptr) continue;
    if (!set_parameter(collective, rule.algorithm, parameter, notation_of(*v, name),
                       rule.parameters, reason)) {
      fail(*v, std::string("\"") + name + "\" " + reason);
    }
  }
  return {collective, rule};
}

Link link_of(const JsonValue& object, Link link) {
  check_names(object, {"latency_ns", "overhead_ns", "gap_ns", "byte_ns"});
  if (const JsonValue* v = object.find("latency_ns"))
    link.latency_ns = number_of(*v, "latency_ns", 0);
  if (const JsonValue* v = object.find("overhead_ns")) {
    link.overhead_ns = number_of(*v, "overhead_ns", 0);
  }
  if (const JsonValue* v = object.find("gap_ns")) link.gap_ns = number_of(*v, "gap_ns", 0);
  if (const JsonValue* v = object.find("byte_ns")) link.byte_ns = number_of(*v, "byte_ns", 0);
  return link;
}

Machine machine_of(const JsonValue& object) {
  check_names(object, {"near", "far", "add_byte_ns", "copy_byte_ns", "rendezvous_bytes"});
  Machine machine;
  if (const JsonValue* v = object.find("near")) machine.near = link_of(*v, machine.near);
  if (const JsonValue* v = object.find("far")) machine.far = link_of(*v, machine.far);
  if (const JsonValue* v = object.find("add_byte_ns")) {
    machine.add_byte_ns = number_of(*v, "add_byte_ns", 0);
  }
  if (const JsonValue* v = object.find("copy_byte_ns")) {
    machine.copy_byte_ns = number_of(*v, "copy_byte_ns", 0);
  }
  if (const JsonValue* v = object.find("rendezvous_bytes")) {
    machine.rendezvous_bytes = static_cast<double>(bytes_of(*v, "rendezvous_bytes"));
  }
  return machine;
}

}  // namespace

TuningFile parse_tuning(std::string_view text, const std::string& path,
                        const std::string& fingerprint) {
  TuningFile file;
  JsonValue root;
  int line = 0;
  std::string reason;
  bool foreign = false;
  const auto ignore = [&](int at, const std::string& what) {
    file = {};
    file.issues.push_back(path + ':' + std::to_string(at) + ": " + what +
                          "; the whole tuning file is ignored");
  };
  if (!parse_json(text, root, line, reason)) {
    ignore(line, reason);
    return file;
  }
  try {
    if (root.kind != Kind::kObject) fail(root, "a tuning file must be an object");
    check_names(root, {"format", "version", "fingerprint", "host", "machine", "rules", "evidence",
                       "comment", "date", "$schema"});
    if (text_of(needed(root, "format"), "format") != "overdrive-tuning") {
      fail(needed(root, "format"), "\"format\" must be \"overdrive-tuning\"");
    }
    if (whole_of(needed(root, "version"), "version", 0) != 1) {
      fail(needed(root, "version"), "this version of Overdrive reads version 1 only");
    }
    if (const JsonValue* machine = root.find("machine")) file.machine = machine_of(*machine);
    if (const JsonValue* host = root.find("host")) file.host = text_of(*host, "host");
    const JsonValue& rules = needed(root, "rules");
    if (rules.kind != Kind::kArray) fail(rules, "\"rules\" must be a list");
    for (const JsonValue& rule : rules.items) file.rules.push_back(rule_of(rule, path));
    // Last: a file for another machine should still be right.
    if (const JsonValue* made_for = root.find("fingerprint")) {
      const std::string other = text_of(*made_for, "fingerprint");
      if (!fingerprint.empty() && other != fingerprint) {
        foreign = true;
        fail(*made_for, "it was made for \"" + other + "\", and this is \"" + fingerprint +
                            "\"; `overdrive tune` makes one for this machine");
      }
    }
  } catch (const Mistake& mistake) {
    ignore(mistake.line, mistake.what);
    file.foreign = foreign;
  }
  return file;
}

std::optional<std::string> read_tuning_text(const std::string& path,
                                            std::vector<std::string>& issues) {
  // Rules for a large machine are some hundred kilobytes; beyond this it is some other file.
  constexpr std::size_t kMaxFileBytes = 16 << 20;
  config::FileText file =
      config::read_trusted_file(path, kMaxFileBytes, config::LastLink::kFollowed);
  if (!file.text) {
    issues.push_back("tuning file " + path + ' ' +
                     (file.exists ? file.error : std::string("does not exist")) +
                     "; the built-in model chooses algorithms");
  }
  return std::move(file.text);
}

TuningFile read_tuning_file(const std::string& path, const std::string& fingerprint) {
  TuningFile none;
  const std::optional<std::string> text = read_tuning_text(path, none.issues);
  return text ? parse_tuning(*text, path, fingerprint) : none;
}

}  // namespace od::coll
