// Asks the model, and lets it learn from the first look.
#include "coll/run/rivals.h"

#include <algorithm>
#include <cstddef>
#include <limits>
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
// Who takes so many times as long as the winner has lost: no later measurement will find it better
// unless the program changes.
constexpr double kLost = 1.25;
// Who has never been measured may take so many times as long by the fitted network: by so much the
// model is wrong about an algorithm at times (knomial, in allreduce of 4 KiB: 2.2).
constexpr double kNearEnough = 2.5;
// What it is expected to take, because a bad one would cost more than the model says.
constexpr double kLeastExpected = 1.1;
constexpr std::size_t kEndless = std::numeric_limits<std::size_t>::max();

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

int way_of_learnt(const coll::Decision& learnt, Compared& compared) {
  if (learnt == compared.usual) return Trial::kOwn;
  std::vector<coll::Decision>& rivals = compared.rivals;
  const auto found = std::find(rivals.begin(), rivals.end(), learnt);
  if (found != rivals.end()) return static_cast<int>(found - rivals.begin()) + Trial::kRival;
  // The model's last one makes room.
  const std::size_t most = 1 + most_rivals(compared.others);
  if (rivals.size() >= most) rivals.resize(most - 1);
  rivals.push_back(learnt);
  return static_cast<int>(rivals.size()) - 1 + Trial::kRival;
}

namespace {

void begin_anew(Contest& contest, std::vector<coll::Decision> rivals, bool long_calls) {
  contest.compared.rivals = std::move(rivals);
  contest.begin_anew(static_cast<int>(contest.compared.rivals.size()) + 1, long_calls);
}

// Decisions, with the nanoseconds of a call on a rank.
using Taken = std::vector<std::pair<coll::Decision, double>>;

// The model with a network that explains what decisions took.
class FittedModel {
 public:
  FittedModel(const Taken& taken, const Compared& compared, const coll::Selection& selection,
              const coll::Layout& layout)
      : compared_(compared), layout_(layout), fitted_(selection) {
    std::vector<coll::Seen> seen;
    for (const auto& [decision, ns] : taken) {
      seen.push_back({ns, [this, of = &decision](const coll::Machine& machine) {
                        fitted_.set_machine(machine);
                        return cost_ns(*of);
                      }});
    }
    fitted_.set_machine(coll::fit_network(selection.machine(), seen));
  }

  double cost_ns(const coll::Decision& decision) const {
    return fitted_.cost(decision, layout_, compared_.typical_bytes);
  }
  // All that come near the best of them, cheapest first.
  std::vector<coll::Decision> others(std::size_t most) const {
    return fitted_.alternatives(compared_.usual, layout_, compared_.commutative,
                                compared_.typical_bytes, kMostTimes, kMostTimes, most);
  }

 private:
  const Compared& compared_;
  const coll::Layout& layout_;
  coll::Selection fitted_;
};

// What our own ways took, as `ns_of` says.
template <typename NsOf>
Taken taken_by(const Contest& contest, NsOf&& ns_of) {
  Taken taken;
  for (int way = 0; way < contest.ways(); ++way) {
    const coll::Decision& decision = contest.decision(way);
    if (!decision.algorithm->is_host() && ns_of(way) > 0) taken.emplace_back(decision, ns_of(way));
  }
  return taken;
}

bool contains(const Taken& taken, const coll::Decision& decision) {
  return std::any_of(taken.begin(), taken.end(),
                     [&](const auto& each) { return each.first == decision; });
}

}  // namespace

