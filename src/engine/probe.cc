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

p2p::Unexpected* RankState::probe_here(int source, int tag, Comm& comm) {
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
  return nullptr;
}

p2p::Unexpected* RankState::probe(int source, int tag, Comm& comm) {
  Unexpected* found = probe_here(source, tag, comm);
  if (found != nullptr || comm.lent != 0 || !host_may_serve(comm, source)) return found;
  for (bool came = true; came;) {
    came = false;
    // What is not for us goes to an older receive, or stays here in order.
    const int asked = tag_to_ask_for(source, tag, comm, matching.host_candidates().size());
    found = fetch_from_host(source, asked, comm, &came);
    if (found != nullptr && (tag == host::kAnyTag || tag == found->header.tag)) return found;
  }
  return nullptr;
}

bool RankState::probe_host(int source, int tag, Comm& comm, host::Status* status) {
  if (comm.lent != 0 || !host_may_serve(comm, source)) return false;
  bool flag = false;
  do {
    ++counters.host_polls;
    if (host.iprobe(source, tag, comm.handle, &flag, status) != host::kSuccess || !flag) {
      return false;
    }
    if (matching.peek_posted(comm.context, static_cast<std::uint32_t>(status->source),
                             status->tag) == nullptr) {
      ++counters.probes;
      return true;
    }
    // It belongs to a receive that was posted before.
  } while (poll_host());
  return false;
}

bool Rank::iprobe(int source, int tag, Comm& comm, host::Status* status) {
  RankState& s = *state_;
  Guard guard(s);
  const Unexpected* message = s.probe_here(source, tag, comm);
  if (message == nullptr) return s.probe_host(source, tag, comm, status);
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
