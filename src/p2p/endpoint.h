// A rank among the ranks of its node: what it exchanges messages with them by, for whoever sends
// and receives (the program's calls, steps of collectives).
//
// Used under the rank's lock.
#ifndef OVERDRIVE_P2P_ENDPOINT_H_
#define OVERDRIVE_P2P_ENDPOINT_H_

#include <cstdint>
#include <memory>

#include "config/settings.h"
#include "host/host_table.h"
#include "node/node.h"
#include "node/wait.h"
#include "observe/counters.h"
#include "p2p/comm.h"
#include "p2p/matching.h"
#include "p2p/request_slab.h"
#include "p2p/transport.h"

namespace od::p2p {

inline MessageHeader header_for(const Comm& comm, int tag) {
  MessageHeader header;
  header.context = comm.context;
  header.tag = tag;
  header.source = static_cast<std::uint32_t>(comm.rank);
  return header;
}

// Part of each of its callers: the arguments would take as long as what it does.
[[gnu::always_inline]] inline void prepare(Request& request, RequestKind kind, const void* buf,
                                           std::int64_t count, const LayoutRef& layout, int peer,
                                           int tag, Comm& comm) {
  request.kind = kind;
  request.complete = false;
  request.address = const_cast<void*>(buf);
  request.count = count;
  request.layout = layout;
  request.comm = &comm;
  request.context = comm.context;
  request.peer = peer;
  request.tag = tag;
  request.bytes = count * layout->size;
  request.active = true;
}

struct Endpoint {
  Endpoint(const host::HostTable& host_in, const config::Settings& settings_in)
      : host(host_in), settings(settings_in) {}

  host::HostTable host;
  config::Settings settings;
  std::unique_ptr<node::Node> node;
  // Equal on all ranks of the node. With more ranks than cores ranks sleep all the time, and the
  // system call that spares publishers their fence would cost more than the fences.
  node::WakeMode wake_mode;
  observe::Counters counters;
  RequestSlab requests;
  Matching matching;
  std::unique_ptr<Transport> transport;
  std::uint32_t my_index = 0;

  // A message of Overdrive's own in a context of its own; null if there are too many.
  // start_send() or start_local_receive() starts it.
  Request* internal_message(RequestKind kind, Comm& comm, std::uint64_t context, int peer, int tag,
                            void* address, std::int64_t count, const LayoutRef& layout);
  int start_send(Request& request);
  // Of a message from a local rank, in a context in which the host has no part.
  void start_local_receive(Request& request);
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_ENDPOINT_H_
