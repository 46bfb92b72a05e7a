// Collects choices, and writes them as rules.
#include "coll/plan/select/learnt.h"

#include <cstddef>
#include <limits>

#include "base/json_text.h"

namespace od::coll {
namespace {

// Up to a kilobyte each; a file that is read has 16 MiB at most.
constexpr std::size_t kMostChoices = 10'000;

// What a writer has made, without its line breaks; those in strings are escaped.
std::string one_line(const std::string& text) {
  std::string line;
  bool gap = false;
  for (const char c : text) {
    if (c == '\n') {
      gap = true;
    } else if (!gap || c != ' ') {
      if (gap && line.back() == ',') line += ' ';
      gap = false;
      line += c;
    }
  }
  return line;
}

template <class T>
void write_interval(JsonWriter& json, const char* name, const Interval<T>& interval) {
  if (interval == Interval<T>{}) return;
  json.key(name);
  json.open_array();
  json.value(static_cast<std::uint64_t>(interval.min));
  if (interval.max == std::numeric_limits<T>::max()) {
    json.document("null");
  } else {
    json.value(static_cast<std::uint64_t>(interval.max));
  }
  json.close_array();
}

// What is not 0 is said: 0 is what readers take for "as set elsewhere".
void write_parameters(JsonWriter& json, const Parameters& parameters) {
  if (parameters.radix != 0) json.member("radix", parameters.radix);
  if (parameters.segment_bytes != 0) json.member("segment", parameters.segment_bytes);
  if (parameters.window != 0) json.member("window", parameters.window);
  if (parameters.leaders != 0) json.member("leaders", parameters.leaders);
  if (parameters.pipeline_bytes != 0) json.member("pipeline", parameters.pipeline_bytes);
}

// A rule, for people on one line.
std::string rule_text(Collective collective, const Rule& rule, const LearntChoices::Times& times) {
  const Condition& condition = rule.conditions.front();
  JsonWriter json;
  json.open_object();
  json.member("collective", info(collective).name);
  json.member("algorithm", rule.algorithm->name);
  if (!rule.algorithm->is_host()) json.member("mode", mode_name(rule.mode));
  write_parameters(json, rule.parameters);
  write_interval(json, "bytes", condition.bytes);
  write_interval(json, "ranks", condition.ranks);
  write_interval(json, "nodes", condition.nodes);
  write_interval(json, "ranks_per_node", condition.per_node);
  if (condition.commutative) json.member("commutative", *condition.commutative);
  json.member("calls", rule.calls);
  if (!times.empty()) {
    json.key("evidence");
    json.open_object();
    for (const auto& [way, ns] : times) {
      json.key(way + " us");
      // Not by printf: a program may have set a locale that writes commas.
      json.document(std::to_string(ns / 1000) + '.' + std::to_string(ns % 1000 / 100));
    }
    json.close_object();
  }
  json.close_object();
  return one_line(json.take());
}

}  // namespace

std::string way_name(const Decision& decision) {
  std::string name = decision.algorithm->name;
  if (!decision.algorithm->is_host()) name += std::string("/") + mode_name(decision.mode);
  return name;
}

LearntChoices::Calls LearntChoices::calls_of(Collective collective, const Condition& condition) {
  return {collective,
          condition.nodes.min,
          condition.nodes.max,
          condition.ranks.min,
          condition.ranks.max,
          condition.per_node.min,
          condition.per_node.max,
          condition.bytes.min,
          condition.bytes.max,
          condition.commutative ? (*condition.commutative ? 1 : 0) : 2};
}

void LearntChoices::add(Collective collective, Rule rule, Times times) {
  const Calls calls = calls_of(collective, rule.conditions.front());
  if (choices_.size() >= kMostChoices && !choices_.contains(calls)) return;
  Choice& known = choices_[calls];
  if (rule.calls > known.rule.calls) known = {std::move(rule), std::move(times)};
}

void LearntChoices::keep(const TuningFile& earlier) {
  for (const auto& [collective, rule] : earlier.rules) {
    if (choices_.size() >= kMostChoices) return;
    if (rule.algorithm == nullptr || rule.calls == 0 || rule.conditions.size() != 1) continue;
    choices_.try_emplace(calls_of(collective, rule.conditions.front()), Choice{rule, {}});
  }
}

std::string LearntChoices::text(std::string_view fingerprint, std::string_view host,
                                std::string_view date) const {
  JsonWriter json;
  json.open_object();
  json.member("format", "overdrive-tuning");
  json.member("version", 1);
  json.member("comment", "learnt by programs; setting `learn_file`");
  json.key("fingerprint");
  json.value(fingerprint);
  json.key("host");
  json.value(host);
  json.key("date");
  json.value(date);
  json.key("rules");
  json.open_array();
  for (const auto& [calls, choice] : choices_) {
    json.document(rule_text(std::get<Collective>(calls), choice.rule, choice.times));
  }
  json.close_array();
  json.close_object();
  return json.take();
}

}  // namespace od::coll
