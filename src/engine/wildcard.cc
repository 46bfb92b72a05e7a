// Receives that the host may have to serve: wildcards on communicators that span nodes.
//
// Such a receive is never posted to the host, where it could not be taken back reliably when a
// local message matches first. It stays in the rank's own queue, in order with all others, and the
// host is asked by matched probes. While one is pending, every later receive or probe of that
// communicator comes here as well (Comm::host_ordered), so nothing can overtake it. A message that
// the host hands out goes to the oldest posted receive that accepts it; between the question for
// one receive and the answer an older one may have become eligible.

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "engine/rank_state.h"

namespace od {

int RankState::start_host_receive(host::Handle message, Request& receive) {
  ++counters.wildcard_from_host;
  char* buffer = nullptr;
  std::unique_ptr<char[]> staging;
  if (!p2p::is_contiguous(*receive.layout, receive.address, receive.count, &buffer)) {
    staging.reset(new (std::nothrow) char[static_cast<std::size_t>(receive.bytes) + 1]);
    if (staging == nullptr) return host.err_no_mem;
    buffer = staging.get();
  }
  const int error =
      host.imrecv(buffer, receive.bytes, host.byte_type, &message, &receive.host_request);
  if (error != host::kSuccess) return error;
  host_receiving.push_back({&receive, std::move(staging)});
  return host::kSuccess;
}

int RankState::receive_from_host(p2p::Unexpected& message, Request& receive) {
  const host::Handle host_message = message.host_message;
  --receive.comm->host_stashed;
  matching.free_unexpected(message);
  return start_host_receive(host_message, receive);
}

p2p::Unexpected* RankState::fetch_from_host(int source, int tag, Comm& comm, bool* moved) {
  bool flag = false;
  host::Handle message = 0;
  host::Status status;
  ++counters.host_polls;
  if (host.improbe(source, tag, comm.handle, &flag, &message, &status) != host::kSuccess || !flag) {
    return nullptr;
  }
  *moved = true;
  const auto from = static_cast<std::uint32_t>(status.source);
  if (Request* receive = matching.peek_posted(comm.context, from, status.tag)) {
    matching.unpost(*receive);
    const int error = start_host_receive(message, *receive);
    if (error != host::kSuccess) {
      receive->status.error = error;
      receive->complete = true;
    }
    return nullptr;
  }
  p2p::Unexpected* stashed = matching.new_unexpected();
  stashed->from = p2p::Unexpected::Source::host;
  stashed->header.context = comm.context;
  stashed->header.source = from;
  stashed->header.tag = status.tag;
  stashed->bytes = static_cast<std::uint64_t>(status.bytes);
  stashed->host_message = message;
  matching.add_unexpected(*stashed);
  ++comm.host_stashed;
  return stashed;
}

bool RankState::advance_host_receives() {
  bool moved = false;
  for (std::size_t i = 0; i < host_receiving.size();) {
    Request& receive = *host_receiving[i].request;
    bool flag = false;
    host::Status status;
    const int error = host.test(&receive.host_request, &flag, &status);
    if (!flag && error == host::kSuccess) {
      ++i;
      continue;
    }
    int delivered = host::kSuccess;
    if (host_receiving[i].staging != nullptr) {
      delivered = transport->deliver(host_receiving[i].staging.get(), status.bytes, receive);
    }
    receive.status = status;
    receive.status.error = error != host::kSuccess ? error : delivered;
    receive.host_request = 0;
    receive.complete = true;
    ++counters.receives_host;
    host_receiving.erase(host_receiving.begin() + static_cast<std::ptrdiff_t>(i));
    moved = true;
  }
  return moved;
}

bool RankState::poll_host() {
  bool moved = advance_host_receives();
  // By index over a moving list: a message found takes its receive out of it.
  for (std::size_t i = 0; i < matching.host_candidates().size();) {
    Request& receive = *matching.host_candidates()[i];
    bool came = false;
    fetch_from_host(receive.peer, receive.tag, *receive.comm, &came);
    if (came) {
      moved = true;
    } else {
      ++i;
    }
  }
  return moved;
}

}  // namespace od
