// Decides, and makes tables of decisions.
#include "coll/plan/select/selection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/quiet_floats.h"
#include "coll/plan/hierarchy/hierarchy.h"
#include "coll/plan/model/cost.h"

namespace od::coll {
namespace {

constexpr std::uint64_t kEndless = std::numeric_limits<std::uint64_t>::max();

// Sizes at which the model is asked: 0, and two per doubling up to 4 GiB.
constexpr auto kModelSizes = [] {
  std::array<std::uint64_t, 64> sizes{};
  std::size_t i = 1;
  for (std::uint64_t power = 2; i < sizes.size(); power *= 2) {
    sizes[i++] = power;
    if (i < sizes.size()) sizes[i++] = power / 2 * 3;
  }
  return sizes;
}();

// Below, a slice per leader would be small messages only.
constexpr std::uint64_t kSplitBytes = 32 * 1024;

// Whether messages between ranks that share cores are slower than shared memory, whatever the model
// says, which takes a core for each rank. A scan by messages is a chain in which each rank waits
// for a core in each segment. In shared memory every rank combines what is below it, so that all of
// them together need the square of their number. Measured (two cores, near, untouched and rewritten
// buffers), us by messages | in shared memory: 4 ranks 6 MiB 2790 to 3840 | 1380 to 2350; 8 ranks
// 600 KiB 376 to 496 | 187 to 387, 2 MiB 1890 to 2290 | 1700 to 2570; 16 ranks 600 KiB 1750 to 2030
// | 930 to 1200, 2 MiB 5150 to 7040 | 5580 to 7160.
bool suffers_from_switches(Collective collective, const Layout& layout, std::uint64_t bytes) {
  constexpr std::uint64_t kMostCombined = 128 << 20;
  const auto ranks = static_cast<std::uint64_t>(layout.ranks);
  return layout.shares_cores && layout.nodes == 1 && info(collective).flow == Flow::kPrefix &&
         bytes <= kMostCombined / (ranks * ranks);
}

bool adds_on_the_way(Collective collective) {
  const CollectiveInfo& kind = info(collective);
  return kind.reduces && kind.size_rule() == SizeRule::kVector && kind.flow != Flow::kPrefix;
}

bool reads_sizes(Collective collective) { return info(collective).size_rule() != SizeRule::kNone; }

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
  if (result.pipeline_bytes == 0) result.pipeline_bytes = second.pipeline_bytes;
  return result;
}

}  // namespace

Decision Selection::complete(const Algorithm& algorithm, Mode mode, const Parameters& parameters,
                             const Layout& layout, bool commutative) const {
  const Family& rules = family(algorithm.collective);
  if (algorithm.is_host()) return host_decision(algorithm.collective);
  Parameters chosen = parameters;
  for (const auto& [special, values] : rules.special) {
    if (special == &algorithm) chosen = merged(chosen, values);
  }
  chosen = effective_parameters(algorithm, merged(chosen, rules.common));
  if (mode == Mode::kAuto) {
    const bool levels =
        layout.most_per_node > 1 && why_not_hierarchical(algorithm, layout, commutative) == nullptr;
    mode = levels ? Mode::kHierarchical : Mode::kFlat;
  }
  if (mode == Mode::kHierarchical) return {&algorithm, mode, with_level_defaults(chosen)};
  chosen.leaders = 0;
  chosen.pipeline_bytes = 0;
  return {&algorithm, mode, chosen};
}

double Selection::cost(const Decision& decision, const Layout& layout, std::uint64_t size) const {
  const Algorithm& algorithm = *decision.algorithm;
  const Collective collective = algorithm.collective;
  const auto bytes = static_cast<double>(size);
  if (decision.mode == Mode::kFlat) {
    const Estimate estimate(machine_, collective, layout.ranks, layout.most_per_node, bytes);
    return algorithm.cost(estimate, bytes, decision.parameters);
  }
  if (layout.nodes == 1) return node_cost(machine_, collective, layout.ranks, bytes);
  return hierarchy_cost(machine_, collective, algorithm.cost, decision.parameters, layout.nodes,
                        layout.most_per_node, bytes)
      .total();
}

