// Collective calls of the host to which the ranks of a node come together before one lends
// receives.
//
// A rank inside the host cannot match a message of its node with a receive that it has lent
// (lent_receives.cc). The message is taken aside, which completes its synchronous sender; what that
// one does next may cause a message of another node, and the host may give it the receive. So a
// rank that would have to lend receives waits first, in its own progress, until the node's other
// members of the communicator have come to the call as well. What they have sent before is matched
// by then, and inside the call they send nothing; nobody leaves it before this rank has come.
//
// Protocol: who comes to such a call stores a value into its header that stands for the
// communicator and for the number of the call on it, after it has made its sends visible; release,
// paired with the acquire load of whoever waits, which looks at its queues once more afterwards.
// When the call is over it stores 0. A rank whose threads may be in several calls at once stores a
// value for good that stops nobody; it lends nothing itself, as the host is initialised for threads
// then.
//
// The wait ends after a while: where one rank's call is refused, the others are to wait for it in
// the host, as they would without this.

#include <algorithm>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/rank_state.h"
#include "p2p/context.h"

namespace od {

namespace {

// Of progress, for what the others had sent before they came: nothing is left after that but what
// ranks outside of the communicator send without an end.
constexpr int kLastRounds = 1000;
// Longer than ranks stay away from a collective by load alone.
constexpr std::uint64_t kLongestWaitNs = 5'000'000'000;

bool has_entered(const node::Member& member, std::uint64_t entry) {
  const std::uint64_t now = member.header->entered.load(std::memory_order_acquire);
  return now == entry || now == node::kSeveralEntries;
}

}  // namespace

void Rank::HostEntry::enter(Rank& rank, Comm& comm) {
  RankState& s = *rank.state_;
  if (s.threads) return;
  rank_ = &rank;
  // 0 and the value of several threads are none.
  const std::uint64_t entry = std::clamp(combine(comm.context, ++comm.host_entries),
                                         std::uint64_t{1}, node::kSeveralEntries - 1);
  {
    Guard guard(s);
    if (s.transport->has_unfinished_sends()) s.transport->flush();
    s.header->entered.store(entry, std::memory_order_release);
  }
  if (s.host_threads || !comm.awaits_entries || s.matching.host_candidates().empty()) return;
  rank.await_entries(comm, entry);
}

void Rank::HostEntry::leave() {
  // Relaxed: nothing follows from it.
  rank_->state_->header->entered.store(0, std::memory_order_relaxed);
}

void Rank::await_entries(Comm& comm, std::uint64_t entry) {
  RankState& s = *state_;
  ++s.counters.host_entries_awaited;
  WaitLoop loop(*this, "a collective call of the installed MPI", false);
  const std::uint64_t start_ns = now_ns();
  for (const int world_rank : comm.world_rank) {
    if (world_rank == s.host.world_rank || !s.node->local(world_rank)) continue;
    const node::Member& member = s.node->member(s.node->index_of(world_rank));
    while (!has_entered(member, entry)) {
      if (s.matching.host_candidates().empty()) return;
      if (now_ns() - start_ns > kLongestWaitNs) {
        comm.awaits_entries = false;
        return;
      }
      loop.step();
    }
  }
  Guard guard(s);
  for (int round = 0; round < kLastRounds && s.progress(); ++round) {
  }
}

}  // namespace od
