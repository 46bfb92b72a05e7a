// Starting messages between the ranks of a node.

#include "p2p/endpoint.h"

namespace od::p2p {

Request* Endpoint::internal_message(RequestKind kind, Comm& comm, std::uint64_t context, int peer,
                                    int tag, void* address, std::int64_t count,
                                    const LayoutRef& layout) {
  Request* const request = requests.allocate();
  if (request == nullptr) return nullptr;
  prepare(*request, kind, address, count, layout, peer, tag, comm);
  request->context = context;
  request->blocking = true;  // nobody can cancel it
  request->status = host::Status{};
  return request;
}

int Endpoint::start_send(Request& request) {
  Comm& comm = *request.comm;
  const Payload payload = make_payload(request.address, request.count, request.layout);
  const auto index =
      static_cast<std::uint32_t>(comm.local_index[static_cast<std::size_t>(request.peer)]);
  request.status = host::Status{};
  MessageHeader header = header_for(comm, request.tag);
  header.context = request.context;
  if (index == my_index) {
    return transport->send_to_self(header, payload, request.mode == SendMode::synchronous, request);
  }
  const int error = transport->send(index, header, payload, request.mode, request);
  // Also of a blocking send, which may return before the last of its cells have been filled.
  if (transport->has_unfinished_sends()) requests.at_rest().disturb();
  return error;
}

void Endpoint::start_local_receive(Request& request) {
  request.status = host::Status{};
  while (Unexpected* message =
             matching.find_unexpected(request.context, request.peer, request.tag)) {
    matching.remove_unexpected(*message);
    ++counters.matched_unexpected;
    if (transport->deliver_unexpected(*message, request)) return;
  }
  matching.post(request);
}

}  // namespace od::p2p
