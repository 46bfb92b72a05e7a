// What collectives need to know about the job: which ranks share a node, and the user's rules.

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "coll/plan/registry.h"
#include "coll/run/collectives.h"
#include "engine/arrival_report.h"
#include "engine/learnt_file.h"
#include "engine/network_cost.h"
#include "engine/rank_state.h"
#include "observe/log.h"
#include "observe/stats.h"

namespace od {

namespace {

// Whether somebody makes the host go on while the program is inside it, or why not.
enum class Drive : std::int32_t { helper, not_asked, no_helper, not_granted };

// What each rank tells all others: its node, named by its lowest rank, how many ranks that has, and
// who makes the host go on, and whether the times of its calls are to be put beside those of other
// ranks.
struct NodeClaim {
  std::int32_t node;
  std::int32_t ranks;
  Drive drive;
  std::int32_t keeps_arrivals;
};

Drive own_drive(RankState& s) {
  if (s.settings.progress == config::ProgressMode::kOff) return Drive::not_asked;
  if (!s.host_threads) return Drive::not_granted;
  return s.settings.host_call_progress && s.helper.start() ? Drive::helper : Drive::no_helper;
}

// Where `progress` is asked for: what has come of it, from the first rank that lacks something.
void tell_progress(const RankState& s, const std::vector<NodeClaim>& places) {
  if (s.host.world_rank != 0 || s.settings.progress == config::ProgressMode::kOff) return;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].drive == Drive::helper) continue;
    log(Level::kWarning,
        "non-blocking collectives between nodes are left to the installed MPI library, although "
        "`progress` is on: %s on rank %zu",
        places[rank].drive == Drive::not_granted
            ? "that library grants less than MPI_THREAD_MULTIPLE"
            : (s.settings.host_call_progress ? "the helper thread could not be started"
                                             : "`host_call_progress` is off"),
        rank);
    return;
  }
  log(Level::kInfo,
      "non-blocking collectives between nodes go on %s; the installed MPI library grants "
      "MPI_THREAD_MULTIPLE on all ranks",
      s.settings.progress == config::ProgressMode::kAgent
          ? "while the program computes, by a helper thread of each rank"
          : "inside calls of MPI only, because `progress` is `calls`");
}

NodeClaim own_place(const RankState& s) {
  NodeClaim place{s.host.world_rank, 1, Drive::not_asked, keeps_arrivals(s.settings) ? 1 : 0};
  for (int i = 0; i < s.node->size(); ++i) {
    const int other = s.node->member(i).world_rank;
    if (other == s.host.world_rank || !s.node->local(other)) continue;
    place.node = std::min(place.node, other);
    ++place.ranks;
  }
  return place;
}

// False when the exchange failed. Collective over the job.
bool find_nodes(RankState& s) {
  Collectives& own = s.collectives;
  own.later_between = false;
  own.node_of_world.clear();
  if (s.node->size() == s.host.world_size && s.settings.test_remote.empty()) {
    own.enabled = own.serves_blocking = s.sharing;
    return true;
  }
  const auto ranks = static_cast<std::size_t>(s.host.world_size);
  NodeClaim mine = own_place(s);
  mine.drive = own_drive(s);
  std::vector<NodeClaim> places(ranks);
  if (s.host.world_allgather(&mine, places.data(), sizeof(mine)) != host::kSuccess) return false;
  std::vector<int> members(ranks, 0);
  for (const NodeClaim& place : places) ++members[static_cast<std::size_t>(place.node)];
  // For tests ranks can be separated so that sharing memory is not transitive: then there are no
  // nodes, only pairs.
  const bool nodes = std::all_of(places.begin(), places.end(), [&](const NodeClaim& place) {
    return members[static_cast<std::size_t>(place.node)] == place.ranks;
  });
  for (std::size_t i = 0; i < ranks; ++i) {
    own.node_of_world.push_back(nodes ? places[i].node : static_cast<int>(i));
  }
  own.later_between = std::all_of(places.begin(), places.end(), [](const NodeClaim& place) {
    return place.drive == Drive::helper;
  });
  tell_progress(s, places);
  s.compares_clocks = std::all_of(places.begin(), places.end(),
                                  [](const NodeClaim& p) { return p.keeps_arrivals; });
  const bool shared =
      std::any_of(places.begin(), places.end(), [](const NodeClaim& p) { return p.ranks > 1; });
  own.only_switch = !shared && own.switch_place.on();
  // Where no two ranks share memory, only calls that may outlast themselves are served.
  own.serves_blocking =
      shared || own.only_switch || s.settings.overlap != config::OverlapMode::kOff;
  own.enabled = own.serves_blocking || own.later_between;
  if (own.later_between && s.settings.progress == config::ProgressMode::kAgent) {
    // The helper has begun, and looks.
    s.lock.lock();
    s.agent = s.locking = true;
    s.lock.unlock();
    own.started_between = [](p2p::Endpoint& endpoint) {
      static_cast<RankState&>(endpoint).helper.notice();
    };
  }
  return true;
}

