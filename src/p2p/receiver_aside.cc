// What the helper thread receives for a program that sits in a call of the host: messages whose
// receive is not known yet.
//
// A message is *taken aside* when its sender must not wait but the receive that it belongs to
// depends on what the host does (engine/lent_receives.cc). It stays among the unexpected messages,
// with its payload here; if that has not come whole when its receive is found, it is *parked* until
// it has. *Deferred* payload is complete and only has to be unpacked, by a thread that may call the
// host.

#include <new>
#include <utility>

#include "p2p/arrival.h"
#include "p2p/receiver.h"

namespace od::p2p {

namespace {

const LayoutRef& bytes_layout() {
  static const LayoutRef layout = [] {
    auto* made = new Layout;
    made->size = made->extent = made->block_bytes = 1;
    made->immortal = true;
    return LayoutRef(made);
  }();
  return layout;
}

}  // namespace

bool Receiver::take_aside(Unexpected& message) {
  if (message.from != Unexpected::Source::local || message.header.kind != Kind::stream) {
    return false;
  }
  message.data.reset(new (std::nothrow) unsigned char[message.bytes + 1]);
  if (message.data == nullptr) return false;  // the sender waits until the program is back
  auto aside = std::make_unique<Request>();
  aside->kind = RequestKind::recv;
  aside->layout = bytes_layout();
  aside->address = message.data.get();
  aside->count = aside->bytes = static_cast<std::int64_t>(message.bytes);
  const std::uint32_t peer = message.node_index;
  IncomingStreams::Take take = incoming_.take(peer, message.stream, *aside);
  if (take.how == Taken::cancelled) {
    links_.keep_frame(peer, message.stream.frame);
    matching_.remove_unexpected(message);
    matching_.free_unexpected(message);
    return true;
  }
  message.from = Unexpected::Source::aside;
  message.aside = std::move(aside);
  ++counters_.taken_aside;
  incoming_.start(take, peer, message.stream, message.header, *message.aside);
  return true;
}

void Receiver::deliver_aside(Unexpected& message, Request& receive) {
  if (!message.aside->complete) {
    receive.incoming = delivery_.elsewhere();
    parked_.push_back({std::move(message.aside), std::move(message.data), message.header,
                       message.bytes, &receive});
    return;
  }
  const int delivered = delivery_.deliver(message.data.get(), message.bytes, receive);
  delivery_.finish(receive, message.header, message.bytes, delivered);
}

bool Receiver::deliver_parked() {
  bool moved = false;
  for (std::size_t i = 0; i < parked_.size();) {
    Parked& parked = parked_[i];
    if (!parked.aside->complete) {
      ++i;
      continue;
    }
    parked.receive->incoming = nullptr;
    const int delivered = delivery_.deliver(parked.data.get(), parked.bytes, *parked.receive);
    delivery_.finish(*parked.receive, parked.header, parked.bytes, delivered);
    parked_.erase(parked_.begin() + static_cast<std::ptrdiff_t>(i));
    moved = true;
  }
  return moved;
}

}  // namespace od::p2p
