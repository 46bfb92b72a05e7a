// Decides, and makes tables of decisions.
#include "coll/select/selection.h"

#include <limits>
#include <set>

#include "coll/model/cost.h"

namespace od::coll {
namespace {

constexpr std::uint64_t kEndless = std::numeric_limits<std::uint64_t>::max();

// Sizes at which the model is asked: four per doubling, up to 4 GiB.
std::vector<std::uint64_t> model_sizes() {
  std::vector<std::uint64_t> sizes = {0, 1, 2, 3, 4};
  for (std::uint64_t power = 4; power < (1ull << 32); power *= 2) {
    for (std::uint64_t quarter = 5; quarter <= 8; ++quarter) sizes.push_back(power / 4 * quarter);
  }
  return sizes;
}

bool reads_sizes(Collective collective) {
  return collective != Collective::kBarrier && !info(collective).counts_are_local;
}

const Condition* matching(const Rule& rule, const Layout& layout, bool commutative,
                          std::uint64_t bytes) {
  for (const Condition& condition : rule.conditions) {
    if (condition.fits(layout, commutative) && condition.bytes.has(bytes)) return &condition;
  }
  return nullptr;
}

std::string rule_text(const Rule& rule) {
  std::string text = rule.algorithm == nullptr ? "auto" : rule.algorithm->name;
  if (rule.algorithm != nullptr && rule.mode != Mode::kAuto) {
    text += std::string("/") + mode_name(rule.mode);
  }
  for (std::size_t i = 0; i < rule.conditions.size(); ++i) {
    const std::string condition = condition_text(rule.conditions[i]);
    text += (i == 0 ? ": " : ", ") + (condition.empty() ? "always" : condition);
  }
  return text;
}

Parameters merged(const Parameters& first, const Parameters& second) {
  Parameters result = first;
  if (result.radix == 0) result.radix = second.radix;
  if (result.segment_bytes == 0) result.segment_bytes = second.segment_bytes;
  if (result.window == 0) result.window = second.window;
  if (result.leaders == 0) result.leaders = second.leaders;
  return result;
}

}  // namespace

Decision Selection::complete(const Family& family, const Algorithm& algorithm, Mode mode,
                             const Parameters& parameters, const Layout& layout) const {
  Parameters chosen = parameters;
  for (const auto& [special, values] : family.special) {
    if (special == &algorithm) chosen = merged(chosen, values);
  }
  chosen = merged(chosen, family.common);
  if (mode == Mode::kAuto) {
    mode = layout.most_per_node > 1 ? Mode::kHierarchical : Mode::kFlat;
  }
  // The host's own is always called by all ranks.
  if (algorithm.is_host()) return {&algorithm, Mode::kFlat, {}};
  return {&algorithm, mode, effective_parameters(algorithm, chosen)};
}

double Selection::cost(const Decision& decision, const Layout& layout, std::uint64_t size) const {
  const Algorithm& algorithm = *decision.algorithm;
  const Collective collective = algorithm.collective;
  const auto bytes = static_cast<double>(size);
  if (decision.mode == Mode::kFlat) {
    const Estimate estimate(machine_, collective, layout.ranks, layout.most_per_node);
    return algorithm.cost(estimate, bytes, decision.parameters);
  }
  const double inside = node_cost(machine_, collective, layout.most_per_node, layout.ranks, bytes);
  if (layout.nodes == 1) return inside;
  const Estimate estimate(machine_, collective, layout.nodes, 1);
  return inside + algorithm.cost(estimate, leader_bytes(collective, layout.most_per_node, bytes),
                                 decision.parameters);
}

Decision Selection::by_model(Collective collective, const Layout& layout, bool commutative,
                             std::uint64_t bytes, Explanation* explanation) const {
  const Family& rules = family(collective);
  Decision best{&host_algorithm(collective), Mode::kFlat, {}};
  double best_cost = std::numeric_limits<double>::infinity();
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (algorithm.is_host()) continue;
    const bool listed = rules.list.empty() || std::find(rules.list.begin(), rules.list.end(),
                                                        &algorithm) != rules.list.end();
    for (const Mode mode : {Mode::kHierarchical, Mode::kFlat}) {
      if (mode == Mode::kHierarchical && layout.most_per_node == 1) continue;
      // Inside one node the steps of the node do all of it, whatever would follow between nodes.
      const Call call{mode == Mode::kHierarchical ? layout.nodes : layout.ranks, commutative};
      const char* reason = listed ? why_not(algorithm, call) : "is not in the list";
      const Decision decision = complete(rules, algorithm, mode, {}, layout);
      const double nanoseconds = cost(decision, layout, bytes);
      if (reason == nullptr && nanoseconds < best_cost) {
        best = decision;
        best_cost = nanoseconds;
      }
      if (explanation != nullptr) {
        explanation->candidates.push_back({decision, nanoseconds, reason == nullptr ? "" : reason});
      }
    }
  }
  if (explanation != nullptr) {
    explanation->origin = best.algorithm->is_host() ? "nothing else can serve" : "cost model";
    std::stable_sort(explanation->candidates.begin(), explanation->candidates.end(),
                     [](const auto& a, const auto& b) {
                       if (a.why_not.empty() != b.why_not.empty()) return a.why_not.empty();
                       return a.cost_ns < b.cost_ns;
                     });
  }
  return best;
}

