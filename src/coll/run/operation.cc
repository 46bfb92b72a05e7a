// Runs the schedule of one collective.

#include "coll/run/operation.h"

#include <utility>

#include "base/clock.h"
#include "coll/run/collectives.h"
#include "coll/run/first_arrival.h"
#include "coll/run/first_scatter.h"
#include "coll/run/first_scatterv.h"
#include "coll/run/last_arrival.h"
#include "coll/run/last_gatherv.h"
#include "coll/run/relay_gather.h"

namespace od {

using coll::Step;
using coll::StepKind;
using host::kSuccess;

int CollectiveOp::prepare(Collectives& owner, const Task& task) {
  owner_ = &owner;
  task_ = task;
  way_ = {};
  watcher_ = nullptr;
  team_ = nullptr;
  channel_ = nullptr;
  whole_ = false;
  entered = false;
  arrival_.reset();
  firsts_ = {};
  works_used_ = 0;
  error_ = kSuccess;
  done_ = false;
  // Statistics and records are about collectives of all ranks.
  const bool kept_book = task.call->neighbours == nullptr;
  started_ns_ = owner.timed && kept_book ? now_ns() : 0;
  log_ = kept_book ? owner.step_log.get() : nullptr;
  return buffers_.begin(owner.endpoint.host, *task.call, task.comm->size, task.comm->rank,
                        task.aside);
}

int CollectiveOp::begin(const Way& way, std::shared_ptr<const coll::Schedule> schedule,
                        std::int64_t units_per_unit, CollectiveTeam* team) {
  way_ = way;
  team_ = team;
  served_elsewhere_ = false;
  const CollectiveComm& own = *task_.comm->collectives;
  // Leaders are one rank of a node each, and do one operation of a group at a time.
  const bool by_leaders =
      task_.decision.mode == coll::Mode::kHierarchical || own.nodes().most_per_node() == 1;
  InNetwork* const group = request == nullptr ? own.in_network.get()
                           : switched_later   ? own.in_network_later.get()
                                              : nullptr;
  outside_ = by_leaders && group != nullptr && group->leads() ? group : nullptr;
  schedule_ = std::move(schedule);
  const int error = buffers_.begin_scratch(schedule_->scratch_units, units_per_unit);
  if (error != kSuccess) return error;
  run_.begin(*schedule_);
  if (log_ != nullptr) [[unlikely]]
    begin_log(*log_);
  return kSuccess;
}

void CollectiveOp::begin_whole(CollectiveTeam& team) {
  team_ = &team;
  whole_ = true;
  TeamWork& work = *take_work();
  start_whole(team.team(), work, *task_.call, buffers_, reduction_form(*task_.decision.algorithm));
  if (started_ns_ != 0) team.team().note_arrival(work.operation, started_ns_);
  if (log_ != nullptr) [[unlikely]]
    begin_log(*log_);
}

void CollectiveOp::begin_arrival(ArrivalComm& shared) {
  team_ = nullptr;
  way_.host_comm = shared.host_comm();
  const CollectiveCall& call = *task_.call;
  const auto bytes =
      static_cast<std::int64_t>(message_bytes(call, task_.comm->size, task_.comm->rank));
  if (call.collective == coll::Collective::kBcast) {
    arrival_ = std::make_unique<FirstArrival>(shared, call.root,
                                              buffers_.address({0, 0, coll::Buffer::kOutput}),
                                              bytes, task_.decision.parameters.segment_bytes);
  } else if (call.collective == coll::Collective::kScatter) {
    arrival_ = std::make_unique<FirstScatter>(shared, call, buffers_, bytes);
  } else if (call.collective == coll::Collective::kScatterv) {
    arrival_ = std::make_unique<FirstScatterv>(shared, call, buffers_);
  } else if (call.collective == coll::Collective::kGatherv) {
    arrival_ = std::make_unique<LastGatherv>(shared, call, buffers_);
  } else if (call.collective == coll::Collective::kGather) {
    arrival_ = std::make_unique<RelayGather>(shared, call, buffers_, bytes);
  } else {
    arrival_ = std::make_unique<LastArrival>(shared, call, buffers_, bytes);
  }
  if (log_ != nullptr) [[unlikely]]
    begin_log(*log_);
}

TeamWork* CollectiveOp::take_work() {
  if (works_used_ == works_.size()) works_.push_back(std::make_unique<TeamWork>());
  return works_[works_used_++].get();
}

void CollectiveOp::launch() {
  const int error = owner_->launch(*this, team_);
  if (error != kSuccess) fail(error);
}

bool CollectiveOp::advance(bool without_host) {
  const bool moved = team_ != nullptr && team_->advance();
  return settle(without_host) || moved;
}

bool CollectiveOp::settle(bool without_host) {
  if (done_ || waits_for_channel() || waits_for_team()) return false;
  if (whole_) {
    if (!works_[0]->operation.done() || (without_host && buffers_.unpacks_in_host())) return false;
    if (!works_[0]->operation.lengths_agree()) note(owner_->endpoint.host.err_truncate);
    finish();
    return true;
  }
  if (arrival_ != nullptr) {
    const bool moved = arrival_->step();
    if (!arrival_->done() || (without_host && buffers_.unpacks_in_host())) return moved;
    note(arrival_->error());
    finish();
    return true;
  }
  bool moved = false;
  test_in_host();
  for (std::size_t i = 0; i < pending_.size();) {
    if (!finished(pending_[i])) {
      ++i;
      continue;
    }
    if (pending_[i].step != kNoStep) complete(pending_[i].step);
    pending_[i] = pending_.back();
    pending_.pop_back();
    moved = true;
  }
  std::uint32_t step;
  while (run_.take(step)) {
    moved = true;
    start(step);
  }
  if (run_.done() && pending_.empty() && !(without_host && buffers_.unpacks_in_host())) finish();
  return moved;
}

void CollectiveOp::start(std::uint32_t index) {
  const Step& step = schedule_->steps[index];
  if (step.otherwise && served_elsewhere_) {
    run_.complete(index);
    return;
  }
  if (log_ != nullptr) [[unlikely]]
    begun_ns_[index] = now_ns();
  switch (step.kind) {
    case StepKind::kSend:
    case StepKind::kReceive:
      start_message(index);
      return;
    case StepKind::kCopy: {
      std::int64_t units = buffers_.units(step.count, step.source);
      const std::int64_t room = buffers_.units(step.count, step.target);
      if (units > room) [[unlikely]] {  // of a rank that does not agree with itself
        note(owner_->endpoint.host.err_truncate);
        units = room;
      }
      note(buffers_.copy(buffers_.address(step.target), buffers_.address(step.source), units));
      break;
    }
    case StepKind::kReduce:
      note(buffers_.reduce(buffers_.address(step.target), buffers_.address(step.source),
                           buffers_.address(step.right), buffers_.units(step.count, step.source)));
      break;
    case StepKind::kNode: {
      TeamWork* const work = take_work();
      start_node_step(team_->team(), *work, step, *task_.call, buffers_,
                      reduction_form(*task_.decision.algorithm));
      pending_.push_back({nullptr, 0, work, index});
      return;
    }
    case StepKind::kElsewhere:
      start_elsewhere(index);
      return;
    case StepKind::kJoin:
      break;
  }
  complete(index);
}

void CollectiveOp::start_elsewhere(std::uint32_t index) {
  const Step& step = schedule_->steps[index];
  const coll::Place& place =
      coll::elsewhere_work(step) == coll::Elsewhere::kTake ? step.target : step.source;
  const std::int64_t units = step.count == 0 ? 0 : buffers_.units(step.count, place);
  const auto address = [&](const coll::Place& of) {
    return step.count == 0 ? nullptr : buffers_.address(of);
  };
  if (outside_ != nullptr && outside_->start(step, *task_.call, static_cast<std::size_t>(units),
                                             static_cast<std::size_t>(buffers_.unit_bytes()),
                                             address(step.source), address(step.target))) {
    pending_.push_back({nullptr, 0, nullptr, index});
  } else {
    complete(index);
  }
}

void CollectiveOp::start_message(std::uint32_t index) {
  const Step& step = schedule_->steps[index];
  const coll::Place& place = step.kind == StepKind::kSend ? step.source : step.target;
  // Messages without content are steps as well; but of a block that turns out to be empty neither
  // side sends or expects anything.
  const std::int64_t units = step.count == 0 ? 0 : buffers_.units(step.count, place);
  if (step.count == coll::kWholeBlock && units == 0) {
    complete(index);
    return;
  }
  char* const address = step.count == 0 ? nullptr : buffers_.address(place);
  if (!task_.comm->ours(step.peer)) {
    start_in_host(index, address, units);
  } else if (step.kind == StepKind::kSend) {
    send(index, address, units);
  } else {
    receive(index, address, units);
  }
}

void CollectiveOp::start_in_host(std::uint32_t index, char* address, std::int64_t units) {
  const host::HostTable& host = owner_->endpoint.host;
  const Step& step = schedule_->steps[index];
  const std::int64_t bytes = room_bytes(index, units * buffers_.unit_bytes());
  const std::int32_t tag = tag_of(step.ordinal);
  host::Handle started = 0;
  note(step.kind == StepKind::kSend
           ? host.isend(address, bytes, host.byte_type, step.peer, tag, way_.host_comm, &started)
           : host.irecv(address, bytes, host.byte_type, step.peer, tag, way_.host_comm, &started));
  if (started == 0) {
    complete(index);
  } else {
    pending_.push_back({nullptr, started, nullptr, index});
  }
}

void CollectiveOp::send(std::uint32_t index, char* address, std::int64_t units) {
  p2p::Endpoint& s = owner_->endpoint;
  const Step& step = schedule_->steps[index];
  const Comm& comm = *task_.comm;
  const std::int64_t bytes = units * buffers_.unit_bytes();
  const auto node_index =
      static_cast<std::uint32_t>(comm.local_index[static_cast<std::size_t>(step.peer)]);
  p2p::MessageHeader header;
  header.context = task_.context;
  header.tag = static_cast<std::int32_t>(step.ordinal);
  header.source = static_cast<std::uint32_t>(comm.rank);
  if (!s.settings.verify && bytes <= static_cast<std::int64_t>(s.settings.inline_max_bytes)) {
    header.kind = p2p::Kind::inline_data;
    if (s.transport->try_send_inline(node_index, header, address,
                                     static_cast<std::uint32_t>(bytes))) {
      complete(index);
      return;
    }
  }
  Request* const message = new_message(RequestKind::send, index, address, units);
  if (message == nullptr) return;
  const int error = s.transport->send(
      node_index, header, p2p::make_payload(address, bytes, CollectiveBuffers::byte_layout()),
      SendMode::standard, *message);
  note(error);
  if (message->complete || error != kSuccess) {
    s.requests.release(*message);
    complete(index);
  } else {
    pending_.push_back({message, 0, nullptr, index});
  }
}

void CollectiveOp::receive(std::uint32_t index, char* address, std::int64_t units) {
  Request* const message = new_message(RequestKind::recv, index, address, units);
  if (message == nullptr) return;
  owner_->endpoint.start_local_receive(*message);
  pending_.push_back({message, 0, nullptr, index});
  // What a first message says is followed when all that was expected has been started.
  if (message->complete && firsts_.of.empty() && finished(pending_.back())) {
    pending_.pop_back();
    complete(index);
  }
}

Request* CollectiveOp::new_message(RequestKind kind, std::uint32_t index, char* address,
                                   std::int64_t units) {
  const Step& step = schedule_->steps[index];
  Request* const message = owner_->endpoint.internal_message(
      kind, *task_.comm, task_.context, step.peer, static_cast<int>(step.ordinal), address,
      room_bytes(index, units * buffers_.unit_bytes()), CollectiveBuffers::byte_layout());
  if (message == nullptr) {
    note(owner_->endpoint.host.err_no_mem);
    complete(index);
  }
  return message;
}

// Asks the host once for all that it has, because each question makes it look at all connections.
void CollectiveOp::test_in_host() {
  if (way_.host_comm == 0) return;
  const host::HostTable& host = owner_->endpoint.host;
  constexpr std::size_t kMost = host::HostTable::kMostTested;
  host::Handle requests[kMost];
  std::size_t places[kMost];
  int which[kMost];
  host::Status statuses[kMost];
  for (std::size_t next = 0; next < pending_.size();) {
    std::size_t count = 0;
    for (; next < pending_.size() && count < kMost; ++next) {
      if (!pending_[next].is_hosts()) continue;
      places[count] = next;
      requests[count++] = pending_[next].host_request;
    }
    if (count == 0) return;
    int done = 0;
    host.test_some(static_cast<int>(count), requests, &done, which, statuses);
    for (int i = 0; i < done; ++i) {
      Pending& pending = pending_[places[which[i]]];
      pending.host_request = 0;
      pending.over = true;
      pending.status = statuses[i];
    }
  }
}

// Whether a message has arrived or left; notes what went wrong with it.
bool CollectiveOp::finished(Pending& pending) {
  if (pending.work != nullptr) {
    if (!pending.work->operation.done()) return false;
    if (!pending.work->operation.lengths_agree()) note(owner_->endpoint.host.err_truncate);
    return true;
  }
  p2p::Endpoint& s = owner_->endpoint;
  if (pending.step == kNoStep) [[unlikely]] {
    if (pending.request == nullptr) return pending.over;
    if (!pending.request->complete) return false;
    s.requests.release(*pending.request);
    return true;
  }
  const Step& step = schedule_->steps[pending.step];
  if (step.kind == StepKind::kElsewhere) {
    if (!outside_->poll()) return false;
    served_elsewhere_ = outside_->served();
    if (served_elsewhere_) {
      ++s.counters.switch_operations;
      const coll::Place& place =
          coll::elsewhere_work(step) == coll::Elsewhere::kTake ? step.target : step.source;
      if (step.count != 0) {
        s.counters.switch_bytes +=
            static_cast<std::uint64_t>(buffers_.units(step.count, place) * buffers_.unit_bytes());
      }
    } else {
      ++s.counters.switch_fallbacks;
    }
    return true;
  }
  host::Status status;
  if (pending.request == nullptr) {
    if (!pending.over) return false;
    status = pending.status;
  } else {
    if (!pending.request->complete) return false;
    status = pending.request->status;
    s.requests.release(*pending.request);
  }
  note(status.error);
  if (step.kind == StepKind::kReceive && step.count != 0 &&
      status.bytes != buffers_.units(step.count, step.target) * buffers_.unit_bytes()) {
    note(s.host.err_truncate);  // ranks that do not agree how long the message is
    if (!firsts_.of.empty()) [[unlikely]]
      follow_sender(pending.step, firsts_.told(status.error == kSuccess ? status.bytes : 0));
  }
  return true;
}

std::int64_t CollectiveOp::room_bytes(std::uint32_t index, std::int64_t bytes) const {
  const FirstMessages::First* const first = firsts_.find(index);
  return first == nullptr ? bytes : first->room_bytes;
}

// Adds to what is pending, or changes it: nobody may hold on to any of it.
void CollectiveOp::follow_sender(std::uint32_t index, std::uint32_t told) {
  const FirstMessages::First* const first = firsts_.find(index);
  if (first == nullptr) return;
  p2p::Endpoint& s = owner_->endpoint;
  const Step& step = schedule_->steps[index];
  for (Pending& pending : pending_) {
    if (pending.step == kNoStep) continue;
    const Step& other = schedule_->steps[pending.step];
    const bool never_sent = other.kind == StepKind::kReceive && other.peer == step.peer &&
                            other.ordinal >= step.ordinal + told &&
                            other.ordinal < step.ordinal + first->messages;
    // It may order its messages otherwise as well, and then waits for nobody and tells nobody.
    const bool never_told =
        other.kind == StepKind::kReceive && other.peer == step.peer && other.count == 0;
    if (never_sent || never_told) recall(pending);
  }
  if (told <= first->messages) return;
  void* const bin = bin_.open();
  if (bin == nullptr) return note(s.host.err_no_mem);
  for (std::uint32_t ordinal = step.ordinal + first->messages; ordinal < step.ordinal + told;
       ++ordinal) {
    Pending dropped{nullptr, 0, nullptr, kNoStep};
    if (task_.comm->ours(step.peer)) {
      dropped.request = s.internal_message(RequestKind::recv, *task_.comm, task_.context, step.peer,
                                           static_cast<int>(ordinal), bin, MessageBin::kBytes,
                                           CollectiveBuffers::byte_layout());
      if (dropped.request == nullptr) continue;
      s.start_local_receive(*dropped.request);
    } else {
      s.host.irecv(bin, MessageBin::kBytes, s.host.byte_type, step.peer, tag_of(ordinal),
                   way_.host_comm, &dropped.host_request);
      if (dropped.host_request == 0) continue;
    }
    pending_.push_back(dropped);
  }
}

void CollectiveOp::recall(Pending& pending) {
  if (pending.request == nullptr) {
    if (pending.host_request != 0) owner_->endpoint.host.cancel(&pending.host_request);
  } else if (!pending.request->complete && pending.request->incoming == nullptr) {
    owner_->endpoint.matching.unpost(*pending.request);
    pending.request->status = host::Status{};
    pending.request->complete = true;
  }
}

void CollectiveOp::complete(std::uint32_t index) {
  if (log_ != nullptr) [[unlikely]] {
    const Step& step = schedule_->steps[index];
    const bool message = step.kind == StepKind::kSend || step.kind == StepKind::kReceive;
    log_->step(log_number_,
               {step, message && !task_.comm->ours(step.peer), begun_ns_[index], now_ns()});
  }
  run_.complete(index);
  if (watcher_ != nullptr) [[unlikely]]
    watcher_->step_done(index);
}

void CollectiveOp::note(int error) {
  if (error_ == kSuccess) error_ = error;
}

std::string CollectiveOp::describe() const {
  std::string text = name_of(*task_.call);
  text += " under way (call " + std::to_string(task_.context) + ")";
  if (waits_for_channel()) return text + ", waiting for earlier ones";
  if (waits_for_team()) return text + ", waiting until all ranks of the node have joined";
  if (arrival_ != nullptr) return text + ", " + arrival_->describe();
  if (!whole_) {
    text += ", " + std::string(task_.decision.algorithm->name) + ", " +
            std::to_string(run_.open_steps()) + " steps open";
    for (const Pending& pending : pending_) {
      if (pending.step == kNoStep) continue;
      const Step& step = schedule_->steps[pending.step];
      if (step.kind == StepKind::kNode) continue;
      if (step.kind == StepKind::kElsewhere) {
        text += "; waiting for a switch";
        continue;
      }
      text += step.kind == StepKind::kSend ? "; sending to rank " : "; receiving from rank ";
      text += std::to_string(step.peer);
    }
  }
  if (team_ != nullptr) text += "; " + team_->team().describe();
  return text;
}

void CollectiveOp::finish() {
  note(buffers_.finish());
  if (started_ns_ != 0 && !task_.call->internal) [[unlikely]]
    count();
  if (log_ != nullptr) [[unlikely]]
    log_->end_call(log_number_, now_ns());
  done_ = true;
}

void CollectiveOp::release() {
  buffers_.release();
  bin_.close();
  schedule_.reset();
  arrival_.reset();
  // A few of the team's operations at once are common, hundreds are not.
  if (works_.size() > 16) works_.resize(16);
  request = nullptr;
  kept.reset();
  own_team.reset();
}

}  // namespace od
