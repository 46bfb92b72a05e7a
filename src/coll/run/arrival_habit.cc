// What ranks tell each other about their arrivals, and what follows from it.

#include "coll/run/arrival_habit.h"

#include <algorithm>

#include "base/quiet_floats.h"

namespace od {

void ArrivalHabit::begins(std::uint64_t place, std::uint64_t ns, int root) {
  last_[calls_ % kRemembered] = {place, static_cast<std::int64_t>(ns), 0, root};
  told_ = true;
  ++calls_;
}

void ArrivalHabit::ended(std::uint64_t ns) {
  Call& last = last_[(calls_ - 1) % kRemembered];
  last.inside_ns = std::max<std::int64_t>(1, static_cast<std::int64_t>(ns) - last.came_ns);
}

ArrivalHabit::Told ArrivalHabit::offer() const {
  Told told;
  const std::uint64_t known = std::min<std::uint64_t>(calls_, kRemembered);
  for (std::uint64_t period = 1; period <= kMostPeriod; ++period) {
    bool repeats = true;
    for (std::uint64_t at = calls_ - known + period; at < calls_; ++at) {
      repeats = repeats && call(at).place == call(at - period).place;
    }
    if (repeats) told.periods |= std::int64_t{1} << period;
  }
  for (std::size_t i = 0; i < kKept; ++i) {
    const Call& it = call(calls_ - kKept + i);
    told.came_ns[i] = it.came_ns;
    told.inside_ns[i] = it.inside_ns;
  }
  return told;
}

// Of all ranks together, in the call at this place among those that were told.
std::int64_t ArrivalHabit::avoidable_ns(std::span<const Told> all, const coll::Nodes& nodes,
                                        std::size_t at, int root) const {
  const auto came = [&](int rank) { return all[static_cast<std::size_t>(rank)].came_ns[at]; };
  std::int64_t sum = 0;
  for (int node = 0; node < nodes.count(); ++node) {
    const std::span<const int> members = nodes.members(node);
    const bool with_root = node == nodes.node_of(root);
    const std::int64_t leader = came(with_root ? root : members.front());
    std::int64_t last = leader;
    for (const int rank : members) last = std::max(last, came(rank));
    // Who has the data stays until the last rank has them.
    if (!to_root_) sum += last - leader;
    // In any case all wait for a root that has the data, and the root for those that it gets.
    if (with_root && !to_root_) continue;
    const std::int64_t until = to_root_ ? last : leader;
    for (const int rank : members) {
      if (rank != root) sum += std::max<std::int64_t>(0, until - came(rank));
    }
  }
  return sum;
}

void ArrivalHabit::judge(std::span<const Told> all, const coll::Nodes& nodes, double message_ns) {
  const QuietFloats quiet;
  agreed_at_ = calls_;
  std::int64_t periods = -1;
  for (const Told& told : all) periods &= told.periods;
  std::uint64_t period = 1;
  while (period < kMostPeriod && (periods >> period & 1) == 0) ++period;
  // Where no period is common to all, calls are not told apart.
  if ((periods >> period & 1) == 0) period = 1;
  const bool same = period == period_;
  period_ = period;
  if (!same) {
    tried_ = {};
    apart_ = {};
  }
  const auto ranks = static_cast<double>(all.size());
  for (std::size_t position = 0; position < period; ++position) {
    const Spread it = spread(all, nodes, position);
    // Nothing is known: it stays as it is.
    if (it.calls == 0 && same) continue;
    const bool apart = it.avoidable_ns > kWorth * it.inside_ns &&
                       it.avoidable_ns > kWorthMessages * message_ns * ranks * it.calls;
    apart_[position] = apart;
    const Tried tried = tried_[position];
    const bool worth =
        apart || tried == Tried::gains || (calls_ >= kAgain && tried == Tried::never);
    if (!same || worth != worth_[position] || calls_ >= kAgain) fresh_[position] = true;
    worth_[position] = worth;
  }
}

ArrivalHabit::Spread ArrivalHabit::spread(std::span<const Told> all, const coll::Nodes& nodes,
                                          std::size_t position) const {
  Spread sum;
  Spread most;
  for (std::size_t i = 0; i < kKept; ++i) {
    const std::uint64_t number = calls_ - kKept + i;
    if (number % period_ != position) continue;
    double inside_ns = 0;
    bool known = true;
    for (const Told& told : all) {
      known = known && told.inside_ns[i] != 0;
      inside_ns += static_cast<double>(told.inside_ns[i]);
    }
    if (!known) continue;
    const auto here_ns = static_cast<double>(avoidable_ns(all, nodes, i, call(number).root));
    sum = {sum.calls + 1, sum.avoidable_ns + here_ns, sum.inside_ns + inside_ns};
    if (here_ns >= most.avoidable_ns) most = {1, here_ns, inside_ns};
  }
  if (sum.calls < 2) return sum;
  return {sum.calls - 1, sum.avoidable_ns - most.avoidable_ns, sum.inside_ns - most.inside_ns};
}

}  // namespace od
