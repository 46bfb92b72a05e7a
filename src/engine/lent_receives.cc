// Receives that the host may have to serve, while the program sits in a blocking call of the host.
//
// Nobody can ask the host for messages then (wildcard.cc): the program's thread is inside, and only
// a host that was initialised for threads takes calls of another one. So before such a call the
// receives are *lent*: posted to the host as well, in their order, into the program's buffers.
// After the call they are recalled: cancelled in the host, and each has either been taken there or
// is ours alone again.
//
// A lent receive belongs to the host, which may match it at any time. As long as one is lent that
// accepts messages of any source its context is *held*: arriving local messages match nothing and
// wait among the unexpected ones, in order (Matching::hold). When the last one has come back they
// are matched in the order in which they arrived, as if they arrived then. So a receive cannot get
// two messages, and no message overtakes another of its sender.
//
// Held messages must not hold up their senders: a rank in a synchronous send, or one that cannot
// buffer any more, may be what the host call waits for. A message for which there would be a
// receive if the host took none is therefore taken aside (Receiver::take_aside) by the helper.
//
// A cancelled receive of the host that is in the middle of its message stays lent until the message
// is complete; so lent receives may outlive the call, and the rank's own progress asks for them.
// With MPI_THREAD_MULTIPLE nothing is lent: the helper asks the host itself.

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "engine/rank_state.h"

namespace od {

using host::kSuccess;
using p2p::Unexpected;

namespace {

// Questions to the host before receives are lent; more messages than that are found by the host.
constexpr int kPollsBefore = 64;

// While it exists errors of a communicator are returned: the program's error handler is called when
// the program asks for the receive, by the face.
class ErrorsReturned {
 public:
  ErrorsReturned(const host::HostTable& host, host::Handle comm) : host_(host), comm_(comm) {
    set_ = host_.errors_return(comm_, &before_) == kSuccess;
  }
  ~ErrorsReturned() {
    if (set_) host_.restore_errors(comm_, before_);
  }
  ErrorsReturned(const ErrorsReturned&) = delete;
  ErrorsReturned& operator=(const ErrorsReturned&) = delete;

 private:
  const host::HostTable& host_;
  host::Handle comm_;
  host::Handle before_ = 0;
  bool set_;
};

}  // namespace

void RankState::lend_receives() {
  if (matching.host_candidates().empty()) return;
  for (int i = 0; i < kPollsBefore && poll_host(); ++i) {
  }
  // In order, so that the host matches in order; after one that it cannot have, none.
  for (Request* receive : matching.host_candidates()) {
    if (receive->lent) continue;  // called back before, but still on its way
    if (!lend(*receive)) break;
  }
}

bool RankState::lend(Request& receive) {
  LentReceive lent;
  lent.request = &receive;
  char* buffer = nullptr;
  if (!p2p::is_contiguous(*receive.layout, receive.address, receive.count, &buffer)) {
    lent.staging.reset(new (std::nothrow) char[static_cast<std::size_t>(receive.bytes) + 1]);
    if (lent.staging == nullptr) return false;
    buffer = lent.staging.get();
  }
  Comm& comm = *receive.comm;
  if (host.irecv(buffer, receive.bytes, host.byte_type, receive.peer, receive.tag, comm.handle,
                 &lent.host_request) != kSuccess) {
    return false;
  }
  lent.context = receive.context;
  lent.comm = &comm;
  receive.lent = true;
  lent.holds = receive.peer == host::kAnySource;
  if (lent.holds) matching.hold(receive.context);
  ++comm.lent;
  ++counters.receives_lent;
  lent_receives.push_back(std::move(lent));
  return true;
}

void RankState::recall_receives() {
  for (LentReceive& lent : lent_receives) {
    if (lent.recalled) continue;
    lent.recalled = true;
    host.cancel(&lent.host_request);
  }
  settle_lent();
}

bool RankState::settle_lent() {
  std::size_t left = 0;  // of those before `i`, which have moved together
  for (std::size_t i = 0; i < lent_receives.size(); ++i) {
    if (!settle(lent_receives[i])) {
      if (left != i) lent_receives[left] = std::move(lent_receives[i]);
      ++left;
      continue;
    }
    const LentReceive lent = std::move(lent_receives[i]);
    --lent.comm->lent;
    if (lent.holds && matching.unhold(lent.context)) match_held(lent.context);
  }
  const bool moved = left != lent_receives.size();
  lent_receives.resize(left);
  return moved;
}

// Whether it has come back, one way or the other.
bool RankState::settle(LentReceive& lent) {
  if (!lent.recalled) return false;
  Request& receive = *lent.request;
  bool flag = false;
  host::Status status;
  int error;
  {
    // MPICH calls the handler of the world for what goes wrong with a request.
    const ErrorsReturned returned(host, lent.comm->handle);
    const ErrorsReturned in_world(host, host.comm_world);
    error = host.test(&lent.host_request, &flag, &status);
  }
  if (!flag && error == kSuccess) return false;
  receive.lent = false;
  if (error == kSuccess && status.cancelled) {
    if (receive.cancel_requested) {
      matching.unpost(receive);
      ++counters.cancels;
      receive.status = host::Status{};
      receive.status.cancelled = true;
      receive.complete = true;
    }
    return true;
  }
  matching.unpost(receive);
  if (receive.peer == host::kAnySource) ++counters.wildcard_from_host;
  finish_host_receive(receive, status, error, lent.staging.get());
  return true;
}

void RankState::hand_over_receives() {
  if (matching.host_candidates().empty()) return;
  lend_receives();
  for (LentReceive& lent : lent_receives) {
    host.request_free(&lent.host_request);
    lent.staging.release();  // the host may write there until the process ends
  }
  lent_receives.clear();
}

void RankState::match_held(std::uint64_t context) {
  for (Unexpected* message : matching.unexpected_in(context)) {
    Request* receive = matching.peek_posted(context, message->header.source, message->header.tag);
    if (receive == nullptr) continue;
    matching.remove_unexpected(*message);
    if (message->from == Unexpected::Source::host) {
      matching.unpost(*receive);
      const int error = receive_from_host(*message, *receive);
      if (error != kSuccess) {
        receive->status.error = error;
        receive->complete = true;
      }
      continue;
    }
    ++counters.matched_unexpected;
    if (transport->deliver_unexpected(*message, *receive)) matching.unpost(*receive);
  }
}

bool RankState::take_held_aside() {
  bool moved = false;
  std::uint64_t last = 0;
  for (const LentReceive& lent : lent_receives) {
    if (!lent.holds || lent.context == last) continue;
    last = lent.context;
    // Which receives the messages would get if the host took none of them.
    std::vector<Request*> free = matching.posted_in(lent.context);
    for (Unexpected* message : matching.unexpected_in(lent.context)) {
      const auto it = std::find_if(free.begin(), free.end(), [&](const Request* receive) {
        return p2p::Matching::accepts(*receive, lent.context, message->header.source,
                                      message->header.tag);
      });
      if (it == free.end()) continue;
      free.erase(it);
      moved |= transport->take_aside(*message);
    }
  }
  return moved;
}

}  // namespace od
