// Asks the model, and lets it learn from the first look.
#include "coll/run/rivals.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/quiet_floats.h"
#include "coll/plan/model/network_fit.h"

namespace od {
namespace {

// Who is looked at in the second place may be so much slower by the fitted network than the best
// that was seen, which may look worse by it than it was: as far as the model strays, and three
// calls.
constexpr double kPromising = 1.5;
// Of those, beside the usual way, the host, and the best of the others.
constexpr std::size_t kMostNew = 2;
static_assert(3 + kMostNew <= Trial::kMostWays);
// Beyond that nobody promises anything.
constexpr double kMostTimes = 4;
// Calls that were expected to be long take less than that by so much. They are measured as others
// are: the few calls of long ones are the first that an algorithm makes, which short ones feel.
constexpr double kClearlyShorter = 2;

std::size_t most_rivals(Others others) {
  return others == Others::kMany ? Trial::kMostWays - 2 : 2;
}

}  // namespace

bool expects_long_calls(const coll::Selection& selection, const coll::Layout& layout,
                        const Compared& compared) {
  return selection.cost(compared.usual, layout, compared.typical_bytes) >= Trial::kLongCallNs;
}

std::vector<coll::Decision> rivals_of(const coll::Selection& selection, const coll::Layout& layout,
                                      const Compared& compared, bool long_calls) {
  std::vector<coll::Decision> rivals;
  rivals.push_back(coll::host_decision(compared.usual.algorithm->collective));
  if (compared.others == Others::kNone) return rivals;
  // The model is wrong by such factors at times, seldom by more; where most of the time is the
  // network's by less, and then a program makes few calls to try slow ways with.
  const double usual_times = long_calls ? 1.25 : 2;
  const double most_times = compared.others == Others::kMany ? 8 : usual_times;
  // Seen: eight ranks on four nodes of 1 Gbit/s and two processors, broadcast of 10 KiB: a
  // double binary tree, for which the model takes half of any other algorithm's time, takes
  // twice binomial's.
  const double most_of_another = long_calls ? most_times : std::max(most_times, 4.0);
  for (const coll::Decision& each :
       selection.alternatives(compared.usual, layout, compared.commutative, compared.typical_bytes,
                              most_times, most_of_another, most_rivals(compared.others))) {
    rivals.push_back(each);
  }
  return rivals;
}

namespace {

void begin_anew(Contest& contest, std::vector<coll::Decision> rivals, bool long_calls) {
  contest.compared.rivals = std::move(rivals);
  contest.begin_anew(static_cast<int>(contest.compared.rivals.size()) + 1, long_calls);
}

// The best of our own ways.
int best_seen(const Contest& contest) {
  int best = Trial::kOwn;
  for (int way = 0; way < contest.ways(); ++way) {
    if (contest.decision(way).algorithm->is_host()) continue;
    if (contest.least_ns(way) < contest.least_ns(best)) best = way;
  }
  return best;
}

// The selection with a network that explains what our own ways took.
coll::Selection fitted_selection(const Contest& contest, const coll::Selection& selection,
                                 const coll::Layout& layout) {
  coll::Selection fitted = selection;
  std::vector<coll::Seen> seen;
  for (int way = 0; way < contest.ways(); ++way) {
    const coll::Decision& decision = contest.decision(way);
    if (decision.algorithm->is_host()) continue;
    seen.push_back({contest.least_ns(way), [&](const coll::Machine& machine) {
                      fitted.set_machine(machine);
                      return fitted.cost(decision, layout, contest.compared.typical_bytes);
                    }});
  }
  fitted.set_machine(coll::fit_network(selection.machine(), seen));
  return fitted;
}

}  // namespace

bool begins_anew(Contest& contest, const coll::Selection& selection, const coll::Layout& layout) {
  Compared& compared = contest.compared;
  if (compared.others == Others::kNone || compared.fitted || layout.nodes == 1 ||
      !contest.first_look()) {
    return false;
  }
  const QuietFloats quiet;
  const int best = best_seen(contest);
  const double best_ns = contest.least_ns(best);
  if (contest.long_calls() && best_ns * kClearlyShorter < Trial::kLongCallNs) {
    begin_anew(contest, rivals_of(selection, layout, compared, false), false);
    return true;
  }
  compared.fitted = true;
  // Another look would cost as much as it gains: most of the time is the bytes', and few calls are
  // made.
  if (contest.long_calls()) return false;
  const coll::Selection fitted = fitted_selection(contest, selection, layout);
  std::vector<coll::Decision> rivals = {compared.rivals.front()};  // the host
  if (best != Trial::kOwn) rivals.push_back(contest.decision(best));
  const std::size_t known = rivals.size();
  const auto cost_ns = [&](const coll::Decision& decision) {
    return fitted.cost(decision, layout, compared.typical_bytes);
  };
  const double limit_ns = kPromising * std::max(best_ns, cost_ns(contest.decision(best)));
  for (const coll::Decision& each :
       fitted.alternatives(compared.usual, layout, compared.commutative, compared.typical_bytes,
                           kMostTimes, kMostTimes, compared.rivals.size() + kMostNew)) {
    if (rivals.size() == known + kMostNew) break;
    const auto& others = compared.rivals;
    const bool is_new = std::find(others.begin(), others.end(), each) == others.end();
    if (is_new && cost_ns(each) <= limit_ns) rivals.push_back(each);
  }
  if (rivals.size() == known) return false;
  begin_anew(contest, std::move(rivals), false);
  return true;
}

}  // namespace od
