// Waiting with progress: what a rank does between two looks at what it waits for.

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/rank_state.h"
#include "observe/log.h"

namespace od {

namespace {

// Clock readings are taken once in so many idle rounds (a round is some tens of ns).
constexpr std::uint32_t kRoundsPerLook = 32;
// The host may have operations of the program in flight that only its own progress completes, and
// it cannot wake us: no sleep is longer.
constexpr std::uint64_t kLongestSleepNs = 1'000'000;
// A wait that has gone on for so many rounds (tens of microseconds) is no quick exchange, and will
// mostly go on for as long as it takes to fault in a few pages.
constexpr std::uint32_t kRoundsPerWarming = 256;
// While sleeping on and off: a poll of the host costs a microsecond.
constexpr std::uint64_t kHostPollNs = 100'000;
// Looks at the queues between two full rounds: about as long as the shortest answer of a near peer.
constexpr int kTightLooks = 8;
// Questions to the host in a row, with such looks in between. One-sided access over MPICH 4.0, a
// line 60 ns, the target in a barrier, us by the host, with 8 and with 32: put of 8 bytes 0.42,
// 0.47, 0.44; get 0.40, 0.45, 0.42.
constexpr int kHostAsks = 32;
// Calls that find nothing between two looks at sends whose receivers are late.
constexpr std::uint64_t kPollsPerRelief = 16;

void report_stall(RankState& s, const char* where, const Request* waiting_for, std::uint64_t ns) {
  ++s.counters.stall_reports;
  const auto ms = static_cast<unsigned long long>(ns / 1'000'000);
  for (const CollectiveOp* op : s.collectives.active) {
    log(Level::kError, "stalled: rank %d has %s", s.host.world_rank, op->describe().c_str());
  }
  if (waiting_for == nullptr || waiting_for->comm == nullptr) {
    log(Level::kError, "stalled: rank %d has been waiting in %s for %llu ms", s.host.world_rank,
        where, ms);
    return;
  }
  const Comm& comm = *waiting_for->comm;
  const bool receiving = waiting_for->kind == RequestKind::recv;
  const int peer = waiting_for->peer;
  const int world = peer >= 0 ? comm.world_rank[static_cast<std::size_t>(peer)] : -1;
  log(Level::kError,
      "stalled: rank %d has been waiting for %llu ms in %s to %s rank %d of the communicator "
      "(world rank %d; -1: any), tag %d, %lld bytes; %llu receives posted, "
      "%llu messages unexpected here",
      s.host.world_rank, ms, where, receiving ? "receive from" : "send to", peer, world,
      waiting_for->tag, static_cast<long long>(waiting_for->bytes),
      static_cast<unsigned long long>(s.matching.posted_count()),
      static_cast<unsigned long long>(s.matching.unexpected_count()));
}

// What this rank tells of itself while it waits, and where the rank that it waits for does the
// same.
node::Presence presence(const RankState& s, const Comm* comm, int peer) {
  node::Presence presence;
  if (s.wait_plan.peer_spin_ns == 0) return presence;
  presence.mine = &s.header->away;
  if (comm == nullptr || peer < 0) return presence;
  const int index = comm->local_index[static_cast<std::size_t>(peer)];
  if (index >= 0 && index != static_cast<int>(s.my_index)) {
    presence.peer = &s.node->member(index).header->away;
  }
  return presence;
}
node::Presence presence(const RankState& s, const Request* waiting_for) {
  return waiting_for == nullptr ? presence(s, nullptr, host::kAnySource)
                                : presence(s, waiting_for->comm, waiting_for->peer);
}

}  // namespace

void check_peers(RankState& s, const Request* waiting_for) {
  ++s.counters.peer_checks;
  for (int i = 0; i < s.node->size(); ++i) {
    if (i == static_cast<int>(s.my_index)) continue;
    if (waiting_for != nullptr && waiting_for->comm != nullptr && waiting_for->peer >= 0 &&
        waiting_for->comm->local_index[static_cast<std::size_t>(waiting_for->peer)] != i) {
      continue;
    }
    if (s.node->dead(i)) end_job(s, i);
  }
}

int dead_member(const RankState& s, const Comm& comm) {
  for (const int world_rank : comm.world_rank) {
    const int index = s.node->index_of(world_rank);
    if (index >= 0 && s.node->dead(index)) return index;
  }
  return kRemote;
}

void end_job(const RankState& s, int dead_member) {
  log(Level::kError,
      "rank %d (process %u on this node) has died while rank %d was waiting for it; ending the job",
      s.node->member(dead_member).world_rank, s.node->member(dead_member).pid, s.host.world_rank);
  s.host.abort(1);
  std::abort();
}

Rank::WaitLoop::WaitLoop(Rank& rank, const char* where, bool host_pending, Request* waiting_for)
    : rank_(rank),
      where_(where),
      host_pending_(host_pending),
      caller_asks_(host_pending),
      drive_(static_cast<std::uint32_t>(rank.state_->settings.host_poll_interval)),
      waiting_for_(waiting_for),
      idler_(rank.state_->wait_plan, presence(*rank.state_, waiting_for)),
      counted_(rank.state_->threads || rank.state_->agent) {
  if (counted_) [[unlikely]]
    rank.state_->waiting_threads.fetch_add(1, std::memory_order_relaxed);
}

Rank::WaitLoop::WaitLoop(Rank& rank, const char* where, bool host_pending,
                         const CollectiveOp& collective)
    : WaitLoop(rank, where, host_pending) {
  collective_ = &collective;
  caller_asks_ = false;
}

void Rank::WaitLoop::count_yields() {
  RankState& s = *rank_.state_;
  Guard guard(s);
  s.counters.yields += idler_.yields();
  s.counters.yields_peer_away += idler_.yields_with_peer();
}

// Most waits are for one message that comes within a microsecond: looks at the queues alone first.
// Not where the host has to be looked after as well, once that has begun; nor any longer when
// another thread waits to do something. Lock held.
void Rank::WaitLoop::look_at_queues() {
  RankState& s = *rank_.state_;
  if (host_pending_ || s.transport->streams_active() || (rounds_ != 0 && s.notes.any())) return;
  for (int i = 0; i < kTightLooks && !s.transport->arrived() && !s.lock.wanted(); ++i) {
    if (!s.collectives.active.empty() && s.collectives.anything_ready()) break;
    pause_processor();
  }
}

void Rank::WaitLoop::leave() {
  rank_.state_->waiting_threads.fetch_sub(1, std::memory_order_relaxed);
}

bool Rank::WaitLoop::other_threads_wait() const {
  return counted_ && rank_.state_->waiting_threads.load(std::memory_order_relaxed) > 1;
}

// Whether the last round ended with the core given away.
bool Rank::WaitLoop::has_just_yielded() const {
  const RankState& s = *rank_.state_;
  if (rounds_ % SharedCore::kRounds == 0 && s.shared_core.likely()) return true;
  return idler_.rounds() != 0 && idler_.rounds() % s.wait_plan.pauses_per_check == 0;
}

// Lock held.
void Rank::WaitLoop::take_precedence() {
  if (waiting_for_ == nullptr || !waiting_for_->blocking ||
      waiting_for_->kind != RequestKind::recv) {
    return;
  }
  RankState& s = *rank_.state_;
  if (s.matching.bring_forward(*waiting_for_)) ++s.counters.receives_overtaken;
}

void Rank::WaitLoop::step() {
  RankState& s = *rank_.state_;
  bool host_pending = false;
  bool unfinished_sends = false;
  bool progressed = false;
  {
    Guard guard(s);
    if (counted_) [[unlikely]]
      take_precedence();
    if (s.tight_looks) [[likely]]
      look_at_queues();
    if (s.progress()) {
      progressed = true;
      if (counted_ && rounds_ != 0) [[unlikely]]
        s.shared_core.got_something(has_just_yielded());
      idler_.reset();
      if (s.notes.any() && s.notes.need() != HostDrive::Need::quiet &&
          s.drive.due(HostDrive::Need::busy)) {
        s.ask_host();
      }
      // What came was for another thread, which may wait for this core: launchers bind a rank's
      // threads to one. Without this it has it when this thread's spinning is over.
      if (!other_threads_wait() || waiting_for_ == nullptr || waiting_for_->complete) return;
      ++s.counters.thread_yields;
    } else {
      if (s.wait_plan.peer_spin_ns != 0) {
        const CollectiveOp* collective = collective_;
        // A request lets go of its operation when it is complete.
        if (waiting_for_ != nullptr && !waiting_for_->complete) {
          collective = waiting_for_->collective;
        }
        if (collective != nullptr) idler_.watch(collective->awaited_member());
      }
      unfinished_sends = s.transport->has_unfinished_sends();
      if (++rounds_ % kRoundsPerLook == 0 && unfinished_sends) {
        s.transport->relieve_stalled(now_ns());
      }
      // Not where the host may have to answer others.
      if (s.warm_left() && rounds_ % kRoundsPerWarming == 0 && !s.notes.any()) [[unlikely]]
        s.warm_some();
      host_pending = s.idle_round(caller_asks_) != HostDrive::Need::quiet || host_pending_;
    }
  }
  if (progressed) {
    node::yield_once({});
    return;
  }
  if (counted_ && rounds_ % SharedCore::kRounds == 0 && s.shared_core.likely()) [[unlikely]]
    node::yield_once({});
  s.lock.give_way();
  std::uint64_t limit_ns = kLongestSleepNs;
  if (unfinished_sends) {
    limit_ns = std::min(limit_ns, std::max<std::uint64_t>(s.settings.unmatched_wait_ns, 1000));
  }
  const bool moment = idler_.step(
      s.header->armed, s.wake_mode, host_pending,
      [&s] {
        Guard guard(s);
        return s.transport->anything_ready() || s.collectives.anything_ready();
      },
      limit_ns);
  if (moment) occasionally();
}

HostDrive::Need RankState::idle_round(bool caller_asks) {
  ++counters.idle_rounds;
  const HostDrive::Need need = host_need();
  if (caller_asks || !drive.due(need)) return need;
  ask_host();
  // Others have business with the host here: it answers as soon as it would by itself, if most of
  // what this rank does is to ask it.
  if (need == HostDrive::Need::every_round && tight_looks) {
    for (int i = 1; i < kHostAsks && !lock.wanted() && !transport->arrived(); ++i) {
      if (!collectives.active.empty() && collectives.anything_ready()) break;
      ask_host();
    }
  }
  return need;
}

void Rank::nothing_found(const Comm* comm, int peer) {
  RankState& s = *state_;
  const node::Presence who = presence(s, comm, peer);
  {
    Guard guard(s);
    s.idle_round(false);
    // A rank that polls is as patient with its receivers as one that waits; but what they read
    // where it lies is left to them, since the program has other things to do with its time.
    if (s.counters.idle_rounds % kPollsPerRelief == 0 && s.transport->has_unfinished_sends()) {
      s.transport->relieve_stalled(now_ns(), false);
    }
    if (!s.empty_polls.again(s.wait_plan, who.peer)) return;
    ++s.counters.poll_yields;
  }
  node::yield_once(who);
}

void Rank::note_host_start() { state_->notes.note(HostNotes::Kind::operation); }
void Rank::note_host_message() { state_->notes.note(HostNotes::Kind::message); }
void Rank::window_opened() { state_->notes.window_opened(); }
void Rank::window_freed() { state_->notes.window_freed(); }

void Rank::WaitLoop::occasionally() {
  RankState& s = *rank_.state_;
  const std::uint64_t now = now_ns();
  if (started_ns_ == 0) {
    started_ns_ = last_check_ns_ = last_host_poll_ns_ = now;
  }
  // Before the host is asked: it may end the job by itself, without a word, when a process is gone.
  if (now - last_check_ns_ >= static_cast<std::uint64_t>(s.settings.peer_check_ns)) {
    last_check_ns_ = now;
    check_peers(s, waiting_for_);
  }
  {
    Guard guard(s);
    if (now - last_host_poll_ns_ >= kHostPollNs) {
      last_host_poll_ns_ = now;
      s.ask_host();
    }
    if (s.transport->has_unfinished_sends()) s.transport->relieve_stalled(now);
    s.transport->publish_consumed();
  }
  if (s.settings.stall_report_ns != 0 && !reported_ &&
      now - started_ns_ >= static_cast<std::uint64_t>(s.settings.stall_report_ns)) {
    reported_ = true;
    report_stall(s, where_, waiting_for_, now - started_ns_);
  }
}

}  // namespace od
