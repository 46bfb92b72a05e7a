// Probe, matched probe and receiving what they matched.

#include "engine/engine.h"
#include "engine/rank_state.h"

namespace od {

using p2p::Unexpected;

namespace {

host::Status status_of(const Unexpected& message) {
  host::Status status;
  status.source = static_cast<int>(message.header.source);
  status.tag = message.header.tag;
  status.bytes = static_cast<std::int64_t>(message.bytes);
  return status;
}

}  // namespace

p2p::Unexpected* RankState::probe(int source, int tag, Comm& comm) {
  progress();
  if (comm.lent != 0) [[unlikely]] {
    // Messages may belong to receives on their way back from the host.
    settle_lent();
    if (comm.lent != 0) return nullptr;
  }
  while (Unexpected* message = matching.find_unexpected(comm.context, source, tag)) {
    if (message->from == Unexpected::Source::host || transport->pin(*message)) {
      ++counters.probes;
      return message;
    }
  }
  if (!host_may_serve(comm, source)) return nullptr;
  bool came = false;
  return fetch_from_host(source, tag, comm, &came);
}

bool Rank::iprobe(int source, int tag, Comm& comm, host::Status* status) {
  RankState& s = *state_;
  Guard guard(s);
  const Unexpected* message = s.probe(source, tag, comm);
  if (message == nullptr) return false;
  *status = status_of(*message);
  return true;
}

void Rank::probe(int source, int tag, Comm& comm, host::Status* status) {
  WaitLoop loop(*this, "MPI_Probe", RankState::host_may_serve(comm, source));
  while (!iprobe(source, tag, comm, status)) loop.step();
}

bool Rank::improbe(int source, int tag, Comm& comm, Request** out, host::Status* status) {
  RankState& s = *state_;
  Guard guard(s);
  Unexpected* message = s.probe(source, tag, comm);
  if (message == nullptr) return false;
  Request* request = s.requests.allocate();
  if (request == nullptr) return false;
  *status = status_of(*message);
  s.matching.remove_unexpected(*message);
  request->kind = RequestKind::message;
  request->comm = &comm;
  request->unexpected = message;
  ++comm.references;
  *out = request;
  return true;
}

void Rank::mprobe(int source, int tag, Comm& comm, Request** message, host::Status* status) {
  WaitLoop loop(*this, "MPI_Mprobe", RankState::host_may_serve(comm, source));
  while (!improbe(source, tag, comm, message, status)) loop.step();
}

int Rank::imrecv(void* buf, std::int64_t count, const p2p::LayoutRef& layout, Request& message,
                 Request** out) {
  RankState& s = *state_;
  Guard guard(s);
  // The message's slot becomes the receive: same communicator, same reference.
  Unexpected* matched = message.unexpected;
  message.unexpected = nullptr;
  message.kind = RequestKind::recv;
  message.active = true;
  message.complete = false;
  message.address = buf;
  message.count = count;
  message.layout = layout;
  message.bytes = count * layout->size;
  message.peer = static_cast<int>(matched->header.source);
  message.tag = matched->header.tag;
  *out = &message;
  if (matched->from == Unexpected::Source::host) return s.receive_from_host(*matched, message);
  ++s.counters.matched_unexpected;
  s.transport->deliver_unexpected(*matched, message);  // pinned: cannot have been cancelled
  return host::kSuccess;
}

int Rank::mrecv(void* buf, std::int64_t count, const p2p::LayoutRef& layout, Request& message,
                host::Status* status) {
  Request* receive = nullptr;
  int error = imrecv(buf, count, layout, message, &receive);
  if (error != host::kSuccess) return error;
  wait(*receive);
  *status = receive->status;
  error = receive->status.error;
  release(*receive);
  return error;
}

}  // namespace od
