// Runs the schedule of one collective.

#include "engine/collective_op.h"

#include <utility>

#include "engine/rank_state.h"

namespace od {

using coll::Step;
using coll::StepKind;
using host::kSuccess;

int CollectiveOp::begin(RankState& state, const Way& way,
                        std::shared_ptr<const coll::Schedule> schedule,
                        std::int64_t units_per_unit) {
  state_ = &state;
  way_ = way;
  schedule_ = std::move(schedule);
  error_ = kSuccess;
  host_messages_ = way.host_comm != 0;
  done_ = false;
  const int error = buffers_.begin_scratch(schedule_->scratch_units, units_per_unit);
  if (error != kSuccess) return error;
  run_.begin(*schedule_);
  return kSuccess;
}

bool CollectiveOp::advance() {
  bool moved = false;
  for (std::size_t i = 0; i < pending_.size();) {
    if (!finished(pending_[i])) {
      ++i;
      continue;
    }
    run_.complete(pending_[i].step);
    pending_[i] = pending_.back();
    pending_.pop_back();
    moved = true;
  }
  std::uint32_t step;
  while (run_.take(step)) {
    moved = true;
    start(step);
  }
  if (run_.done()) finish();
  return moved;
}

void CollectiveOp::start(std::uint32_t index) {
  const Step& step = schedule_->steps[index];
  switch (step.kind) {
    case StepKind::kSend:
      send(index);
      return;
    case StepKind::kReceive:
      receive(index);
      return;
    case StepKind::kCopy:
      note(buffers_.copy(buffers_.address(step.target), buffers_.address(step.source),
                         buffers_.units(step.count, step.source)));
      break;
    case StepKind::kReduce:
      note(buffers_.reduce(buffers_.address(step.target), buffers_.address(step.source),
                           buffers_.address(step.right), buffers_.units(step.count, step.source)));
      break;
    case StepKind::kNode:
    case StepKind::kJoin:
      break;
  }
  run_.complete(index);
}

void CollectiveOp::send(std::uint32_t index) {
  RankState& s = *state_;
  const Step& step = schedule_->steps[index];
  // Messages without content are steps as well; but of a block that turns out to be empty neither
  // side sends or expects anything.
  const std::int64_t units = step.count == 0 ? 0 : buffers_.units(step.count, step.source);
  if (step.count == coll::kWholeBlock && units == 0) {
    run_.complete(index);
    return;
  }
  char* const address = step.count == 0 ? nullptr : buffers_.address(step.source);
  const std::int64_t bytes = units * buffers_.unit_bytes();
  const Comm& comm = *way_.comm;
  if (!comm.ours(step.peer)) {
    const auto tag = (way_.first_tag + static_cast<std::int32_t>(step.ordinal)) & way_.tag_mask;
    host::Handle started = 0;
    const bool plain = buffers_.units_are_contiguous();
    note(s.host.isend(address + (plain && address != nullptr ? buffers_.unit_layout()->lower : 0),
                      plain ? bytes : units, plain ? s.host.byte_type : buffers_.host_type(),
                      step.peer, tag, way_.host_comm, &started));
    if (started == 0) {
      run_.complete(index);
    } else {
      pending_.push_back({nullptr, started, index});
    }
    return;
  }
  const auto node_index =
      static_cast<std::uint32_t>(comm.local_index[static_cast<std::size_t>(step.peer)]);
  p2p::MessageHeader header;
  header.context = way_.context;
  header.tag = static_cast<std::int32_t>(step.ordinal);
  header.source = static_cast<std::uint32_t>(comm.rank);
  if (buffers_.units_are_contiguous() && !s.settings.verify &&
      bytes <= static_cast<std::int64_t>(s.settings.inline_max_bytes)) {
    header.kind = p2p::Kind::inline_data;
    const char* const from = address == nullptr ? nullptr : address + buffers_.unit_layout()->lower;
    if (s.transport->try_send_inline(node_index, header, from, static_cast<std::uint32_t>(bytes))) {
      run_.complete(index);
      return;
    }
  }
  Request* const message = new_message(RequestKind::send, step, address, units);
  if (message == nullptr) {
    note(s.host.err_no_mem);
    run_.complete(index);
    return;
  }
  note(s.transport->send(node_index, header,
                         p2p::make_payload(address, units, buffers_.unit_layout()),
                         SendMode::standard, *message));
  if (message->complete || error_ != kSuccess) {
    s.requests.release(*message);
    run_.complete(index);
  } else {
    pending_.push_back({message, 0, index});
  }
}

void CollectiveOp::receive(std::uint32_t index) {
  RankState& s = *state_;
  const Step& step = schedule_->steps[index];
  const std::int64_t units = step.count == 0 ? 0 : buffers_.units(step.count, step.target);
  if (step.count == coll::kWholeBlock && units == 0) {
    run_.complete(index);
    return;
  }
  char* const address = step.count == 0 ? nullptr : buffers_.address(step.target);
  if (!way_.comm->ours(step.peer)) {
    const auto tag = (way_.first_tag + static_cast<std::int32_t>(step.ordinal)) & way_.tag_mask;
    host::Handle started = 0;
    const bool plain = buffers_.units_are_contiguous();
    note(s.host.irecv(address + (plain && address != nullptr ? buffers_.unit_layout()->lower : 0),
                      plain ? units * buffers_.unit_bytes() : units,
                      plain ? s.host.byte_type : buffers_.host_type(), step.peer, tag,
                      way_.host_comm, &started));
    if (started == 0) {
      run_.complete(index);
    } else {
      pending_.push_back({nullptr, started, index});
    }
    return;
  }
  Request* const message = new_message(RequestKind::recv, step, address, units);
  if (message == nullptr) {
    note(s.host.err_no_mem);
    run_.complete(index);
    return;
  }
  note(s.start_receive(*message));
  pending_.push_back({message, 0, index});
  if (message->complete && finished(pending_.back())) {
    pending_.pop_back();
    run_.complete(index);
  }
}

Request* CollectiveOp::new_message(RequestKind kind, const Step& step, char* address,
                                   std::int64_t units) {
  Request* const message = state_->requests.allocate();
  if (message == nullptr) return nullptr;
  message->kind = kind;
  message->complete = false;
  message->blocking = true;  // nobody can cancel it
  message->active = true;
  message->address = address;
  message->count = units;
  message->layout = buffers_.unit_layout();
  message->bytes = units * buffers_.unit_bytes();
  message->comm = way_.comm;
  message->context = way_.context;
  message->peer = step.peer;
  message->tag = static_cast<int>(step.ordinal);
  message->status = host::Status{};
  return message;
}

// Whether a message has arrived or left; notes what went wrong with it.
bool CollectiveOp::finished(Pending& pending) {
  RankState& s = *state_;
  const Step& step = schedule_->steps[pending.step];
  host::Status status;
  if (pending.request == nullptr) {
    bool flag = false;
    if (s.host.test(&pending.host_request, &flag, &status) == kSuccess && !flag) return false;
  } else {
    if (!pending.request->complete) return false;
    status = pending.request->status;
    s.requests.release(*pending.request);
  }
  note(status.error);
  if (step.kind == StepKind::kReceive && step.count != 0 &&
      status.bytes != buffers_.units(step.count, step.target) * buffers_.unit_bytes()) {
    note(s.host.err_truncate);  // ranks that do not agree how long the message is
  }
  return true;
}

void CollectiveOp::note(int error) {
  if (error_ == kSuccess) error_ = error;
}

void CollectiveOp::finish() {
  note(buffers_.finish());
  done_ = true;
}

void CollectiveOp::release() {
  buffers_.release();
  schedule_.reset();
  request = nullptr;
  kept.reset();
}

}  // namespace od
