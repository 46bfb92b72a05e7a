// Collectives under way after their call: see overlap.h.
#include "engine/overlap.h"

#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/quiet_floats.h"
#include "engine/engine.h"
#include "engine/rank_state.h"
#include "memory/shadow.h"
#include "observe/log.h"

namespace od {

using coll::Collective;
using host::kSuccess;

namespace {

// How long a process that ends without MPI_Finalize waits for what it still owes others.
constexpr std::uint64_t kFarewellNs = 2'000'000'000;
constexpr unsigned kFarewellTickUs = 100;
// The most that is copied aside.
constexpr std::int64_t kMostAsideBytes = std::int64_t{1} << 30;

std::int64_t block_of(const CollectiveCall& call) { return call.recv_count * call.recv_type->size; }

std::int64_t sum_of(const std::vector<BlockPlace>& blocks, const p2p::LayoutRef& type) {
  std::int64_t sum = 0;
  for (const BlockPlace& block : blocks) sum += block.count * type->size;
  return sum;
}

std::vector<std::int64_t> bytes_of(const std::vector<BlockPlace>& blocks,
                                   const p2p::LayoutRef& type) {
  std::vector<std::int64_t> bytes;
  bytes.reserve(blocks.size());
  for (const BlockPlace& block : blocks) bytes.push_back(block.count * type->size);
  return bytes;
}

// Whether the program's memory is one piece there and mapped twice.
bool mapped_twice(const p2p::Layout& layout, void* address, std::int64_t count) {
  if (count * layout.size == 0) return true;
  char* base = nullptr;
  return p2p::is_contiguous(layout, address, count, &base) &&
         memory::shadow_of(base, static_cast<std::uint64_t>(count * layout.size)) != nullptr;
}

FirstMessages first_messages(const overlap::Plan& plan) {
  FirstMessages messages;
  messages.told = overlap::pieces_told;
  for (const overlap::First& first : plan.firsts) {
    messages.of.push_back({first.step, first.pieces, first.room_bytes});
  }
  return messages;
}

}  // namespace

Overlap::Overlap(Rank& rank, bool may_fly) : rank_(rank), state_(rank.state()) {
  client_ = {this, [](void* self, bool waits) { static_cast<Overlap*>(self)->agent_.hurry(waits); },
             [](void* self, bool abandon) { static_cast<Overlap*>(self)->settle(abandon); }};
  service_ = memory::guard_service();
  if (state_.threads) {
    why_not_ = "the program asked for MPI_THREAD_MULTIPLE";
  } else if (state_.settings.progress != config::ProgressMode::kOff) {
    why_not_ = "`progress` lets another thread into the engine";
  } else if (!may_fly) {
    why_not_ = "the installed MPI library does not grant MPI_THREAD_SERIALIZED";
  } else if (service_ == nullptr) {
    why_not_ = "the preloaded library does not offer guards";
  } else if (!service_->install(&client_)) {
    why_not_ = "no handler of SIGSEGV can be installed, or the SMPI interface is in use";
  }
  if (why_not_ != nullptr && state_.host.world_rank == 0) {
    log(Level::kWarning, "overlap: collectives complete before they return: %s", why_not_);
  }
  if (!state_.terms.trace_text.empty()) {
    const QuietFloats quiet;
    std::string issue;
    orders_ = overlap::Orders::parse(state_.terms.trace_text, nullptr, issue);
  }
}

Overlap::~Overlap() = default;

bool Overlap::suits(const CollectiveCall& call, const Comm& comm) const {
  const CollectiveComm& own = *comm.collectives;
  if (!own.spans_nodes() || state_.settings.collective_shuffle != 0) return false;
  const auto least = static_cast<std::int64_t>(state_.settings.overlap_min_bytes);
  switch (call.collective) {
    case Collective::kBcast:
      return block_of(call) >= least;
    case Collective::kAllgather:
      return block_of(call) >= least;
    case Collective::kAlltoall:
      return !call.in_place && block_of(call) >= least;
    case Collective::kAllgatherv:
      return sum_of(call.recv_blocks, call.recv_type) >= least * comm.size;
    case Collective::kAlltoallv:
      return !call.in_place;  // nobody knows how much others send to each other
    default:
      return false;
  }
}

// At the first call that may return early.
bool Overlap::set_up() {
  if (is_set_up_ || why_not_ != nullptr) return why_not_ == nullptr;
  is_set_up_ = true;
  if (!agent_.start()) {
    why_not_ = "there is no thread to be had (see ulimit -u)";
  } else {
    process_ = getpid();
    on_exit([](int, void* self) { static_cast<Overlap*>(self)->at_exit(); }, this);
  }
  if (why_not_ != nullptr) {
    log(Level::kWarning, "overlap: collectives of rank %d complete before they return: %s",
        state_.host.world_rank, why_not_);
  }
  return why_not_ == nullptr;
}

// Whether what is received can be guarded and what is sent copied aside.
bool Overlap::fits(const CollectiveCall& call, const Comm& comm) const {
  switch (call.collective) {
    case Collective::kBcast:
      if (comm.rank == call.root) return block_of(call) <= kMostAsideBytes;
      return mapped_twice(*call.recv_type, call.recv, call.recv_count);
    case Collective::kAllgather:
    case Collective::kAlltoall:
      return block_of(call) * comm.size <= kMostAsideBytes &&
             mapped_twice(*call.recv_type, call.recv, call.recv_count * comm.size);
    default:
      break;
  }
  if (call.collective == Collective::kAlltoallv &&
      sum_of(call.send_blocks, call.send_type) > kMostAsideBytes) {
    return false;
  }
  for (const BlockPlace& block : call.recv_blocks) {
    void* const at = static_cast<char*>(call.recv) + block.offset_bytes;
    if (!mapped_twice(*call.recv_type, at, block.count)) return false;
  }
  return true;
}

overlap::Plan Overlap::plan(const CollectiveCall& call, const Comm& comm,
                            const overlap::Order& order) const {
  const coll::Nodes& nodes = comm.collectives->nodes();
  const auto size = static_cast<std::size_t>(comm.size);
  switch (call.collective) {
    case Collective::kBcast:
      return overlap::plan_broadcast(nodes, comm.rank, call.root, block_of(call), order);
    case Collective::kAllgather: {
      const std::vector<std::int64_t> bytes(size, block_of(call));
      return overlap::plan_allgather(nodes, comm.rank, bytes, false, call.in_place, order);
    }
    case Collective::kAllgatherv:
      return overlap::plan_allgather(nodes, comm.rank, bytes_of(call.recv_blocks, call.recv_type),
                                     true, call.in_place, order);
    case Collective::kAlltoall: {
      const std::vector<std::int64_t> bytes(size, block_of(call));
      return overlap::plan_alltoall(nodes, comm.rank, bytes, bytes, false, order);
    }
    default:
      return overlap::plan_alltoall(nodes, comm.rank, bytes_of(call.send_blocks, call.send_type),
                                    bytes_of(call.recv_blocks, call.recv_type), true, order);
  }
}

// Where the pieces of the output lie in the program's memory. With `watch` they are still to come.
bool Overlap::place_pages(CollectiveOp& op, const CollectiveCall& call, const Comm& comm,
                          bool watch) {
  if (!op.buffers().writes_in_place()) return false;
  std::vector<overlap::Pages::Piece> pieces;
  // The root of a broadcast sends from a copy.
  const bool writes = call.collective != Collective::kBcast || comm.rank != call.root;
  if (writes) {
    for (const overlap::Piece& piece : plan_.pieces) {
      const auto start = reinterpret_cast<std::uintptr_t>(op.buffers().address(piece.place));
      pieces.push_back({start, start + static_cast<std::uintptr_t>(piece.bytes), 0});
    }
    for (const std::int32_t piece : plan_.piece_of_step) {
      if (watch && piece >= 0) ++pieces[static_cast<std::size_t>(piece)].open_steps;
    }
  }
  placed_ = pieces.size();
  watched_ = writes && watch;
  return pages_.begin(pieces, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

int Overlap::serve(const CollectiveCall& call, Comm& comm, const coll::Decision& decision,
                   overlap::Automatic::Turn turn) {
  RankState& s = state_;
  agent_.claim();
  call_begins(call, comm, automatic(call, comm));
  // Of the collective before. This one is served all the same: other ranks take part in it.
  const int late_error = std::exchange(late_error_, kSuccess);
  CollectiveOp* op;
  bool early = false;
  bool traced = false;
  {
    Guard guard(s);
    const overlap::Order& order = order_of(call, comm);
    if (order.known()) ++s.counters.overlap_ordered;
    plan_ = plan(call, comm, order);
    watched_ = false;
    placed_ = 0;
    early = turn == overlap::Automatic::Turn::kOn && set_up() && fits(call, comm);
    traced = turn == overlap::Automatic::Turn::kTrace && why_not_ == nullptr && fits(call, comm);
    op = s.collectives.take();
    op->kept = std::make_unique<CollectiveCall>(call);
    CollectiveOp::Task task;
    task.call = op->kept.get();
    task.comm = &comm;
    task.decision = decision;
    task.context = Collectives::next_context(comm);
    task.first_tag = s.collectives.tags.blocking(comm.collectives->sequence);
    if (s.collectives.timed) task.bytes = message_bytes(call, comm.size, comm.rank);
    task.aside = early;
    int error = op->prepare(s.collectives, task);
    op->expect(first_messages(plan_));
    if (error == kSuccess) {
      early = early && place_pages(*op, call, comm, true);
      traced = traced && place_pages(*op, call, comm, false);
      watched_ = watched_ && early;
      if (watched_) {
        op->buffers().write_through(memory::shadow_of);
        op->watch(this);
      }
      error = s.collectives.start_with(
          *op, std::make_shared<const coll::Schedule>(std::move(plan_.schedule)));
    }
    if (error != kSuccess) {
      s.collectives.give_back(op);
      return error;
    }
    if (!op->done()) s.collectives.add_active(*op);
  }
  if (early) {
    wait_for(*op, true);
    if (!op->done() && take_off(*op)) return late_error;
  }
  wait_for(*op, false);
  Guard guard(s);
  if (turn == overlap::Automatic::Turn::kOn) ++s.counters.overlap_complete;
  const int error = op->error();
  call_.log_number = op->log_number();
  s.collectives.give_back(op);
  s.let_host_follow();
  call_returned();
  if (traced && error == kSuccess && !call_.guarded) watch_touches();
  return error != kSuccess ? error : late_error;
}

void Overlap::wait_for(CollectiveOp& op, bool early_only) {
  if (op.done()) return;
  Rank::WaitLoop loop(rank_, coll::info(op.task().call->collective).name, true, op);
  while (!op.done() && !(early_only && !(watched_ && pages_.early_open()))) loop.step();
}

// The call returns. False: it cannot.
bool Overlap::take_off(CollectiveOp& op) {
  RankState& s = state_;
  std::vector<memory::GuardPart>& parts = pages_.guarded(service_);
  if (!service_->begin(parts.data(), static_cast<std::uint32_t>(parts.size()), false)) {
    pages_.guarded(nullptr);
    return false;
  }
  ++s.counters.overlapped;
  flying_ = &op;
  took_off_ns_ = last_check_ns_ = now_ns();
  call_.awaits_return = false;
  call_.early = true;
  call_.returned_ns = took_off_ns_;
  call_.log_number = op.log_number();
  ++call_.record->early;
  waited_before_ns_ = waited_at_guards_ns();
  settling_since_ns_.store(0, std::memory_order_relaxed);
  s.let_host_follow();
  agent_.work();
  return true;
}

void Overlap::step_done(std::uint32_t step) {
  const std::int32_t piece = plan_.piece_of_step[step];
  if (piece >= 0) pages_.step_done(static_cast<std::uint32_t>(piece));
}

void Overlap::agent_starts() { service_->exempt_thread(); }

bool Overlap::agent_round(bool* moved) {
  if (flying_ == nullptr) return false;
  constexpr int kRounds = 8;
  for (int i = 0; i < kRounds && !flying_->done(); ++i) {
    if (!state_.progress()) break;
    *moved = true;
  }
  if (flying_->done()) {
    land();
    return false;
  }
  const std::uint64_t now = now_ns();
  // As in a wait: what ranks of the node may be waiting for.
  if (state_.transport->has_unfinished_sends()) state_.transport->relieve_stalled(now);
  state_.transport->publish_consumed();
  if (now - last_check_ns_ >= static_cast<std::uint64_t>(state_.settings.peer_check_ns)) {
    last_check_ns_ = now;
    check_peers(state_, nullptr);
  }
  return true;
}

std::uint64_t Overlap::waited_at_guards_ns() const {
  memory::GuardUsage usage;
  service_->usage(&usage);
  return usage.wait_ns;
}

// Whoever has the rank.
void Overlap::land() {
  CollectiveOp* const op = std::exchange(flying_, nullptr);
  // What the program has not waited for, at pages or in its next call.
  const std::uint64_t settling = settling_since_ns_.load(std::memory_order_relaxed);
  const std::uint64_t flown_ns = (settling != 0 ? settling : now_ns()) - took_off_ns_;
  const std::uint64_t waited_ns = waited_at_guards_ns() - waited_before_ns_;
  if (flown_ns > waited_ns) {
    state_.counters.overlap_hidden_ns += flown_ns - waited_ns;
    call_.record->hidden_ns += flown_ns - waited_ns;
  }
  call_.record->waited_ns += waited_ns;
  call_.landed_ns = now_ns();
  late_error_ = op->error();
  if (late_error_ != kSuccess) {
    log(Level::kError, "overlap: %s has failed after its call returned; the next one says so",
        coll::info(op->task().call->collective).name);
  }
  state_.collectives.give_back(op);
  service_->end(false);
}

// The agent completes it: this thread may be interrupted by a handler that waits at a page.
void Overlap::settle(bool abandon) {
  bool waited = false;
  settling_since_ns_.store(now_ns(), std::memory_order_relaxed);
  while (!abandon && !agent_.wait_until_idle()) waited = true;
  agent_.claim();
  if (waited) ++state_.counters.overlap_settled;
  if (flying_ != nullptr) {
    flying_ = nullptr;
    why_not_ = "the program has abandoned it";
    service_->end(true);
    call_ = {};
    return;
  }
  if (std::exchange(call_.guarded, false)) service_->end(abandon);
  if (call_.record != nullptr && call_.returned_ns != 0) call_ends(now_ns());
  call_ = {};
}

// The process ends without MPI_Finalize. Others may still wait for what this rank has promised.
void Overlap::at_exit() {
  if (getpid() != process_) return;
  agent_.claim();
  if (flying_ == nullptr) return;
  const std::uint64_t until_ns = now_ns() + kFarewellNs;
  while (!flying_->done() && now_ns() < until_ns) {
    if (!state_.progress()) usleep(kFarewellTickUs);
  }
  settle(true);
}

void Overlap::finish() {
  settle(false);
  agent_.stop();
  if (service_ == nullptr) return;
  memory::GuardUsage usage;
  service_->usage(&usage);
  state_.counters.overlap_faults = usage.faults;
  state_.counters.overlap_wait_ns = usage.wait_ns;
  state_.counters.overlap_system_calls = usage.settled;
}

}  // namespace od
