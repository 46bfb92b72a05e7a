// Test support: a team of forked processes, and waiting for operations as the engine does it.
#ifndef OVERDRIVE_COLL_SHM_TEST_TEAM_H_
#define OVERDRIVE_COLL_SHM_TEST_TEAM_H_

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "coll/shm/team.h"
#include "memory/bump_arena.h"
#include "memory/reach.h"
#include "node/forked_job.h"
#include "node/node.h"

// Ends this process of a forked job if the condition does not hold.
#define REQUIRE(condition)                                             \
  do {                                                                 \
    if (!(condition)) {                                                \
      std::fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, \
                   od::node::ForkedJob::current_rank, #condition);     \
      std::_Exit(1);                                                   \
    }                                                                  \
  } while (false)

namespace od::coll::shm {

// Up to which size members combine whole contributions instead of slices.
inline void set_whole(Tuning& tuning, std::uint64_t bytes) {
  tuning.whole_max_pair_bytes = bytes;
  tuning.allreduce_whole_max_bytes = tuning.oversubscribed_allreduce_whole_max_bytes = bytes;
  tuning.reduce_whole_max_bytes = tuning.oversubscribed_reduce_whole_max_bytes = bytes;
}

struct TestTeamOptions {
  Tuning tuning;
  std::uint64_t slot_bytes = 1 << 20;
  std::uint32_t slot_count = 4;
  bool force_fences = false;  // as with more ranks than cores
  std::vector<int> groups;    // the cache of each member; empty: not known
  Carrier* carrier = nullptr;
};

// One process of a job: its node, its slots, and teams of all ranks.
class TestNode {
 public:
  TestNode(const od::node::Exchange& exchange, const TestTeamOptions& options)
      : exchange_(exchange), options_(options) {
    od::node::JoinOptions join;
    join.region.slot_bytes = options.slot_bytes;
    join.region.slot_count = options.slot_count;
    join.region.buffers_bytes = 1 << 20;
    const memory::ReachOwn own = memory::reach_own();
    join.reach = {own.fd, own.start, own.bytes};
    node_ = od::node::Node::join(exchange, join);
    if (node_->size() != exchange.size || node_->layout().slot_count == 0) {
      std::fprintf(stderr, "rank %d did not join: %s\n", exchange.rank, node_->why().c_str());
      std::_Exit(98);
    }
    slots_ = std::make_unique<Slots>(node_->member(exchange.rank).base, node_->layout());
    wake_mode_ = node_->wake_mode();
    if (options.force_fences) wake_mode_.expedited = false;
    plan_ = od::node::plan_waiting(od::node::WaitPolicy::automatic,
                                   node_->oversubscribed() || options.force_fences, 0);
  }

  // Collective; null where a member has no slot.
  std::unique_ptr<Team> make_team() {
    lease_ = slots_->allocate();
    std::vector<SlotLease> leases(static_cast<std::size_t>(exchange_.size));
    exchange_.allgather(&lease_, leases.data(), sizeof(SlotLease));
    TeamSetup setup;
    setup.me = exchange_.rank;
    setup.layout = &node_->layout();
    setup.wake_mode = wake_mode_;
    setup.tuning = options_.tuning;
    setup.carrier = options_.carrier;
    setup.corrupt = [](void*, int member) {
      std::fprintf(stderr, "slot of member %d is corrupt\n", member);
      std::_Exit(97);
    };
    for (int i = 0; i < exchange_.size; ++i) {
      const od::node::Member& member = node_->member(i);
      const SlotLease& lease = leases[static_cast<std::size_t>(i)];
      if (lease.slot == SlotLease::kNone) return nullptr;
      CacheClaim cache = topology::own_cache_claim(0, 1);
      cache.group = CacheClaim::kUnknown;
      if (!options_.groups.empty()) cache.group = options_.groups[static_cast<std::size_t>(i)];
      setup.members.push_back(
          {member.base, lease, member.reach, member.reach_bytes, member.reaches_us, cache});
    }
    return std::make_unique<Team>(std::move(setup));
  }
  void end_team(std::unique_ptr<Team> team) {
    slots_->release(lease_, team->exchanges(), team->acknowledgements());
  }

  void return_lease() { slots_->release(lease_, 0, {}); }

  // Waits as a rank does, asleep when nothing comes; sleeps that end by time-out although something
  // has come are counted as lost wake-ups.
  template <typename Done>
  void wait(Team& team, Done&& done) {
    od::node::Idler idler(plan_);
    std::atomic<std::uint32_t>& armed = node_->member(exchange_.rank).header->armed;
    const std::uint64_t started = now_ns();
    while (!done()) {
      if (team.advance()) {
        idler.reset();
        continue;
      }
      const std::uint64_t before = now_ns();
      if (idler.step(armed, wake_mode_, false, [&] { return team.anything_ready(); })) {
        ++sleeps_;
        if (now_ns() - started > kStuckNs) {
          std::fprintf(stderr, "rank %d is stuck: %s\n", exchange_.rank, team.describe().c_str());
          std::_Exit(96);
        }
        if (now_ns() - before > kLostNs && team.anything_ready()) {
          std::fprintf(stderr, "rank %d slept too long: %s\n", exchange_.rank,
                       team.describe().c_str());
          ++lost_wakes_;
        }
      }
    }
  }
  void wait_for(Team& team, const Operation& op) {
    wait(team, [&] { return op.done(); });
  }

  // After something has been published for that rank.
  void wake(int rank) { od::node::wake_if_armed(node_->member(rank).header->armed, wake_mode_); }

  od::node::Node& node() { return *node_; }
  const SlotLease& lease() const { return lease_; }
  Slots& slots() { return *slots_; }
  std::uint64_t sleeps() const { return sleeps_; }
  std::uint64_t lost_wakes() const { return lost_wakes_; }
  void set_tuning(const Tuning& tuning) { options_.tuning = tuning; }
  void set_groups(std::vector<int> groups) { options_.groups = std::move(groups); }
  // Sleeps then end by a wake-up, or so late that it must have been lost, however busy the machine.
  void sleep_until_woken(const od::node::WaitPlan& plan) {
    plan_ = plan;
    plan_.first_sleep_ns = plan_.sleep_ns = kLostNs;
  }

 private:
  static constexpr std::uint64_t kLostNs = 30'000'000'000;
  static constexpr std::uint64_t kStuckNs = 80'000'000'000;
  od::node::Exchange exchange_;
  TestTeamOptions options_;
  std::unique_ptr<od::node::Node> node_;
  std::unique_ptr<Slots> slots_;
  SlotLease lease_;
  od::node::WakeMode wake_mode_;
  od::node::WaitPlan plan_;
  std::uint64_t sleeps_ = 0;
  std::uint64_t lost_wakes_ = 0;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_TEST_TEAM_H_
