// The beginning and the end of a rank: joining the node inside MPI_Init, leaving inside
// MPI_Finalize.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/populate.h"
#include "engine/arrival_report.h"
#include "engine/engine.h"
#include "engine/learnt_file.h"
#include "engine/overlap_report.h"
#include "engine/rank_state.h"
#include "engine/run_record.h"
#include "memory/device/device_memory.h"
#include "memory/reach.h"
#include "memory/space.h"
#include "observe/call_sites.h"
#include "observe/log.h"
#include "observe/recording.h"
#include "observe/stats.h"
#include "p2p/context.h"
#include "p2p/send_memory.h"

namespace od {

namespace {

// Of the program's own malloc, which the loader serves from reachable memory.
void* message_memory(std::uint64_t bytes, std::uint64_t alignment) {
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

// With more ranks than that the pages that are never used would cost more than their faults.
constexpr int kPrefaultRanks = 8;

node::WaitPolicy wait_policy(config::WaitMode mode) {
  switch (mode) {
    case config::WaitMode::kSpin:
      return node::WaitPolicy::spin;
    case config::WaitMode::kYield:
      return node::WaitPolicy::yield;
    case config::WaitMode::kSleep:
      return node::WaitPolicy::sleep;
    default:
      return node::WaitPolicy::automatic;
  }
}

std::string pairs_text(const config::Settings& settings) {
  return config::PairsType::format(settings.test_remote);
}

// Page faults of the pool would otherwise fall into the first messages, which they make half as
// fast (windows of 4 KiB): MPI_Init makes the pages of a pool of usual size. Those of a larger one
// follow while the rank waits (RankState::warm_some), or with the messages that get there sooner.
constexpr std::uint64_t kPrefaultPoolBytes = 2 << 20;
// Of these the first messages go round in so many, which stay in the caches; then come more and
// more (p2p/cell_pool.h).
constexpr std::uint64_t kFirstRoundBytes = 512 << 10;
// One step of the rest: 15 to 40 us.
constexpr std::ptrdiff_t kWarmStepBytes = 64 << 10;

void prefault(RankState& s) {
  const node::RegionLayout& layout = s.node->layout();
  if (s.node->size() > kPrefaultRanks) return;
  std::byte* const own = s.node->member(s.node->my_index()).base;
  const std::uint64_t first_bytes = std::min(layout.pool_bytes, kPrefaultPoolBytes);
  // Header, boxes, release bytes: everything before the envelopes is touched all the time.
  if (!populate_pages(own, layout.envelopes_offset, true)) return;
  if (!populate_pages(own + layout.pool_offset, first_bytes, true) || !s.sharing) return;
  s.transport->pool_exists(std::min(layout.pool_bytes, kFirstRoundBytes));
  s.warm_next = own + layout.pool_offset + first_bytes;
  s.warm_end = own + layout.pool_offset + layout.pool_bytes;
}

void prefault_peers(node::Node& node) {
  const node::RegionLayout& layout = node.layout();
  if (node.size() > kPrefaultRanks) return;
  for (int i = 0; i < node.size(); ++i) {
    if (i == node.my_index()) continue;
    std::byte* base = node.member(i).base;
    populate_pages(base, layout.envelopes_offset, true);
    populate_pages(base + layout.pool_offset, std::min(layout.pool_bytes, kPrefaultPoolBytes),
                   false);
  }
}

// What of this rank's memory its peers reach, for the log and the statistics.
void note_reach(RankState& s) {
  const memory::ReachReport& report = memory::reach_report();
  for (int i = 0; i < s.node->size(); ++i) {
    const node::Member& member = s.node->member(i);
    if (i == s.node->my_index()) continue;
    if (member.reach != nullptr) ++s.counters.reach_peers_peak;
    if (member.space != 0) ++s.counters.xpmem_peers_peak;
  }
  s.counters.reach_static_peak = report.static_bytes;
  if (!s.sharing) return;
  const auto say = [](const char* what, const std::string& why) {
    if (!why.empty())
      log(Level::kInfo, "%s cannot be reached by local ranks: %s", what, why.c_str());
  };
  say("large blocks of malloc", report.heap_why);
  say("static data", report.static_why);
  say("the memory of some local ranks", s.node->reach_why());
  if (memory::own_space().id != 0) {
    log(Level::kInfo, "XPMEM: the memory of %d local ranks can be attached",
        static_cast<int>(s.counters.xpmem_peers_peak));
  } else {
    log(Level::kInfo, "XPMEM: %s", memory::space_why().c_str());
  }
}

void measure_distance(RankState& s) {
  // Neighbours probe each other in pairs, 0 and 1, 2 and 3: one probe per rank, all pairs at once.
  // Every link starts with the result; streams correct it per link (p2p/distance.h).
  const int partner = static_cast<int>(s.my_index) ^ 1;
  // No line takes less: then all pairs are far, also where there is nothing to be measured.
  const bool all_far = s.settings.far_threshold_ns <= 1;
  double line_ns = 1;
  if (!all_far) {
    if (partner >= s.node->size() || s.node->oversubscribed()) return;
    line_ns = p2p::probe_line_ns(*s.node, partner);
    if (line_ns <= 0) return;
  }
  const bool far = line_ns >= static_cast<double>(s.settings.far_threshold_ns);
  for (int i = 0; i < s.node->size(); ++i) {
    s.transport->set_distance(static_cast<std::uint32_t>(i), far);
  }
  s.smpi->set_far(far ? line_ns : 0, far ? 0 : line_ns,
                  static_cast<double>(s.settings.far_threshold_ns));
  if (all_far) return;
  log(Level::kInfo, "a cache line takes %.0f ns to rank %d: %s", line_ns,
      s.node->member(partner).world_rank, far ? "far" : "near");
}

}  // namespace

void RankState::warm_some() {
  const std::ptrdiff_t bytes = std::min(kWarmStepBytes, warm_end - warm_next);
  if (!populate_pages(warm_next, static_cast<std::uint64_t>(bytes), true)) {
    warm_next = warm_end;
    return;
  }
  warm_next += bytes;
  const std::byte* const pool =
      node->member(static_cast<int>(my_index)).base + node->layout().pool_offset;
  transport->pool_reaches(static_cast<std::uint64_t>(warm_next - pool));
  counters.warmed_bytes += static_cast<std::uint64_t>(bytes);
}

std::unique_ptr<Rank> Rank::create(const host::HostTable& host, const config::Settings& settings,
                                   bool threads_multiple, const JobTerms* terms) {
  auto state = std::make_unique<RankState>(
      host, settings, threads_multiple,
      terms != nullptr ? *terms : own_terms(settings, host.version_text));
  RankState& s = *state;
  const std::uint64_t start_ns = now_ns();

  node::Exchange exchange;
  exchange.rank = host.world_rank;
  exchange.size = host.world_size;
  exchange.allgather = host.world_allgather;
  exchange.barrier = host.world_barrier;
  node::JoinOptions options;
  options.region.box_bytes = settings.fastbox_bytes;
  options.region.pool_bytes = settings.pool_bytes;
  options.region.frame_bytes = settings.frame_bytes;
  options.region.frame_count = static_cast<std::uint32_t>(settings.frame_peers);
  options.region.slot_count =
      settings.collectives ? static_cast<std::uint32_t>(settings.collective_slots) : 0;
  options.region.slot_bytes = settings.collective_slot_bytes;
  options.region.buffers_bytes = p2p::SendMemory::buffers_bytes(settings);
  options.test_remote = pairs_text(settings);
  const memory::ReachOwn reach = memory::reach_own();
  options.reach = {.fd = reach.fd, .start = reach.start, .bytes = reach.bytes};
  memory::begin_space(settings.xpmem == config::XpmemMode::kAuto && !settings.disable &&
                      exchange.size > 1);
  const memory::OwnSpace& space = memory::own_space();
  if (space.id != 0) {
    options.space = {.id = space.id,
                     .proof = space.proof,
                     .open = memory::open_space,
                     .close = memory::close_space};
  }
  options.disabled = settings.disable;
  options.look_for_crowding =
      log_enabled(Level::kWarning) || config::OutputType::names_output(settings.record);
  s.node = node::Node::join(exchange, options);

  s.my_index = static_cast<std::uint32_t>(s.node->my_index());
  s.header = s.node->member(s.node->my_index()).header;
  s.sharing = s.node->size() > 1;
  if (!s.node->why().empty()) {
    log(Level::kWarning, "local messages of rank %d go to the installed MPI: %s", host.world_rank,
        s.node->why().c_str());
  }
  for (const std::string& sentence : s.node->crowding()) {
    log(Level::kWarning, "%s", sentence.c_str());
  }
  s.wait_plan = node::plan_waiting(wait_policy(settings.wait), s.node->oversubscribed(),
                                   static_cast<std::uint64_t>(settings.spin_ns));
  s.wake_mode = s.node->wake_mode();
  if (s.node->oversubscribed()) s.wake_mode.expedited = false;
  // Who is told to give its core away does not first look thousands of times: on nodes that share
  // cores without knowing it (virtual ones) the others wait for them.
  s.tight_looks = !s.node->oversubscribed() && settings.wait != config::WaitMode::kYield &&
                  settings.wait != config::WaitMode::kSleep;
  s.transport = std::make_unique<p2p::Transport>(*s.node, s.wake_mode, s.settings, s.host,
                                                 s.matching, s.counters);
  s.smpi =
      std::make_unique<smpi::Service>(*s.node,
                                      smpi::Options{.debug = settings.smpi_debug,
                                                    .limit_bytes = settings.smpi_limit_bytes,
                                                    .reach_min_bytes = settings.reach_min_bytes,
                                                    .arena = reach.start,
                                                    .arena_bytes = reach.bytes,
                                                    .allocate = message_memory,
                                                    .release = std::free,
                                                    .reach_offset = memory::reach_offset,
                                                    .abort = host.abort},
                                      s.counters);
  s.world = s.describe_comm(host.comm_world);
  s.self = s.describe_comm(host.comm_self);
  if (s.world == nullptr || s.self == nullptr) return nullptr;
  s.world->context = kWorldContext;
  s.self->context = combine(kSelfContext, static_cast<std::uint64_t>(host.world_rank));

  s.prepare_collectives();
  if (s.compares_clocks && !compare_clocks(host, s.collectives.node_of_world, &s.clock_at_begin)) {
    return nullptr;
  }

  prefault(s);
  // Everybody's own pages exist before anybody maps them, and nobody sends before all have joined.
  if (host.world_barrier() != host::kSuccess) return nullptr;
  prefault_peers(*s.node);
  if (s.sharing) measure_distance(s);
  // Relaxed: informative; joining has synchronised.
  s.header->phase.store(static_cast<std::uint32_t>(node::RankPhase::running),
                        std::memory_order_relaxed);
  if (s.threads) s.header->entered.store(node::kSeveralEntries, std::memory_order_relaxed);
  s.started_ns = now_ns();
  observe::set_begin_of_record(s.started_ns);
  s.counters.join_ns = s.started_ns - start_ns;
  s.counters.local_ranks_peak = static_cast<std::uint64_t>(s.node->size());
  s.counters.region_bytes_peak = s.node->layout().buffers_offset;
  note_reach(s);
  s.counters.fallback_no_region = s.sharing || host.world_size == 1 ? 0 : 1;
  log(Level::kInfo, "rank %d shares memory with %d of %d ranks, %s", host.world_rank,
      s.node->size(), host.world_size,
      s.node->oversubscribed() ? "more ranks than cores" : "a core for each");
  std::unique_ptr<Rank> rank(new Rank(std::move(state)));
  rank->prepare_for_later(*rank->world());
  if (settings.overlap != config::OverlapMode::kOff && s.collectives.enabled) {
    s.overlap =
        std::make_unique<Overlap>(*rank, host.thread_level >= host::ThreadLevel::serialized);
  }
  return rank;
}

namespace {

// Adds the table of collectives; all ranks take part. False when the exchange failed.
bool gather_collectives(RankState& s, observe::JobFacts& facts) {
  const auto ranks = static_cast<std::size_t>(facts.size);
  const std::uint64_t mine = s.collectives.stats.rows().size();
  std::vector<std::uint64_t> counts(ranks);
  if (s.host.world_allgather(&mine, counts.data(), sizeof(mine)) != host::kSuccess) return false;
  const std::uint64_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) return true;
  std::vector<CollectiveStats::Row> own = s.collectives.stats.rows();
  own.resize(most);
  std::vector<CollectiveStats::Row> all(ranks * most);
  if (s.host.world_allgather(own.data(), all.data(), most * sizeof(CollectiveStats::Row)) !=
      host::kSuccess) {
    return false;
  }
  facts.collectives = CollectiveStats::table(CollectiveStats::join(all), facts.size);
  return true;
}

// The places of a rank's calls that take part in the joint table; those beyond take next to no
// time. They travel to all ranks, so there are fewer of them in large jobs: 9 MB at most.
std::size_t most_sites(std::size_t ranks) {
  constexpr std::size_t kMostOfAll = 65536;
  return std::clamp<std::size_t>(kMostOfAll / ranks, 8, 64);
}

// Adds the table of the program's calls; all ranks take part. False when the exchange failed.
bool gather_calls(RankState& s, observe::JobFacts& facts) {
  const auto ranks = static_cast<std::size_t>(facts.size);
  // Whether calls are timed is settled before ranks can agree on anything: who has no times takes
  // part as well.
  const bool timed = observe::timed_call_names() != nullptr;
  std::vector<observe::CallSite> own;
  if (timed) own = observe::call_sites(observe::all_call_times(), observe::timed_call_names());
  observe::RankTime mine{0, facts.elapsed_ns};
  for (const observe::CallSite& site : own) mine.mpi_ns += site.ns;
  const std::size_t count = most_sites(ranks);
  own.resize(count);
  std::vector<observe::RankTime> times(ranks);
  std::vector<observe::CallSite> all(ranks * count);
  if (s.host.world_allgather(&mine, times.data(), sizeof mine) != host::kSuccess ||
      s.host.world_allgather(own.data(), all.data(), count * sizeof(observe::CallSite)) !=
          host::kSuccess) {
    return false;
  }
  if (facts.rank == 0 && timed) facts.calls = observe::call_table(times, observe::join_sites(all));
  return true;
}

void report_statistics(RankState& s) {
  const memory::ReachUsage reach = memory::reach_usage();
  s.counters.reach_heap_peak = reach.top_bytes;
  s.counters.reach_private_blocks = reach.private_count;
  s.counters.reach_forks = reach.fork_count;
  using observe::StatsOutput;
  observe::JobFacts facts = job_facts(s);
  const std::vector<overlap::SiteRecord> overlap = gather_overlap(s);
  write_overlap_trace(s, overlap);
  if (s.overlap != nullptr) facts.overlap = overlap::site_json(s.overlap->records());
  const CommonClock clock = common_clock(s);
  if (config::OutputType::names_output(s.settings.record)) {
    observe::JobFacts recorded = facts;
    recorded.arrivals = own_arrivals(s, clock);
    write_record(s, std::move(recorded));
  }
  switch (observe::stats_output(s.settings.stats)) {
    case StatsOutput::kNone:
      return;
    case StatsOutput::kFile: {
      facts.collectives = CollectiveStats::json(s.collectives.stats.rows());
      if (const char* const* names = observe::timed_call_names()) {
        facts.calls = observe::call_json(observe::call_sites(observe::all_call_times(), names));
        facts.arrivals = own_arrivals(s, clock);
      }
      const std::string error = observe::write_rank_file(s.settings.stats, facts.rank, "statistics",
                                                         observe::stats_json(s.counters, facts));
      if (!error.empty()) log(Level::kError, "%s", error.c_str());
      return;
    }
    case StatsOutput::kTable: {
      facts.overlap = overlap::site_table(overlap);
      std::vector<observe::Counters> all(static_cast<std::size_t>(facts.size));
      if (s.host.world_allgather(&s.counters, all.data(), sizeof(observe::Counters)) ==
              host::kSuccess &&
          gather_collectives(s, facts) && gather_calls(s, facts) &&
          gather_arrivals(s, clock, facts) && facts.rank == 0) {
        observe::write_to_stderr(observe::stats_table(all, facts));
      }
      return;
    }
  }
}

void report_steps(const RankState& s) {
  if (s.collectives.step_log == nullptr) return;
  const std::string error =
      observe::write_rank_file(s.settings.timeline, s.host.world_rank, "the time line",
                               s.collectives.step_log->json(s.host.world_rank, s.host.world_size));
  if (!error.empty()) log(Level::kError, "%s", error.c_str());
}

// All messages are complete, here and, as far as they touch our buffers, everywhere.
void leave_spaces(RankState& s) {
  Guard guard(s);
  s.transport->close_spaces();
  for (int i = 0; i < s.node->size(); ++i) memory::close_space(s.node->member(i).space);
  memory::end_space();
}

}  // namespace

void Rank::finalize() {
  RankState& s = *state_;
  if (s.overlap != nullptr) s.overlap->finish();
  s.helper.stop();
  {
    Guard guard(s);
    s.progress();
    s.transport->flush();
    s.counters.unexpected_peak = s.matching.unexpected_peak();
    const memory::DeviceUsage devices = memory::device_usage();
    s.counters.device_copies = devices.copies;
    s.counters.device_bytes = devices.bytes;
  }
  // What the buffer limit did not let us keep aside has to be fetched first.
  WaitLoop loop(*this, "MPI_Finalize", false);
  while (s.transport->has_unfinished_payload()) loop.step();
  s.leave_switches();
  {
    Guard guard(s);
    keep_learnt(s);
  }
  leave_spaces(s);
  s.smpi->finish();
  s.header->phase.store(static_cast<std::uint32_t>(node::RankPhase::left),
                        std::memory_order_relaxed);
  report_statistics(s);
  report_steps(s);
  // Who still waits in a collective for a message between nodes may need its sender or receiver
  // once more, for the last word of a handshake; and MPICH 5.0 over UCX waits for the others in
  // MPI_Finalize without looking for messages. In a barrier it looks.
  if (!s.collectives.node_of_world.empty()) s.host.world_barrier();
}

}  // namespace od
