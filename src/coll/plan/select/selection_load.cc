// Reads the rules of a process: OVERDRIVE_ADJUST_* (and I_MPI_ADJUST_*), then the tuning file.
//
//   OVERDRIVE_ADJUST_<COLLECTIVE>            clauses (rules.h)
//   OVERDRIVE_ADJUST_<COLLECTIVE>_LIST       what the cost model may choose: ring,knomial,103
//   OVERDRIVE_ADJUST_<COLLECTIVE>_RADIX, _SEGMENT, _WINDOW, _LEADERS, _PIPELINE
//                                            [<algorithm>:]<value>[,...]; without an algorithm: all
//
// REDUCE_SCATTER stands for REDUCE_SCATTER_BLOCK as well, unless that has a variable of its own.
#include <unistd.h>

#include <algorithm>

#include "base/nearest_name.h"
#include "coll/plan/select/selection.h"
#include "coll/plan/select/tuning_file.h"

namespace od::coll {
namespace {

constexpr std::string_view kPrefix = "OVERDRIVE_ADJUST_";
constexpr std::string_view kIntelPrefix = "I_MPI_ADJUST_";

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return result;
}

enum class RulePart { kRules, kList, kRadix, kSegment, kWindow, kLeaders, kPipeline };
struct PartName {
  RulePart part;
  std::string_view ending;
};
constexpr PartName kParts[] = {
    {RulePart::kRules, ""},           {RulePart::kList, "_LIST"},
    {RulePart::kRadix, "_RADIX"},     {RulePart::kSegment, "_SEGMENT"},
    {RulePart::kWindow, "_WINDOW"},   {RulePart::kLeaders, "_LEADERS"},
    {RulePart::kWindow, "_THROTTLE"}, {RulePart::kPipeline, "_PIPELINE"}};

// "BCAST_SEGMENT" -> bcast and kSegment. Longer names of collectives win: "REDUCE_SCATTER_LIST".
bool split_name(std::string_view name, Collective& collective, RulePart& part) {
  for (std::size_t i = 0; i < kCollectives; ++i) {
    const std::string family = upper(info(static_cast<Collective>(i)).name);
    if (name.substr(0, family.size()) != family) continue;
    for (const PartName& known : kParts) {
      if (name.substr(family.size()) != known.ending) continue;
      collective = static_cast<Collective>(i);
      part = known.part;
      return true;
    }
  }
  return false;
}

std::string nearest_variable(std::string_view name) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < kCollectives; ++i) {
    for (const PartName& part : kParts) {
      known.push_back(upper(info(static_cast<Collective>(i)).name) + std::string(part.ending));
    }
  }
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? "`overdrive info --algorithms` lists the collectives"
                         : "did you mean " + std::string(kPrefix) + nearest + "?";
}

ParameterName parameter_of(RulePart part) {
  switch (part) {
    case RulePart::kRadix:
      return ParameterName::kRadix;
    case RulePart::kSegment:
      return ParameterName::kSegment;
    case RulePart::kWindow:
      return ParameterName::kWindow;
    case RulePart::kLeaders:
      return ParameterName::kLeaders;
    default:
      return ParameterName::kPipeline;
  }
}

template <class Take>
void each_item(std::string_view text, Take take) {
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (!item.empty()) take(item);
  }
}

}  // namespace