// The cheapest of those that can serve, of several the first; the others are only explained.
Decision Selection::by_model(Collective collective, const Layout& layout, bool commutative,
                             std::uint64_t bytes, Explanation* explanation) const {
  const Family& rules = family(collective);
  Decision best = host_decision(collective);
  double best_cost = std::numeric_limits<double>::infinity();
  const auto consider = [&](const Decision& decision, const char* reason) {
    // Neither has a cost what has no such form.
    const bool costs = reason == nullptr || explanation != nullptr;
    const double nanoseconds = costs ? cost(decision, layout, bytes) : 0;
    if (reason == nullptr && nanoseconds < best_cost) {
      best = decision;
      best_cost = nanoseconds;
    }
    if (explanation != nullptr) {
      explanation->candidates.push_back({decision, nanoseconds, reason == nullptr ? "" : reason});
    }
  };
  const auto leaders_are_set = [&](const Algorithm& algorithm) {
    return std::any_of(rules.special.begin(), rules.special.end(),
                       [&](const auto& special) {
                         return special.first == &algorithm && special.second.leaders != 0;
                       }) ||
           rules.common.leaders != 0;
  };
  const bool levels = layout.most_per_node > 1 && layout.nodes > 1;
  const bool one_node = layout.most_per_node > 1 && layout.nodes == 1;
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (algorithm.is_host()) continue;
    const bool listed = rules.list.empty() || std::find(rules.list.begin(), rules.list.end(),
                                                        &algorithm) != rules.list.end();
    const auto reason_of = [&](const char* reason) {
      if (reason == nullptr && algorithm.works_elsewhere()) {
        reason = "is for a switch that adds, which is measured by itself";
      }
      if (reason == nullptr && algorithm.shares_memory() && rules.list.empty()) {
        reason = "names what is done inside nodes in any case, where it can be done";
      }
      return listed ? reason : "is not in the list";
    };
    if (levels) {
      const char* reason = reason_of(why_not_hierarchical(algorithm, layout, commutative));
      const Decision decision = complete(algorithm, Mode::kHierarchical, {}, layout, commutative);
      consider(decision, reason);
      // Several leaders add their slices at the same time.
      const Parameters& set = decision.parameters;
      for (const int leaders : {2, 4}) {
        if (!adds_on_the_way(collective) || bytes < kSplitBytes || leaders_are_set(algorithm) ||
            leaders > layout.most_per_node || reason != nullptr) {
          break;
        }
        Parameters split = set;
        split.leaders = leaders;
        consider({&algorithm, Mode::kHierarchical, split}, reason);
      }
    }
    const Mode alone = one_node && algorithm.shares_memory() ? Mode::kHierarchical : Mode::kFlat;
    consider(complete(algorithm, alone, {}, layout, commutative),
             reason_of(why_not(algorithm, {layout.ranks, commutative})));
  }
  if (one_node && best.mode == Mode::kFlat && !best.algorithm->is_host()) {
    // In shared memory there is only one way, but who cannot go it needs an algorithm.
    const Decision shared = complete(*best.algorithm, Mode::kHierarchical, {}, layout, commutative);
    consider(shared, nullptr);
    if (suffers_from_switches(collective, layout, bytes)) best = shared;
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

std::pair<Decision, const char*> Selection::obey(const Rule& rule, const Layout& layout,
                                                 bool commutative) const {
  const Algorithm& algorithm = *rule.algorithm;
  const Decision decision = complete(algorithm, rule.mode, rule.parameters, layout, commutative);
  return {decision, decision.mode == Mode::kHierarchical
                        ? why_not_hierarchical(algorithm, layout, commutative)
                        : why_not(algorithm, {layout.ranks, commutative})};
}

std::optional<Selection::Learnt> Selection::learnt(Collective collective, const Layout& layout,
                                                   bool commutative, std::uint64_t bytes) const {
  const Family& rules = family(collective);
  // Who lists what may be chosen may have changed the list.
  if (!rules.list.empty()) return std::nullopt;
  if (!reads_sizes(collective)) bytes = 0;
  for (const Rule& rule : rules.learnt) {
    if (matching(rule, layout, commutative, bytes) == nullptr) continue;
    const auto [decision, reason] = obey(rule, layout, commutative);
    if (reason == nullptr) return Learnt{decision, rule.calls};
  }
  return std::nullopt;
}

Decision Selection::decide(Collective collective, const Layout& layout, bool commutative,
                           std::uint64_t bytes, Explanation* explanation, std::string* error,
                           bool* ruled) const {
  if (!reads_sizes(collective)) bytes = 0;
  if (ruled != nullptr) *ruled = false;
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
      const auto [decision, reason] = obey(rule, layout, commutative);
      if (reason == nullptr) {
        note(rule, "fires");
        if (ruled != nullptr) *ruled = true;
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

namespace {

// A way that sends segments is looked at although the model takes it for so much slower than the
// best: where the host sends short messages at once, nobody waits for who receives them.
constexpr double kTimesOfSegments = 1.5;

bool in_segments(const Decision& decision) {
  return (decision.algorithm->takes & kTakesSegment) != 0 && decision.parameters.segment_bytes > 0;
}

// Between two nodes linear, binomial and knomial are one: to measure one is to measure all.
bool sends_the_same(const Explanation::Candidate& a, const Explanation::Candidate& b,
                    const Layout& layout) {
  return layout.nodes == 2 && a.decision.mode == Mode::kHierarchical &&
         b.decision.mode == Mode::kHierarchical &&
         a.decision.parameters.leaders == b.decision.parameters.leaders &&
         in_segments(a.decision) == in_segments(b.decision) &&
         std::abs(a.cost_ns - b.cost_ns) <= 1e-9 * a.cost_ns;
}

}  // namespace

std::vector<Decision> Selection::alternatives(const Decision& usual, const Layout& layout,
                                              bool commutative, std::uint64_t bytes,
                                              double most_times, double most_of_another,
                                              std::size_t most) const {
  const Collective collective = usual.algorithm->collective;
  if (!reads_sizes(collective)) bytes = 0;
  Explanation explanation;
  by_model(collective, layout, commutative, bytes, &explanation);
  const std::vector<Explanation::Candidate>& candidates = explanation.candidates;
  const double least_ns = candidates.empty() ? 0 : candidates.front().cost_ns;
  std::vector<Decision> found;
  std::vector<const Explanation::Candidate*> taken;  // the usual one as well
  for (const Explanation::Candidate& candidate : candidates) {
    if (candidate.decision == usual) taken.push_back(&candidate);
  }
  const auto fits = [&](const Explanation::Candidate& candidate, double times) {
    const Decision& decision = candidate.decision;
    if (!candidate.why_not.empty() || candidate.cost_ns > times * least_ns) return false;
    // It has a measurement of its own, because it needs to be prepared.
    if (std::string_view(decision.algorithm->name) == "first_arrival") return false;
    // On one node there is only one way in shared memory.
    if (layout.nodes == 1 && decision.mode == Mode::kHierarchical &&
        usual.mode == Mode::kHierarchical) {
      return false;
    }
    return decision != usual &&
           std::none_of(taken.begin(), taken.end(), [&](const Explanation::Candidate* other) {
             return sends_the_same(candidate, *other, layout);
           });
  };
  const auto is_other = [&](const Decision& decision) {
    return decision.algorithm != usual.algorithm;
  };
  const auto take = [&](const Explanation::Candidate& candidate) {
    found.push_back(candidate.decision);
    taken.push_back(&candidate);
  };
  // The model does not know which messages the host sends at once.
  if (most > 0 && bytes >= 2 * kLongSegmentBytes) {
    if (!in_segments(usual)) {
      const auto segmented =
          std::find_if(candidates.begin(), candidates.end(), [&](const auto& candidate) {
            return in_segments(candidate.decision) &&
                   fits(candidate, std::max(most_times, kTimesOfSegments));
          });
      if (segmented != candidates.end()) take(*segmented);
    } else if (usual.parameters.segment_bytes == usual.algorithm->defaults.segment_bytes) {
      // Who sets a length means it.
      found.push_back(usual);
      found.back().parameters.segment_bytes = kLongSegmentBytes;
    }
  }
  for (const Explanation::Candidate& candidate : candidates) {
    if (found.size() == most) break;
    const bool other_is_missing = std::none_of(found.begin(), found.end(), is_other);
    const bool is_missing_other = other_is_missing && is_other(candidate.decision);
    // The last place is kept for it.
    if (other_is_missing && !is_missing_other && found.size() + 1 == most) continue;
    if (fits(candidate, is_missing_other ? most_of_another : most_times)) take(candidate);
  }
  return found;
}

Table Selection::compile(Collective collective, const Layout& layout, bool commutative) const {
  Table table;
  table.selection_ = this;
  table.collective_ = collective;
  table.layout_ = layout;
  table.commutative_ = commutative;
  // Decisions can change right after these sizes.
  std::vector<std::uint64_t>& ends = table.last_bytes_;
  if (reads_sizes(collective)) {
    ends.assign(kModelSizes.begin(), kModelSizes.end());
    const Family& rules = family(collective);
    for (const std::vector<Rule>* source : {&rules.environment, &rules.file}) {
      for (const Rule& rule : *source) {
        for (const Condition& condition : rule.conditions) {
          if (!condition.fits(layout, commutative)) continue;
          if (condition.bytes.min > 0) ends.push_back(condition.bytes.min - 1);
          ends.push_back(condition.bytes.max);
        }
      }
    }
  }
  ends.push_back(kEndless);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  table.decisions_.resize(ends.size());
  table.ruled_.resize(ends.size());
  if (strict_) {
    for (std::size_t range = 0; range < ends.size(); ++range) table.decide(range);
  }
  return table;
}

void Table::decide(std::size_t range) {
  const QuietFloats quiet;
  bool ruled = false;
  decisions_[range] = selection_->decide(collective_, layout_, commutative_, bytes_of(range),
                                         nullptr, &error_, &ruled);
  ruled_[range] = ruled || selection_->has_list(collective_);
}

}  // namespace od::coll
