// Reads the notation of OVERDRIVE_ADJUST_<COLLECTIVE>.
#include "coll/plan/select/rules.h"

#include <algorithm>
#include <charconv>

#include "base/nearest_name.h"
#include "config/settings_types.h"

namespace od::coll {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

// The text before `separator`, which is removed together with it.
std::string_view next_part(std::string_view& rest, char separator) {
  const std::size_t at = rest.find(separator);
  const std::string_view part = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + 1);
  return trimmed(part);
}

bool parse_number(std::string_view text, int& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc{} && result.ptr == text.data() + text.size() && value >= 0;
}

// "a", "a-b", "a-" or "-b"; nothing: everything.
template <class T, class Parse>
bool parse_interval(std::string_view text, Interval<T>& interval, Parse parse) {
  text = trimmed(text);
  if (text.empty()) return true;
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) {
    if (!parse(text, interval.min)) return false;
    interval.max = interval.min;
    return true;
  }
  const std::string_view low = trimmed(text.substr(0, dash));
  const std::string_view high = trimmed(text.substr(dash + 1));
  if (low.empty() && high.empty()) return false;
  if (!low.empty() && !parse(low, interval.min)) return false;
  if (!high.empty() && !config::equal_ignoring_case(high, "inf") && !parse(high, interval.max)) {
    return false;
  }
  return interval.min <= interval.max;
}

bool parse_condition(std::string_view text, Condition& condition, std::string& reason) {
  const std::size_t at = text.find('@');
  const std::size_t percent = text.find('%');
  if (at != std::string_view::npos && percent != std::string_view::npos && percent < at) {
    reason = "has '%' before '@'; write bytes@ranks%ranks per node";
    return false;
  }
  const std::string_view bytes = text.substr(0, std::min(at, percent));
  std::string_view ranks;
  if (at != std::string_view::npos) {
    ranks = text.substr(at + 1, percent == std::string_view::npos ? percent : percent - at - 1);
  }
  std::string_view per_node;
  if (percent != std::string_view::npos) per_node = text.substr(percent + 1);
  if (!parse_interval(bytes, condition.bytes, parse_bytes)) {
    reason = "has '" + std::string(bytes) + "' where sizes such as 4K or 0-64K are expected";
    return false;
  }
  if (!parse_interval(ranks, condition.ranks, parse_number)) {
    reason =
        "has '" + std::string(ranks) + "' where numbers of ranks such as 8 or 4-16 are expected";
    return false;
  }
  if (!parse_interval(per_node, condition.per_node, parse_number)) {
    reason =
        "has '" + std::string(per_node) + "' where ranks per node such as 2 or 1-4 are expected";
    return false;
  }
  return true;
}

// The smallest radix that one of the algorithms meant can use.
int least_radix_of(Collective collective, const Algorithm* algorithm) {
  if (algorithm != nullptr) return least_radix(*algorithm);
  int least = 2;
  for (const Algorithm& other : algorithms(collective)) {
    if ((other.takes & kTakesRadix) != 0) least = std::min(least, least_radix(other));
  }
  return least;
}

bool set_piece(std::string_view text, std::int64_t& piece_bytes, std::string& reason) {
  std::uint64_t bytes = 0;
  if (text == "-1") {
    piece_bytes = -1;
    return true;
  }
  if (!parse_bytes(text, bytes) || bytes == 0 || bytes > config::kTiB) {
    reason = "must be a size from 1 to 1T such as 64K, or -1 for uncut messages";
    return false;
  }
  piece_bytes = static_cast<std::int64_t>(bytes);
  return true;
}

template <class T, class Text>
std::string interval_text(const Interval<T>& interval, Text text) {
  if (interval == Interval<T>{}) return {};
  if (interval.min == interval.max) return text(interval.min);
  std::string result = text(interval.min) + '-';
  if (interval.max != std::numeric_limits<T>::max()) result += text(interval.max);
  return result;
}

}  // namespace

const char* mode_name(Mode mode) {
  switch (mode) {
    case Mode::kAuto:
      return "auto";
    case Mode::kFlat:
      return "flat";
    case Mode::kHierarchical:
      return "hierarchical";
  }
  return "";
}

bool parse_bytes(std::string_view text, std::uint64_t& bytes) {
  std::string ignored;
  // SizeType accepts a sign or blanks nowhere, so a digit must come first.
  return !text.empty() && text[0] >= '0' && text[0] <= '9' &&
         config::SizeType::parse(text, bytes, ignored);
}

