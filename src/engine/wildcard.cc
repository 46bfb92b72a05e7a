// Receives that the host may have to serve: wildcards on communicators that span nodes.
//
// Such a receive is not posted to the host while the rank can ask it (lent_receives.cc): it could
// not be taken back reliably when a local message matches first. It stays in the rank's own queue,
// in order with all others, and the host is asked by matched probes. While one is pending, every
// later receive or probe of that communicator comes here as well (Comm::host_ordered), so nothing
// can overtake it. A message that the host hands out goes to the oldest posted receive that accepts
// it; between the question for one receive and the answer an older one may have become eligible.
//
// Messages of one sender must leave the host in their order as far as one receive could take
// either. A question for one tag passes over messages with others, which may have come since an
// older receive of any tag was asked for. So while there is such a receive, questions that could be
// answered by its source ask for any tag. Otherwise they ask for their own: what nobody here wants
// may be the host's (its MPI_Intercomm_create takes tags of the program's). And MPI_Iprobe leaves
// in the host what it finds there.

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "engine/rank_state.h"

namespace od {

int RankState::start_host_receive(host::Handle message, std::int64_t bytes, Request& receive) {
  ++counters.wildcard_from_host;
  char* buffer = nullptr;
  std::unique_ptr<char[]> staging;
  // A message that is too long must not be an error of the host: it would call the program's error
  // handler, now, and the completion of the receive would call it again.
  const std::int64_t room = std::max(receive.bytes, bytes);
  if (bytes > receive.bytes ||
      !p2p::is_contiguous(*receive.layout, receive.address, receive.count, &buffer)) {
    staging.reset(new (std::nothrow) char[static_cast<std::size_t>(room) + 1]);
    if (staging == nullptr) return host.err_no_mem;
    buffer = staging.get();
  }
  const int error = host.imrecv(buffer, room, host.byte_type, &message, &receive.host_request);
  if (error != host::kSuccess) return error;
  host_receiving.push_back({&receive, std::move(staging)});
  return host::kSuccess;
}

int RankState::receive_from_host(p2p::Unexpected& message, Request& receive) {
  const host::Handle host_message = message.host_message;
  const auto bytes = static_cast<std::int64_t>(message.bytes);
  --receive.comm->host_stashed;
  matching.free_unexpected(message);
  return start_host_receive(host_message, bytes, receive);
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
    const int error = start_host_receive(message, status.bytes, *receive);
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

void RankState::finish_host_receive(Request& receive, const host::Status& status, int error,
                                    const char* staging) {
  const int delivered =
      staging != nullptr ? transport->deliver(staging, status.bytes, receive) : host::kSuccess;
  receive.status = status;
  receive.status.error = error != host::kSuccess ? error : delivered;
  if (error == host::kSuccess && status.bytes > receive.bytes) {
    receive.status.error = host.err_truncate;
    receive.status.bytes = receive.bytes;
    ++counters.truncations;
  }
  receive.host_request = 0;
  ++counters.receives_host;
  receive.complete = true;
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
    finish_host_receive(receive, status, error, host_receiving[i].staging.get());
    host_receiving.erase(host_receiving.begin() + static_cast<std::ptrdiff_t>(i));
    moved = true;
  }
  return moved;
}

int RankState::tag_to_ask_for(int source, int tag, const Comm& comm, std::size_t older) const {
  if (tag == host::kAnyTag || older == 0 || matching.host_candidates_of_any_tag() == 0) [[likely]]
    return tag;
  for (std::size_t i = 0; i < older; ++i) {
    const Request& receive = *matching.host_candidates()[i];
    if (receive.comm == &comm && receive.tag == host::kAnyTag &&
        (receive.peer == source || receive.peer == host::kAnySource ||
         source == host::kAnySource)) {
      return host::kAnyTag;
    }
  }
  return tag;
}

bool RankState::poll_host() {
  bool moved = false;
  if (transport->has_deferred()) [[unlikely]] {
    transport->unpack_deferred();
    moved = true;
  }
  moved |= advance_host_receives();
  if (!lent_receives.empty()) [[unlikely]]
    moved |= settle_lent();
  // In turn: a look at thousands would leave no time for anything else.
  constexpr std::size_t kLooks = 64;
  ++polls_of_host;
  for (std::size_t looks = std::min(kLooks, matching.host_candidates().size()); looks != 0;
       --looks) {
    if (matching.host_candidates().empty()) break;
    moved |= ask_for_next();
  }
  return moved;
}

// By index over a moving list: a message found takes its receive out of it.
bool RankState::ask_for_next() {
  // So many receives are asked for one by one; for more a single question comes first.
  constexpr int kFew = 4;
  if (candidate_turn >= matching.host_candidates().size()) candidate_turn = 0;
  Request& receive = *matching.host_candidates()[candidate_turn];
  Comm& comm = *receive.comm;
  // What comes may be older than what a lent receive is about to get.
  if (comm.lent != 0) [[unlikely]] {
    ++candidate_turn;
    return false;
  }
  if (comm.host_candidates > kFew && comm.asked_in_poll != polls_of_host) {
    comm.asked_in_poll = polls_of_host;
    return take_what_is_shown(comm);
  }
  bool came = false;
  if (comm.asked_in_poll != polls_of_host || comm.host_has_others) {
    const int tag = tag_to_ask_for(receive.peer, receive.tag, comm, candidate_turn);
    fetch_from_host(receive.peer, tag, comm, &came);
  }
  if (!came) ++candidate_turn;
  return came;
}

// Takes messages out of the host as long as the one that it shows first is for a receive here.
// Notes whether it stops at one that is not: others may lie behind that.
bool RankState::take_what_is_shown(Comm& comm) {
  bool moved = false;
  for (;;) {
    bool shown = false;
    host::Status status;
    ++counters.host_polls;
    const int error = host.iprobe(host::kAnySource, host::kAnyTag, comm.handle, &shown, &status);
    // Some rank may be gone: that says nothing about messages of others.
    comm.host_has_others = error != host::kSuccess;
    if (error != host::kSuccess || !shown) return moved;
    bool came = false;
    if (matching.peek_posted(comm.context, static_cast<std::uint32_t>(status.source), status.tag) !=
        nullptr) {
      fetch_from_host(status.source, status.tag, comm, &came);
    }
    if (!came) {
      comm.host_has_others = true;
      return moved;
    }
    moved = true;
  }
}

}  // namespace od