bool begins_anew(Contest& contest, const coll::Selection& selection, const coll::Layout& layout) {
  Compared& compared = contest.compared;
  if (compared.others == Others::kNone || compared.fitted || layout.nodes == 1 ||
      !contest.first_look()) {
    return false;
  }
  const QuietFloats quiet;
  const Taken taken = taken_by(contest, [&](int way) { return contest.least_ns(way); });
  const auto& [best, best_ns] = *std::min_element(
      taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (contest.long_calls() && best_ns * kClearlyShorter < Trial::kLongCallNs) {
    begin_anew(contest, rivals_of(selection, layout, compared, false), false);
    return true;
  }
  compared.fitted = true;
  // Another look would cost as much as it gains: most of the time is the bytes', and few calls are
  // made.
  if (contest.long_calls()) return false;
  const FittedModel model(taken, compared, selection, layout);
  std::vector<coll::Decision> rivals = {compared.rivals.front()};  // the host
  if (best != compared.usual) rivals.push_back(best);
  const std::size_t known = rivals.size();
  const double limit_ns = kPromising * std::max(best_ns, model.cost_ns(best));
  for (const coll::Decision& each : model.others(compared.rivals.size() + kMostNew)) {
    if (rivals.size() == known + kMostNew) break;
    if (!contains(taken, each) && model.cost_ns(each) <= limit_ns) rivals.push_back(each);
  }
  if (rivals.size() == known) return false;
  begin_anew(contest, std::move(rivals), false);
  return true;
}

namespace {

// Those beside the usual way and the host.
int rivals(const Contest& contest) { return contest.ways() - 1 - Trial::kRival; }

// For its turn: it has not been measured yet.
bool waits(const Contest& contest, int way) { return contest.ns_of(way) == 0; }

// The slowest rival that has been measured, does not serve, and takes so many times as long as the
// winner; 0: there is none.
int slowest(const Contest& contest, double least_ratio) {
  int found = 0;
  for (int way = Trial::kRival + 1; way < contest.ways(); ++way) {
    if (waits(contest, way) || way == contest.winner()) continue;
    if (contest.ratio_of(way) < least_ratio) continue;
    if (found == 0 || contest.ratio_of(way) > contest.ratio_of(found)) found = way;
  }
  return found;
}

// The place of a way that has never been measured: that of the slowest of those that have lost, or
// one more; 0: there is none.
int free_place(const Contest& contest) {
  const int place = slowest(contest, kLost);
  const bool room = rivals(contest) < static_cast<int>(most_rivals(contest.compared.others));
  return place == 0 && room ? contest.ways() : place;
}

// Where nobody has lost, that of the slowest of several: ways that are near each other tell nothing
// of those that nobody has tried. 0: somebody still waits for his turn, or there is only one.
int place_of_slowest(const Contest& contest) {
  for (int way = Trial::kRival + 1; way < contest.ways(); ++way) {
    if (waits(contest, way)) return 0;
  }
  return rivals(contest) > 1 ? slowest(contest, 0) : 0;
}

}  // namespace

int renew_rivals(Contest& contest, const coll::Selection& selection, const coll::Layout& layout) {
  Compared& compared = contest.compared;
  if (compared.others == Others::kNone || layout.nodes == 1 ||
      contest.next_begins() < Trial::kAgain) {
    return 0;
  }
  int place = free_place(contest);
  if (place == 0) place = place_of_slowest(contest);
  if (place == 0) return 0;
  const QuietFloats quiet;
  const auto ns_of = [&](int way) { return contest.ns_of(way) / layout.ranks; };
  Taken taken = taken_by(contest, ns_of);
  taken.insert(taken.end(), compared.given_up.begin(), compared.given_up.end());
  const FittedModel model(taken, compared, selection, layout);
  const double winner_ns = ns_of(contest.winner());
  const auto ratio = [&](const coll::Decision& each) { return model.cost_ns(each) / winner_ns; };
  const auto fits = [&](const coll::Decision& each) {
    const auto& now = compared.rivals;
    return !contains(taken, each) && ratio(each) <= kNearEnough &&
           std::find(now.begin(), now.end(), each) == now.end();
  };
  const std::vector<coll::Decision> all = model.others(kEndless);
  int renewed = 0;
  for (; place != 0; place = free_place(contest)) {
    // Other algorithms first: what the model gets wrong about one it gets wrong in all its forms.
    auto next = std::find_if(all.begin(), all.end(), [&](const coll::Decision& each) {
      return fits(each) && std::none_of(taken.begin(), taken.end(), [&](const auto& other) {
               return other.first.algorithm == each.algorithm;
             });
    });
    if (next == all.end()) next = std::find_if(all.begin(), all.end(), fits);
    if (next == all.end()) break;
    if (place < contest.ways()) {
      coll::Decision& old = compared.rivals[static_cast<std::size_t>(place - 1)];
      compared.given_up.emplace_back(old, ns_of(place));
      old = *next;
    } else {
      compared.rivals.push_back(*next);
    }
    contest.renew(place, std::max(ratio(*next), kLeastExpected));
    ++renewed;
  }
  return renewed;
}

}  // namespace od