Decision Selection::decide(Collective collective, const Layout& layout, bool commutative,
                           std::uint64_t bytes, Explanation* explanation,
                           std::string* error) const {
  if (!reads_sizes(collective)) bytes = 0;
  const Family& rules = family(collective);
  const auto note = [&](const Rule& rule, std::string verdict) {
    if (explanation == nullptr) return;
    explanation->lines.push_back({rule.origin, rule_text(rule), std::move(verdict)});
  };
  for (const std::vector<Rule>* source : {&rules.environment, &rules.file}) {
    for (const Rule& rule : *source) {
      if (!rule.conditions.empty() && matching(rule, layout, commutative, bytes) == nullptr) {
        note(rule, "does not match");
        continue;
      }
      if (rule.algorithm == nullptr) {
        note(rule, "fires: asks for Overdrive's own choice");
        break;
      }
      const Decision decision =
          complete(rules, *rule.algorithm, rule.mode, rule.parameters, layout);
      const int ranks = decision.mode == Mode::kHierarchical ? layout.nodes : layout.ranks;
      const char* reason = why_not(*rule.algorithm, {ranks, commutative});
      if (reason == nullptr) {
        note(rule, "fires");
        if (explanation != nullptr) {
          by_model(collective, layout, commutative, bytes, explanation);  // for the costs
          explanation->origin = rule.origin;
        }
        return decision;
      }
      note(rule, std::string("matches, but ") + reason);
      if (strict_ && error != nullptr && error->empty()) {
        *error = rule.origin + ": " + rule.algorithm->name + " cannot serve " +
                 info(collective).name + " of " + std::to_string(bytes) + " bytes on " +
                 std::to_string(layout.ranks) + " ranks: it " + reason +
                 "; name another algorithm for this case, or unset OVERDRIVE_STRICT";
      }
    }
  }
  return by_model(collective, layout, commutative, bytes, explanation);
}

Table Selection::compile(Collective collective, const Layout& layout, bool commutative) const {
  // Decisions can change right after these sizes.
  std::set<std::uint64_t> ends = {kEndless};
  if (reads_sizes(collective)) {
    const Family& rules = family(collective);
    for (const std::vector<Rule>* source : {&rules.environment, &rules.file}) {
      for (const Rule& rule : *source) {
        for (const Condition& condition : rule.conditions) {
          if (!condition.fits(layout, commutative)) continue;
          if (condition.bytes.min > 0) ends.insert(condition.bytes.min - 1);
          ends.insert(condition.bytes.max);
        }
      }
    }
    for (const std::uint64_t size : model_sizes()) ends.insert(size);
  }
  Table table;
  for (const std::uint64_t end : ends) {
    const std::uint64_t size =
        end == kEndless && ends.size() > 1 ? *std::prev(ends.end(), 2) + 1 : end;
    const Decision decision = decide(collective, layout, commutative, ends.size() == 1 ? 0 : size,
                                     nullptr, &table.error_);
    if (!table.decisions_.empty() && table.decisions_.back() == decision) {
      table.last_bytes_.back() = end;
    } else {
      table.decisions_.push_back(decision);
      table.last_bytes_.push_back(end);
    }
  }
  return table;
}

}  // namespace od::coll
