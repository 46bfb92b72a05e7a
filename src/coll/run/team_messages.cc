// Messages of a team's exchanges as requests of the transport.

#include "coll/run/team_messages.h"

#include "coll/run/buffers.h"

namespace od {

namespace {

// Tags are not negative, and 0 is taken.
int tag_of(std::uint64_t exchange) {
  constexpr std::uint64_t kTags = std::uint64_t{1} << 30;
  return 1 + static_cast<int>(exchange % kTags);
}

}  // namespace

Request* TeamMessages::prepare(RequestKind kind, std::uint64_t exchange, int member, void* address,
                               std::uint64_t bytes) {
  return endpoint_.internal_message(
      kind, comm_, context_, members_[static_cast<std::size_t>(member)], tag_of(exchange), address,
      static_cast<std::int64_t>(bytes), CollectiveBuffers::byte_layout());
}

bool TeamMessages::send(std::uint64_t exchange, int member, const std::byte* from,
                        std::uint64_t bytes) {
  // Sources are not written.
  Request* const message =
      prepare(RequestKind::send, exchange, member, const_cast<std::byte*>(from), bytes);
  if (message == nullptr) return false;
  if (endpoint_.start_send(*message) != host::kSuccess) {
    endpoint_.requests.release(*message);
    return false;
  }
  place(sends_, exchange) = message;
  ++endpoint_.counters.team_messages;
  return true;
}

bool TeamMessages::receive(std::uint64_t exchange, int member, std::byte* to, std::uint64_t bytes) {
  Request* const message = prepare(RequestKind::recv, exchange, member, to, bytes);
  if (message == nullptr) return false;
  endpoint_.start_local_receive(*message);
  place(receives_, exchange) = message;
  return true;
}

bool TeamMessages::over(Request*& message) {
  if (message == nullptr) return true;
  if (!message->complete) return false;
  endpoint_.requests.release(*message);
  message = nullptr;
  return true;
}

}  // namespace od