bool set_parameter(Collective collective, const Algorithm* algorithm, ParameterName name,
                   std::string_view text, Parameters& parameters, std::string& reason) {
  if (name == ParameterName::kSegment) return set_piece(text, parameters.segment_bytes, reason);
  if (name == ParameterName::kPipeline) return set_piece(text, parameters.pipeline_bytes, reason);
  const bool window = name == ParameterName::kWindow;
  if (window && text == "-1") {
    parameters.window = -1;
    return true;
  }
  const int least = name == ParameterName::kRadix ? least_radix_of(collective, algorithm) : 1;
  int value = 0;
  if (!parse_number(text, value) || value < least || value > kMostOfParameter) {
    reason = "must be a number from " + std::to_string(least) + " to " +
             std::to_string(kMostOfParameter) + (window ? ", or -1 for no limit" : "");
    return false;
  }
  if (name == ParameterName::kRadix) parameters.radix = value;
  if (window) parameters.window = value;
  if (name == ParameterName::kLeaders) parameters.leaders = value;
  return true;
}

bool parse_algorithm(Collective collective, std::string_view text, Named& named,
                     std::string& reason) {
  named = {};
  const std::size_t slash = text.find('/');
  const std::string_view name = trimmed(text.substr(0, slash));
  if (slash != std::string_view::npos) {
    const std::string_view mode = trimmed(text.substr(slash + 1));
    if (config::equal_ignoring_case(mode, "flat")) {
      named.mode = Mode::kFlat;
    } else if (config::equal_ignoring_case(mode, "hierarchical") ||
               config::equal_ignoring_case(mode, "hier")) {
      named.mode = Mode::kHierarchical;
    } else {
      reason = "has '/" + std::string(mode) + "'; only /flat and /hierarchical exist";
      return false;
    }
  }
  int number = 0;
  if (parse_number(name, number)) {
    if (number == 0) return true;
    named.algorithm = find_algorithm(collective, number);
    for (const IntelNumber& known : intel_numbers()) {
      // Reduce_scatter_block shares the numbers of reduce_scatter.
      const bool family =
          known.collective == collective || (known.collective == Collective::kReduceScatter &&
                                             collective == Collective::kReduceScatterBlock);
      if (!family || known.number != number) continue;
      named.algorithm = find_algorithm(collective, known.name);
      if (named.mode == Mode::kAuto)
        named.mode = known.hierarchical ? Mode::kHierarchical : Mode::kFlat;
    }
    if (named.algorithm != nullptr) return true;
    reason = "names number " + std::to_string(number) + ", which " + info(collective).name +
             " does not have; `overdrive info --algorithms` lists them";
    return false;
  }
  if (config::equal_ignoring_case(name, "auto")) return true;
  named.algorithm = find_algorithm(collective, name);
  if (named.algorithm != nullptr) return true;
  std::vector<std::string> known;
  for (const Algorithm& algorithm : algorithms(collective)) known.emplace_back(algorithm.name);
  const std::string nearest = nearest_name(name, known);
  reason = "names '" + std::string(name) + "', which is no algorithm of " + info(collective).name +
           "; " +
           (nearest.empty() ? "`overdrive info --algorithms` lists them"
                            : "did you mean " + nearest + "?");
  return false;
}

bool parse_adjust(Collective collective, std::string_view text, std::string_view variable,
                  std::vector<Rule>& rules, std::string& reason) {
  std::vector<Rule> found;
  int number = 0;
  while (!text.empty()) {
    std::string_view clause = next_part(text, ';');
    ++number;
    if (clause.empty()) continue;
    const std::string whole(clause);
    Rule rule;
    rule.origin = std::string(variable) + ", clause " + std::to_string(number);
    Named named;
    std::string why;
    const bool has_conditions = clause.find(':') != std::string_view::npos;
    bool good = parse_algorithm(collective, next_part(clause, ':'), named, why);
    rule.algorithm = named.algorithm;
    rule.mode = named.mode;
    while (good && has_conditions && !clause.empty()) {
      Condition condition;
      good = parse_condition(next_part(clause, ','), condition, why);
      rule.conditions.push_back(condition);
    }
    if (!good) {
      reason = "clause " + std::to_string(number) + " ('" + whole + "') " + why;
      return false;
    }
    found.push_back(std::move(rule));
  }
  rules.insert(rules.end(), found.begin(), found.end());
  return true;
}

std::string condition_text(const Condition& condition) {
  const auto number = [](int value) { return std::to_string(value); };
  std::string text = interval_text(condition.bytes, config::SizeType::format);
  const std::string ranks = interval_text(condition.ranks, number);
  if (!ranks.empty()) text += '@' + ranks;
  const std::string per_node = interval_text(condition.per_node, number);
  if (!per_node.empty()) text += '%' + per_node;
  const std::string nodes = interval_text(condition.nodes, number);
  if (!nodes.empty()) text += " on " + nodes + " nodes";
  if (condition.commutative)
    text += *condition.commutative ? " if it commutes" : " unless it commutes";
  return text;
}

}  // namespace od::coll
