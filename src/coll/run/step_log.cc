// The records of steps, and their JSON.

#include "coll/run/step_log.h"

#include <fstream>
#include <utility>

#include "base/json_text.h"
#include "coll/plan/hierarchy/node_steps.h"
#include "coll/plan/hierarchy/nodes.h"
#include "coll/run/communicator.h"
#include "coll/run/operation.h"

namespace od {

using coll::StepKind;

std::uint64_t StepLog::begin_call(Call call) {
  call.number = first_ + calls_.size();
  calls_.push_back(std::move(call));
  if (calls_.size() > kMostCalls) forget();
  return calls_.back().number;
}

// The oldest call.
void StepLog::forget() {
  steps_ -= calls_.front().steps.size();
  calls_.pop_front();
  ++first_;
}

StepLog::Call* StepLog::find(std::uint64_t number) {
  return number < first_ ? nullptr : &calls_[static_cast<std::size_t>(number - first_)];
}

void StepLog::step(std::uint64_t number, const Call::Timed& timed) {
  Call* const call = find(number);
  if (call == nullptr) return;
  call->steps.push_back(timed);
  ++steps_;
  // The newest call stays, however many steps it has: it is what somebody wants to see.
  while (steps_ > kMostSteps && calls_.size() > 1) forget();
}

void StepLog::end_call(std::uint64_t number, std::uint64_t end_ns) {
  Call* const call = find(number);
  if (call != nullptr) call->end_ns = end_ns;
}

void StepLog::outlasted(std::uint64_t number, Outlasted what) {
  Call* const call = find(number);
  if (call != nullptr) call->outlasted = std::move(what);
}

namespace {

void write_outlasted(JsonWriter& json, const StepLog::Outlasted& what) {
  json.member("returned_ns", what.returned_ns);
  json.member("next_ns", what.next_ns);
  json.key("touches");
  json.open_array();
  for (const StepLog::Touch& touch : what.touches) {
    json.open_object();
    json.member("source", static_cast<int>(touch.source));
    json.member("offset", touch.offset);
    json.member("bytes", touch.bytes);
    json.member("touched_ns", touch.touched_ns);
    json.member("opened_ns", touch.opened_ns);
    json.close_object();
  }
  json.close_array();
}

void write_step(JsonWriter& json, const StepLog::Call& call, const StepLog::Call::Timed& timed) {
  const coll::Step& step = timed.step;
  json.open_object();
  json.member("rank", call.rank);
  json.member("what", coll::step_name(step));
  if (step.kind == StepKind::kSend || step.kind == StepKind::kReceive) {
    json.member("peer", step.peer);
  } else if (step.kind == StepKind::kNode) {
    json.member("leader", coll::node_leader(step));  // a position among the ranks of the node
    json.member("ordinal", static_cast<std::int64_t>(step.ordinal));
  }
  json.member("between_nodes", timed.between_nodes);
  json.member("segment", static_cast<int>(step.segment));
  json.member("bytes", step.count < 0 ? step.count : step.count * call.unit_bytes);
  json.member("begin_ns", timed.begin_ns);
  json.member("end_ns", timed.end_ns);
  json.close_object();
}

// Names the boot of a kernel, and with it the clock; empty where /proc does not show it.
std::string clock_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

std::string StepLog::json(int world_rank, int world_size) const {
  JsonWriter json;
  json.open_object();
  json.member("rank", world_rank);
  json.member("size", world_size);
  json.member("clock", clock_name());
  json.member("forgotten", first_);
  json.key("calls");
  json.open_array();
  for (const Call& call : calls_) {
    if (call.end_ns == 0) continue;
    json.open_object();
    json.member("number", call.number);
    json.member("collective", coll::info(call.collective).name);
    json.member("bytes", call.bytes);
    json.member("rank", call.rank);
    json.member("ranks", call.size);
    json.member("algorithm", call.whole ? "shared" : std::string(call.decision.algorithm->name));
    json.member("mode", call.whole ? "node" : coll::mode_name(call.decision.mode));
    json.member("begin_ns", call.begin_ns);
    json.member("end_ns", call.end_ns);
    json.key("node_of_rank");
    json.open_array();
    for (const int node : call.node_of_rank) json.value(node);
    json.close_array();
    json.key("steps");
    json.open_array();
    for (const Call::Timed& timed : call.steps) write_step(json, call, timed);
    json.close_array();
    if (call.outlasted.returned_ns != 0) write_outlasted(json, call.outlasted);
    json.close_object();
  }
  json.close_array();
  json.close_object();
  return json.take();
}

// Of an operation that begins.
void CollectiveOp::begin_log(StepLog& log) {
  const coll::Nodes& nodes = task_.comm->collectives->nodes();
  StepLog::Call call;
  call.collective = task_.call->collective;
  call.decision = task_.decision;
  call.whole = whole_ || arrival_ != nullptr;
  call.bytes = task_.bytes;
  call.unit_bytes = buffers_.unit_bytes();
  call.rank = task_.comm->rank;
  call.size = task_.comm->size;
  for (int rank = 0; rank < nodes.ranks(); ++rank) {
    call.node_of_rank.push_back(nodes.node_of(rank));
  }
  call.begin_ns = started_ns_;
  log_number_ = log.begin_call(std::move(call));
  begun_ns_.assign(schedule_ == nullptr ? 0 : schedule_->steps.size(), 0);
}

}  // namespace od