void Selection::read_variable(const std::string& variable, const std::string& value,
                              std::string_view rest, std::vector<std::string>& issues) {
  Collective collective{};
  RulePart part{};
  if (!split_name(rest, collective, part)) {
    issues.push_back("environment variable " + variable + " is unknown and has no effect; " +
                     nearest_variable(rest));
    return;
  }
  Family& own = families_[static_cast<std::size_t>(collective)];
  std::string reason;
  const auto complain = [&](const std::string& what) {
    issues.push_back(variable + ": " + what + "; the variable is ignored");
  };
  if (part == RulePart::kRules) {
    if (!parse_adjust(collective, value, variable, own.environment, reason)) complain(reason);
    return;
  }
  Family changed = own;
  each_item(value, [&](std::string_view item) {
    if (!reason.empty()) return;
    Named named;
    const std::size_t colon = item.find(':');
    const std::string_view name =
        part == RulePart::kList ? item : item.substr(0, colon == item.npos ? 0 : colon);
    if (!name.empty() && !parse_algorithm(collective, name, named, reason)) {
      reason = "'" + std::string(item) + "' " + reason;
      return;
    }
    if (part == RulePart::kList) {
      if (named.algorithm != nullptr) changed.list.push_back(named.algorithm);
      return;
    }
    Parameters* target = &changed.common;
    if (named.algorithm != nullptr) {
      changed.special.emplace_back(named.algorithm, Parameters{});
      target = &changed.special.back().second;
    }
    const std::string_view number = colon == item.npos ? item : item.substr(colon + 1);
    std::string why;
    if (!set_parameter(collective, named.algorithm, parameter_of(part), number, *target, why)) {
      reason = "'" + std::string(number) + "' " + why;
    }
  });
  if (!reason.empty()) {
    complain(reason);
    return;
  }
  own = std::move(changed);
}

Selection::Environment Selection::environment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || text.find("_ADJUST_") == std::string_view::npos) {
      continue;
    }
    result.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

Selection Selection::load(const Environment& environment, const Options& options,
                          std::vector<std::string>& issues) {
  Selection selection;
  selection.strict_ = options.strict;
  const auto& as_is = [](const std::string& text, std::string_view prefix) {
    return text.compare(0, prefix.size(), prefix) == 0;
  };
  for (const auto& [variable, value] : environment) {
    if (value.empty() || !as_is(variable, kPrefix)) continue;
    selection.read_variable(variable, value, std::string_view(variable).substr(kPrefix.size()),
                            issues);
  }
  for (const auto& [variable, value] : environment) {
    if (!options.accept_intel || value.empty() || !as_is(variable, kIntelPrefix)) continue;
    // Only the choice of algorithms: the family has many other variables.
    const std::string_view rest = std::string_view(variable).substr(kIntelPrefix.size());
    Collective collective{};
    RulePart part{};
    if (!split_name(rest, collective, part) || part != RulePart::kRules) continue;
    Family& family = selection.families_[static_cast<std::size_t>(collective)];
    if (family.environment.empty()) selection.read_variable(variable, value, rest, issues);
  }
  auto& block = selection.families_[static_cast<std::size_t>(Collective::kReduceScatterBlock)];
  const auto& vector = selection.family(Collective::kReduceScatter);
  const auto translated = [](const Algorithm* algorithm) {
    return algorithm == nullptr
               ? nullptr
               : find_algorithm(Collective::kReduceScatterBlock, algorithm->number);
  };
  if (block.environment.empty()) {
    block.environment = vector.environment;
    for (Rule& rule : block.environment) rule.algorithm = translated(rule.algorithm);
  }
  if (block.common == Parameters{} && block.special.empty()) {
    block.common = vector.common;
    block.special = vector.special;
    for (auto& [algorithm, values] : block.special) algorithm = translated(algorithm);
  }
  if (block.list.empty()) {
    for (const Algorithm* algorithm : vector.list) block.list.push_back(translated(algorithm));
  }
  if (!options.learnt_text.empty()) {
    TuningFile learnt = parse_tuning(options.learnt_text, options.learnt_file, options.fingerprint);
    issues.insert(issues.end(), learnt.issues.begin(), learnt.issues.end());
    for (auto& [collective, rule] : learnt.rules) {
      // A rule without a number of calls is nobody's experience.
      if (rule.algorithm == nullptr || rule.calls == 0) continue;
      selection.families_[static_cast<std::size_t>(collective)].learnt.push_back(std::move(rule));
    }
  }
  if (options.tuning_file.empty()) return selection;
  TuningFile file =
      options.tuning_text
          ? parse_tuning(*options.tuning_text, options.tuning_file, options.fingerprint)
          : read_tuning_file(options.tuning_file, options.fingerprint);
  issues.insert(issues.end(), file.issues.begin(), file.issues.end());
  for (auto& [collective, rule] : file.rules) {
    selection.families_[static_cast<std::size_t>(collective)].file.push_back(std::move(rule));
  }
  if (file.machine) selection.machine_ = *file.machine;
  selection.machine_is_given_ = file.machine.has_value();
  return selection;
}

}  // namespace od::coll
