// Collective calls of the library's own, by which the ranks of a communicator agree on something
// beside the program's calls. They are never the host's: where only that could do it, all ranks
// find so alike.

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "coll/run/buffers.h"
#include "coll/run/rivals.h"
#include "coll/run/trial.h"
#include "engine/engine.h"
#include "engine/rank_state.h"
#include "observe/log.h"

namespace od {

using host::kSuccess;

namespace {

// What each way took, so that a choice can be understood.
void tell_verdict(const Contest& contest, const Comm& comm) {
  const auto name = [&](int way) {
    const coll::Decision& decision = contest.decision(way);
    std::string text = decision.algorithm->name;
    if (decision.algorithm->is_host()) return text;
    text += std::string("/") + coll::mode_name(decision.mode);
    // The usual algorithm may take part twice.
    const std::int64_t segment = decision.parameters.segment_bytes;
    if (segment != 0 && segment != decision.algorithm->defaults.segment_bytes) {
      text += " (segments of " + std::to_string(segment) + " bytes)";
    }
    return text;
  };
  std::string times;
  for (int way = 0; way < contest.ways(); ++way) {
    if (contest.ns_of(way) == 0) continue;
    char text[64];
    std::snprintf(text, sizeof(text), " %.1f us", contest.ns_of(way) / comm.size / 1e3);
    times += name(way) + text;
    if (contest.ns_after(way) != 0) {
      std::snprintf(text, sizeof(text), " (and %.1f in what follows)",
                    contest.ns_after(way) / comm.size / 1e3);
      times += text;
    }
    times += ", ";
  }
  log(Level::kDebug, "%s of %llu to %llu bytes, %d ranks on %d nodes: %sso %s serves it",
      contest.compared.name.c_str(), static_cast<unsigned long long>(contest.compared.least_bytes),
      static_cast<unsigned long long>(contest.compared.most_bytes), comm.size,
      comm.collectives->layout().nodes, times.c_str(), name(contest.winner()).c_str());
}

}  // namespace

// *served is false where only the host could do it, unless `otherwise` names an algorithm for that
// case.
int Rank::own_collective(const CollectiveCall& call, std::uint64_t bytes, Comm& comm, bool* served,
                         const char* otherwise) {
  *served = false;
  const coll::Selection& selection = state_->collectives.selection;
  const coll::Layout& layout = comm.collectives->layout();
  coll::Decision decision = selection.own_choice(call.collective, layout, true, bytes);
  if (decision.algorithm->is_host()) {
    if (otherwise == nullptr) return kSuccess;
    decision = selection.complete(*coll::find_algorithm(call.collective, otherwise),
                                  coll::Mode::kFlat, {}, layout, true);
  }
  return serve_collective(call, comm, served, nullptr, &decision);
}

p2p::LayoutRef Rank::layout_of_number() {
  static const p2p::LayoutRef layout = [] {
    auto* made = new p2p::Layout;
    made->size = made->extent = made->block_bytes = sizeof(std::int64_t);
    made->immortal = true;
    return p2p::LayoutRef(made);
  }();
  return layout;
}

// What all ranks have, put together in place.
int Rank::own_reduce(coll::ops::Op op, std::span<std::int64_t> values, Comm& comm, bool* served) {
  CollectiveCall call;
  call.internal = true;
  call.collective = coll::Collective::kAllreduce;
  call.in_place = true;
  call.recv = values.data();
  call.recv_count = static_cast<std::int64_t>(values.size());
  call.recv_type = layout_of_number();
  call.reduction.kernel = coll::ops::find_kernel(op, coll::ops::Kind::int64);
  return own_collective(call, values.size_bytes(), comm, served);
}

// The smallest value of all ranks; where the call cannot be done, 0.
int Rank::own_minimum(std::int64_t& value, Comm& comm) {
  bool served = false;
  const int error = own_reduce(coll::ops::Op::min, {&value, 1}, comm, &served);
  if (error != kSuccess || !served) value = 0;
  return error;
}

// `bytes` of each rank, in their order.
int Rank::own_gather(const void* mine, std::uint64_t bytes, void* all, Comm& comm, bool* served,
                     const char* otherwise) {
  CollectiveCall call;
  call.internal = true;
  call.collective = coll::Collective::kAllgather;
  call.send = mine;
  call.recv = all;
  call.send_type = call.recv_type = CollectiveBuffers::byte_layout();
  call.send_count = call.recv_count = static_cast<std::int64_t>(bytes);
  return own_collective(call, bytes, comm, served, otherwise);
}

// Adds up what the ranks have measured.
int Rank::judge_together(Contest& trial, Comm& comm) {
  RankState& s = *state_;
  bool served = false;
  const int error = own_reduce(coll::ops::Op::sum, trial.samples(), comm, &served);
  const int before = trial.winner();
  if (error != kSuccess || !served) {
    trial.give_up();
    return error;
  }
  if (begins_anew(trial, s.collectives.selection, comm.collectives->layout())) {
    Guard guard(s);
    ++s.counters.trials_anew;
    return kSuccess;
  }
  if (!trial.judge()) return kSuccess;
  const int now = trial.winner();
  const bool changed = now != Trial::kOwn && now != before;
  {
    Guard guard(s);
    if (trial.rival() == Trial::Rival::first_arrival) {
      ++s.counters.arrival_trials;
      if (changed) ++s.counters.arrival_chosen;
    } else {
      ++s.counters.trials;
      if (changed) {
        const bool to_host = trial.decision(now).algorithm->is_host();
        ++(to_host ? s.counters.trials_to_host : s.counters.trials_to_other);
      }
    }
  }
  if (comm.rank == 0 && log_enabled(Level::kDebug)) tell_verdict(trial, comm);
  if (const int renewed =
          renew_rivals(trial, s.collectives.selection, comm.collectives->layout())) {
    Guard guard(s);
    s.counters.trials_renewed += static_cast<std::uint64_t>(renewed);
  }
  if (trial.arrivals != nullptr && !trial.arrivals->habit.started()) {
    return agree_on_arrivals(*trial.arrivals, comm);
  }
  return trial.later != nullptr ? agree_on_later_calls(trial, comm) : kSuccess;
}

}  // namespace od