// Gives the cost model the network of this job, where nobody has said how it is and choices may
// follow from what is measured. False when the host failed. Collective over the job.
bool learn_network(RankState& s) {
  const std::vector<int>& nodes = s.collectives.node_of_world;
  // There is no network between ranks of one node that a test takes for remote.
  const bool is_there = !nodes.empty() && s.settings.test_remote.empty();
  const bool is_given = s.collectives.selection.machine_is_given();
  if (!is_there || is_given || s.settings.learn == config::LearnMode::kOff) return true;
  const std::uint64_t begin_ns = now_ns();
  NetworkCost cost;
  if (!measure_network(s.host, nodes, &cost)) return false;
  if (cost.message_ns <= 0) return true;
  coll::Machine machine = s.collectives.selection.machine();
  machine.far = link_of(cost, machine.far);
  s.collectives.selection.set_machine(machine);
  if (s.host.world_rank != 0) return true;
  log(Level::kInfo,
      "between nodes a message takes %.1f us, and %.3g ns per byte (%.3g Gbit/s); found in %.1f ms",
      cost.message_ns / 1e3, machine.far.byte_ns, 8 / machine.far.byte_ns,
      static_cast<double>(now_ns() - begin_ns) / 1e6);
  return true;
}

}  // namespace

// Collective over the job; settings are the same on all ranks.
void RankState::prepare_collectives() {
  collectives.enabled = false;
  if (!settings.collectives || settings.disable || host.world_size == 1) return;
  std::string reason;
  const bool switch_known =
      SwitchPlace::parse(settings.switch_address, collectives.switch_place, reason);
  if (!find_nodes(*this) || !collectives.enabled) return;
  if (sharing && node->layout().slot_count != 0) {
    collectives.slots =
        std::make_unique<coll::shm::Slots>(node->member(node->my_index()).base, node->layout());
    collectives.cache = topology::own_cache_claim(node->my_index(), node->size());
  }
  collectives.tuning = coll::shm::Tuning::built_in();
  collectives.tuning.driver = settings.collective_driver == config::ReductionDriver::kGeneric
                                  ? coll::shm::Driver::generic
                                  : coll::shm::Driver::segmented;
  collectives.tuning.oversubscribed_groups =
      settings.collective_driver == config::ReductionDriver::kGrouped;
  if (config::OutputType::names_output(settings.timeline)) {
    collectives.step_log = std::make_unique<StepLog>();
  }
  collectives.timed = collectives.step_log != nullptr ||
                      config::OutputType::names_output(settings.record) ||
                      observe::stats_output(settings.stats) != observe::StatsOutput::kNone;
  // A mask of as many tags as the host has.
  const auto tags = static_cast<std::uint32_t>(host.tag_ub) + 1;
  collectives.tags = HostTags(static_cast<std::int32_t>(std::bit_floor(tags) - 1));

  coll::Selection::Options options;
  options.strict = settings.strict;
  options.accept_intel = settings.intel_adjust;
  // What is for another machine has been refused already, by rank 0.
  if (!terms.tuning_text.empty()) {
    options.tuning_file = tuning_path(settings, host.version_text);
    if (options.tuning_file.empty()) options.tuning_file = settings.tuning;
    options.tuning_text = terms.tuning_text;
  }
  options.learnt_text = terms.learnt_text;
  options.learnt_file = settings.learn_file;
  if (keeps_learnt(settings) && host.world_rank == 0) {
    collectives.learnt = std::make_unique<coll::LearntChoices>();
    collectives.learnt_refused = terms.learnt_text.empty();
  }
  for (const auto& [variable, text] : terms.rules) {
    for (const coll::OldName& name : coll::old_names()) {
      if (host.world_rank != 0 || text.find(name.before) == std::string::npos) continue;
      log(Level::kWarning, "%s: the algorithm '%s' is called '%s' now; the old name still works",
          variable.c_str(), name.before, name.now);
    }
  }
  std::vector<std::string> issues = terms.issues;
  if (!switch_known) {
    issues.push_back("switch: '" + settings.switch_address +
                     "' is no place of a switch: " + reason + "; going on without");
  }
  collectives.selection = coll::Selection::load(terms.rules, options, issues);
  if (!learn_network(*this)) {
    collectives.enabled = false;
    return;
  }
  for (const std::string& note : terms.notes) {
    if (host.world_rank == 0) log(Level::kWarning, "%s", note.c_str());
  }
  if (issues.empty()) return;
  // Rank 0 speaks for all.
  if (host.world_rank == 0) {
    for (const std::string& issue : issues) log(Level::kError, "%s", issue.c_str());
    if (settings.strict) log(Level::kError, "stopping because `strict` is on");
  }
  if (settings.strict) {
    host.world_barrier();  // so that the message comes out before the job ends
    host.abort(1);
  }
}

}  // namespace od
