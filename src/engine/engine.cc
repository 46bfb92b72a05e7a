// Sending, receiving, completion: the interface of engine.h over matching and transport.

#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "engine/pending_work.h"
#include "engine/rank_state.h"
#include "observe/log.h"

namespace od {

using host::kSuccess;
using p2p::header_for;
using p2p::MessageHeader;
using p2p::prepare;
using p2p::Unexpected;

Rank::Rank(std::unique_ptr<RankState> state) : state_(std::move(state)) {}
Rank::~Rank() = default;

bool Rank::active() const { return state_->sharing || state_->collectives.enabled; }
const host::HostTable& Rank::host() const { return state_->host; }
const config::Settings& Rank::settings() const { return state_->settings; }

namespace {

// A persistent request that has not been started.
int make_persistent(RankState& s, RequestKind kind, const void* buf, std::int64_t count,
                    const p2p::LayoutRef& layout, int peer, int tag, Comm& comm, Request** out) {
  Request* request = s.requests.allocate();
  if (request == nullptr) return s.host.err_no_mem;
  prepare(*request, kind, buf, count, layout, peer, tag, comm);
  request->persistent = true;
  request->active = false;
  ++comm.references;
  *out = request;
  return kSuccess;
}

// The fast path of a standard send: a small contiguous message that fits the peer's box now. False:
// nothing has happened, the send takes the way of all others. A blocking and a non-blocking send
// both begin with it, so it becomes part of each.
[[gnu::always_inline]] inline bool try_send_inline(RankState& s, const void* buf,
                                                   std::int64_t count, const p2p::LayoutRef& layout,
                                                   int dest, int tag, const Comm& comm,
                                                   SendMode mode) {
  const auto index = static_cast<std::uint32_t>(comm.local_index[static_cast<std::size_t>(dest)]);
  char* start = nullptr;
  if (mode != SendMode::standard || index == s.my_index || s.settings.verify ||
      !p2p::is_contiguous(*layout, buf, count, &start)) [[unlikely]] {
    return false;
  }
  const std::int64_t bytes = count * layout->size;
  if (bytes > static_cast<std::int64_t>(s.settings.inline_max_bytes)) return false;
  MessageHeader header = header_for(comm, tag);
  header.kind = p2p::Kind::inline_data;
  return s.transport->try_send_inline(index, header, start, static_cast<std::uint32_t>(bytes));
}

}  // namespace

// --- sending -------------------------------------------------------------------------------------

int Rank::send(const void* buf, std::int64_t count, const p2p::LayoutRef& layout, int dest, int tag,
               Comm& comm, SendMode mode) {
  RankState& s = *state_;
  Request request;
  {
    Guard guard(s);
    if (try_send_inline(s, buf, count, layout, dest, tag, comm, mode)) [[likely]]
      return kSuccess;
    prepare(request, RequestKind::send, buf, count, layout, dest, tag, comm);
    request.mode = mode;
    request.blocking = true;
    const int error = s.start_send(request);
    if (error != kSuccess) return error;
    if (request.complete) return kSuccess;
  }
  wait(request);
  return kSuccess;
}

int Rank::isend(const void* buf, std::int64_t count, const p2p::LayoutRef& layout, int dest,
                int tag, Comm& comm, SendMode mode, Request** out) {
  RankState& s = *state_;
  Guard guard(s);
  if (try_send_inline(s, buf, count, layout, dest, tag, comm, mode)) [[likely]] {
    *out = s.requests.completed_send();
    return kSuccess;
  }
  Request* request = s.requests.allocate();
  if (request == nullptr) return s.host.err_no_mem;
  prepare(*request, RequestKind::send, buf, count, layout, dest, tag, comm);
  request->mode = mode;
  const int error = s.start_send(*request);
  if (error != kSuccess) {
    s.requests.release(*request);
    return error;
  }
  if (request->complete) {
    s.requests.release(*request);
    request = s.requests.completed_send();
  } else {
    ++comm.references;
  }
  *out = request;
  return kSuccess;
}

int Rank::send_init(const void* buf, std::int64_t count, const p2p::LayoutRef& layout, int dest,
                    int tag, Comm& comm, SendMode mode, Request** out) {
  Guard guard(*state_);
  const int error =
      make_persistent(*state_, RequestKind::send, buf, count, layout, dest, tag, comm, out);
  if (error == kSuccess) (*out)->mode = mode;
  return error;
}

// --- receiving -----------------------------------------------------------------------------------

int RankState::start_receive(Request& request) {
  Comm& comm = *request.comm;
  request.status = host::Status{};
  if (request.peer == host::kAnySource) ++counters.wildcard_receives;
  if (comm.lent != 0) [[unlikely]]
    settle_lent();
  // What has arrived in a held context may belong to an older receive.
  const bool held = matching.held(request.context);
  while (Unexpected* message =
             held ? nullptr
                  : matching.find_unexpected(request.context, request.peer, request.tag)) {
    matching.remove_unexpected(*message);
    if (message->from == Unexpected::Source::host) return receive_from_host(*message, request);
    ++counters.matched_unexpected;
    if (transport->deliver_unexpected(*message, request)) return kSuccess;
  }
  matching.post(request);
  if (host_may_serve(comm, request.peer)) [[unlikely]]
    matching.add_host_candidate(request);
  return kSuccess;
}

int Rank::recv(void* buf, std::int64_t count, const p2p::LayoutRef& layout, int source, int tag,
               Comm& comm, host::Status* status) {
  RankState& s = *state_;
  Request request;
  {
    Guard guard(s);
    prepare(request, RequestKind::recv, buf, count, layout, source, tag, comm);
    request.blocking = true;
    const int error = s.start_receive(request);
    if (error != kSuccess) return error;
  }
  if (!request.complete) wait(request);
  *status = request.status;
  return request.status.error;
}

int Rank::irecv(void* buf, std::int64_t count, const p2p::LayoutRef& layout, int source, int tag,
                Comm& comm, Request** out) {
  RankState& s = *state_;
  Guard guard(s);
  Request* request = s.requests.allocate();
  if (request == nullptr) return s.host.err_no_mem;
  prepare(*request, RequestKind::recv, buf, count, layout, source, tag, comm);
  ++comm.references;
  const int error = s.start_receive(*request);
  if (error != kSuccess) {
    --comm.references;
    s.requests.release(*request);
    return error;
  }
  *out = request;
  return kSuccess;
}

int Rank::recv_init(void* buf, std::int64_t count, const p2p::LayoutRef& layout, int source,
                    int tag, Comm& comm, Request** out) {
  Guard guard(*state_);
  const int error =
      make_persistent(*state_, RequestKind::recv, buf, count, layout, source, tag, comm, out);
  if (error == kSuccess && RankState::host_may_serve(comm, source)) ++comm.host_persistent;
  return error;
}

int Rank::null_init(RequestKind kind, Request** out) {
  RankState& s = *state_;
  Guard guard(s);
  Request* request = s.requests.allocate();
  if (request == nullptr) return s.host.err_no_mem;
  // A receive from MPI_PROC_NULL reports that source; a send's status says nothing.
  request->kind = RequestKind::null_op;
  request->peer = kind == RequestKind::recv ? host::kProcNull : host::kAnySource;
  request->persistent = true;
  *out = request;
  return kSuccess;
}

int Rank::start(Request& request) {
  RankState& s = *state_;
  Guard guard(s);
  s.requests.at_rest().disturb();
  request.active = true;
  request.complete = false;
  request.cancel_requested = false;
  switch (request.kind) {
    case RequestKind::send:
      return s.start_send(request);
    case RequestKind::recv:
      return s.start_receive(request);
    case RequestKind::collective:
      return s.collectives.restart(request);
    default:
      request.status = host::Status{};
      request.status.source = request.peer;
      request.complete = true;
      return kSuccess;
  }
}

// --- completion ----------------------------------------------------------------------------------

bool RankState::progress() {
  bool moved = transport->progress();
  // Neither side starves: the host has its turn whatever arrives locally.
  const bool messages = host_traffic_pending();
  const bool host_turn = (messages || collectives.waits_for_host()) && drive.due_for_messages();
  if (collectives.waits_for_host()) [[unlikely]] {
    moved |= host_turn ? drive.ask([this] { return collectives.advance(false); })
                       : collectives.advance(true);
  } else if (!collectives.active.empty()) {
    moved |= collectives.advance(false);
  }
  if (!orphans.empty()) [[unlikely]]
    release_finished_orphans();
  if (messages && host_turn) [[unlikely]]
    moved |= drive.ask([this] { return poll_host(); });
  if (moved) empty_polls.reset();
  return moved;
}

bool Rank::progress() {
  RankState& s = *state_;
  Guard guard(s);
  return s.progress();
}

namespace {

// The MPI call that waits, for reports.
const char* call_of(const Request& request) {
  if (!request.blocking) return "MPI_Wait";
  if (request.kind == RequestKind::recv) return "MPI_Recv";
  return request.mode == SendMode::synchronous ? "MPI_Ssend" : "MPI_Send";
}

}  // namespace

void Rank::wait(Request& request) {
  if (request.complete) return;
  WaitLoop loop(*this, call_of(request), false, &request);
  while (!request.complete) loop.step();
}

bool Rank::test(Request& request) {
  RankState& s = *state_;
  Guard guard(s);
  if (request.complete) return true;
  s.progress();
  return request.complete;
}

void RankState::finish_orphan(Request& request) {
  Comm* comm = request.comm;
  if (request.persistent && request.kind == RequestKind::recv &&
      host_may_serve(*comm, request.peer)) {
    --comm->host_persistent;
  }
  if (request.collective != nullptr) {
    if (request.persistent && comm->collectives->spans_nodes()) {
      --comm->collectives->persistent_left;
    }
    collectives.give_back(request.collective);
  }
  requests.release(request);
  if (comm == nullptr) return;
  --comm->references;
  if (comm->freed) [[unlikely]]
    drop_if_unused(*comm);
}

void RankState::release_finished_orphans() {
  // Some in turn: with thousands that stay, a look at all would cost every call more than itself.
  constexpr std::size_t kLooks = 64;
  for (std::size_t looks = std::min(kLooks, orphans.size()); looks != 0; --looks) {
    if (orphan_turn >= orphans.size()) orphan_turn = 0;
    Request* const orphan = orphans[orphan_turn];
    if (!orphan->complete) {
      ++orphan_turn;
      continue;
    }
    orphans[orphan_turn] = orphans.back();
    orphans.pop_back();
    finish_orphan(*orphan);
  }
}

void Rank::release(Request& request) {
  if (RequestSlab::shared(request.index)) return;
  RankState& s = *state_;
  Guard guard(s);
  if (request.persistent) {
    request.active = false;
    request.complete = false;
    return;
  }
  s.finish_orphan(request);
}

void Rank::free_request(Request& request) {
  if (RequestSlab::shared(request.index)) return;
  RankState& s = *state_;
  Guard guard(s);
  if (!request.active || request.complete) {
    s.finish_orphan(request);
    return;
  }
  request.orphan = true;
  s.orphans.push_back(&request);
}

namespace {

// A synchronous send to oneself that no receive has matched.
bool take_back_own(p2p::Matching& matching, const Request& request) {
  if (request.outgoing != nullptr) return false;
  for (Unexpected* message : matching.unexpected_in(request.context)) {
    if (message->synchronous_sender != &request) continue;
    matching.remove_unexpected(*message);
    matching.free_unexpected(*message);
    return true;
  }
  return false;
}

}  // namespace

void Rank::cancel(Request& request) {
  if (RequestSlab::shared(request.index)) return;
  RankState& s = *state_;
  Guard guard(s);
  if (request.complete || !request.active) return;
  request.cancel_requested = true;
  if (request.kind == RequestKind::recv) {
    if (request.host_request != 0) {
      s.host.cancel(&request.host_request);
      return;
    }
    if (request.lent) return;                 // recalled: settle() tells
    if (request.incoming != nullptr) return;  // matched: it will be received
    s.matching.unpost(request);
  } else if (request.kind == RequestKind::send) {
    if (!s.transport->cancel(request) && !take_back_own(s.matching, request)) return;
  } else {
    return;
  }
  ++s.counters.cancels;
  request.status = host::Status{};
  request.status.cancelled = true;
  request.complete = true;
}

Request* Rank::request_at(std::uint32_t index) { return state_->requests.at(index); }
std::uint32_t Rank::request_capacity() const { return RequestSlab::kCapacity; }

// --- around the host -----------------------------------------------------------------------------

bool Rank::entering_host_call() {
  RankState& s = *state_;
  {
    Guard guard(s);
    s.transport->progress();
    s.transport->flush();
    if (!s.host_threads) s.lend_receives();
    if (s.lent_receives.empty() &&
        (!s.settings.host_call_progress ||
         (s.matching.posted_count() == 0 && !s.transport->streams_active() &&
          s.collectives.active.empty() && !s.host_traffic_pending()))) {
      return false;
    }
  }
  const bool helped = s.settings.host_call_progress && s.helper.open();
  if (s.threads) return helped;
  s.helper_at_work = helped;
  return true;
}

void Rank::left_host_call() {
  RankState& s = *state_;
  if (s.threads || s.helper_at_work) s.helper.close();
  if (s.threads) return;
  s.helper_at_work = false;
  if (s.transport->has_deferred()) s.transport->unpack_deferred();
  if (!s.lent_receives.empty()) s.recall_receives();
}

void Rank::hand_over_receives() {
  Guard guard(*state_);
  state_->hand_over_receives();
}

Rank::HostVisit::HostVisit(Rank& rank, const Comm* waits_for)
    : rank_(rank),
      looked_after_(rank.has_pending_work() && rank.entering_host_call()),
      watched_(waits_for != nullptr && rank.state_->watch(*waits_for) ? waits_for : nullptr) {}
Rank::HostVisit::~HostVisit() {
  if (watched_ != nullptr) rank_.state_->helper.close(watched_);
  if (looked_after_) rank_.left_host_call();
}

bool RankState::watch(const Comm& comm) {
  const auto here = [&](int world_rank) {
    return world_rank != host.world_rank && node->index_of(world_rank) >= 0;
  };
  return settings.host_call_progress &&
         std::any_of(comm.world_rank.begin(), comm.world_rank.end(), here) && helper.open(&comm);
}

bool Rank::comes_to_rest() {
  RankState& s = *state_;
  Guard guard(s);
  if (work_pending(s)) return false;
  s.requests.at_rest().settle();
  return true;
}

void Rank::stays_awake() {
  Guard guard(*state_);
  state_->requests.at_rest().stay_awake();
}

void Rank::rest_in(std::atomic<bool>& word) {
  Guard guard(*state_);
  state_->requests.at_rest().live_in(word);
}

bool Rank::has_pending_work() const {
  RankState& s = *state_;
  Guard guard(s);
  return work_pending(s);
}

}  // namespace od
